"""Layers of a branch: which of them a version is read in, and where their tables are.

An overlay is complete from its base version on, which is the version of the layer below it. Before
that version the branch did not exist yet, and reads the layer below.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from naksha.model import limits
from naksha.model.errors import InvalidArgument, LimitExceeded, NotFound
from naksha.model.transaction import MAIN
from naksha.psql.connection.driver import Connection
from naksha.psql.read.printer import Statement
from naksha.psql.read.statements import LayerTables
from naksha.psql.sql import ident, queries, sql
from naksha.spi.storage import BranchLayer

Branch = tuple[BranchLayer, ...]
NO_BRANCH: Final[Branch] = (BranchLayer(MAIN, None),)
"""The layers of main."""
_OVERLAY_MAX: Final = 2**31 - 1
"""Greatest overlay number, an int4."""


def is_overlay(number: int) -> bool:
    """Whether the number is in the range of overlay numbers."""
    return 0 < number <= _OVERLAY_MAX


def check_layers(layers: Sequence[BranchLayer]) -> Branch:
    """Check that the layers can be those of a branch."""
    if len(layers) > limits.LAYERS_MAX:
        raise LimitExceeded(
            f"The branch has {len(layers)} layers, but at most {limits.LAYERS_MAX} are accepted; "
            "merge it into its parent first",
            field="layers",
        )
    overlays = [layer.overlay for layer in layers]
    if not layers or overlays[-1] != MAIN or MAIN in overlays[:-1]:
        raise InvalidArgument(
            "The layers of a branch must end with main, and no other layer may be main; pass "
            "main once, as the last layer",
            field="layers",
        )
    if len(set(overlays)) != len(overlays) or not all(map(is_overlay, overlays[:-1])):
        raise InvalidArgument(
            "The layers of a branch above main must have overlay numbers from 1 to 2147483647, "
            f"each of them once, not {overlays[:-1]}",
            field="layers",
        )
    txns = [layer.txn for layer in layers]
    fixed = [txn for txn in txns if txn is not None]
    if None in txns[1:]:
        raise InvalidArgument(
            "Only the topmost layer of a branch is read at HEAD; give every layer below it the "
            "txn at which it is read",
            field="layers",
        )
    if fixed != sorted(fixed, reverse=True):
        raise InvalidArgument(
            "Each layer of a branch must be read at the same txn as the layer above it or at an "
            f"earlier one, not at {fixed}; correct the txns",
            field="layers",
        )
    return tuple(layers)


def visible(branch: Branch, txn: int | None) -> Branch:
    """Return the layers that are read at a version, each with the transaction to read at.

    A version of None stands for HEAD.
    """
    if txn is None:
        txn = branch[0].txn
    if txn is None:
        return branch
    below = 0
    while below + 1 < len(branch) and txn <= (branch[below + 1].txn or 0):
        below += 1
    top = branch[below]
    at = txn if top.txn is None else min(txn, top.txn)
    return (BranchLayer(top.overlay, at), *branch[below + 1 :])


async def overlay_tables(
    connection: Connection, collection: str, overlays: Sequence[int]
) -> dict[int, str]:
    """Return the tables of a collection in overlays, "" for an overlay without such tables.

    Raises:
        NotFound: An overlay does not exist.
    """
    rows = await connection.fetch(queries()["overlay_tables"], collection, overlays)
    tables = {row["overlay"]: row["table"] or "" for row in rows}
    for overlay in overlays:
        if overlay not in tables:
            raise NotFound(
                f"The branch was deleted while it was in use (overlay {overlay}); use another "
                "branch"
            )
    return tables


def sources(
    branch: Branch, collection: str, txn: int | None, tables: Mapping[int, str]
) -> list[LayerTables]:
    """Return the sources that a statement reads at a version, None for HEAD.

    An overlay without tables of the collection is left out.
    """
    found: list[LayerTables] = []
    for layer in visible(branch, txn):
        table = collection if layer.overlay == MAIN else tables[layer.overlay]
        if table:
            masks = tuple(source.table + "_ids" for source in found)
            found.append(LayerTables(table, layer.txn, masks))
    return found


def overlays_of(branch: Branch) -> list[int]:
    """Return the overlays of a branch, topmost first."""
    return [layer.overlay for layer in branch[:-1]]


async def sources_of(
    connection: Connection, branch: Branch, collection: str, txn: int | None
) -> list[LayerTables]:
    """Look up the tables of the overlays, and return the sources that a statement reads."""
    overlays = overlays_of(visible(branch, txn))
    tables = await overlay_tables(connection, collection, overlays) if overlays else {}
    return sources(branch, collection, txn, tables)


def state_statement(sources: Sequence[LayerTables], i: int, since: int) -> tuple[str, list[Any]]:
    """Return the statement that selects a state by its number from the topmost layer that has it.

    A state that a branch took from below ends there when the branch replaced it; what ended it
    below since then is not visible on the branch. `since` is the first transaction that may have
    ended it.
    """
    statement = Statement()
    place = {"i": statement.value(i, "int8"), "since": statement.value(since, "int8")}
    selects = [
        sql(
            "state_by_i",
            layer=str(layer),
            head=ident(source.table),
            del_=ident(source.table + "_del"),
            hst=ident(source.table + "_hst"),
            seen=sql("feature" if source.at is None else "state_seen_at", at=str(source.at)),
            **place,
        )
        for layer, source in enumerate(sources)
    ]
    order = "ORDER BY s.layer" if len(sources) > 1 else ""
    text = sql("topmost_state", sources="\nUNION ALL\n".join(selects), order=order)
    return text, statement.values
