"""Statements that find states without their content, sorted by any property."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from naksha.model.query import Query, SortKey
from naksha.model.state import MatchingState
from naksha.psql.read.statements import Source, Statement, path_of, source_rows, there
from naksha.psql.sql import sql
from naksha.spi.support.sort_keys import SortBound, after_bound, sort_position_of


def found_statement(
    layers: Sequence[Source],
    query: Query,
    sort: Sequence[SortKey],
    after: MatchingState | None,
    *,
    if_there: str | None = None,
) -> tuple[str, list[Any]]:
    """Return the statement that selects id, uuid and the values of the sort keys, as JSON.

    With `if_there` it returns nothing unless that collection exists.
    """
    statement = Statement()
    conditions = [] if if_there is None else [there(statement, if_there)]
    limit = "" if query.limit is None else sql("cut", limit=str(query.limit))
    if sort:
        text = _sorted(statement, layers, query, sort, after, conditions, limit)
        return text, statement.values
    if after is not None:
        conditions.append(sql("found_after", id=statement.value(after.id, "text")))
    source = "source_found_page" if limit else "source_found"
    sources = source_rows(
        statement, layers, query, None, source, "feature", conditions, columns="", limit=limit
    )
    order = sql("found_order", limit=limit)
    return sql("select_found", sources=sources, order=order, values=""), statement.values


def _sorted(
    statement: Statement,
    layers: Sequence[Source],
    query: Query,
    sort: Sequence[SortKey],
    after: MatchingState | None,
    conditions: Sequence[str],
    limit: str,
) -> str:
    columns = [
        sql("sort_column", n=str(n), path=path_of(statement, key.path))
        for n, key in enumerate(sort)
    ]
    sources = source_rows(
        statement,
        layers,
        query,
        None,
        "source_found",
        "feature",
        conditions,
        columns="".join(columns),
    )
    return sql(
        "select_found_sorted",
        sources=sources,
        values="".join(sql("sort_given", n=str(n)) for n in range(len(sort))),
        behind="true" if after is None else _behind(statement, sort, after),
        keys=" ".join(_keys(sort)) + " ",
        limit=limit,
    )


def _keys(sort: Sequence[SortKey]) -> Iterable[str]:
    for n, key in enumerate(sort):
        yield sql(
            "sort_by",
            rank=_rank(n, key),
            number=sql("sort_number", n=str(n)),
            text=sql("sort_text", n=str(n)),
            direction="DESC" if key.descending else "ASC",
        )


def _rank(n: int, key: SortKey) -> str:
    return sql("sort_rank_descending" if key.descending else "sort_rank", n=str(n))


def _behind(statement: Statement, sort: Sequence[SortKey], after: MatchingState) -> str:
    last = [
        _last(statement, n, key, json)
        for n, (key, json) in enumerate(zip(sort, after.values, strict=True))
    ]
    rest = sql("found_after_id", id=statement.value(after.id, "text"))
    return after_bound(sql, last, rest)


def _last(statement: Statement, n: int, key: SortKey, json: str | None) -> SortBound:
    place = sort_position_of(json, key)
    rank = _rank(n, key)
    if place.value is None:
        return SortBound(key, rank, None, place.rank, "")
    if isinstance(place.value, str):
        then = statement.value(place.value, "text")
        return SortBound(key, rank, sql("sort_text", n=str(n)), place.rank, then)
    number = str(int(place.value)) if isinstance(place.value, bool) else place.json
    # As text: a JSON number may be more precise than any number type of the driver.
    then = statement.value(number, "text") + "::numeric"
    return SortBound(key, rank, sql("sort_number", n=str(n)), place.rank, then)
