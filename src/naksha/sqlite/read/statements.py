"""Build one SQL statement from a `Query`, using the fragments in `queries/read.sql`.

Values never become text of the statement: each is a parameter, collected in `Statement`. What SQL
cannot decide (intersections of geometries) is left to `exact_tests`; then the statement returns the
geometries beside the states.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, Literal, NamedTuple

import msgspec

from naksha.model import limits
from naksha.model.damage import BROKEN_GEOMETRY
from naksha.model.errors import LimitExceeded
from naksha.model.query import GEOMETRY_TYPE, Intersects, Op, Query, States
from naksha.model.query import Test as PropertyTest
from naksha.model.state import XYZ
from naksha.spi.cursor import PageCursor
from naksha.spi.support.query_parts import (
    ORDER,
    Box,
    boxes_of,
    check_text,
    end_of_prefix,
    first_txn_at,
    joined,
    json_text,
    predicate_sql,
)
from naksha.sqlite.read.layers import LayerRows
from naksha.sqlite.sql import sql, text_literal

_PLAIN_KEY: Final = re.compile(r'[^"\\\x00-\x1f]+')
"""Keys that a JSON path of SQLite can contain: it has no escapes."""

_NEVER: Final = str(limits.INT8_MAX)
TableName = Literal["head", "del", "hst"]
TAGS: Final[Mapping[TableName, str]] = MappingProxyType(
    {"head": "naksha_tag", "del": "naksha_gone_tag", "hst": "naksha_past_tag"}
)
"""The tag tables of the state tables."""
NOWHERE: Final = (None,)
"""Replaces the boxes when there is no spatial condition."""


class Statement:
    """SQL text under construction, with its parameters."""

    def __init__(self) -> None:
        self.values: list[Any] = []

    def value(self, value: Any) -> str:
        """Add a parameter; return its placeholder."""
        if len(self.values) == limits.QUERY_VALUES_MAX:
            raise LimitExceeded(
                f"The query has more than {limits.QUERY_VALUES_MAX} values; split it into several"
            )
        if isinstance(value, str):
            check_text(value)
        elif isinstance(value, int):
            # No stored number is outside of this range, so clamping does not change the result.
            value = max(-limits.INT8_MAX, min(value, limits.INT8_MAX))
        self.values.append(value)
        return f"?{len(self.values)}"

    def texts(self, values: Iterable[str]) -> str:
        """Add several texts as one parameter."""
        among = list(values)
        for each in among:
            check_text(each)
        return self.value(msgspec.json.encode(among).decode())

    def numbers(self, values: Iterable[int]) -> str:
        """Add several numbers as one parameter."""
        return self.value(msgspec.json.encode(list(values)).decode())

    def edges(self, box: Box) -> dict[str, str]:
        """Add the edges of a box; return their placeholders by name."""
        names = ("west", "south", "east", "north")
        return {n: self.value(float(v)) for n, v in zip(names, box, strict=True)}


def states(
    levels: Sequence[LayerRows],
    query: Query,
    cursor: PageCursor | None = None,
    *,
    within: Box | None = None,
    geometries: bool = False,
) -> tuple[str, list[Any]]:
    """Build the statement that returns (id, feature) of all states of the query.

    With `within` only states whose box meets that one are returned. The third column is the
    geometry, if `geometries` is set or an exact test must follow.
    """
    statement = Statement()
    tested = isinstance(query.spatial, Intersects)
    geo = sql("geo_also") if tested or geometries else ""
    near = [] if within is None else [sql("box", **statement.edges(within))]
    if query.limit is None:
        sources = sources_of(statement, levels, query, cursor, "source", *near)
        return sql("select_states", sources=sources, order="", geo=geo), statement.values
    # If an exact test follows, it is unknown how many rows will pass, so there is no limit.
    limit = "" if tested else sql("limit", limit=str(query.limit + 1))
    sources = sources_of(
        statement, levels, query, cursor, "source_page", *near, slots={"limit": limit}
    )
    order = sql("order_page", limit=limit)
    return sql("select_states", sources=sources, order=order, geo=geo), statement.values


def count(levels: Sequence[LayerRows], query: Query) -> tuple[str, list[Any]]:
    """Build the statement that counts states; not for queries that need an exact test."""
    statement = Statement()
    sources = sources_of(statement, levels, query, None, "source")
    return sql("select_count", sources=sources), statement.values


def sources_of(
    statement: Statement,
    levels: Sequence[LayerRows],
    query: Query,
    cursor: PageCursor | None,
    source: str,
    *conditions: str,
    hidden: bool = False,
    slots: Mapping[str, str] = MappingProxyType({}),
) -> str:
    """Build the UNION of all tables that have states of the query, each as the named source.

    With `hidden`, a query for all states also returns history states that were never visible.
    """
    boxes = boxes_of(query.spatial)
    filters = [*filters_of(statement, query), *conditions]
    if cursor is not None:
        last = {"id": statement.value(cursor.id), "txn": statement.value(cursor.txn)}
        filters.append(sql("after_cursor", **last))
    replaced = query.replaced_since is not None
    since = _since(statement, query)
    space = _space(statement, query)
    parts = []
    for level in levels:
        version = None if level.at is None else statement.value(level.at)
        place = _Place(statement.value(level.collection.t), version)
        for table in _tables(statement, query, version, since, hidden):
            closed = table.name == "hst" and query.states is States.ALL and not replaced
            shown = _shown(closed, version, space)
            # Layers above contain no states that have ended here, so masks are not needed.
            masked = [] if replaced else list(_masks(statement, level, closed, version))
            until = _until(query, version, since)
            for box in boxes or NOWHERE:
                from_, first = _from(statement, query, table, box, place)
                tags = tags_of(statement, place.t, query, table.tags)
                every = "\n   AND ".join([first, *until, *filters, *tags, *masked])
                parts.append(sql(source, from_=from_, conditions=every, **shown, **slots))
    # Boxes on both sides of the date line may find the same feature, which UNION removes.
    return ("\nUNION\n" if len(boxes) > 1 else "\nUNION ALL\n").join(parts)


def _space(statement: Statement, query: Query) -> dict[str, str] | None:
    """Return the slots for features that contain the name of their space."""
    if query.space is None:
        return None
    return {
        "space": statement.value(query.space),
        "place": statement.value(f'"properties":{{"{XYZ}":{{'.encode()),
        "splice": statement.value(f'"space":{json_text(query.space)},'),
    }


def _shown(closed: bool, version: str | None, space: dict[str, str] | None) -> dict[str, str]:
    """Return the column expressions for the feature, its document and its `txn_next`.

    For closed states the first two contain `txn_next`, too.
    """
    at = version or _NEVER
    feature = feature_sql(at if closed else None)
    document = sql("split_feature_at", at=at) if closed else sql("split_feature")
    if space is not None:
        bytes_ = sql("bytes", document=document)
        slots = {"document": document, "bytes": bytes_, "geometry": _geometry()}
        feature = sql("feature_in_space", **slots, **space)
    ended = sql("split_ended_at", at=at) if closed else sql("split_open")
    return {"feature": feature, "document": document, "ended": ended}


def feature_sql(closed_at: str | None = None) -> str:
    """Return the expression for a whole feature; of the history, with its end at a version."""
    if closed_at is None:
        return sql("feature", geometry=_geometry())
    return sql("feature_closed", at=closed_at, geometry=_geometry())


def _geometry() -> str:
    return sql("geometry", broken=text_literal(BROKEN_GEOMETRY))


def geometry_or_null() -> str:
    """Return the expression for a row's GeoJSON, or null if SQLite's functions cannot parse it."""
    return sql("geometry_or_null", readable=sql("geometry_readable"))


def _masks(
    statement: Statement, level: LayerRows, closed: bool, version: str | None
) -> Iterator[str]:
    """Yield the condition that excludes features that a layer above has.

    That layer begins with the state that was valid at this layer's version. States that ended
    before are only in this layer, so they are not excluded.
    """
    hidden = [sql("unmasked_id", mask=statement.value(mask)) for mask in level.masks]
    if hidden and closed:
        assert version is not None
        yield joined([sql("ended_at", at=version), joined(hidden, " AND ", "true")], " OR ", "")
    else:
        yield from hidden


def _from(
    statement: Statement,
    query: Query,
    table: _Table,
    box: Box | None,
    place: _Place,
) -> tuple[str, str]:
    """Return the FROM clause, a table or an R*Tree joined with it, and its conditions."""
    edges = {} if box is None else statement.edges(box)
    tree, from_ = table.tree if query.ids is None else None, f"naksha_{table.name}"
    in_tree, condition = [sql("tree_table", t=place.t)], table.condition
    live_past = tree == "past" and query.states is States.LIVE
    live_past = live_past and (box is not None or is_unselective(query))
    if live_past:
        at = str(place.version)
        in_tree.insert(0, sql("tree_at", ord=sql("ord_at", at=at)))
        condition = sql("live_past_at", at=at)
    if box is not None:
        in_tree.insert(0, sql("tree_box", **edges))
        condition = f"{condition} AND {sql('box', **edges)}"
        if tree is not None:
            parts = [*in_tree, condition]
            return sql("from_box", tree=f"naksha_{tree}", table=from_), " AND ".join(parts)
    if live_past:
        first = sql("in_past", tree=" AND ".join(in_tree))
    else:
        whole = not table.indexed and query.ids is None and is_unselective(query)
        first = sql("within" if whole else "of_table", t=place.t)
    return sql("from_table", table=from_), f"{first} AND {condition}"


def is_unselective(query: Query) -> bool:
    """Return whether no index except the one on time is useful; pages use the index on ids."""
    others = (
        query.tags,
        query.mrid_prefix,
        query.qrid_prefix,
        query.authors,
        query.actions,
        query.txn_from,
    )
    return query.limit is None and all(other is None for other in others)


def _replaced(statement: Statement, query: Query, at: str | None) -> Iterator[str]:
    """Yield the conditions on states that were replaced since a transaction."""
    yield sql("replaced", since=statement.value(query.replaced_since))
    if at is not None:
        yield sql("ended_at", at=at)
    if query.states is not States.ALL:
        yield sql("hst_live" if query.states is States.LIVE else "hst_dead")


class _Table(NamedTuple):
    """A table that holds some of the states of a query.

    It has the condition on its rows, the R*Tree of their boxes and the table of their tags.
    """

    name: TableName
    condition: str
    tree: Literal["box", "gone", "past"] | None
    tags: str | None
    indexed: bool
    """Whether an index serves the condition."""


class _Place(NamedTuple):
    """Placeholders of a layer: its table number and the transaction it is read at."""

    t: str
    version: str | None


def _since(statement: Statement, query: Query) -> list[str]:
    """Return the condition on txn, which has an index, that follows from a condition on time.

    It is left out where another condition is narrower, and for pages: these use the index on ids,
    because with the index on txn each page would sort all later states.
    """
    others = (query.ids, query.spatial, query.txn_from, query.txn_to, query.replaced_since)
    narrowed = any(other is not None for other in others) or not is_unselective(query)
    if query.updated_from is None or narrowed:
        return []
    return [sql("txn_from", value=statement.value(first_txn_at(query.updated_from)))]


def _until(query: Query, at: str | None, since: list[str]) -> list[str]:
    """Return the upper bound of an open range of txn: states after the version are not read.

    Pages use the index on ids, so they do not need it.
    """
    begins = query.txn_from is not None and query.limit is None and query.replaced_since is None
    if at is None or query.txn_to is not None or not (since or begins):
        return []
    return [sql("txn_until", at=at)]


def _tables(
    statement: Statement, query: Query, at: str | None, since: list[str], hidden: bool
) -> list[_Table]:
    """Return all tables that a query reads; past live states are found through an R*Tree."""
    if query.replaced_since is not None:
        return [_dead(" AND ".join(_replaced(statement, query, at)))]
    current = " AND ".join([sql("true") if at is None else sql("at_head", at=at), *since])
    head = _Table("head", current, "box", TAGS["head"], bool(since))
    gone = _Table("del", current, "gone", TAGS["del"], bool(since))
    if query.states is States.ALL:
        every = _Table("hst", current, None, None, bool(since))
        return [head, gone, *([every] if hidden else _past(query, at, since))]
    if query.states is States.LIVE:
        now, then = head, None if at is None else _live(sql("live_hst_at", at=at))
    else:
        now, then = gone, None if at is None else _dead(sql("dead_hst_at", at=at))
    return [now] if then is None else [now, then]


def _past(query: Query, at: str | None, since: list[str]) -> list[_Table]:
    """Return the whole history; tombstones are separate, since the R*Tree does not have them."""

    def condition(name: str) -> str:
        return sql(name) if at is None else sql(f"{name}_at", at=at)

    if query.ids is not None or (query.spatial is None and query.tags is None):
        every = " AND ".join([condition("all_hst"), *since])
        return [_Table("hst", every, None, None, bool(since))]
    return [_live(condition("all_live")), _dead(condition("all_dead"))]


def _live(condition: str) -> _Table:
    return _Table("hst", condition, "past", TAGS["hst"], indexed=True)


def _dead(condition: str) -> _Table:
    return _Table("hst", condition, None, None, indexed=True)


def filters_of(statement: Statement, query: Query) -> Iterable[str]:
    """Yield all conditions of a query that are the same for every table."""
    yield from _by_id(statement, query)
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
        # The first column of the index on authors is the action.
        yield sql("any_action")
    for name in ("updated_from", "updated_to", "txn_from", "txn_to"):
        bound = getattr(query, name)
        if bound is not None:
            yield sql(name, value=statement.value(bound))
    if query.where is not None:
        yield predicate_sql(query.where, lambda test: _test(statement, test))


def _by_id(statement: Statement, query: Query) -> Iterable[str]:
    if query.ids is not None:
        yield sql("ids", ids=statement.texts(query.ids))
    if query.part is not None and not query.part.is_whole:
        first, last = map(statement.value, query.part.hashes())
        yield sql("part", first=first, last=last)


def tags_of(statement: Statement, t: str, query: Query, table: str | None) -> Iterable[str]:
    """Yield the condition on tags: looked up in a tag table, or in the documents without one."""

    def tagged(tag: str) -> str:
        value = statement.value(tag)
        if table is None:
            return sql("tagged", value=value)
        return sql("tagged_by", tags=table, value=value, t=t)

    if query.tags is not None:
        groups = [joined([tagged(tag) for tag in group], " AND ", "true") for group in query.tags]
        yield joined(groups, " OR ", "false")


def _prefix(statement: Statement, column: str, prefix: str) -> str:
    """Return the condition for a prefix as a range, so that an index can be used."""
    first, end = statement.value(prefix), end_of_prefix(prefix)
    if end is None:
        return sql("from_value", column=column, first=first)
    return sql("prefix", column=column, first=first, end=statement.value(end))


def _test(statement: Statement, test: PropertyTest) -> str:
    for key in test.path:
        check_text(key)
    document = "s.jsondata"
    if test.path == GEOMETRY_TYPE:
        document = geometry_or_null()
        test = msgspec.structs.replace(test, path=GEOMETRY_TYPE[1:])
    named = json_path(test.path)
    if named is None:
        return _holds(statement, test, document)
    path = statement.value(named)
    if test.op in (Op.EXISTS, Op.IS_NULL):
        return sql(f"test_{test.op.value}", document=document, path=path)
    if test.op in (Op.STARTS_WITH, Op.ANY_STARTS_WITH):
        value = statement.value(test.value)
        return sql(f"test_{test.op.value}", document=document, path=path, value=value)
    is_text = isinstance(test.value, str)
    is_compared = test.op in ORDER or test.op is Op.EQ
    if is_compared and (is_text or _is_plain_number(test.value)):
        return sql(
            "test_order_string" if is_text else "test_order_number",
            document=document,
            path=path,
            operator=ORDER.get(test.op, "="),
            value=statement.value(test.value),
        )
    return _holds(statement, test, document)


def json_path(path: Sequence[str]) -> str | None:
    """Return a path in SQLite's syntax; None if it cannot be expressed."""
    if not path or not all(map(_PLAIN_KEY.fullmatch, path)):
        return None
    return "$" + "".join(f'."{key}"' for key in path)


def _holds(statement: Statement, test: PropertyTest, document: str) -> str:
    json_text(test.value)  # Raises if the value is not JSON.
    return sql("test_holds", document=document, test=statement.value(json_text(test)))


def _is_plain_number(value: Any) -> bool:
    """Return whether SQLite compares a number exactly; it converts large integers to doubles."""
    if isinstance(value, bool):
        return False
    if isinstance(value, int):
        return abs(value) <= 2**53
    return isinstance(value, float) and abs(value) <= 2.0**53
