"""Layers of a branch, and which rows of them are read for a collection at a version.

Main alone is a branch of one layer, so that all reading code handles layers only.
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
from naksha.spi.storage import BranchLayer
from naksha.sqlite.read import versions
from naksha.sqlite.read.rows import CollectionRow, collection_of
from naksha.sqlite.sql import queries

Layers = tuple[BranchLayer, ...]
MAIN_ONLY: Final[Layers] = (BranchLayer(MAIN, None),)


@dataclass(frozen=True, slots=True)
class LayerRows:
    """A layer of one collection.

    It has the collection's rows in that layer, the transaction they are read at (None: HEAD), and
    the table numbers of the layers above, whose ids mask the rows of this one.
    """

    collection: CollectionRow
    at: int | None
    masks: tuple[int, ...] = ()


def checked_layers(layers: Sequence[BranchLayer]) -> Layers:
    """Validate the layers of a branch, topmost first.

    Raises:
        InvalidArgument: They are not overlays above main, each read at a transaction below the top.
        LimitExceeded: There are too many.
    """
    if not layers or layers[-1].overlay != MAIN:
        raise InvalidArgument(
            "The layers of a branch must end with main; pass main once, as the last layer",
            field="layers",
        )
    if len(layers) > limits.LAYERS_MAX:
        raise LimitExceeded(
            f"The branch has {len(layers)} layers, but at most {limits.LAYERS_MAX} are accepted; "
            "merge it into its parent first",
            field="layers",
        )
    numbers = [layer.overlay for layer in layers]
    if min(numbers[:-1], default=1) <= MAIN or len(set(numbers)) < len(numbers):
        raise InvalidArgument(
            "The layers of a branch above main must have overlay numbers of 1 or more, each of "
            f"them once, not {numbers[:-1]}",
            field="layers",
        )

    below = [layer.txn for layer in layers[1:] if layer.txn is not None]
    if len(below) < len(layers) - 1:
        raise InvalidArgument(
            "Only the topmost layer of a branch is read at HEAD; give every layer below it the "
            "txn at which it is read",
            field="layers",
        )
    if below != sorted(below, reverse=True):
        raise InvalidArgument(
            "Each layer of a branch must be read at the same txn as the layer above it or at an "
            f"earlier one, not at {below}; correct the txns",
            field="layers",
        )
    return tuple(layers)


def collection_on(
    connection: sqlite3.Connection, layers: Layers, name: str, *, dropped: bool = False
) -> CollectionRow:
    """Return the collection as main has it.

    Raises:
        CollectionNotFound: It does not exist, or was created after the branch began.
    """
    found = collection_of(connection, name, dropped=dropped)
    if not existed_at_base(layers, found):
        raise CollectionNotFound(
            f"The collection {name!r} does not exist on the branch", collection_id=name
        )
    return found


def existed_at_base(layers: Layers, c: CollectionRow) -> bool:
    """Return whether the collection existed when the branch began."""
    begin = layers[-1].txn
    return begin is None or c.created <= begin


def resolve(
    connection: sqlite3.Connection,
    layers: Layers,
    at: VersionSelector,
    collection: str | None = None,
) -> Version:
    """Resolve a version selector.

    Raises:
        Expired: History of the collection that the version needs is gone.
    """
    version = versions.resolve(connection, at)
    if collection is not None:
        known = collection_on(connection, layers, collection)
        readable(connection, layers, known, version.txn)
    return version


def readable(
    connection: sqlite3.Connection, layers: Layers, c: CollectionRow, at: int | None
) -> list[LayerRows]:
    """Return the levels to read, topmost first.

    Raises:
        Expired: History that is needed is gone.
    """
    found = levels(connection, layers, c, at)
    for level in found:
        if level.at is not None:
            versions.check_history(connection, level.collection, level.at)
        if level.at:
            versions.check_log(connection, level.at)
    return found


def check_kept_since(connection: sqlite3.Connection, found: Sequence[LayerRows], txn: int) -> None:
    """Check that states that ended after a transaction are still there.

    Raises:
        Expired: They are gone.
    """
    for level in found:
        since = txn if level.at is None else min(txn, level.at)
        versions.check_history(connection, level.collection, since)


def levels(
    connection: sqlite3.Connection, layers: Layers, c: CollectionRow, at: int | None
) -> list[LayerRows]:
    """Return the levels to read, topmost first, without checking for expired history."""
    overlaid = _overlaid(connection, layers, c)
    found: list[LayerRows] = []
    masks: tuple[int, ...] = ()
    for layer in _read_at(layers, at):
        if layer.overlay in overlaid:
            here = overlaid[layer.overlay]
            found.append(LayerRows(here, layer.txn, masks))
            masks = (*masks, here.t)
        elif layer.overlay == MAIN:
            found.append(LayerRows(c, layer.txn, masks))
    return found


def _read_at(layers: Layers, at: int | None) -> Layers:
    """Return the layers of a version, each with the transaction that it is read at.

    Layers that began after the version are left out, together with their masks.
    """
    if at is None:
        return layers
    first = 0
    while first + 1 < len(layers) and at <= (layers[first + 1].txn or 0):
        first += 1
    top = layers[first]
    end = at if top.txn is None else min(at, top.txn)
    return (BranchLayer(top.overlay, end), *layers[first + 1 :])


def _overlaid(
    connection: sqlite3.Connection, layers: Layers, c: CollectionRow
) -> dict[int, CollectionRow]:
    """Return the overlays that have rows of a collection.

    Raises:
        NotFound: One of the overlays does not exist.
    """
    numbers = [layer.overlay for layer in layers[:-1]]
    if not numbers:
        return {}
    text = msgspec.json.encode(numbers).decode()
    rows = connection.execute(queries()["overlays"], (text, c.number)).fetchall()
    found = {row[0]: row for row in rows}
    for number in numbers:
        if number not in found:
            raise NotFound(
                f"The branch was deleted while it was in use (overlay {number}); use another branch"
            )
    return {number: overlay_of(c, *row) for number, row in found.items() if row[1] is not None}


def overlay_of(c: CollectionRow, overlay: int, floor_txn: int, t: int) -> CollectionRow:
    """Return the collection with its rows in an overlay, which always have history."""
    return replace(c, overlay=overlay, floor_txn=floor_txn, t=t, off_since=None)
