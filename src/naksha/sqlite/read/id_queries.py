"""Statements that find the ids of states without their content, sorted by any members."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from naksha.model.limits import INT8_MAX
from naksha.model.query import Intersects, Query, SortKey
from naksha.model.state import MatchingState
from naksha.spi.support.query_parts import check_text, json_text
from naksha.spi.support.sort_keys import SortBound, after_bound, sort_position_of
from naksha.sqlite.read.layers import LayerRows
from naksha.sqlite.read.statements import Statement, json_path, sources_of
from naksha.sqlite.sql import sql

_NESTED = ("array", "object")


def found_statement(
    levels: Sequence[LayerRows], query: Query, sort: Sequence[SortKey], after: MatchingState | None
) -> tuple[str, list[Any]]:
    """Build the statement that finds states and returns its text and parameters.

    Its columns are id, uuid, the geometry if that must still be tested, and type and value of each
    sort key.
    """
    statement = Statement()
    tested = isinstance(query.spatial, Intersects)
    limit = ""
    if query.limit is not None and not tested:
        limit = sql("limit", limit=str(query.limit))
    geo = sql("geo_also") if tested else ""
    if sort:
        columns = "".join(_column(statement, n, key) for n, key in enumerate(sort))
        sources = sources_of(
            statement, levels, query, None, "source_found", slots={"columns": columns}
        )
        last = "true" if after is None else _behind(statement, sort, after)
    else:
        conditions = []
        if after is not None:
            conditions.append(sql("found_after", id=statement.value(after.id)))
        source = "source_found_page" if limit else "source_found"
        slots = {"columns": "", "limit": limit}
        sources = sources_of(statement, levels, query, None, source, *conditions, slots=slots)
        last = "true"
    text = sql(
        "select_found",
        sources=sources,
        geo=geo,
        values="".join(sql("sort_given", n=str(n)) for n in range(len(sort))),
        behind=last,
        keys="".join(_order(n, key) + " " for n, key in enumerate(sort)),
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


def _order(n: int, key: SortKey) -> str:
    direction = "DESC" if key.descending else "ASC"
    return sql("sort_by", n=str(n), rank=_rank(n, key), direction=direction)


def _rank(n: int, key: SortKey) -> str:
    return sql("sort_rank_descending" if key.descending else "sort_rank", n=str(n))


def _behind(statement: Statement, sort: Sequence[SortKey], after: MatchingState) -> str:
    last = [
        _last(statement, n, key, json)
        for n, (key, json) in enumerate(zip(sort, after.values, strict=True))
    ]
    return after_bound(sql, last, sql("found_after_id", id=statement.value(after.id)))


def _last(statement: Statement, n: int, key: SortKey, json: str | None) -> SortBound:
    place = sort_position_of(json, key)
    value: Any = place.value
    if value is None:
        return SortBound(key, _rank(n, key), None, place.rank, "")
    if isinstance(value, int) and abs(value) > INT8_MAX:
        value = float(value)  # SQLite reads large integers in JSON as floats.
    then = statement.value(value)
    return SortBound(key, _rank(n, key), sql("sort_value", n=str(n)), place.rank, then)
