"""Translation of a `Query` into one SQL statement.

It is built from the fragments in `queries/read.sql`. Values never become text of the statement:
each is a parameter, collected in `Statement`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from naksha.model import limits
from naksha.model.errors import LimitExceeded
from naksha.model.identity.txn import DAY_FACTOR
from naksha.model.query import GEOMETRY_TYPE, Bbox, Intersects, Op, Query, Spatial, States, id_hash
from naksha.model.query import Test as PropertyTest
from naksha.model.state import XYZ
from naksha.psql.sql import ident, sql
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

_BOX_THIN = 0.001
"""Width in degrees below which float32 cannot resolve the inside of a box.

See the fragment `box`.
"""

Suffix: TypeAlias = Literal["", "_del", "_hst"]
"""Suffixes of the names of a collection's tables: HEAD, tombstones, history."""
HISTORY: Final[Suffix] = "_hst"


class Statement:
    """SQL text under construction, with its parameters."""

    def __init__(self) -> None:
        self.values: list[Any] = []

    def value(self, value: Any, type_: str) -> str:
        """Add a parameter; return its placeholder."""
        if len(self.values) == limits.QUERY_VALUES_MAX:
            raise LimitExceeded(
                f"The query has too many values; at most {limits.QUERY_VALUES_MAX} are accepted"
            )
        if type_ == "text":
            check_text(value)
        elif type_ == "text[]":
            for each in value:
                check_text(each)
        self.values.append(value)
        return f"${len(self.values)}::{type_}"


class Source(NamedTuple):
    """One layer that a statement reads.

    It consists of the name of its tables, the transaction it is read at (None for HEAD), the tables
    of the ids that are hidden in it because a layer above has them, and a lower bound of the number
    of HEAD's leaves: a collection that has grown to 16 never shrinks.
    """

    table: str
    at: int | None
    masks: tuple[str, ...] = ()
    partitions: int = 1


def needs(sources: Sequence[Source], query: Query) -> list[tuple[str, int | None]]:
    """Return the tables of layers, each with the transaction from which it needs history."""
    since = query.replaced_since
    if since is None:
        return [(source.table, source.at) for source in sources]
    return [(s.table, since if s.at is None else min(since, s.at)) for s in sources]


def leaf_of(feature_id: str) -> str:
    """Return the leaf of a feature id, as the partition key computes it."""
    return id_hash(feature_id)[0]


def states(
    collection: str, query: Query, at: int | None, cursor: PageCursor | None = None
) -> tuple[str, list[Any]]:
    """Return the statement that selects (id, feature) of all states of the query."""
    return layered_states([Source(collection, at)], query, cursor)


def layered_states(
    layers: Sequence[Source], query: Query, cursor: PageCursor | None = None
) -> tuple[str, list[Any]]:
    """Return the same statement for a collection in several layers, topmost first."""
    statement = Statement()
    # One more than the limit, to detect whether there are more.
    limit = None if query.limit is None else query.limit + 1
    given = _given(layers, query)
    sources, order = rows_of(statement, layers, query, given, cursor=cursor, limit=limit)
    return _select(statement, query, given, sources, order), statement.values


def some_states(
    layers: Sequence[Source], query: Query, limit: int | None, *, if_there: str | None = None
) -> tuple[str, list[Any]]:
    """Return the statement that selects (id, feature) of up to `limit` states, in any order.

    With `if_there` it selects none unless that collection exists.
    """
    statement = Statement()
    conditions = [] if if_there is None else [there(statement, if_there)]
    given = _given(layers, query)
    sources, _ = rows_of(statement, layers, query, given, *conditions)
    cut = "" if limit is None else sql("cut", limit=statement.value(limit, "int8"))
    return _select(statement, query, given, sources, cut), statement.values


def there(statement: Statement, collection: str) -> str:
    """Return the condition that a collection exists."""
    return sql("there", id=statement.value(collection, "text"))


def _given(layers: Sequence[Source], query: Query) -> str:
    """Return the fragment of the columns that a source selects.

    "row" selects columns from which the document is built after all sources were combined. A read
    at a version has many partitions, and the space is inserted only into the documents that are
    returned.
    """
    is_whole_past = query.limit is None and any(layer.at is not None for layer in layers)
    return "row" if is_whole_past or query.space is not None else "feature"


def _select(statement: Statement, query: Query, given: str, sources: str, order: str) -> str:
    if given == "feature":
        return sql("select_states", sources=sources, order=order)
    if query.space is None:
        return sql("select_states_at", sources=sources, order=order, document=sql("document"))
    check_text(query.space)
    space = json_text(query.space)
    return sql(
        "select_states_in_space",
        sources=sources,
        order=order,
        document=sql("document"),
        space=statement.value(space, "text"),
        splice=statement.value(f'"{XYZ}": {{"space": {space}, ', "text"),
    )


def rows_of(
    statement: Statement,
    layers: Sequence[Source],
    query: Query,
    given: str,
    *conditions: str,
    cursor: PageCursor | None = None,
    limit: int | None = None,
) -> tuple[str, str]:
    """Return the rows of the requested states, and their order if there is a limit.

    `given` is the fragment that selects the columns.
    """
    if limit is None:
        return source_rows(statement, layers, query, cursor, "source", given, conditions), ""
    # Live or deleted, a feature occurs once; only with all states it occurs several times.
    several = query.states is States.ALL
    # As a literal: with an unknown limit the planner might sort the whole collection.
    cut = {"then": sql("then_txn") if several else "", "limit": str(limit)}
    sources = source_rows(statement, layers, query, cursor, "source_page", given, conditions, **cut)
    then = sql("then_txn_of_page") if several else ""
    return sources, sql("order_page", then=then, limit=str(limit))


def sampled_rows(
    statement: Statement, layers: Sequence[Source], query: Query, given: str, percent: float
) -> str:
    """Return the same rows, of about `percent` of the pages."""
    part = f"{percent:.9f}"
    return source_rows(statement, layers, query, None, "source_sample", given, (), percent=part)


def count(collection: str, query: Query, at: int | None) -> tuple[str, list[Any]]:
    """Return the statement that counts the states of the query."""
    return layered_count([Source(collection, at)], query)


def layered_count(
    layers: Sequence[Source], query: Query, *, if_there: str | None = None
) -> tuple[str, list[Any]]:
    """Return the same statement for a collection in several layers, topmost first.

    With `if_there` it counts nothing unless that collection exists.
    """
    statement = Statement()
    conditions = [] if if_there is None else [there(statement, if_there)]
    sources = source_rows(statement, layers, query, None, "source_count", "feature", conditions)
    return sql("select_count", sources=sources), statement.values


def source_rows(
    statement: Statement,
    layers: Sequence[Source],
    query: Query,
    cursor: PageCursor | None,
    source: str,
    given: str,
    conditions: Sequence[str],
    **slots: str,
) -> str:
    """Return the rows of all tables that may hold states of the query, combined by UNION ALL.

    `source` is the fragment that selects from one table.
    """
    filters = [*filters_of(statement, query), *conditions]
    if cursor is not None:
        place = {
            "id": statement.value(cursor.id, "text"),
            "txn": statement.value(cursor.txn, "int8"),
        }
        filters.append(sql("after_cursor", **place))
    parts = []
    for layer in layers:
        for table in layer_tables(statement, layer, query):
            whole = layer.table + table.suffix
            has_leaves = table.suffix == "" and layer.partitions > 1
            for leaf, name in _leaves(query, whole) if has_leaves else [("", whole)]:
                conditions_here = [
                    *table.conditions,
                    *filters,
                    *in_part(statement, query, leaf),
                    *ids_of(statement, query, table.suffix == ""),
                ]
                shown = sql(given + table.form, at=table.at or "")
                every = "\n   AND ".join(conditions_here)
                parts.append(sql(source, table=ident(name), given=shown, conditions=every, **slots))
    return "\nUNION ALL\n".join(parts)


class LayerTable(NamedTuple):
    """A table of a layer, the form in which its states are returned, and conditions on them.

    The form is "" for states as stored, "_open" without their end, or "_at" as seen from `at`.
    """

    suffix: Suffix
    form: Literal["", "_open", "_at"]
    at: str | None
    conditions: list[str]


def layer_tables(
    statement: Statement, layer: Source, query: Query, *, hidden: bool = False
) -> Iterable[LayerTable]:
    """Yield the tables of a layer that may hold states of the query.

    If all states are requested, `hidden` includes the hidden ones of the history.
    """
    at = None if layer.at is None else statement.value(layer.at, "int8")
    if query.replaced_since is not None:
        yield LayerTable("_hst", "_open", at, list(_replaced(statement, query, at)))
        return
    masks = [sql("unmasked", ids=ident(ids)) for ids in layer.masks]
    every = query.states is States.ALL
    for suffix, condition in _tables(query, at, hidden):
        if suffix != "_hst" or layer.at is None or at is None:
            yield LayerTable(suffix, "", at, [condition, *masks])
        elif not every:
            yield LayerTable(suffix, "_open", at, [condition, _from_day(layer.at), *masks])
        elif masks:
            unmasked = joined([sql("ended", at=at), " AND ".join(masks)], " OR ", "true")
            yield LayerTable(suffix, "_at", at, [condition, unmasked])
        else:
            yield LayerTable(suffix, "_at", at, [condition])


def _from_day(txn: int) -> str:
    """Return the condition that a state ended on the day of a transaction or later.

    It is a literal, so that partitions of earlier days are pruned when the statement is planned,
    not each time it runs.
    """
    return sql("from_day", first=str(txn - txn % DAY_FACTOR))


def _replaced(statement: Statement, query: Query, at: str | None) -> Iterable[str]:
    """Yield the conditions on states that ended; no layer above contains any of these."""
    assert query.replaced_since is not None
    yield sql("replaced", since=statement.value(query.replaced_since, "int8"))
    yield _from_day(query.replaced_since)
    if at is not None:
        yield sql("ended", at=at)
    if query.states is not States.ALL:
        yield sql("hst_live" if query.states is States.LIVE else "hst_dead")


def _tables(query: Query, at: str | None, hidden: bool) -> list[tuple[Suffix, str]]:
    """Return the tables with the requested states, and a condition for each."""
    current = sql("true") if at is None else sql("live_head_at", at=at)
    live: list[tuple[Suffix, str]] = [("", current)]
    dead: list[tuple[Suffix, str]] = [("_del", current)]
    if query.states is States.ALL:
        past = sql("all_hst") if at is None else sql("all_hst_at", at=at)
        past = current if hidden else past
        if not _is_narrow(query):
            return [*live, *dead, ("_hst", past)]
        kinds = (sql("hst_live"), sql("hst_dead"))
        return [*live, *dead, *((HISTORY, f"{past} AND {kind}") for kind in kinds)]
    if at is not None:
        # The planner cannot know how many states are valid at a version, and assumes few.
        is_found_otherwise = query.txn_from is not None or query.ids is not None
        valid = "begun_hst_at" if is_found_otherwise else "live_hst_at"
        live.append(("_hst", sql(valid, at=at)))
        dead.append(("_hst", sql("dead_hst_at", at=at)))
    return live if query.states is States.LIVE else dead


def _is_narrow(query: Query) -> bool:
    """Whether the states are found by an index that lacks the tombstones of the history.

    Then those tombstones are searched for separately, by their action.
    """
    return query.ids is None and any(
        part is not None
        for part in (
            query.spatial,
            query.tags,
            query.mrid_prefix,
            query.qrid_prefix,
            query.txn_from,
            query.txn_to,
            query.updated_from,
        )
    )


def depends_on_values(query: Query) -> bool:
    """Whether the right plan depends on the values.

    One author may have written nearly everything, another nearly nothing, and the same statement
    serves both. The same applies to the time of the last update.
    """
    parts = (query.authors, query.actions, query.updated_from)
    return any(part is not None for part in parts)


def ids_of(statement: Statement, query: Query, partitioned: bool) -> Iterable[str]:
    """Yield the condition on ids, with the leaves for a table that is partitioned by leaf."""
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


def in_part(statement: Statement, query: Query, leaf: str = "") -> Iterable[str]:
    """Yield the conditions on the requested part, if there is one.

    A leaf is cut from the same hashes, so only bounds inside of it are needed. Each bound is a
    condition of its own: the planner underestimates the rows of two combined bounds, and sorts
    them.
    """
    if query.part is None:
        return
    first, last = query.part.hashes()
    if leaf.ljust(len(first), "0") < first:
        yield sql("part_first", first=statement.value(first, "text"))
    if leaf.ljust(len(last), "f") > last:
        yield sql("part_last", last=statement.value(last, "text"))


def _leaves(query: Query, table: str) -> Iterable[tuple[str, str]]:
    """Yield the leaves of a table that overlap the requested part, with their names.

    Without a part it is the whole table. The planner does not know the hashes, so the tables are
    named.
    """
    if query.part is None or query.part.is_whole:
        return [("", table)]
    first, last = (int(bound[0], 16) for bound in query.part.hashes())
    return [(f"{leaf:x}", f"{table}_p{leaf:x}") for leaf in range(first, last + 1)]


def filters_of(statement: Statement, query: Query) -> Iterable[str]:
    """Yield all other conditions of a query."""
    if query.spatial is not None:
        yield _spatial(statement, query.spatial)
    if query.tags is not None:
        alternatives = [
            sql("tags_all", tags=statement.value(list(group), "text[]")) for group in query.tags
        ]
        yield joined(alternatives, " OR ", "false")
    for key, prefix in (("mrid", query.mrid_prefix), ("qrid", query.qrid_prefix)):
        if prefix is not None:
            yield _prefix(statement, key, prefix)
    yield from _by_whom(statement, query)
    for name in ("updated_from", "updated_to", "txn_from", "txn_to"):
        bound = getattr(query, name)
        if bound is not None:
            yield sql(name, value=statement.value(bound, "int8"))
    if query.updated_from is not None:
        # There is no index on the time, but there is one on txn.
        first = first_txn_at(query.updated_from)
        yield sql("txn_from", value=statement.value(first, "int8"))
    if query.where is not None:
        yield predicate_sql(query.where, lambda test: _test(statement, test))


def _by_whom(statement: Statement, query: Query) -> Iterable[str]:
    """Yield the conditions on author, application and action."""
    for key, among in (
        ("author", query.authors),
        ("appId", query.app_ids),
        ("action", query.actions),
    ):
        if among is not None:
            yield sql("among", key=key, values=statement.value(list(among), "text[]"))
    if query.authors is not None and query.actions is None:
        yield sql("any_action")  # the index on authors starts with the action


def _prefix(statement: Statement, key: str, prefix: str) -> str:
    """Return the condition that a value starts with a prefix, as a range.

    So an index can be used by a generic plan, whatever the prefix is.
    """
    first, end = statement.value(prefix, "text"), end_of_prefix(prefix)
    if end is None:
        return sql("from_value", key=key, first=first)
    return sql("prefix", key=key, first=first, end=statement.value(end, "text"))


def _spatial(statement: Statement, spatial: Spatial) -> str:
    boxes = boxes_of(spatial)
    if not isinstance(spatial, Intersects):
        exact = [_exact_box(statement, box) for box in boxes]
        return exact[0] if len(exact) == 1 else joined(exact, " OR ", "false")
    wkb = statement.value(spatial.wkb, "bytea")
    if spatial.radius == 0:
        return sql("intersects", wkb=wkb)
    rough = _box(statement, boxes[0], "rough_box")
    near = sql("near", wkb=wkb, radius=statement.value(spatial.radius, "float8"))
    return f"{rough} AND {near}"


def box_of(statement: Statement, box: Bbox) -> str:
    """Return the condition that a feature's box intersects this one."""
    return _spatial(statement, box)


def _exact_box(statement: Statement, box: Box) -> str:
    west, south, east, north = box
    thin = min(east - west, north - south) < _BOX_THIN
    return _box(statement, box, "thin_box" if thin else "box")


def _box(statement: Statement, box: Box, fragment: str) -> str:
    west, south, east, north = (statement.value(float(edge), "float8") for edge in box)
    return sql(fragment, west=west, south=south, east=east, north=north)


def _test(statement: Statement, test: PropertyTest) -> str:
    if len(test.path) > limits.JSON_DEPTH_MAX:
        return "false"  # no feature is nested so deep, and every test of an absent value is false
    is_type = test.path == GEOMETRY_TYPE
    path = sql("geometry_type") if is_type else path_of(statement, test.path)
    if test.op in (Op.EXISTS, Op.IS_NULL):
        return sql(f"test_{test.op.value}", path=path)
    if test.op in (Op.STARTS_WITH, Op.ANY_STARTS_WITH):
        return sql(f"test_{test.op.value}", path=path, value=statement.value(test.value, "text"))
    if test.op in ORDER:
        return _ordering(statement, path, test)
    return sql(
        f"test_{test.op.value}", path=path, value=statement.value(json_text(test.value), "text")
    )


def path_of(statement: Statement, path: Sequence[str]) -> str:
    """Return the value at a path of a document."""
    steps = (sql("step", key=statement.value(key, "text")) for key in path)
    return sql("path", steps="".join(steps))


def _ordering(statement: Statement, path: str, test: PropertyTest) -> str:
    operator = ORDER[test.op]
    if isinstance(test.value, str):
        value = statement.value(test.value, "text")
        return sql("test_order_string", path=path, operator=operator, value=value)
    value = statement.value(json_text(test.value), "text")
    return sql("test_order_number", path=path, operator=operator, value=value)
