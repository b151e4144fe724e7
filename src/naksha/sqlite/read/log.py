"""Read the transaction log, with one SQL statement per `LogFilter`."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from typing import Any

from naksha.model.transaction import MAIN, LogFilter, Transaction
from naksha.spi.query.areas import Box
from naksha.spi.query.printer import joined
from naksha.spi.support.log_rows import check_log_query, first_txn, transactions_of
from naksha.sqlite.read import versions
from naksha.sqlite.read.printer import Statement
from naksha.sqlite.read.rows import dicts
from naksha.sqlite.sql import queries, sql


def find(connection: sqlite3.Connection, txn: int) -> Transaction | None:
    """Return the transaction with a number, None if there is none."""
    found = transactions_of(dicts(connection.execute(queries()["transaction"], (txn,))))
    if not found:
        versions.check_log(connection, txn)
        return None
    return found[0]


def page(
    connection: sqlite3.Connection, after: int, limit: int, where: LogFilter, *, newest_first: bool
) -> list[Transaction]:
    """See `Storage.transactions`."""
    boxes = check_log_query(after, limit, where)
    versions.check_log_window(connection, after, newest_first=newest_first)
    text, values = statement_of(after, limit, where, boxes, newest_first=newest_first)
    return transactions_of(dicts(connection.execute(text, values)))


def statement_of(
    after: int, limit: int, where: LogFilter, boxes: Sequence[Box], *, newest_first: bool
) -> tuple[str, list[Any]]:
    """Build the statement that returns a page of the log."""
    statement = Statement()
    conditions = [
        *_place(statement, after, newest_first),
        *_whole(statement, where),
        *_entries(statement, where, boxes),
    ]
    text = sql(
        "transactions",
        conditions=" AND ".join(conditions) or "true",
        direction=sql("downwards" if newest_first else "upwards"),
        limit=statement.value(limit),
    )
    return text, statement.values


def _place(statement: Statement, after: int, newest_first: bool) -> Iterator[str]:
    if not newest_first:
        yield sql("log_after", value=statement.value(after))
    elif after:
        yield sql("log_before", value=statement.value(after))


def _whole(statement: Statement, where: LogFilter) -> Iterator[str]:
    """Yield conditions on whole transactions."""
    for name, bound in (("log_from", where.from_ms), ("log_to", where.to_ms)):
        if bound is not None:
            yield sql(name, value=statement.value(bound))
    if where.started_from is not None:
        yield sql("log_from_txn", value=statement.value(first_txn(where)))
    same = list(_same(statement, where))
    if where.overlays is not None:
        numbers = statement.numbers(where.overlays)
        if MAIN in where.overlays:
            same.append(sql("log_among", column="overlay", values=numbers))
        else:
            yield sql("log_overlaid", values=numbers)
    if same:
        yield _entry(same)


def _same(statement: Statement, where: LogFilter) -> Iterator[str]:
    """Yield conditions on columns that all entries of a transaction share."""
    if where.authors is not None:
        among = sql("log_among", column="author", values=statement.texts(where.authors))
        yield sql("log_or_unsigned", condition=among) if where.unsigned else among
    if where.app_ids is not None:
        yield sql("log_among", column="app_id", values=statement.texts(where.app_ids))
    for name in ("started_from", "started_to"):
        bound = getattr(where, name)
        if bound is not None:
            yield sql(f"log_{name}", value=statement.value(bound))


def _entries(statement: Statement, where: LogFilter, boxes: Sequence[Box]) -> Iterator[str]:
    """Yield conditions that at least one entry of a transaction must meet."""
    among = []
    if where.collections is not None:
        among.append(sql("log_among", column="id", values=statement.texts(where.collections)))
        yield _entry([sql("log_touched"), *among])
    if where.text is not None:
        yield _entry([sql("log_text", value=statement.value(where.text))])
    if boxes:
        met = [sql("log_box", **statement.edges(box)) for box in boxes]
        yield _entry([sql("log_features"), *among, joined(met, " OR ", "true")])


def _entry(conditions: Sequence[str]) -> str:
    return sql("log_entry", conditions=" AND ".join(conditions))
