"""Statistics of a collection: one statement over all of it, or over a sample of its pages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from naksha.model import limits
from naksha.model.query import Bbox, Query
from naksha.model.statistics import Figure, KeyCount, Statistics
from naksha.psql.connection.driver import Connection
from naksha.psql.read.printer import Statement
from naksha.psql.read.statements import HISTORY, LayerTables, source_rows
from naksha.psql.sql import ident, queries, sql
from naksha.spi.query.areas import union_of
from naksha.spi.query.plan import plan_of


async def sample_fraction(connection: Connection, sources: Sequence[LayerTables]) -> float:
    """Return the fraction of the tables to read for fast statistics, at most 1."""
    names = [ident(source.table) for source in sources]
    names += [ident(source.table + HISTORY) for source in sources if source.at is not None]
    size: int = await connection.fetchval(queries()["heap_size"], names)
    return min(limits.STATISTICS_BYTES_MAX / size, 1.0) if size else 1.0


def statistics_statement(sources: Sequence[LayerTables], part: float) -> tuple[str, list[Any]]:
    """Return the statement that counts live features in the sources, or in a fraction of them."""
    statement, plan = Statement(), plan_of(Query())
    source = "source_sample" if part < 1 else "source"
    rows = source_rows(statement, sources, plan, source, "row", percent=f"{part * 100:.9f}")
    # One more than the limit, to detect whether there are more.
    most = str(limits.STATISTICS_KEYS_MAX + 1)
    text = sql("select_statistics", sources=rows, document=sql("document"), most=most)
    return text, statement.values


def statistics_of(rows: Sequence[Any], part: float) -> Statistics:
    """Compute statistics from the rows of the statement, scaled up from the fraction read."""
    sampled = part < 1
    types = [row for row in rows if row["kind"] == "type"]
    boxes = [
        Bbox(row["west"], row["south"], row["east"], row["north"])
        for row in types
        if row["west"] is not None
    ]
    names = sorted(row["key"] for row in types if row["key"])
    return Statistics(
        count=Figure(round(sum(row["count"] for row in types) / part), sampled),
        byte_size=Figure(round(sum(row["bytes"] for row in types) / part), sampled),
        bbox=Figure(union_of(boxes), sampled),
        geometry_types=Figure(tuple(names), sampled),
        properties=_counts(rows, "property", part),
        tags=_counts(rows, "tag", part),
    )


def _counts(rows: Sequence[Any], kind: str, part: float) -> Figure[tuple[KeyCount, ...]]:
    found = [KeyCount(r["key"], round(r["count"] / part)) for r in rows if r["kind"] == kind]
    cut = len(found) > limits.STATISTICS_KEYS_MAX
    return Figure(tuple(found[: limits.STATISTICS_KEYS_MAX]), cut or part < 1)
