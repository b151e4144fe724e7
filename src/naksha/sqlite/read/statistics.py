"""Statistics of a collection: over all of it, or over every so many-th of its states."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any, Final

from naksha.model import limits
from naksha.model.query import Bbox, Query
from naksha.model.statistics import Figure, KeyCount, Statistics
from naksha.spi.support.query_parts import union_of
from naksha.sqlite.read.layers import Level
from naksha.sqlite.read.statements import Statement, geometry_or_null, sources_of
from naksha.sqlite.sql import sql

STATE_BYTES: Final = 1024
"""About as large as states are."""
NUMBERS_MAX: Final = 250_000
"""States that are looked for, if only to find that they are in the past."""


def step_of(levels: Sequence[Level], count: int) -> int:
    """Every how many-th state is enough for fast statistics of so many features."""
    last = max(level.collection.next_i for level in levels)
    wanted = limits.STATISTICS_BYTES_MAX // STATE_BYTES
    return max(1, -(-count // wanted), -(-last // NUMBERS_MAX)) if count > wanted else 1


def measure(
    connection: sqlite3.Connection, levels: Sequence[Level], count: int, step: int
) -> Statistics:
    """The statistics of so many features, from every `step`-th state."""
    sampled = step > 1
    types = _rows(connection, levels, step, "select_types")
    seen = sum(row[1] for row in types)
    boxes = [Bbox(*row[3:]) for row in types if row[3] is not None]
    # What the others are like is told by those that were seen.
    factor = count / seen if seen else 1.0
    return Statistics(
        count=Figure(count),
        byte_size=Figure(round(sum(row[2] for row in types) * factor), sampled),
        bbox=Figure(union_of(boxes), sampled),
        geometry_types=Figure(tuple(sorted(row[0] for row in types if row[0])), sampled),
        properties=_counts(_rows(connection, levels, step, "select_keys"), factor, sampled),
        tags=_counts(_rows(connection, levels, step, "select_tags"), factor, sampled),
    )


def _rows(
    connection: sqlite3.Connection, levels: Sequence[Level], step: int, select: str
) -> list[Any]:
    statement = Statement()
    conditions = []
    if step > 1:
        last = max(level.collection.next_i for level in levels)
        conditions = [sql("sampled", numbers=statement.numbers(range(step, last + 1, step)))]
    slots = {"geometry": geometry_or_null()}
    sources = sources_of(
        statement, levels, Query(), None, "source_measured", *conditions, slots=slots
    )
    # One more than is wanted tells whether there are more.
    text = sql(select, sources=sources, most=str(limits.STATISTICS_KEYS_MAX + 1))
    return connection.execute(text, statement.values).fetchall()


def _counts(rows: Sequence[Any], factor: float, sampled: bool) -> Figure[tuple[KeyCount, ...]]:
    found = [KeyCount(key, round(count * factor)) for key, count in rows]
    cut = len(found) > limits.STATISTICS_KEYS_MAX
    return Figure(tuple(found[: limits.STATISTICS_KEYS_MAX]), sampled or cut)
