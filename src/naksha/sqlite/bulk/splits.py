"""Bulk reads: a plan of splits that any process with the file can read, each in one snapshot.

The plan fixes P, the last published transaction. States that ended at or before P never change
again, so history splits may read them at any time. States that were current when the plan was made
may have moved to the history since; therefore a split of HEAD, which is a range of ids, also reads
the history of these ids after P.

A branch is split by ids only: each split reads all of its layers at the version, in one statement.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import msgspec
import pyarrow as pa
import shapely

from naksha.model import limits
from naksha.model.errors import InvalidArgument
from naksha.model.geo.wkb_rules import stored_shapes
from naksha.model.query import Intersects, Query, States
from naksha.model.version import VersionSelector
from naksha.spi.arrow import schema_of
from naksha.spi.query.plan import QueryPlan, Scan, Table, check_hidden, plan_of
from naksha.spi.query.printer import joined
from naksha.spi.storage import Split
from naksha.spi.support.batches import batches as in_batches
from naksha.sqlite.read import layers, versions
from naksha.sqlite.read.exact_tests import tester_of
from naksha.sqlite.read.layers import MAIN_ONLY, LayerRows, Layers
from naksha.sqlite.read.printer import Statement
from naksha.sqlite.read.rows import CollectionRow
from naksha.sqlite.read.statements import indices_of, is_unselective, sources_of
from naksha.sqlite.sql import queries, sql

_SPLIT_ROWS: Final = 50_000
"""Approximate number of states that one split reads."""
BATCH_ROWS: Final = 8_192
_LONG: Final = frozenset({"geometry", "feature", "properties", "members", "tags"})
"""Columns whose values may be larger than a few hundred bytes."""
Row = tuple[Any, ...]

_KINDS: Final = {"head": States.LIVE, "del": States.DELETED, "hst": States.ALL}


class SplitPayload(msgspec.Struct, frozen=True, array_like=True):
    """Payload of a split: which states it reads at version `at`, filtered by the query.

    `source` is one of:

    - "head" or "del": HEAD or the deletion table, ids from `first` on and below `end`, together
      with the states that left that table for the history after `published`;
    - "hst": history states that ended after `after`, up to and including `until`;
    - "layers": ids from `first` on and below `end`, on all layers of a branch.

    With `hidden`, history states that are never visible are read, too.
    """

    source: str
    at: int
    published: int
    query: Query
    first: str | None = None
    end: str | None = None
    after: int = 0
    until: int = 0
    layers: Layers = MAIN_ONLY
    hidden: bool = False


def payload_of(split: Split) -> SplitPayload:
    """Decode the payload of a split."""
    try:
        return msgspec.msgpack.decode(split.payload, type=SplitPayload)
    except msgspec.DecodeError as error:
        raise InvalidArgument(
            "The split was not planned by an SQLite storage; use one that plan() returned",
            field="split",
        ) from error


def plan(
    connection: sqlite3.Connection,
    storage: tuple[str, int],
    branch_layers: Layers,
    collection: str,
    query: Query,
    at: VersionSelector,
    *,
    hidden: bool,
) -> list[Split]:
    """See `Storage.plan`; the caller has published all transactions that can be published."""
    check_hidden(query, hidden)
    if query.limit is not None or query.cursor is not None:
        raise InvalidArgument(
            "A bulk read does not support limit and cursor; remove them from the query",
            field="limit",
        )
    if query.space is not None:
        raise InvalidArgument(
            "A bulk read does not support space; remove it from the query", field="space"
        )
    c = layers.collection_on(connection, branch_layers, collection)
    last = versions.find(connection, "last_version") or versions.BEGINNING
    version = layers.resolve(
        connection, branch_layers, at, None if _is_all(branch_layers, hidden) else c.id
    )
    payload = SplitPayload("head", version.txn, last.txn, query, hidden=hidden)
    if query.replaced_since is not None:
        levels = layers.levels(connection, branch_layers, c, version.txn)
        layers.check_kept_since(connection, levels, query.replaced_since)
    if query.ids == ():
        return []
    if branch_layers == MAIN_ONLY:
        payloads = list(_parts(connection, c, payload))
    else:
        payload = msgspec.structs.replace(payload, source="layers", layers=branch_layers)
        payloads = list(_layered(connection, c, payload))
    return [
        Split(storage, collection, msgspec.msgpack.encode(payload), _KINDS.get(payload.source))
        for payload in payloads
    ]


def _is_all(branch_layers: Layers, hidden: bool) -> bool:
    """Return whether everything stored on main is read, without a check for expired history."""
    return hidden and branch_layers == MAIN_ONLY


def _layered(
    connection: sqlite3.Connection, c: CollectionRow, payload: SplitPayload
) -> Iterator[SplitPayload]:
    """Split a branch into ranges of ids; each layer may have many ids."""
    found = layers.levels(connection, payload.layers, c, payload.at)
    ends: set[str] = set()
    if payload.query.ids is None:
        for level in found:
            t = level.collection.t
            if _is_few(connection, "naksha_head", t, payload.query):
                continue
            text = sql("split_ids", table="naksha_head")
            ends.update(row[0] for row in connection.execute(text, (t, _SPLIT_ROWS)))
    first = None
    for end in sorted(ends):
        yield msgspec.structs.replace(payload, first=first, end=end)
        first = end
    yield msgspec.structs.replace(payload, first=first)


def _parts(
    connection: sqlite3.Connection, c: CollectionRow, payload: SplitPayload
) -> Iterator[SplitPayload]:
    kind, since = payload.query.states, payload.query.replaced_since
    if since is not None:
        # Like a read at that transaction, but only of the states that have ended since.
        if since < payload.at:
            payload = msgspec.structs.replace(payload, source="hst", at=since, published=payload.at)
            yield from _history(connection, c, payload, since)
        return
    if kind is not States.DELETED:
        yield from _ranges(connection, c, payload)
    if kind is not States.LIVE:
        yield from _ranges(connection, c, msgspec.structs.replace(payload, source="del"))
    after = payload.at
    if kind is States.ALL:
        # States end after the transaction that wrote them, or (hidden states) in it.
        first = (payload.query.txn_from or 0) - payload.hidden
        after = min(max(first, 0), limits.INT8_MAX)
    if after < payload.published:
        yield from _history(connection, c, msgspec.structs.replace(payload, source="hst"), after)


def _ranges(
    connection: sqlite3.Connection, c: CollectionRow, payload: SplitPayload
) -> Iterator[SplitPayload]:
    """Split a table into ranges of ids of about the same size."""
    first = None
    table = f"naksha_{payload.source}"
    if payload.query.ids is None and not _is_few(connection, table, c.t, payload.query):
        text = sql("split_ids", table=table)
        for (end,) in connection.execute(text, (c.t, _SPLIT_ROWS)):
            yield msgspec.structs.replace(payload, first=first, end=end)
            first = end
    yield msgspec.structs.replace(payload, first=first)


def _is_few(connection: sqlite3.Connection, table: str, t: int, query: Query) -> bool:
    """Return whether the query's range of transactions has few enough states for one split."""
    if query.txn_from is None:
        return False
    end = limits.INT8_MAX if query.txn_to is None else query.txn_to
    bounds = [max(0, min(txn, limits.INT8_MAX)) for txn in (query.txn_from, end)]
    row = connection.execute(sql("split_few", table=table), (t, *bounds, _SPLIT_ROWS)).fetchone()
    return bool(row[0])


def _history(
    connection: sqlite3.Connection, c: CollectionRow, payload: SplitPayload, after: int
) -> Iterator[SplitPayload]:
    """Split the history by the end of its states into ranges of about the same size."""
    bounds = (c.t, after, payload.published, _SPLIT_ROWS)
    for (until,) in connection.execute(queries()["split_ends"], bounds).fetchall():
        if after < until < payload.published:
            yield msgspec.structs.replace(payload, after=after, until=until)
            after = until
    yield msgspec.structs.replace(payload, after=after, until=payload.published)


def batches(
    connection: sqlite3.Connection, collection: str, payload: SplitPayload, columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """Yield the states of a split as record batches with the given columns."""
    schema = schema_of(columns)
    c = layers.collection_on(connection, payload.layers, collection)
    levels_of = layers.levels if _is_all(payload.layers, payload.hidden) else layers.readable
    levels = levels_of(connection, payload.layers, c, payload.at)
    test = (
        tester_of(payload.query.spatial) if isinstance(payload.query.spatial, Intersects) else None
    )
    names = list(columns)
    if test is not None and "geometry" not in names:
        names.append("geometry")
    if payload.source == "layers":
        # Two boxes may find the same state twice, which UNION removes; `i` keeps it from also
        # removing different states with equal columns.
        text, values = _of_layers(levels, payload, _columns([*names, "i"]))
    else:
        text, values = _statement(c, payload, _columns(names))
    for chunk in _chunks(connection.execute(text, values), names):
        if test is not None:
            place = names.index("geometry")
            flags = test([row[place] for row in chunk])
            chunk = [row for row, holds in zip(chunk, flags, strict=True) if holds]
        if chunk:
            found = list(zip(*chunk, strict=True))[: len(schema)]
            columns_of = zip(found, schema, strict=True)
            arrays = [_array(each, field, payload.hidden) for each, field in columns_of]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def _chunks(rows: Iterable[Row], names: Sequence[str]) -> Iterator[list[Row]]:
    """Group rows into chunks limited in count and bytes; one row may have megabytes."""
    places = [place for place, name in enumerate(names) if name in _LONG]

    def size(row: Row) -> int:
        return sum(len(row[place] or "") for place in places)

    return in_batches(rows, BATCH_ROWS, limits.BULK_BATCH_BYTES, size)


def _columns(names: Sequence[str]) -> str:
    return ", ".join(sql(f"column_{name}") for name in names)


def _array(values: Sequence[Any], field: pa.Field, hidden: bool) -> pa.Array:
    """Build a column; unreadable geometries become null unless `hidden` reads them as stored."""
    if field.name == "geometry" and not hidden:
        return pa.array(values, field.type, mask=shapely.is_missing(stored_shapes(values)))
    if not pa.types.is_list(field.type):
        return pa.array(values, field.type)
    lists = msgspec.json.decode(f"[{','.join(values)}]")
    return pa.array(lists, field.type)


def _of_layers(
    levels: list[LayerRows], payload: SplitPayload, columns: str
) -> tuple[str, list[Any]]:
    statement = Statement()
    ids = _range(statement, payload)
    sources = sources_of(
        statement,
        levels,
        plan_of(payload.query),
        "split_source",
        *ids,
        hidden=payload.hidden,
        columns=columns,
    )
    return sources, statement.values


def _range(statement: Statement, payload: SplitPayload) -> list[str]:
    """Return the conditions that restrict a statement to the ids of a split."""
    ids = []
    if payload.first is not None:
        ids.append(sql("split_first", id=statement.value(payload.first)))
    if payload.end is not None:
        ids.append(sql("split_end", id=statement.value(payload.end)))
    return ids


def _statement(c: CollectionRow, payload: SplitPayload, columns: str) -> tuple[str, list[Any]]:
    statement, query = Statement(), plan_of(payload.query)
    at = statement.value(payload.at)
    filters = statement.filters(query)
    if query.area is not None:
        boxes = [sql("box", **statement.edges(box)) for box in query.area.boxes]
        filters.append(joined(boxes, " OR ", "false"))
    sources = []
    t = statement.value(c.t)
    for table, conditions in _tables(statement, payload, query, at, t):
        is_past = table == "hst"
        tags = indices_of(Scan(table, "begun", query.states)).tags
        every = [*conditions, *filters, *statement.tags(query, t, tags)]
        sources.append(
            sql(
                "split_source",
                from_=sql("from_table", table=f"naksha_{table}"),
                columns=columns,
                document=sql("split_feature_at", at=at) if is_past else sql("split_feature"),
                ended=sql("split_ended_at", at=at) if is_past else sql("split_open"),
                conditions="\n   AND ".join(every),
            )
        )
    return "\nUNION ALL\n".join(sources), statement.values


def _tables(
    statement: Statement, payload: SplitPayload, query: QueryPlan, at: str, t: str
) -> Iterator[tuple[Table, list[str]]]:
    """Yield the tables that a split reads and the conditions on each."""
    ids, of_table = _range(statement, payload), sql("of_table", t=t)
    kinds = {States.LIVE: "hst_live", States.DELETED: "hst_deleted", States.ALL: "visible"}
    if payload.source == "hst":
        bounds = {
            "after": statement.value(
                max(payload.after, payload.at)
                if payload.query.states is not States.ALL
                else payload.after
            ),
            "until": statement.value(payload.until),
        }
        kind = [] if payload.hidden else [sql("visible"), sql(kinds[payload.query.states])]
        yield "hst", [of_table, sql("begun_at", at=at), sql("split_ended", **bounds), *kind]
        return
    left = "hst_live" if payload.source == "head" else "hst_deleted"
    since = sql("split_since", after=statement.value(payload.published))
    current: Table = "head" if payload.source == "head" else "del"
    scans_all = not ids and is_unselective(query) and query.ids is None
    yield current, [sql("within", t=t) if scans_all else of_table, sql("begun_at", at=at), *ids]
    yield "hst", [of_table, sql("begun_at", at=at), since, sql(left), *ids]
