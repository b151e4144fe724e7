"""From a `Query` to one SQL statement, put together from the fragments in `queries/read.sql`.

Values never become text of the statement: each is a parameter, collected in `Statement`. What SQL
cannot decide (real geometries) is left to `exact`, which gets the geometries beside the states.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

import msgspec

from naksha.model import limits
from naksha.model.errors import LimitExceeded
from naksha.model.query import Intersects, Op, Query, States
from naksha.model.query import Test as PropertyTest
from naksha.spi.cursor import Cursor
from naksha.spi.query_parts import (
    ORDER,
    boxes_of,
    check_text,
    end_of_prefix,
    joined,
    json_text,
    predicate_sql,
)
from naksha.sqlite.rows import Collection
from naksha.sqlite.sql import sql

_PLAIN_KEY: Final = re.compile(r'[^"\\\x00-\x1f]+')
"""Keys that a JSON path of SQLite can name: it knows no escapes."""

NOWHERE: Final = (None,)
"""In place of boxes, when there is no spatial test."""


class Statement:
    """SQL text under construction, with its parameters."""

    def __init__(self) -> None:
        self.values: list[Any] = []

    def value(self, value: Any) -> str:
        """Add a parameter; gives its place in the text."""
        if len(self.values) == limits.QUERY_VALUES_MAX:
            raise LimitExceeded(f"The query has more than {limits.QUERY_VALUES_MAX} values")
        if isinstance(value, str):
            check_text(value)
        elif isinstance(value, int):
            # What is beyond every number of ours is as good as the last of them.
            value = max(-limits.INT8_MAX, min(value, limits.INT8_MAX))
        self.values.append(value)
        return f"?{len(self.values)}"

    def texts(self, values: Iterable[str]) -> str:
        """Add several texts as one parameter."""
        among = list(values)
        for each in among:
            check_text(each)
        return self.value(msgspec.json.encode(among).decode())


def states(
    collection: Collection, query: Query, at: int | None, cursor: Cursor | None = None
) -> tuple[str, list[Any]]:
    """The statement that gives (id, feature) of all states of the query, and their geometries
    where they are still to be tested."""
    statement = Statement()
    tested = isinstance(query.spatial, Intersects)
    geo = sql("geo_also") if tested else ""
    if query.limit is None:
        sources = _sources(statement, collection, query, at, cursor, "source")
        return sql("select_states", sources=sources, order="", geo=geo), statement.values
    # Of those that are still to be tested nobody knows how many will do.
    limit = "" if tested else sql("limit", limit=str(query.limit + 1))
    sources = _sources(statement, collection, query, at, cursor, "source_page", limit=limit)
    order = sql("order_page", limit=limit)
    return sql("select_states", sources=sources, order=order, geo=geo), statement.values


def count(collection: Collection, query: Query, at: int | None) -> tuple[str, list[Any]]:
    """The statement that counts them; not for geometries that are still to be tested."""
    statement = Statement()
    sources = _sources(statement, collection, query, at, None, "source")
    return sql("select_count", sources=sources), statement.values


def _sources(
    statement: Statement,
    collection: Collection,
    query: Query,
    at: int | None,
    cursor: Cursor | None,
    source: str,
    **slots: str,
) -> str:
    version = None if at is None else statement.value(at)
    boxes = boxes_of(query.spatial)
    filters = list(filters_of(statement, query))
    if cursor is not None:
        place = {"id": statement.value(cursor.id), "txn": statement.value(cursor.txn)}
        filters.append(sql("after_cursor", **place))
    parts = []
    for table, condition in _tables(query.states, version):
        feature = sql("feature")
        if table == "hst" and query.states is States.ALL:
            feature = sql("feature_closed", at=version or str(limits.INT8_MAX))
        for box in boxes or NOWHERE:
            from_, first = _from(statement, collection, query, table, condition, box, version)
            tags = tags_of(statement, collection, query, table)
            parts.append(
                sql(
                    source,
                    feature=feature,
                    from_=from_,
                    conditions="\n   AND ".join([first, *filters, *tags]),
                    **slots,
                )
            )
    # Boxes on both sides of the date line may meet the same feature.
    return ("\nUNION\n" if len(boxes) > 1 else "\nUNION ALL\n").join(parts)


def _from(
    statement: Statement,
    collection: Collection,
    query: Query,
    table: str,
    condition: str,
    box: tuple[float, float, float, float] | None,
    version: str | None,
) -> tuple[str, str]:
    """The table, or a tree that leads to it, and the condition that goes with that."""
    tables = collection.tables
    edges = {}
    if box is not None:
        names = ("west", "south", "east", "north")
        edges = {n: statement.value(float(v)) for n, v in zip(names, box, strict=True)}
    picked = query.ids is not None
    if table == "head" and box is not None and not picked:
        exact = sql("box", **edges)
        return sql("from_box", **tables), f"{condition} AND {sql('tree_box', **edges)} AND {exact}"
    live_past = table == "hst" and version is not None and query.states is States.LIVE
    if live_past and not picked and (box is not None or _is_unselective(query)):
        in_tree = "" if box is None else " AND " + sql("tree_box", **edges)
        conditions = [sql("live_past_at", at=str(version), box=in_tree, past=tables["past"])]
        if box is not None:
            conditions.append(sql("box", **edges))
        return sql("from_table", table=tables["hst"]), " AND ".join(conditions)
    if box is not None:
        condition = f"{condition} AND {sql('box', **edges)}"
    return sql("from_table", table=tables[table]), condition


def _is_unselective(query: Query) -> bool:
    """Whether no index but that on time can serve; a page goes along the ids."""
    others = (query.tags, query.mrid_prefix, query.qrid_prefix, query.authors, query.actions)
    return query.limit is None and all(other is None for other in others)


def _tables(kind: States, at: str | None) -> list[tuple[str, str]]:
    """Which tables hold the states asked for, and under which condition."""
    always = sql("true")
    if at is None:
        live, dead = [("head", always)], [("del", always)]
        past = [("hst", sql("all_hst"))]
    else:
        current = sql("at_head", at=at)
        live = [("head", current), ("hst", sql("live_hst_at", at=at))]
        dead = [("del", current), ("hst", sql("dead_hst_at", at=at))]
        past = [("head", current), ("del", current), ("hst", sql("all_hst_at", at=at))]
    if kind is States.LIVE:
        return live
    if kind is States.DELETED:
        return dead
    return past if at is not None else [*live, *dead, *past]


def filters_of(statement: Statement, query: Query) -> Iterable[str]:
    """All conditions of a query that are the same for every table."""
    if query.ids is not None:
        yield sql("ids", ids=statement.texts(query.ids))
    for column, prefix in (("mrid", query.mrid_prefix), ("qrid", query.qrid_prefix)):
        if prefix is not None:
            yield _prefix(statement, column, prefix)
    for column, among in (
        ("author", query.authors),
        ("app_id", query.app_ids),
        ("action", query.actions),
    ):
        if among is not None:
            yield sql("among", column=column, values=statement.texts(among))
    if query.authors is not None and query.actions is None:
        # The index on authors begins with the action.
        yield sql("any_action")
    for name in ("updated_from", "updated_to", "txn_from", "txn_to"):
        bound = getattr(query, name)
        if bound is not None:
            yield sql(name, value=statement.value(bound))
    if query.where is not None:
        yield predicate_sql(query.where, lambda test: _test(statement, test))


def tags_of(
    statement: Statement, collection: Collection, query: Query, table: str
) -> Iterable[str]:
    if query.tags is None:
        return
    fragment = {"head": "tagged_head", "hst": "tagged_hst"}.get(table, "tagged")
    # The index on the history leaves tombstones out.
    if table == "hst" and query.states is not States.LIVE:
        fragment = "tagged"
    groups = [
        joined(
            [sql(fragment, value=statement.value(t), **collection.tables) for t in group],
            " AND ",
            "true",
        )
        for group in query.tags
    ]
    yield joined(groups, " OR ", "false")


def _prefix(statement: Statement, column: str, prefix: str) -> str:
    """Values that start with a prefix, as a range for the index."""
    first, end = statement.value(prefix), end_of_prefix(prefix)
    if end is None:
        return sql("from_value", column=column, first=first)
    return sql("prefix", column=column, first=first, end=statement.value(end))


def _test(statement: Statement, test: PropertyTest) -> str:
    for key in test.path:
        check_text(key)
    if not test.path or not all(map(_PLAIN_KEY.fullmatch, test.path)):
        return _holds(statement, test)
    path = statement.value("$" + "".join(f'."{key}"' for key in test.path))
    if test.op in (Op.EXISTS, Op.IS_NULL):
        return sql(f"test_{test.op.value}", path=path)
    if test.op is Op.STARTS_WITH:
        return sql("test_starts_with", path=path, value=statement.value(test.value))
    if test.op in ORDER or test.op is Op.EQ:
        operator = ORDER.get(test.op, "=")
        if isinstance(test.value, str):
            value = statement.value(test.value)
            return sql("test_order_string", path=path, operator=operator, value=value)
        if _is_plain_number(test.value):
            value = statement.value(test.value)
            return sql("test_order_number", path=path, operator=operator, value=value)
    return _holds(statement, test)


def _holds(statement: Statement, test: PropertyTest) -> str:
    json_text(test.value)  # It must be some.
    return sql("test_holds", test=statement.value(json_text(test)))


def _is_plain_number(value: Any) -> bool:
    """Numbers that SQLite keeps exactly; it makes a double of a large integer."""
    if isinstance(value, bool):
        return False
    if isinstance(value, int):
        return abs(value) <= 2**53
    return isinstance(value, float) and abs(value) <= 2.0**53
