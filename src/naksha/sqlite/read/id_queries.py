"""Statements that find the ids of states without their content, sorted by any members."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from naksha.model.query import Query, SortKey
from naksha.model.state import MatchingState
from naksha.spi.query.plan import plan_of
from naksha.spi.query.sort_keys import order_by, sorted_after
from naksha.spi.query.values import check_text, json_text
from naksha.sqlite.read.layers import LayerRows
from naksha.sqlite.read.printer import Statement, json_path
from naksha.sqlite.read.statements import sources_of
from naksha.sqlite.sql import sql

_NESTED = ("array", "object")


def found_statement(
    levels: Sequence[LayerRows], query: Query, sort: Sequence[SortKey], after: MatchingState | None
) -> tuple[str, list[Any]]:
    """Build the statement that finds states and returns its text and parameters.

    Its columns are id, uuid, the geometry if that must still be tested, and type and value of each
    sort key.
    """
    statement, plan = Statement(), plan_of(query)
    tested = plan.area is not None and plan.area.shape is not None
    limit = "" if plan.limit is None or tested else sql("limit", limit=str(plan.limit))
    columns = "".join(_column(statement, n, key) for n, key in enumerate(sort))
    conditions, behind = [], "true"
    if after is not None and sort:
        behind = sorted_after(statement, sort, after)
    elif after is not None:
        conditions.append(sql("found_after", id=statement.text(after.id)))
    source = "source_found_page" if limit and not sort else "source_found"
    sources = sources_of(statement, levels, plan, source, *conditions, columns=columns, limit=limit)
    text = sql(
        "select_found",
        sources=sources,
        geo=sql("geo_also") if tested else "",
        values="".join(sql("sort_given", n=str(n)) for n in range(len(sort))),
        behind=behind,
        keys=order_by(statement, sort),
        limit=limit,
    )
    return text, statement.values


def found_of(row: Sequence[Any], *, with_geometry: bool) -> MatchingState:
    """Convert a row of the statement."""
    values = row[3:] if with_geometry else row[2:]
    return MatchingState(row[0], row[1], tuple(_jsons(values)))


def _jsons(values: Sequence[Any]) -> Iterator[str | None]:
    for kind, value in zip(values[::2], values[1::2], strict=True):
        if kind is None or kind == "null":
            yield None
        elif kind in _NESTED:
            yield "[]"
        elif kind in ("true", "false"):
            yield str(kind)
        else:
            yield msgspec.json.encode(value).decode()


def _column(statement: Statement, n: int, key: SortKey) -> str:
    for name in key.path:
        check_text(name)
    path, document = json_path(key.path), sql("sort_document")
    if path is None:
        path = "$"
        document = sql("sort_member", path=statement.value(json_text(key.path)))
    return sql("sort_column", n=str(n), document=document, path=statement.value(path))
