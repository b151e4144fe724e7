"""From a `Query` to one SQL statement, put together from the fragments in `queries/read.sql`.

Values never become text of the statement: each is a parameter, collected in `Statement`.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
import shapely

from naksha.model import limits, quadkey
from naksha.model.errors import InvalidArgument, LimitExceeded
from naksha.model.query import And, Bbox, Intersects, Not, Op, Or, Predicate, Query, States, Tile
from naksha.model.query import Test as PropertyTest
from naksha.psql.sql import ident, sql
from naksha.spi.cursor import Cursor

_METRES_PER_DEGREE = 110_500.0
"""A bit less than the shortest degree of latitude, so that boxes come out too large."""
_BOX_THIN = 0.001
"""Degrees below which a box has no inside that float32 could tell; see the fragment `box`."""
_ORDER = {Op.LT: "<", Op.LTE: "<=", Op.GT: ">", Op.GTE: ">="}


class Statement:
    """SQL text under construction, with its parameters."""

    def __init__(self) -> None:
        self.values: list[Any] = []

    def value(self, value: Any, type_: str) -> str:
        """Add a parameter; gives its place in the text."""
        if len(self.values) == limits.QUERY_VALUES_MAX:
            raise LimitExceeded(f"The query has more than {limits.QUERY_VALUES_MAX} values")
        if type_ == "text":
            _check_text(value)
        elif type_ == "text[]":
            for each in value:
                _check_text(each)
        self.values.append(value)
        return f"${len(self.values)}::{type_}"


def _check_text(text: str) -> None:
    """Refuse what no text in a database can be equal to, and the wire cannot carry."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidArgument("A text has a lone surrogate", field="query") from None
    if "\0" in text:
        raise InvalidArgument("A text has a NUL character", field="query")


def leaf_of(feature_id: str) -> str:
    """The leaf of a feature id, as the partition key computes it."""
    return hashlib.md5(feature_id.encode(), usedforsecurity=False).hexdigest()[0]


def states(
    collection: str, query: Query, at: int | None, cursor: Cursor | None = None
) -> tuple[str, list[Any]]:
    """The statement that gives (id, feature) of all states of the query."""
    statement = Statement()
    if query.limit is None:
        sources = _sources(statement, collection, query, at, cursor, "source")
        return sql("select_states", sources=sources, order=""), statement.values
    # As text: with an unknown limit the planner might sort the whole collection.
    limit = str(query.limit + 1)
    # Live or dead, a feature is found once; only of all its states there are several.
    then = sql("then_txn") if query.states is States.ALL else ""
    sources = _sources(
        statement, collection, query, at, cursor, "source_page", then=then, limit=limit
    )
    order = sql("order_page", limit=limit)
    return sql("select_states", sources=sources, order=order), statement.values


def count(collection: str, query: Query, at: int | None) -> tuple[str, list[Any]]:
    """The statement that counts them."""
    statement = Statement()
    sources = _sources(statement, collection, query, at, None, "source_count")
    return sql("select_count", sources=sources), statement.values


def _sources(
    statement: Statement,
    collection: str,
    query: Query,
    at: int | None,
    cursor: Cursor | None,
    source: str,
    **slots: str,
) -> str:
    version = None if at is None else statement.value(at, "int8")
    filters = list(filters_of(statement, query))
    if cursor is not None:
        place = {
            "id": statement.value(cursor.id, "text"),
            "txn": statement.value(cursor.txn, "int8"),
        }
        filters.append(sql("after_cursor", **place))
    parts = []
    for suffix, condition in _tables(query, version):
        feature = sql("feature")
        if suffix == "_hst" and version is not None:
            every = query.states is States.ALL
            feature = sql("feature_at", at=version) if every else sql("feature_open")
        conditions = [condition, *filters, *ids_of(statement, query, suffix == "")]
        parts.append(
            sql(
                source,
                table=ident(collection + suffix),
                feature=feature,
                conditions="\n   AND ".join(conditions),
                **slots,
            )
        )
    return "\nUNION ALL\n".join(parts)


def _tables(query: Query, at: str | None) -> list[tuple[str, str]]:
    """Which tables hold the states asked for, and under which condition."""
    current = sql("true") if at is None else sql("live_head_at", at=at)
    live, dead = [("", current)], [("_del", current)]
    if query.states is States.ALL:
        past = sql("all_hst") if at is None else sql("all_hst_at", at=at)
        if not _is_narrow(query):
            return [*live, *dead, ("_hst", past)]
        kinds = (sql("hst_live"), sql("hst_dead"))
        return [*live, *dead, *(("_hst", f"{past} AND {kind}") for kind in kinds)]
    if at is not None:
        live.append(("_hst", sql("live_hst_at", at=at)))
        dead.append(("_hst", sql("dead_hst_at", at=at)))
    return live if query.states is States.LIVE else dead


def _is_narrow(query: Query) -> bool:
    """Whether an index finds the states that tombstones of the history are not in; then these are
    looked for apart, by their action."""
    return query.ids is None and any(
        part is not None
        for part in (
            query.spatial,
            query.tags,
            query.mrid_prefix,
            query.qrid_prefix,
            query.txn_from,
            query.txn_to,
        )
    )


def depends_on_values(query: Query) -> bool:
    """Whether the right plan depends on the values: one author may have written nearly all that
    there is, another nearly nothing, and the same statement asks for both."""
    return query.authors is not None or query.actions is not None


def ids_of(statement: Statement, query: Query, partitioned: bool) -> Iterable[str]:
    """The condition on ids; a table partitioned by leaf is told the leaves."""
    ids = query.ids
    if ids is None:
        return
    if not partitioned:
        yield sql("ids_elsewhere", ids=statement.value(list(ids), "text[]"))
    elif len(ids) == 1:
        yield sql(
            "one_id",
            id=statement.value(ids[0], "text"),
            leaf=statement.value(leaf_of(ids[0]), "text"),
        )
    else:
        place = statement.value(list(ids), "text[]")
        leaves = sorted({leaf_of(i) for i in ids}) or ["0"]
        yield sql(
            "many_ids",
            ids=place,
            leaves=", ".join(f"'{leaf}'" for leaf in leaves),
        )


def filters_of(statement: Statement, query: Query) -> Iterable[str]:
    """All other conditions of a query."""
    if query.spatial is not None:
        yield _spatial(statement, query.spatial)
    if query.tags is not None:
        alternatives = [
            sql("tags_all", tags=statement.value(list(group), "text[]")) for group in query.tags
        ]
        yield _joined(alternatives, " OR ", "false")
    for key, prefix in (("mrid", query.mrid_prefix), ("qrid", query.qrid_prefix)):
        if prefix is not None:
            yield _prefix(statement, key, prefix)
    yield from _by_whom(statement, query)
    for name in ("updated_from", "updated_to", "txn_from", "txn_to"):
        bound = getattr(query, name)
        if bound is not None:
            yield sql(name, value=statement.value(bound, "int8"))
    if query.where is not None:
        yield _predicate(statement, query.where)


def _by_whom(statement: Statement, query: Query) -> Iterable[str]:
    """Conditions on author, application and action."""
    for key, among in (
        ("author", query.authors),
        ("appId", query.app_ids),
        ("action", query.actions),
    ):
        if among is not None:
            yield sql("among", key=key, values=statement.value(list(among), "text[]"))
    if query.authors is not None and query.actions is None:
        yield sql("any_action")  # the index on authors begins with it


def _prefix(statement: Statement, key: str, prefix: str) -> str:
    """Values that start with a prefix, as a range: so an index serves any generic plan."""
    first = statement.value(prefix, "text")
    end = prefix.rstrip(chr(0x10FFFF))
    if not end:
        return sql("from_value", key=key, first=first)
    after = chr(_next_character(ord(end[-1])))
    return sql("prefix", key=key, first=first, end=statement.value(end[:-1] + after, "text"))


def _next_character(code: int) -> int:
    """The next code point that text may hold: surrogates are none."""
    return 0xE000 if code == 0xD7FF else code + 1


def _joined(parts: Sequence[str], operator: str, empty: str) -> str:
    return "(" + operator.join(f"({part})" for part in parts) + ")" if parts else empty


def _spatial(statement: Statement, spatial: Bbox | Intersects | Tile) -> str:
    if isinstance(spatial, Tile):
        return _exact_box(statement, quadkey.bounds(spatial.quadkey))
    if isinstance(spatial, Bbox):
        return _bbox(statement, spatial)
    try:
        geometry = shapely.from_wkb(spatial.wkb)
    except shapely.errors.GEOSException as error:
        raise InvalidArgument(f"Not a geometry: {error}", field="spatial.wkb") from None
    if not (math.isfinite(spatial.radius) and spatial.radius >= 0):
        raise InvalidArgument("The radius must not be negative", field="spatial.radius")
    wkb = statement.value(spatial.wkb, "bytea")
    if spatial.radius == 0:
        return sql("intersects", wkb=wkb)
    rough = _box(statement, _grown(shapely.bounds(geometry), spatial.radius), "rough_box")
    near = sql("near", wkb=wkb, radius=statement.value(spatial.radius, "float8"))
    return f"{rough} AND {near}"


def _bbox(statement: Statement, box: Bbox) -> str:
    if any(not math.isfinite(edge) for edge in (box.west, box.south, box.east, box.north)):
        raise InvalidArgument("The bounding box must be finite", field="bbox")
    if box.south > box.north:
        raise InvalidArgument("The south of the bounding box is above its north", field="bbox")
    if box.west <= box.east:
        return _exact_box(statement, (box.west, box.south, box.east, box.north))
    halves = [(box.west, box.south, 180.0, box.north), (-180.0, box.south, box.east, box.north)]
    return _joined([_exact_box(statement, half) for half in halves], " OR ", "false")


def _exact_box(statement: Statement, box: tuple[float, float, float, float]) -> str:
    west, south, east, north = box
    thin = min(east - west, north - south) < _BOX_THIN
    return _box(statement, box, "thin_box" if thin else "box")


def _box(statement: Statement, box: tuple[float, float, float, float], fragment: str) -> str:
    west, south, east, north = (statement.value(float(edge), "float8") for edge in box)
    return sql(fragment, west=west, south=south, east=east, north=north)


def _grown(box: Sequence[float], metres: float) -> tuple[float, float, float, float]:
    """The box grown by a distance, generously; the whole circle of longitude where it must be."""
    west, south, east, north = box
    grow = metres / _METRES_PER_DEGREE
    south, north = max(south - grow, -90.0), min(north + grow, 90.0)
    shrink = math.cos(math.radians(max(abs(south), abs(north))))
    wide = grow / shrink if shrink > 0.01 else 360.0
    if west - wide < -180.0 or east + wide > 180.0:
        return -180.0, south, 180.0, north
    return west - wide, south, east + wide, north


def _predicate(statement: Statement, predicate: Predicate, level: int = 1) -> str:
    if level > limits.PREDICATE_DEPTH_MAX:
        raise LimitExceeded(
            f"The predicate has more than {limits.PREDICATE_DEPTH_MAX} levels", field="where"
        )
    if isinstance(predicate, And | Or):
        parts = [_predicate(statement, part, level + 1) for part in predicate.parts]
        if isinstance(predicate, And):
            return _joined(parts, " AND ", "true")
        return _joined(parts, " OR ", "false")
    if isinstance(predicate, Not):
        # A test on a property that is absent is null in SQL, and "not null" would be null too.
        return f"({_predicate(statement, predicate.part, level + 1)}) IS NOT TRUE"
    return _test(statement, predicate)


def _test(statement: Statement, test: PropertyTest) -> str:
    if not _can_hold(test):
        return "false"
    path = sql("path", path=statement.value(list(test.path), "text[]"))
    if test.op in (Op.EXISTS, Op.IS_NULL):
        return sql(f"test_{test.op.value}", path=path)
    if test.op is Op.STARTS_WITH:
        return sql("test_starts_with", path=path, value=statement.value(test.value, "text"))
    if test.op in _ORDER:
        return _ordering(statement, path, test)
    return sql(f"test_{test.op.value}", path=path, value=statement.value(_json(test.value), "text"))


def _json(value: Any) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        raise InvalidArgument("A value must be a finite number", field="where")
    try:
        return msgspec.json.encode(value).decode()
    except (UnicodeEncodeError, TypeError, OverflowError, RecursionError) as error:
        raise InvalidArgument(f"The value is no JSON: {error}", field="where") from None


def _can_hold(test: PropertyTest) -> bool:
    """Whether the value can be compared at all; a test that cannot hold has no parameters."""
    if test.op is Op.STARTS_WITH:
        return isinstance(test.value, str)
    if test.op in _ORDER:
        return isinstance(test.value, str | int | float) and not isinstance(test.value, bool)
    return True


def _ordering(statement: Statement, path: str, test: PropertyTest) -> str:
    operator = _ORDER[test.op]
    if isinstance(test.value, str):
        value = statement.value(test.value, "text")
        return sql("test_order_string", path=path, operator=operator, value=value)
    value = statement.value(_json(test.value), "text")
    return sql("test_order_number", path=path, operator=operator, value=value)
