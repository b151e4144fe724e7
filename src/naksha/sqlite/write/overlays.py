"""Overlays: create, drop, and fill them from the layers below before they are written to.

An overlay of a collection is a set of rows in the same tables under its own table number, plus the
ids that were touched there. All functions may run again in a transaction that yielded to others.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from naksha.model.errors import Conflict, NotFound, NotSupported
from naksha.model.query import Query, States
from naksha.model.transaction import MAIN
from naksha.spi.query.plan import plan_of
from naksha.spi.storage import BranchLayer
from naksha.sqlite.read import layers, statements
from naksha.sqlite.read.printer import Statement
from naksha.sqlite.read.rows import CollectionRow
from naksha.sqlite.sql import queries, sql
from naksha.sqlite.write.states import as_json
from naksha.sqlite.write.tables import CollectionTables
from naksha.sqlite.write.transaction import WriteTransaction


def new(transaction: WriteTransaction) -> int:
    """See `WriteSession.new_overlay`."""
    number = transaction.take_overlay()
    transaction.connection.execute(queries()["overlay_insert"], (number,))
    return number


def branch_off(transaction: WriteTransaction, below: Sequence[BranchLayer]) -> int:
    """See `WriteSession.branch_off`."""
    if transaction.overlay != MAIN or transaction.drawn is not None:
        raise NotSupported(
            "A branch can only be created by a write session on main that has not written yet; use "
            "a new session",
            field="below",
        )
    number = new(transaction)
    transaction.layers = layers.checked_layers((BranchLayer(number, None), *below))
    return number


def freeze(connection: sqlite3.Connection, overlay: int) -> None:
    """See `WriteSession.freeze_overlay`.

    Open transactions on the overlay repeat their steps after this one, and then find it frozen.
    """
    connection.execute(queries()["overlay_freeze"], (overlay,))


def drop(connection: sqlite3.Connection, overlay: int) -> None:
    """See `WriteSession.drop_overlay`."""
    connection.execute(queries()["overlay_delete"], (overlay,))


def remove(connection: sqlite3.Connection, c: CollectionRow) -> None:
    """Detach an overlay's rows of a collection; maintenance removes the rows later."""
    connection.execute(queries()["trash"], (c.t,))
    connection.execute(queries()["overlaid_delete"], (c.number, c.overlay))


def of(connection: sqlite3.Connection, c: CollectionRow) -> list[CollectionRow]:
    """Return the collection in all overlays that have rows of it, including dropped ones."""
    rows = connection.execute(queries()["overlaid_of"], (c.number,)).fetchall()
    return [layers.overlay_of(c, *row) for row in rows]


def open_tables(transaction: WriteTransaction, name: str, ids: Sequence[str]) -> CollectionTables:
    """Open a collection for writing, on a branch after filling the overlay with the given ids."""
    connection = transaction.connection
    c = layers.collection_on(connection, transaction.layers, name)
    if transaction.overlay == MAIN:
        return CollectionTables(transaction, c)
    requested = (as_json([transaction.overlay]), c.number)
    row = connection.execute(queries()["overlays"], requested).fetchone()
    if row is None:
        raise NotFound(
            f"The branch was deleted while it was in use (overlay {transaction.overlay}); use "
            "another branch"
        )
    if connection.execute(queries()["overlay_is_frozen"], (transaction.overlay,)).fetchone()[0]:
        raise Conflict("The branch was rebased; open it again", field="layers")
    _, floor, t = row
    if floor is None:
        floor, t = 0, transaction.take_table()
        connection.execute(queries()["overlaid_insert"], (c.number, transaction.overlay, t))
    tables = CollectionTables(transaction, layers.overlay_of(c, transaction.overlay, floor, t))
    _fill(tables, c, ids)
    return tables


def _fill(tables: CollectionTables, c: CollectionRow, ids: Sequence[str]) -> None:
    """Copy the visible states of these features unchanged from the layers below.

    Features that the overlay already has are left out.
    """
    connection = tables.connection
    missing = [row[0] for row in tables.rows("unmasked", as_json(ids))]
    if not missing:
        return
    below = layers.readable(connection, tables.transaction.layers[1:], c, None)
    for kind in (States.LIVE, States.DELETED):
        statement = Statement()
        first = statement.value(tables.next_n() - 1)
        wanted = plan_of(Query(ids=tuple(missing), states=kind))
        sources = statements.sources_of(statement, below, wanted, "source_row")
        connection.execute(queries()["stage_clear"])
        text = sql("fill_stage", first=first, sources=sources)
        if connection.execute(text, statement.values).rowcount == 0:
            continue
        if kind is States.LIVE:
            tables.run_staged("insert_heads")
            tables.run("fill_boxes")
            tables.run_staged("fill_tags")
        else:
            tables.run("insert_tombs")
    tables.run("fill_mask", as_json(missing))
