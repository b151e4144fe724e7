"""Statements that read the states of a query.

A plan is printed from the fragments in `queries/read.sql`, table by table. What SQL cannot decide
(intersections of geometries) is left to `exact_tests`; then the statement returns the geometries
beside the states.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from naksha.model import limits
from naksha.model.query import Query, States
from naksha.model.state import XYZ
from naksha.spi.cursor import PageCursor
from naksha.spi.query.areas import Box
from naksha.spi.query.plan import AtLeast, Below, QueryPlan, Scan, Table, plan_of
from naksha.spi.query.printer import joined
from naksha.spi.query.values import json_text
from naksha.sqlite.read.layers import LayerRows
from naksha.sqlite.read.printer import Statement, geometry
from naksha.sqlite.sql import sql

_NEVER: Final = str(limits.INT8_MAX)
_INDEXED: Final = frozenset({"mrid", "qrid", "author", "action"})
"""Columns with an index, besides txn."""
NOWHERE: Final = (None,)
"""Replaces the boxes when there is no spatial condition."""


class TableIndices(NamedTuple):
    """R*Tree of the boxes of a table's states, and table of their tags."""

    tree: str | None
    tags: str | None


_NO_INDICES: Final = TableIndices(None, None)
_INDICES: Final[Mapping[Table, TableIndices]] = MappingProxyType(
    {
        "head": TableIndices("naksha_box", "naksha_tag"),
        "del": TableIndices("naksha_gone", "naksha_gone_tag"),
        "hst": TableIndices("naksha_past", "naksha_past_tag"),
    }
)


def indices_of(scan: Scan) -> TableIndices:
    """Return the indices of the rows of a table; the history has none of its tombstones."""
    if scan.table != "hst":
        return _INDICES[scan.table]
    is_live = scan.kind is States.LIVE and scan.rows != "replaced"
    return _INDICES["hst"] if is_live else _NO_INDICES


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
    statement, plan = Statement(), plan_of(query, cursor)
    tested = plan.area is not None and plan.area.shape is not None
    geo = sql("geo_also") if tested or geometries else ""
    near = [] if within is None else [sql("box", **statement.edges(within))]
    # If an exact test follows, it is unknown how many rows will pass, so there is no limit.
    limit = "" if plan.limit is None or tested else sql("limit", limit=str(plan.limit + 1))
    source = "source" if plan.limit is None else "source_page"
    sources = sources_of(statement, levels, plan, source, *near, limit=limit)
    order = "" if plan.limit is None else sql("order_page", limit=limit)
    return sql("select_states", sources=sources, order=order, geo=geo), statement.values


def count(levels: Sequence[LayerRows], query: Query) -> tuple[str, list[Any]]:
    """Build the statement that counts states; not for queries that need an exact test."""
    statement = Statement()
    sources = sources_of(statement, levels, plan_of(query), "source")
    return sql("select_count", sources=sources), statement.values


def sources_of(
    statement: Statement,
    levels: Sequence[LayerRows],
    plan: QueryPlan,
    source: str,
    *conditions: str,
    hidden: bool = False,
    **slots: str,
) -> str:
    """Build the UNION of all tables that have states of the query, each as the named source.

    With `hidden`, a query for all states also returns history states that were never visible.
    """
    boxes: Sequence[Box | None] = NOWHERE if plan.area is None else plan.area.boxes
    filters = [*statement.filters(plan), *conditions]
    since = _since(statement, plan)
    space = _space(statement, plan)
    by_kind = plan.ids is None and (plan.area is not None or plan.tags is not None)
    parts = []
    for level in levels:
        version = None if level.at is None else statement.number(level.at)
        t = statement.number(level.collection.t)
        until = _until(plan, version, since)
        for scan in plan.scans(level.at, hidden=hidden, by_kind=by_kind and not hidden):
            shown = _shown(scan, version, space)
            rows = [*_rows(statement, plan, scan, version), *([] if _is_indexed(scan) else since)]
            masked = list(_unmasked(statement, level, scan, version))
            tags_table = indices_of(scan).tags
            for box in boxes:
                from_, first = _from(statement, plan, scan, rows, box, t, version)
                tags = statement.tags(plan, t, tags_table)
                every = "\n   AND ".join([first, *until, *filters, *tags, *masked])
                parts.append(sql(source, from_=from_, conditions=every, **shown, **slots))
    # Boxes on both sides of the date line may find the same feature, which UNION removes.
    return ("\nUNION\n" if len(boxes) > 1 else "\nUNION ALL\n").join(parts)


# ---- Columns ---------------------------------------------------------------------------------


def _space(statement: Statement, plan: QueryPlan) -> dict[str, str] | None:
    """Return the slots for features that contain the name of their space."""
    if plan.space is None:
        return None
    return {
        "space": statement.text(plan.space),
        "place": statement.value(f'"properties":{{"{XYZ}":{{'.encode()),
        "splice": statement.text(f'"space":{json_text(plan.space)},'),
    }


def _shown(scan: Scan, version: str | None, space: dict[str, str] | None) -> dict[str, str]:
    """Return the column expressions for the feature, its document and its `txn_next`.

    If the end of states is shown, the first two contain `txn_next`, too.
    """
    shown = _plain(version or _NEVER if scan.shows_end else None)
    if space is None:
        return shown
    document = shown["document"]
    slots = {"document": document, "bytes": sql("bytes", document=document), **space}
    return {**shown, "feature": sql("feature_in_space", geometry=geometry(), **slots)}


@lru_cache(maxsize=100)
def _plain(closed_at: str | None) -> dict[str, str]:
    """Return the same without a space; the placeholders of versions are few."""
    feature = feature_sql(closed_at)
    if closed_at is None:
        return {"feature": feature, "document": sql("split_feature"), "ended": sql("split_open")}
    document, ended = (sql(name, at=closed_at) for name in ("split_feature_at", "split_ended_at"))
    return {"feature": feature, "document": document, "ended": ended}


def feature_sql(closed_at: str | None = None) -> str:
    """Return the expression for a whole feature; of the history, with its end at a version."""
    if closed_at is None:
        return sql("feature", geometry=geometry())
    return sql("feature_closed", at=closed_at, geometry=geometry())


# ---- Rows ------------------------------------------------------------------------------------


def _rows(statement: Statement, plan: QueryPlan, scan: Scan, at: str | None) -> Iterator[str]:
    """Yield the conditions on the rows of a table that are read."""
    if scan.rows == "replaced":
        assert plan.replaced_since is not None
        yield sql("replaced", since=statement.number(plan.replaced_since))
        if at is not None:
            yield sql("ended_at", at=at)
        if scan.kind is not States.ALL:
            yield sql(f"hst_{scan.kind}")
        return
    kind = "" if scan.kind is States.ALL else f"_{scan.kind}"
    yield sql(f"{scan.rows}{kind}") if at is None else sql(f"{scan.rows}{kind}_at", at=at)


def _is_indexed(scan: Scan) -> bool:
    """Whether an index serves the condition on the rows: on their end, or on their action."""
    return scan.rows in ("replaced", "valid") or scan.kind is not States.ALL


def _unmasked(
    statement: Statement, level: LayerRows, scan: Scan, version: str | None
) -> Iterator[str]:
    """Yield the conditions that exclude features that a layer above has.

    That layer begins with the state that was valid at this layer's version. States that ended
    before are only in this layer.
    """
    if not level.masks or scan.rows == "replaced":
        return
    hidden = [sql("unmasked_id", mask=statement.number(mask)) for mask in level.masks]
    if scan.shows_end:
        assert version is not None
        yield joined([sql("ended_at", at=version), joined(hidden, " AND ", "true")], " OR ", "")
    else:
        yield from hidden


def _from(
    statement: Statement,
    plan: QueryPlan,
    scan: Scan,
    rows: Sequence[str],
    box: Box | None,
    t: str,
    at: str | None,
) -> tuple[str, str]:
    """Return the FROM clause, a table or an R*Tree joined with it, and its conditions."""
    edges = {} if box is None else statement.edges(box)
    table = f"naksha_{scan.table}"
    tree = None if plan.ids is not None else indices_of(scan).tree
    in_tree, condition = [sql("tree_table", t=t)], " AND ".join(rows)
    was_live = tree is not None and scan.rows == "valid"
    was_live = was_live and (box is not None or is_unselective(plan))
    if was_live:
        assert at is not None
        in_tree.insert(0, sql("tree_at", ord=sql("ord_at", at=at)))
        condition = sql("live_past_at", at=at)
    elif scan.table == "head" and at is not None:
        in_tree.insert(0, sql("tree_begun_at", ord=sql("ord_at", at=at)))
    if box is not None:
        in_tree.insert(0, sql("tree_box", **edges))
        condition = f"{condition} AND {sql('box', **edges)}"
        if tree is not None:
            every = " AND ".join([*in_tree, condition])
            return sql("from_box", tree=tree, table=table), every
    if was_live:
        first = sql("in_past", tree=" AND ".join(in_tree))
    else:
        by_index = _is_indexed(scan) or len(rows) > 1
        whole = not by_index and plan.ids is None and is_unselective(plan)
        first = sql("within" if whole else "of_table", t=t)
    return sql("from_table", table=table), f"{first} AND {condition}"


def is_unselective(plan: QueryPlan) -> bool:
    """Return whether no index except the one on time is useful; pages use the index on ids."""
    is_indexed = plan.is_on(_INDEXED) or plan.has(AtLeast, "txn")
    return plan.limit is None and plan.tags is None and not is_indexed


def _since(statement: Statement, plan: QueryPlan) -> list[str]:
    """Return the condition on txn, which has an index, that follows from conditions on times.

    It is left out where another condition is narrower, and for pages: these use the index on ids,
    because with the index on txn each page would sort all later states.
    """
    others = (plan.ids, plan.area, plan.replaced_since)
    if plan.first_txn is None or any(other is not None for other in others):
        return []
    narrowed = plan.is_on(frozenset({"txn"})) or not is_unselective(plan)
    return [] if narrowed else [statement.at_least("txn", plan.first_txn)]


def _until(plan: QueryPlan, at: str | None, since: list[str]) -> list[str]:
    """Return the upper bound of an open range of txn: states after the version are not read.

    Pages use the index on ids, so they do not need it.
    """
    is_page = plan.limit is not None or plan.replaced_since is not None
    begins = plan.has(AtLeast, "txn") and not is_page
    if at is None or plan.has(Below, "txn") or not (since or begins):
        return []
    return [sql("txn_until", at=at)]
