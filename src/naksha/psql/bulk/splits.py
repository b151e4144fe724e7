"""Bulk reads: a plan of splits that any process can read, each by one statement.

The plan fixes P, the last published transaction. States that ended at or before P never change
again, so history splits may read them at any time. States that were current at the plan may have
moved to the history since; therefore the split of a leaf reads the leaf together with the leaf's
history after P, in one snapshot. So each state is in exactly one split, whenever that is read.

Splits name leaves by the md5 digits of ids. As long as a collection has one table for all digits,
its splits read HEAD as a whole: the collection may have grown by then.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from naksha.model import limits
from naksha.model.collection import CollectionInfo
from naksha.model.errors import InvalidArgument
from naksha.model.identity.names import collection_not_found
from naksha.model.query import Query, States
from naksha.model.version import VersionSelector
from naksha.psql.connection.driver import Connection
from naksha.psql.read import versions
from naksha.psql.read.printer import Statement
from naksha.psql.read.statements import (
    HISTORY,
    LayerTables,
    id_condition,
    in_part,
    layer_tables,
    leaf_of,
    needs,
)
from naksha.psql.sql import ident, inlined, queries, sql
from naksha.spi.query.plan import QueryPlan, plan_of
from naksha.spi.storage import Split

LEAVES: Final = "0123456789abcdef"
SPLIT_BYTES: Final = 64 * 1024 * 1024
"""Approximate size of the history that one split reads; smaller partitions are combined."""
HEAD_SPLIT_BYTES: Final = 4 * 1024 * 1024
"""Approximate size of HEAD that one split reads; its leaves are read side by side.

The few kilobytes of a small collection are not worth sixteen statements.
"""
_ONE_LEAF_SPLITS_MAX: Final = 4
"""Most splits of HEAD while it is one table, since each of them reads all of it."""

_TESTS: Final = {
    States.LIVE: "alive",
    States.DELETED: "dead",
    States.ALL: "visible",
}

_KINDS: Final = {"": States.LIVE, "_del": States.DELETED, "_hst": States.ALL}
"""The kind of states in each table of a collection."""

_VERSIONED_COLUMNS: Final = ("feature", "txn_next")
"""Columns of states in the history that depend on the transaction that ended them."""


class SplitPayload(msgspec.Struct, frozen=True, array_like=True):
    """The work of a split: states of some leaves at version `at`, filtered by the query.

    `source` is HEAD ("") or the deletion table ("_del"), each together with the states that moved
    from it to the history after `published`; or the history ("_hst") that ended after `after`, up
    to `until`, including `hidden` states if requested. On a branch the split reads all `sources`.
    `partitions` is the number of tables that HEAD had at the plan.
    """

    source: str
    at: int
    published: int
    leaves: str
    query: Query
    after: int = 0
    until: int = 0
    sources: tuple[LayerTables, ...] = ()
    hidden: bool = False
    partitions: int = 16

    def needs(self, collection: str) -> list[tuple[str, int | None]]:
        """Return the tables, each with the transaction from which on its history must be kept.

        None if the split reads all the history that exists.
        """
        if self.sources:
            return needs(self.sources, self.query)
        return [(collection, None if self.hidden else self.at)]


def payload_of(split: Split) -> SplitPayload:
    """Decode the work of a split of this storage."""
    try:
        return msgspec.msgpack.decode(split.payload, type=SplitPayload)
    except msgspec.DecodeError as error:
        raise InvalidArgument(
            "The split was not planned by a PostgreSQL storage; read it with the storage that "
            "planned it",
            field="split",
        ) from error


async def plan(
    connection: Connection,
    storage: tuple[str, int],
    collection: str,
    query: Query,
    at: VersionSelector,
    *,
    hidden: bool,
) -> list[Split]:
    """Plan a bulk read; see `Storage.plan`. The caller publishes pending versions first."""
    _check_query(query)
    info = await connection.fetchval(queries()["collection"], collection, False, limits.INT8_MAX)
    if info is None:
        raise collection_not_found(collection)
    last = await connection.fetchrow(queries()["last_version"])
    published: int = 0 if last is None else last["txn"]
    version = await versions.resolve(connection, at, None if hidden else collection)
    # More may have been published since; P may be later, but not earlier than the version.
    published = max(published, version.txn)
    partitions = msgspec.json.decode(info, type=CollectionInfo).partitions
    payload = SplitPayload(
        "", version.txn, published, _leaves(query), query, hidden=hidden, partitions=partitions
    )
    if query.replaced_since is not None:
        # Like a read at that transaction, but only of states that have ended since.
        payload = msgspec.structs.replace(payload, at=query.replaced_since, published=version.txn)
        await versions.check_histories(connection, [(collection, payload.at)])
    payloads = await _parts(connection, collection, payload) if payload.leaves else []
    return [_split(storage, collection, payload) for payload in payloads]


def _split(storage: tuple[str, int], collection: str, payload: SplitPayload) -> Split:
    encoded = msgspec.msgpack.encode(payload)
    if payload.sources:
        return Split(storage, collection, encoded)
    leaf = payload.leaves if payload.source == "" and len(payload.leaves) == 1 else None
    return Split(storage, collection, encoded, _KINDS[payload.source], leaf)


async def plan_layers(
    connection: Connection,
    storage: tuple[str, int],
    collection: str,
    query: Query,
    at: int,
    sources: Sequence[LayerTables],
    *,
    hidden: bool,
) -> list[Split]:
    """Plan a read through several layers: a split reads some leaves of all layers at once.

    All layers are read in one snapshot. A feature that is written to on a branch for the first time
    moves to a layer above, so layers that are read one after the other might both contain it, or
    neither.
    """
    _check_query(query)
    payload = SplitPayload("", at, at, _leaves(query), query, sources=tuple(sources), hidden=hidden)
    tables = [source.table + suffix for source in sources for suffix in ("", "_del", "_hst")]
    size = await _size(connection, *tables)
    return [
        _split(storage, collection, payload)
        for payload in _by_leaves(payload, size, HEAD_SPLIT_BYTES)
    ]


def _leaves(query: Query) -> str:
    return LEAVES if query.ids is None else "".join(sorted({leaf_of(i) for i in query.ids}))


async def _size(connection: Connection, *tables: str) -> int:
    found: int = await connection.fetchval(queries()["tables_size"], [ident(t) for t in tables])
    return found


def _check_query(query: Query) -> None:
    if query.limit is not None or query.cursor is not None:
        raise InvalidArgument(
            "A bulk read supports neither limit nor cursor; remove them from the query",
            field="limit",
        )
    if query.space is not None:
        raise InvalidArgument(
            "A bulk read does not support a space; omit it from the query", field="space"
        )


async def _parts(
    connection: Connection, collection: str, payload: SplitPayload
) -> list[SplitPayload]:
    kind = payload.query.states
    payloads: list[SplitPayload] = []
    replaced = payload.query.replaced_since is not None
    if kind is not States.DELETED and not replaced:
        payloads += await _of_head(connection, collection, payload)
    if kind is not States.LIVE and not replaced:
        size = await _size(connection, collection + "_del")
        payloads += _by_leaves(msgspec.structs.replace(payload, source="_del"), size, SPLIT_BYTES)
    start = payload.at
    if kind is States.ALL and not replaced:
        # A state ends after the transaction that created it, or with it if it was never visible.
        first = (payload.query.txn_from or 0) - payload.hidden
        start = min(max(first, 0), limits.INT8_MAX)
    if start < payload.published:
        rows = await connection.fetch(queries()["history_sizes"], ident(collection + "_hst"), start)
        sizes = [(row["until"], row["bytes"]) for row in rows]
        payloads += _history(msgspec.structs.replace(payload, source="_hst"), start, sizes)
    return payloads


async def _of_head(
    connection: Connection, collection: str, payload: SplitPayload
) -> Iterator[SplitPayload]:
    """Yield the splits of HEAD. With hidden states each leaf is a split of its own."""
    if payload.hidden:
        return _by_leaves(payload, None if payload.partitions > 1 else 0, HEAD_SPLIT_BYTES)
    size = await _size(connection, collection)
    if payload.partitions == 1:
        size = min(size, _ONE_LEAF_SPLITS_MAX * HEAD_SPLIT_BYTES)
    return _by_leaves(payload, size, HEAD_SPLIT_BYTES)


def _history(
    payload: SplitPayload, start: int, sizes: Sequence[tuple[int, int]]
) -> Iterator[SplitPayload]:
    """Cut the history (start, published] into ranges of about the same size.

    A range that is still too large is cut into leaves.
    """
    after, gathered = start, 0
    for until, size in sizes:
        # The partition [.., until) ends with the range (.., until - 1].
        until = min(until - 1, payload.published)
        gathered += size
        if after < until < payload.published and gathered >= SPLIT_BYTES:
            cut = msgspec.structs.replace(payload, after=after, until=until)
            yield from _by_leaves(cut, gathered, SPLIT_BYTES)
            after, gathered = until, 0
    rest = msgspec.structs.replace(payload, after=after, until=payload.published)
    yield from _by_leaves(rest, gathered, SPLIT_BYTES)


def _by_leaves(payload: SplitPayload, size: int | None, unit: int) -> Iterator[SplitPayload]:
    """Distribute the leaves, which a hash makes equal, over splits of about `unit` bytes.

    Without a size each leaf is a split of its own.
    """
    count = len(payload.leaves)
    if size is not None:
        count = min(max(-(-size // unit), 1), count)
    for n in range(count):
        yield msgspec.structs.replace(payload, leaves=payload.leaves[n::count])


def statements(
    search_path: str, collection: str, payload: SplitPayload, columns: Sequence[str]
) -> tuple[list[str], str]:
    """Return the statements that prepare a connection, and the query of some columns of a split."""
    statement, query = Statement(), plan_of(payload.query)
    filters = statement.filters(query)
    sources = []
    for table, at, conditions in _tables(statement, collection, payload, query):
        every = [*conditions, *filters]
        if query.hashes is not None:
            every += in_part(statement, query.hashes)
        if query.ids is not None:
            every.append(id_condition(statement, query.ids, False))
        sources.append(
            sql(
                "split_source",
                table=ident(table),
                columns=", ".join(_column(name, at) for name in columns),
                conditions="\n   AND ".join(every),
            )
        )
    names = [source.table for source in payload.sources] or [collection]
    tables = ", ".join(ident(name + suffix) for name in names for suffix in ("", "_del", "_hst"))
    before = [
        sql("split_begin"),
        sql("split_path", path=search_path),
        sql("split_lock", tables=tables),
        sql("postgis_load"),
    ]
    return before, inlined("\nUNION ALL\n".join(sources), statement.values)


def _column(name: str, at: str | None) -> str:
    """Return a column; its value depends on the version `at` for some columns of the history."""
    if at is not None and name in _VERSIONED_COLUMNS:
        return sql(f"column_{name}_at", at=at)
    return sql(f"column_{name}")


def _tables(
    statement: Statement, collection: str, payload: SplitPayload, query: QueryPlan
) -> Iterator[tuple[str, str | None, list[str]]]:
    """Yield the tables of a split with their conditions.

    Each comes with the version that its states are seen from, if that matters.
    """
    of_leaves: list[str] = []
    if len(payload.leaves) < len(LEAVES):
        leaves = statement.texts(payload.leaves)
        of_leaves = [sql("split_leaves", leaves=leaves)]
    if payload.sources:
        for source in payload.sources:
            # Replaced states are returned as they were before.
            replaced = query.replaced_since
            seen = statement.value(source.at if replaced is None else replaced, "int8")
            for table in layer_tables(statement, source, query, hidden=payload.hidden):
                past_at = seen if table.suffix == HISTORY else None
                yield table.name, past_at, [*table.conditions, *of_leaves]
        return
    at = statement.number(payload.at)
    current = sql("begun_at", at=at)
    history = collection + "_hst"
    if payload.source == "_hst":
        past = sql("split_past", at=at, after=statement.number(payload.after))
        until = sql("split_until", until=statement.number(payload.until))
        kind = [] if payload.hidden else [sql(_TESTS[payload.query.states])]
        yield history, at, [past, until, *of_leaves, *kind]
        return
    since = sql("split_past", at=at, after=statement.number(payload.published))
    if payload.source == "_del":
        yield collection + "_del", None, [current, *of_leaves]
        yield history, at, [since, *of_leaves, sql("dead")]
        return
    if payload.partitions == 1:
        yield collection, None, [current, *of_leaves]
    else:
        for leaf in payload.leaves:
            yield f"{collection}_p{leaf}", None, [current]
    yield history, at, [since, *of_leaves, sql("alive")]
