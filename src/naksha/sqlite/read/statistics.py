"""Statistics of a collection, over all of its states or over every n-th of them."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any, Final

from naksha.model import limits
from naksha.model.query import Bbox, Query
from naksha.model.statistics import Figure, KeyCount, Statistics
from naksha.spi.query.areas import union_of
from naksha.spi.query.plan import plan_of
from naksha.sqlite.read.layers import LayerRows
from naksha.sqlite.read.printer import Statement, geometry_or_null
from naksha.sqlite.read.statements import sources_of
from naksha.sqlite.sql import sql

_STATE_BYTES: Final = 1024
"""Assumed size of a state."""
_NUMBERS_MAX: Final = 250_000
"""Maximum number of state numbers that are looked up, including those of past states."""


def step_of(levels: Sequence[LayerRows], count: int) -> int:
    """Return n so that every n-th state is sampled for fast statistics of `count` features."""
    last = max(level.collection.next_i for level in levels)
    wanted = limits.STATISTICS_BYTES_MAX // _STATE_BYTES
    return max(1, -(-count // wanted), -(-last // _NUMBERS_MAX)) if count > wanted else 1


def measure(
    connection: sqlite3.Connection, levels: Sequence[LayerRows], count: int, step: int
) -> Statistics:
    """Compute the statistics of `count` features from every `step`-th state."""
    sampled = step > 1
    types = _rows(connection, levels, step, "select_types")
    seen = sum(row[1] for row in types)
    boxes = [Bbox(*row[3:]) for row in types if row[3] is not None]
    # Extrapolate from the sampled states to all features.
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
    connection: sqlite3.Connection, levels: Sequence[LayerRows], step: int, select: str
) -> list[Any]:
    statement = Statement()
    conditions = []
    if step > 1:
        last = max(level.collection.next_i for level in levels)
        conditions = [sql("sampled", numbers=statement.numbers(range(step, last + 1, step)))]
    plan, geometry = plan_of(Query()), geometry_or_null()
    sources = sources_of(statement, levels, plan, "source_measured", *conditions, geometry=geometry)
    # Fetch one more than the maximum, to detect whether the result is cut.
    text = sql(select, sources=sources, most=str(limits.STATISTICS_KEYS_MAX + 1))
    return connection.execute(text, statement.values).fetchall()


def _counts(rows: Sequence[Any], factor: float, sampled: bool) -> Figure[tuple[KeyCount, ...]]:
    found = [KeyCount(key, round(count * factor)) for key, count in rows]
    cut = len(found) > limits.STATISTICS_KEYS_MAX
    return Figure(tuple(found[: limits.STATISTICS_KEYS_MAX]), sampled or cut)
