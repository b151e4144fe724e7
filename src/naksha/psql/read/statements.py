"""Statements that read the states of a query.

A plan is printed from the fragments in `queries/read.sql`, table by table.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from naksha.model.identity.txn import DAY_FACTOR
from naksha.model.query import Query, States, id_hash
from naksha.model.state import XYZ
from naksha.psql.read.printer import Statement
from naksha.psql.sql import ident, literal, sql
from naksha.spi.cursor import PageCursor
from naksha.spi.query.plan import AtLeast, QueryPlan, Scan, Table, conditions_of, plan_of
from naksha.spi.query.plan import first_txn as first_txn_of
from naksha.spi.query.printer import joined
from naksha.spi.query.values import check_text, json_text

Suffix: TypeAlias = Literal["", "_del", "_hst"]
"""Suffixes of the names of a collection's tables: HEAD, tombstones, history."""
HISTORY: Final[Suffix] = "_hst"
_SUFFIXES: Final[dict[Table, Suffix]] = {"head": "", "del": "_del", "hst": HISTORY}
_WHOLE: Final = "source_whole"
"""Source of all states at a version, which has many partitions."""
_LIVE_ONLY: Final = frozenset({"mrid", "qrid", "txn"})
"""Columns whose index of the history lacks tombstones."""
_UNEVEN: Final = frozenset({"author", "action"})
"""Columns with an index whose use depends on the value.

One author may have written nearly everything, another nearly nothing.
"""


class LayerTables(NamedTuple):
    """Tables of one layer that a statement reads.

    It consists of their name, the transaction they are read at (None for HEAD), the tables of the
    ids that are hidden in them because a layer above has them, and a lower bound of the number of
    HEAD's leaves: a collection that has grown to 16 never shrinks.
    """

    table: str
    at: int | None
    masks: tuple[str, ...] = ()
    partitions: int = 1


def needs(layers: Sequence[LayerTables], query: Query) -> list[tuple[str, int | None]]:
    """Return the tables of layers, each with the transaction from which it needs history."""
    since = query.replaced_since
    if since is None:
        return [(layer.table, layer.at) for layer in layers]
    return [(s.table, since if s.at is None else min(since, s.at)) for s in layers]


def leaf_of(feature_id: str) -> str:
    """Return the leaf of a feature id, as the partition key computes it."""
    return id_hash(feature_id)[0]


def depends_on_values(query: Query) -> bool:
    """Whether the right plan depends on the values, so that it cannot be the same for all."""
    conditions = conditions_of(query)
    return first_txn_of(query) is not None or any(c.column in _UNEVEN for c in conditions)


def states(
    collection: str, query: Query, at: int | None, cursor: PageCursor | None = None
) -> tuple[str, list[Any]]:
    """Return the statement that selects (id, feature) of all states of the query."""
    return layered_states([LayerTables(collection, at)], query, cursor)


def layered_states(
    layers: Sequence[LayerTables], query: Query, cursor: PageCursor | None = None
) -> tuple[str, list[Any]]:
    """Return the same statement for a collection in several layers, topmost first."""
    statement, plan = Statement(), plan_of(query, cursor)
    # One more than the limit, to detect whether there are more.
    limit = None if plan.limit is None else plan.limit + 1
    sources, order = _documents(statement, layers, plan, limit)
    return _select(statement, plan, sources, order), statement.values


def some_states(
    layers: Sequence[LayerTables], query: Query, limit: int | None
) -> tuple[str, list[Any]]:
    """Return the statement that selects (id, feature) of up to `limit` states, in any order."""
    statement, plan = Statement(), plan_of(query)
    sources, _ = _documents(statement, layers, plan, None)
    cut = "" if limit is None else sql("cut", limit=statement.number(limit))
    return _select(statement, plan, sources, cut), statement.values


def _documents(
    statement: Statement, layers: Sequence[LayerTables], plan: QueryPlan, limit: int | None
) -> tuple[str, str]:
    """Return the features of the requested states, and their order if there is a limit.

    If a space is inserted, the sources are the rows: only the documents that are returned are built
    with it.
    """
    if plan.space is not None:
        return rows_of(statement, layers, plan, "row", limit=limit)
    if plan.limit is None and any(layer.at is not None for layer in layers):
        return source_rows(statement, layers, plan, _WHOLE, "feature"), ""
    return rows_of(statement, layers, plan, "feature", limit=limit)


def _select(statement: Statement, plan: QueryPlan, sources: str, order: str) -> str:
    if plan.space is None:
        return sql("select_states", sources=sources, order=order)
    check_text(plan.space)
    space = json_text(plan.space)
    return sql(
        "select_states_in_space",
        sources=sources,
        order=order,
        document=sql("document"),
        space=statement.text(space),
        splice=statement.text(f'"{XYZ}": {{"space": {space}, '),
    )


def rows_of(
    statement: Statement,
    layers: Sequence[LayerTables],
    plan: QueryPlan,
    content: str,
    *conditions: str,
    limit: int | None = None,
) -> tuple[str, str]:
    """Return the rows of the requested states, and their order if there is a limit.

    `content` is the fragment that selects what is returned of a state.
    """
    if limit is None:
        return source_rows(statement, layers, plan, "source", content, *conditions), ""
    # As a literal: with an unknown limit the planner might sort the whole collection.
    cut = {"then": sql("then_txn") if plan.is_by_txn else "", "limit": str(limit)}
    sources = source_rows(statement, layers, plan, "source_page", content, *conditions, **cut)
    then = sql("then_txn_of_page") if plan.is_by_txn else ""
    return sources, sql("order_page", then=then, limit=str(limit))


def layered_count(layers: Sequence[LayerTables], query: Query) -> tuple[str, list[Any]]:
    """Return the statement that counts the states of a query."""
    statement = Statement()
    sources = source_rows(statement, layers, plan_of(query), "source_count", "feature")
    return sql("select_count", sources=sources), statement.values


# ---- Tables ----------------------------------------------------------------------------------


def source_rows(
    statement: Statement,
    layers: Sequence[LayerTables],
    plan: QueryPlan,
    source: str,
    content: str,
    *conditions: str,
    **slots: str,
) -> str:
    """Return the rows of all tables that may hold states of the query, combined by UNION ALL.

    `source` is the fragment that selects from one table.
    """
    filters = [*statement.filters(plan), *conditions]
    parts = []
    for layer in layers:
        for table in layer_tables(statement, layer, plan):
            is_head = table.suffix == ""
            opens = source == _WHOLE and table.form == "_open"
            select = source + table.form if opens else source
            shown = sql(content + table.form, at=table.at or "")
            for leaf, name in _leaves(plan, layer) if is_head else [("", table.name)]:
                every = [*table.conditions, *filters]
                if plan.hashes is not None:
                    every += in_part(statement, plan.hashes, leaf)
                if plan.ids is not None:
                    every.append(id_condition(statement, plan.ids, is_head))
                text = "\n   AND ".join(every)
                parts.append(
                    sql(select, table=ident(name), content=shown, conditions=text, **slots)
                )
    return "\nUNION ALL\n".join(parts)


class LayerTable(NamedTuple):
    """A table of a layer, the form in which its states are returned, and conditions on them.

    The form is "" for states as stored, "_open" without their end, or "_at" as seen from `at`.
    """

    name: str
    suffix: Suffix
    form: Literal["", "_open", "_at"]
    at: str | None
    conditions: list[str]


def layer_tables(
    statement: Statement, layer: LayerTables, plan: QueryPlan, *, hidden: bool = False
) -> Iterable[LayerTable]:
    """Yield the tables of a layer that may hold states of the query; see `QueryPlan.scans`."""
    at = None if layer.at is None else statement.number(layer.at)
    masks = [sql("unmasked", ids=ident(ids)) for ids in layer.masks]
    by_kind = plan.states is States.ALL and _misses_tombstones(plan)
    for scan in plan.scans(layer.at, hidden=hidden, by_kind=by_kind):
        suffix = _SUFFIXES[scan.table]
        form: Literal["", "_open", "_at"] = ""
        if scan.table == "hst":
            form = "_open" if not scan.shows_end else "" if at is None else "_at"
        conditions = [*_rows(statement, plan, scan, layer, at)]
        if masks:
            conditions += _unmasked(scan, masks, at)
        yield LayerTable(layer.table + suffix, suffix, form, at, conditions)


def _misses_tombstones(plan: QueryPlan) -> bool:
    """Whether the states are found by an index that lacks the tombstones of the history.

    Then those tombstones are searched for separately, by their action.
    """
    return plan.ids is None and (
        plan.area is not None
        or plan.tags is not None
        or plan.first_txn is not None
        or plan.is_on(_LIVE_ONLY)
    )


def _rows(
    statement: Statement, plan: QueryPlan, scan: Scan, layer: LayerTables, at: str | None
) -> Iterable[str]:
    """Yield the conditions on the rows of a table that are read at a transaction."""
    in_area = plan.area is not None and plan.ids is None
    if scan.rows == "replaced":
        assert plan.replaced_since is not None
        yield sql("replaced", since=statement.number(plan.replaced_since))
        yield _from_day(plan.replaced_since)
        if at is not None:
            yield sql("ended", at=at)
    elif layer.at is None or at is None:
        yield sql(scan.rows)
    elif scan.rows == "valid":
        by_index = "valid_in_area" if in_area else "valid"
        yield sql("valid_by_start" if _is_by_start(plan, scan) else by_index, at=at)
        yield _from_day(layer.at)
    elif scan.table == "head" and in_area:
        yield sql("begun_in_area", table=literal(layer.table), at=at)
    else:
        yield sql(scan.rows + "_at", at=at)
    if scan.kind is not States.ALL:
        yield sql("alive" if scan.kind is States.LIVE else "dead")


def _is_by_start(plan: QueryPlan, scan: Scan) -> bool:
    """Whether states valid at a version are found otherwise than by the index on their spans.

    The planner cannot know how many states are valid at a version, and assumes few.
    """
    return scan.kind is States.DELETED or plan.ids is not None or plan.has(AtLeast, "txn")


def _unmasked(scan: Scan, masks: Sequence[str], at: str | None) -> Iterable[str]:
    """Yield the conditions that exclude ids that a layer above has.

    That layer begins with the state that was valid at this layer's version. States that ended
    before are only in this layer.
    """
    if scan.rows == "replaced":
        return
    if scan.shows_end:
        assert at is not None
        yield joined([sql("ended", at=at), " AND ".join(masks)], " OR ", "true")
    else:
        yield from masks


def _from_day(txn: int) -> str:
    """Return the condition that a state ended on the day of a transaction or later.

    It is a literal, so that partitions of earlier days are pruned when the statement is planned,
    not each time it runs.
    """
    return sql("from_day", first=str(txn - txn % DAY_FACTOR))


def id_condition(statement: Statement, ids: tuple[str, ...], partitioned: bool) -> str:
    """Return the condition on ids, with the leaves for a table that is partitioned by leaf."""
    if not partitioned:
        return sql("ids_elsewhere", ids=statement.texts(ids))
    if len(ids) == 1:
        (id,) = ids
        return sql("one_id", id=statement.text(id), leaf=statement.text(leaf_of(id)))
    texts = statement.texts(ids)  # also refuses ids that have no hash
    leaves = sorted({leaf_of(each) for each in ids}) or ["0"]
    among = ", ".join(f"'{leaf}'" for leaf in leaves)
    return sql("many_ids", ids=texts, leaves=among)


def in_part(statement: Statement, hashes: tuple[str, str], leaf: str = "") -> Iterable[str]:
    """Yield the conditions on the requested part.

    A leaf is cut from the same hashes, so only bounds inside of it are needed. Each bound is a
    condition of its own: the planner underestimates the rows of two combined bounds, and sorts
    them.
    """
    first, last = hashes
    if leaf.ljust(len(first), "0") < first:
        yield sql("part_first", first=statement.text(first))
    if leaf.ljust(len(last), "f") > last:
        yield sql("part_last", last=statement.text(last))


def _leaves(plan: QueryPlan, layer: LayerTables) -> Iterable[tuple[str, str]]:
    """Yield the leaves of HEAD that overlap the requested part, with their names.

    Without a part it is the whole table. The planner does not know the hashes, so the tables are
    named.
    """
    if plan.hashes is None or layer.partitions == 1:
        return [("", layer.table)]
    first, last = (int(bound[0], 16) for bound in plan.hashes)
    return [(f"{leaf:x}", f"{layer.table}_p{leaf:x}") for leaf in range(first, last + 1)]
