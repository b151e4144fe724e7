"""Statements that find states without their content, sorted by any property."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from naksha.model.query import Query, SortKey
from naksha.model.state import MatchingState
from naksha.psql.read.printer import Statement
from naksha.psql.read.statements import LayerTables, source_rows
from naksha.psql.sql import sql
from naksha.spi.query.plan import plan_of
from naksha.spi.query.sort_keys import order_by, sorted_after


def found_statement(
    layers: Sequence[LayerTables],
    query: Query,
    sort: Sequence[SortKey],
    after: MatchingState | None,
) -> tuple[str, list[Any]]:
    """Return the statement that selects id, uuid and the values of the sort keys, as JSON."""
    statement, plan = Statement(), plan_of(query)
    conditions = []
    limit = "" if plan.limit is None else sql("cut", limit=str(plan.limit))
    if not sort and after is not None:
        conditions.append(sql("found_after", id=statement.text(after.id)))
    columns = [
        sql("sort_column", n=str(n), path=statement.path(key.path)) for n, key in enumerate(sort)
    ]
    slots = {"columns": "".join(columns), "limit": limit}
    source = "source_found_page" if limit and not sort else "source_found"
    sources = source_rows(statement, layers, plan, source, "feature", *conditions, **slots)
    if not sort:
        order = sql("found_order", limit=limit)
        return sql("select_found", sources=sources, order=order), statement.values
    text = sql(
        "select_found_sorted",
        sources=sources,
        values="".join(sql("sort_given", n=str(n)) for n in range(len(sort))),
        behind="true" if after is None else sorted_after(statement, sort, after),
        keys=order_by(statement, sort),
        limit=limit,
    )
    return text, statement.values
