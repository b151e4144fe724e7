"""What a branch consists of, and what of it is read for a collection at a version.

Main alone is a branch of one layer, so that everything that reads knows layers only.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import msgspec

from naksha.model import limits
from naksha.model.errors import CollectionNotFound, InvalidArgument, LimitExceeded, NotFound
from naksha.model.transaction import MAIN
from naksha.model.version import Version, VersionSelector
from naksha.spi.storage import Layer
from naksha.sqlite.read import versions
from naksha.sqlite.read.rows import Collection, collection_of
from naksha.sqlite.sql import queries

Layers = tuple[Layer, ...]
MAIN_ONLY: Final[Layers] = (Layer(MAIN, None),)


@dataclass(frozen=True, slots=True)
class Level:
    """A layer of one collection: its rows, the transaction that these are read at (None: HEAD),
    and the table numbers of the layers above it that have ids of their own."""

    collection: Collection
    at: int | None
    masks: tuple[int, ...] = ()


def checked(layers: Sequence[Layer]) -> Layers:
    """The layers of a branch, or what is wrong with them."""
    if not layers or layers[-1].overlay != MAIN:
        raise InvalidArgument("The last layer of a branch is main", field="layers")
    if len(layers) > limits.LAYERS_MAX:
        raise LimitExceeded(f"{len(layers)} layers, more than {limits.LAYERS_MAX}", field="layers")
    numbers = [layer.overlay for layer in layers]
    if min(numbers[:-1], default=1) <= MAIN or len(set(numbers)) < len(numbers):
        raise InvalidArgument("Above main are overlays, each of them once", field="layers")

    below = [layer.txn for layer in layers[1:] if layer.txn is not None]
    if len(below) < len(layers) - 1:
        raise InvalidArgument("Below the top a layer is read at a transaction", field="layers")
    if below != sorted(below, reverse=True):
        raise InvalidArgument("No layer began after the one above it", field="layers")
    return tuple(layers)


def collection_on(
    connection: sqlite3.Connection, layers: Layers, name: str, *, dropped: bool = False
) -> Collection:
    """The collection as main has it, unless it was made after the branch began."""
    found = collection_of(connection, name, dropped=dropped)
    if not is_seen(layers, found):
        raise CollectionNotFound(f"No collection {name!r} on the branch", collection_id=name)
    return found


def is_seen(layers: Layers, c: Collection) -> bool:
    """Whether the collection was there when the branch began."""
    begin = layers[-1].txn
    return begin is None or c.created <= begin


def resolve(
    connection: sqlite3.Connection,
    layers: Layers,
    at: VersionSelector,
    collection: str | None = None,
) -> Version:
    """The version meant; Expired when something that it needs of the collection is gone."""
    version = versions.resolve(connection, at)
    if collection is not None:
        known = collection_on(connection, layers, collection)
        readable(connection, layers, known, version.txn)
    return version


def readable(
    connection: sqlite3.Connection, layers: Layers, c: Collection, at: int | None
) -> list[Level]:
    """What is read of each layer, topmost first; Expired when something of it is gone."""
    found = levels(connection, layers, c, at)
    for level in found:
        if level.at is not None:
            versions.check_history(connection, level.collection, level.at)
        if level.at:
            versions.check_log(connection, level.at)
    return found


def check_kept_since(connection: sqlite3.Connection, found: Sequence[Level], txn: int) -> None:
    """Expired when states that ended after a transaction are gone."""
    for level in found:
        since = txn if level.at is None else min(txn, level.at)
        versions.check_history(connection, level.collection, since)


def levels(
    connection: sqlite3.Connection, layers: Layers, c: Collection, at: int | None
) -> list[Level]:
    """What is read of each layer, topmost first, whether it is still there or not."""
    overlaid = _overlaid(connection, layers, c)
    found: list[Level] = []
    masks: tuple[int, ...] = ()
    for layer in _read_at(layers, at):
        if layer.overlay in overlaid:
            here = overlaid[layer.overlay]
            found.append(Level(here, layer.txn, masks))
            masks = (*masks, here.t)
        elif layer.overlay == MAIN:
            found.append(Level(c, layer.txn, masks))
    return found


def _read_at(layers: Layers, at: int | None) -> Layers:
    """The layers that a version is made of, each with the transaction that it is read at. One
    that began later is left out, together with its mask: what it has is not that old."""
    if at is None:
        return layers
    first = 0
    while first + 1 < len(layers) and at <= (layers[first + 1].txn or 0):
        first += 1
    top = layers[first]
    end = at if top.txn is None else min(at, top.txn)
    return (Layer(top.overlay, end), *layers[first + 1 :])


def _overlaid(
    connection: sqlite3.Connection, layers: Layers, c: Collection
) -> dict[int, Collection]:
    """The overlays that have rows of a collection; all of them must be there at all."""
    numbers = [layer.overlay for layer in layers[:-1]]
    if not numbers:
        return {}
    text = msgspec.json.encode(numbers).decode()
    rows = connection.execute(queries()["overlays"], (text, c.number)).fetchall()
    found = {row[0]: row for row in rows}
    for number in numbers:
        if number not in found:
            raise NotFound(f"There is no overlay {number}")
    return {number: overlay_of(c, *row) for number, row in found.items() if row[1] is not None}


def overlay_of(c: Collection, overlay: int, floor_txn: int, t: int) -> Collection:
    """The collection with its rows in an overlay, which always keep their history."""
    return replace(c, overlay=overlay, floor_txn=floor_txn, t=t, off_since=None)
