"""Overlays: made, dropped, and filled from below before they are written to.

An overlay of a collection is tables like its own, under other names, and the ids that were touched
there. Everything here may have to be done again in a transaction that stepped aside.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from naksha.model.errors import Conflict, NotFound, NotSupported
from naksha.model.query import Query, States
from naksha.model.transaction import MAIN
from naksha.spi.storage import Layer
from naksha.sqlite import layers, statements
from naksha.sqlite.collections import create_indices, create_plain_tables
from naksha.sqlite.files import WRITES, guard
from naksha.sqlite.rows import Collection
from naksha.sqlite.sql import queries, sql, statements_of
from naksha.sqlite.statements import Statement
from naksha.sqlite.states import as_json
from naksha.sqlite.tables import Tables
from naksha.sqlite.transaction import Transaction


def new(transaction: Transaction) -> int:
    """See `WriteSession.new_overlay`."""
    number = transaction.take_overlay()
    transaction.connection.execute(queries()["overlay_insert"], (number,))
    return number


def branch_off(transaction: Transaction, below: Sequence[Layer]) -> int:
    """See `WriteSession.branch_off`."""
    if transaction.overlay != MAIN or transaction.drawn is not None:
        raise NotSupported("A session branches off on main, before it writes", field="below")
    number = new(transaction)
    transaction.layers = layers.checked((Layer(number, None), *below))
    return number


def freeze(connection: sqlite3.Connection, overlay: int) -> None:
    """See `WriteSession.freeze_overlay`. Who is not done yet does its steps again, and finds it."""
    connection.execute(queries()["overlay_freeze"], (overlay,))


def drop(connection: sqlite3.Connection, overlay: int) -> None:
    """See `WriteSession.drop_overlay`."""
    connection.execute(queries()["overlay_delete"], (overlay,))


def remove(connection: sqlite3.Connection, c: Collection) -> None:
    """Remove the tables of a collection in an overlay."""
    for script in ("drop_tables", "drop_mask"):
        for statement in statements_of(sql(script, **c.tables)):
            connection.execute(statement)
    connection.execute(queries()["overlaid_delete"], (c.number, c.overlay))


def of(connection: sqlite3.Connection, c: Collection) -> list[Collection]:
    """The collection in all overlays that have tables of it, also in dropped ones."""
    rows = connection.execute(queries()["overlaid_of"], (c.number,)).fetchall()
    return [layers.overlay_of(c, *row) for row in rows]


def open_tables(transaction: Transaction, name: str, ids: Sequence[str]) -> Tables:
    """The tables that a transaction writes features to, with all that is known of some."""
    connection = transaction.connection
    c = layers.collection_on(connection, transaction.layers, name)
    if transaction.overlay == MAIN:
        return Tables(transaction, c)
    floors = dict(
        connection.execute(queries()["overlays"], (as_json([transaction.overlay]), c.number))
    )
    if transaction.overlay not in floors:
        raise NotFound(f"There is no overlay {transaction.overlay}")
    if connection.execute(queries()["overlay_is_frozen"], (transaction.overlay,)).fetchone()[0]:
        raise Conflict("The branch was put on another base; open it again", field="layers")
    floor = floors[transaction.overlay]
    over = layers.overlay_of(c, transaction.overlay, floor or 0)
    if floor is None:
        _create(connection, over)
    tables = Tables(transaction, over)
    _fill(tables, c, ids)
    return tables


def _create(connection: sqlite3.Connection, c: Collection) -> None:
    """Nobody but us may write there: to write a feature is to fill it from below first."""
    connection.execute(queries()["overlaid_insert"], (c.number, c.overlay))
    create_plain_tables(connection, c)
    connection.execute(sql("create_mask", **c.tables))
    create_indices(connection, c)
    for slot in ("head", "del", "hst", "meta", "mask"):
        table = c.tables[slot].strip('"')
        guard(connection, table, WRITES, f"it is of a branch of {c.id}, written through Naksha")


def _fill(tables: Tables, c: Collection, ids: Sequence[str]) -> None:
    """Copy what the branch sees of these features from the layers below, as it is, unless they
    were touched here before."""
    connection = tables.connection
    missing = [row[0] for row in tables.rows("unmasked", as_json(ids))]
    if not missing:
        return
    below = layers.readable(connection, tables.transaction.layers[1:], c, None)
    for kind in (States.LIVE, States.DELETED):
        statement = Statement()
        first = statement.value(tables.value("next_n") - 1)
        wanted = Query(ids=tuple(missing), states=kind)
        sources = statements.sources_of(statement, below, wanted, None, "source_row")
        connection.execute(queries()["stage_clear"])
        text = sql("fill_stage", first=first, sources=sources)
        if connection.execute(text, statement.values).rowcount == 0:
            continue
        if kind is States.LIVE:
            tables.run("insert_heads")
            tables.run("fill_boxes")
            tables.run("fill_tags")
        else:
            tables.run("insert_tombs")
    tables.run("fill_mask", as_json(missing))
