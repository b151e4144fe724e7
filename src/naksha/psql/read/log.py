"""Queries of the transaction log; the database evaluates the filter."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from naksha.model.transaction import MAIN, LogFilter, Transaction
from naksha.psql.connection.driver import Connection, planned_for_values
from naksha.psql.read import versions
from naksha.psql.read.layers import is_overlay
from naksha.psql.read.printer import Statement
from naksha.psql.sql import queries, sql
from naksha.spi.query.areas import Box
from naksha.spi.query.printer import joined
from naksha.spi.support.log_rows import check_log_query, first_txn, transactions_of

_MS_MIN = -62_135_596_800_000
"""Milliseconds of the first day of the year 1."""
_MS_MAX = 8_000_000_000_000_000
"""Greater than any date of PostgreSQL; no transaction is published that late."""


async def transactions(
    connection: Connection, after: int, limit: int, where: LogFilter, newest_first: bool
) -> list[Transaction]:
    """Return transactions; see `Storage.transactions`. The caller publishes pending ones first."""
    boxes = check_log_query(after, limit, where)
    times = [_time(where.from_ms), _time(where.to_ms)]
    window = await connection.fetchrow(queries()["log_window"], after, newest_first, *times)
    assert window is not None
    first = max(window["first"], first_txn(where))
    text, values = found_statement((first, window["until"]), limit, where, boxes, newest_first)
    statement = await planned_for_values(connection, text, values)
    found = [row["txn"] for row in await statement.fetch()]
    rows: Sequence[Any] = ()
    if found:
        rows = await connection.fetch(
            queries()["log_rows"], found, min(found), max(found), newest_first
        )
    # Checked afterwards, since part of the log may have been dropped during the read.
    await versions.check_log_window(connection, after, newest_first)
    return transactions_of(rows)


def found_statement(
    window: tuple[int, int],
    limit: int,
    where: LogFilter,
    boxes: Sequence[Box],
    newest_first: bool,
) -> tuple[str, list[Any]]:
    """Return the statement that selects the numbers of the transactions."""
    statement = Statement()
    first, until = (statement.value(bound, "int8") for bound in window)
    conditions = [sql("log_between", first=first, until=until)]
    conditions += _conditions(statement, where, boxes)
    text = sql(
        "log_found",
        conditions="\n   AND ".join(conditions),
        direction="DESC" if newest_first else "ASC",
        limit=str(limit),
    )
    return text, statement.values


def _conditions(statement: Statement, where: LogFilter, boxes: Sequence[Box]) -> Iterator[str]:
    if where.overlays == (MAIN,):
        yield sql("log_on_main")
    elif where.overlays is not None:
        known = [number for number in where.overlays if number == MAIN or is_overlay(number)]
        overlays = statement.value(known, "int4[]")
        yield sql("log_on" if MAIN in where.overlays else "log_on_branches", overlays=overlays)
    if where.authors is not None:
        authors = statement.value(list(where.authors), "text[]")
        yield sql("log_authors_or_none" if where.unsigned else "log_authors", authors=authors)
    for name in ("app_ids", "collections"):
        among = getattr(where, name)
        if among is not None:
            yield sql(f"log_{name}", **{name: statement.value(list(among), "text[]")})
    for name in ("started_from", "started_to"):
        bound = _time(getattr(where, name))
        if bound is not None:
            yield sql(f"log_{name}", bound=statement.value(bound, "int8"))
    if where.bbox is not None:
        yield joined([_box(statement, box) for box in boxes], " OR ", "false")
    if where.text is not None:
        beside = where.collections is not None or where.bbox is not None
        text = statement.value(where.text, "text")
        yield sql("log_text_beside" if beside else "log_text", text=text)


def _box(statement: Statement, box: Box) -> str:
    west, south, east, north = (statement.value(float(edge), "float8") for edge in box)
    return sql("log_box", west=west, south=south, east=east, north=north)


def _time(epoch_ms: int | None) -> int | None:
    """Clamp a time to the range of the database, which covers all its transactions."""
    return None if epoch_ms is None else max(_MS_MIN, min(epoch_ms, _MS_MAX))
