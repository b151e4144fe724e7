"""Reads shared by storages and sessions: queries, single states and collection info."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext, suppress
from typing import Any, Final, NamedTuple, TypeAlias

import asyncpg
import msgspec

from naksha.model import limits
from naksha.model.collection import CollectionInfo
from naksha.model.errors import CollectionNotFound, NotFound, NotYetPublished, Retryable
from naksha.model.geo.tiles import VectorTile
from naksha.model.identity.guid import Guid
from naksha.model.identity.names import collection_not_found
from naksha.model.identity.storage_identity import StorageIdentity
from naksha.model.identity.uuids import Uuid, parse_state_id
from naksha.model.query import Query, QueryPart, SortKey, States
from naksha.model.state import MatchingState, State
from naksha.model.statistics import Statistics
from naksha.model.version import HEAD, AtSeq, AtTxn, Head, Version, VersionSelector
from naksha.psql.connection.driver import Connection, Rows
from naksha.psql.connection.errors import translate
from naksha.psql.read import layers, statements
from naksha.psql.read.checked_statement import (
    Check,
    CheckedStatement,
    KnownCollection,
    KnownFacts,
    ObstacleError,
)
from naksha.psql.read.id_queries import found_statement
from naksha.psql.read.layers import (
    NO_BRANCH,
    Branch,
    overlays_of,
    sources_of,
    state_statement,
    visible,
)
from naksha.psql.read.statements import LayerTables
from naksha.psql.read.statistics import sample_fraction, statistics_of, statistics_statement
from naksha.psql.read.tiles import tile_statement
from naksha.psql.read.versions import check_histories, check_log, resolve
from naksha.psql.sql import queries
from naksha.spi.cursor import PageCursor, decode_cursor
from naksha.spi.query.sort_keys import check_matching_query
from naksha.spi.query.values import end_of_prefix
from naksha.spi.storage import StatePage, StoredObject
from naksha.spi.support import chunks
from naksha.spi.support.write_input import check_stored_object

_PREFETCH: Final = 500
"""Rows fetched ahead while states are streamed."""
_LEAVES_MAX: Final = 16
"""Leaves of a grown collection, which never shrinks."""
_STATISTICS_COLUMNS: Final = ("kind", "key", "count", "bytes", "west", "south", "east", "north")
_COUNTED: Final = QueryPart(1, 16)
"""The features of the first leaf, by which those of a tile are counted."""
_CHANGING: Final = "The tables of collection {!r} were changed during the read; retry later"

Columns: TypeAlias = Sequence[str]
STATE: Final[Columns] = ("id", "feature")


class CollectionRead(NamedTuple):
    """A read of a collection, before the version and the tables to read are known."""

    collection: str
    query: Query
    at: VersionSelector
    columns: Columns
    build: Callable[[Sequence[LayerTables]], tuple[str, list[Any]]]
    """Return the statement that selects the columns from some tables."""
    cursor: PageCursor | None = None
    pins_head: bool = False
    """Whether HEAD means the last published version."""
    needs_history: bool = True
    """Whether a version must not have expired."""

    def history(self, sources: Sequence[LayerTables]) -> list[tuple[str, int | None]]:
        """Return the tables whose history is read, each with the transaction it is needed from.

        The layers below the top of a branch are read at a version even if the branch is read at
        HEAD. A plan notices the partitions of these histories only, so no others can be checked.
        """
        query = self.query
        every = query.states is States.ALL or query.replaced_since is not None
        read = [source for source in sources if every or source.at is not None]
        if self.needs_history:
            return statements.needs(read, query)
        return [(source.table, None) for source in read]


class PositionedRead(NamedTuple):
    """A read at a transaction (None for HEAD), its tables and its statement."""

    txn: int | None
    sources: list[LayerTables]
    statement: CheckedStatement


async def _pause(attempt: int) -> None:
    """Wait before a read is repeated again: other backends may be slow to see a new partition."""
    if attempt > 0:
        pause = limits.RETRY_DELAY_MS_MIN * 2**attempt
        await asyncio.sleep(min(pause, limits.RETRY_DELAY_MS_MAX) / 1000)


class PsqlReader(ABC):
    """Base class of storages and sessions; a subclass provides the connections to read on."""

    _branch: Branch = NO_BRANCH
    """The layers that are read: those of the branch, or main alone."""

    def __init__(self, facts: KnownFacts | None = None) -> None:
        self._facts = KnownFacts() if facts is None else facts

    @abstractmethod
    def _connection(self) -> AbstractAsyncContextManager[Connection]:
        """Return a connection for reads."""

    def _connection_at(self, txn: int | None) -> AbstractAsyncContextManager[Connection]:
        """Return a connection for a read at a version (None: HEAD), possibly to a replica."""
        return self._connection()

    def _turn_to_stream(self, query: Query) -> AbstractAsyncContextManager[object]:
        """Wait for a stream slot before a connection is taken.

        See `naksha.spi.support.stream_limit`.
        """
        return nullcontext()

    def _streaming(self, connection: Connection) -> AbstractAsyncContextManager[object]:
        """Return the transaction that a cursor lives in."""
        return connection.transaction()

    @abstractmethod
    async def _publish(self) -> None:
        """Publish all that can be published, before a version is looked up."""

    @property
    @abstractmethod
    def _storage(self) -> StorageIdentity:
        """Id and number of the storage."""

    @property
    def _may_fail(self) -> bool:
        """Whether a failed statement does no harm, since it is not part of a transaction."""
        return True

    def _is_known(self, collection: str) -> bool:
        """Whether the collection exists, as far as is known."""
        return self._facts.partitions_of(collection) is not None

    @property
    def _pins_head(self) -> bool:
        """Whether paging at HEAD is pinned to the last published version."""
        return True

    async def _last_published(self) -> int:
        """Return the last transaction, after publishing all that can be published."""
        return (await self.resolve(HEAD)).txn

    async def collections(self, *, dropped: bool = False) -> list[CollectionInfo]:
        async with self._connection() as connection:
            rows = await connection.fetch(queries()["collections"], dropped, self._last_seen)
        return [msgspec.json.decode(row[0], type=CollectionInfo) for row in rows]

    async def collection(self, collection: str, *, dropped: bool = False) -> CollectionInfo:
        async with self._connection() as connection:
            known = await self._read_collection(connection, collection, dropped)
        if known is None:
            raise collection_not_found(collection)
        if not known.info.dropped_at:
            self._learn(known)
        return known.info

    def _learn(self, known: KnownCollection) -> None:
        """Remember a collection that exists."""
        self._facts.add_collection(known)

    async def _are_current(self, known: Collection[KnownCollection]) -> bool:
        """Whether none of the collections has been changed since."""
        if not known:
            return True
        async with self._connection() as connection:
            for each in known:
                now = await self._read_collection(connection, each.info.id)
                if now is None or now.txn != each.txn:
                    return False
        return True

    @property
    def _last_seen(self) -> int:
        """The last visible transaction of main."""
        txn = self._branch[-1].txn
        return limits.INT8_MAX if txn is None else txn

    async def _read_collection(
        self, connection: Connection, collection: str, dropped: bool = False
    ) -> KnownCollection | None:
        row = await connection.fetchrow(
            queries()["collection"], collection, dropped, self._last_seen
        )
        if row is None:
            return None
        return KnownCollection(msgspec.json.decode(row["info"], type=CollectionInfo), row["txn"])

    async def page(self, collection: str, query: Query, at: VersionSelector = HEAD) -> StatePage:
        read = self._paged(collection, query, at)
        txn, rows = await self._rows(read)
        found = _states(rows)
        if query.limit is None or len(found) <= query.limit:
            return StatePage(found, None)
        del found[query.limit :]
        last = found[-1]
        return StatePage(found, PageCursor(txn or 0, last.id, last.txn).encoded())

    async def states(
        self, collection: str, query: Query, at: VersionSelector = HEAD
    ) -> AsyncIterator[State]:
        left = limits.INT8_MAX if query.limit is None else query.limit
        read = self._paged(collection, query, at)
        async with self._opened(read, min(_PREFETCH, left)) as (found, rows):
            while found:
                for state in _states(found):
                    yield state
                left -= len(found)
                found = await rows.fetch(min(_PREFETCH, left)) if left else []

    def _paged(self, collection: str, query: Query, at: VersionSelector) -> CollectionRead:
        cursor = decode_cursor(query.cursor)
        return CollectionRead(
            collection,
            query,
            at,
            STATE,
            lambda sources: statements.layered_states(sources, query, cursor),
            cursor,
            pins_head=self._pins_head and query.limit is not None,
        )

    async def chunks(
        self, collection: str, query: Query, at: VersionSelector = HEAD
    ) -> AsyncIterator[list[State]]:
        limit = chunks.FIRST + 1 if query.limit is None else min(chunks.FIRST + 1, query.limit)
        txn, rows = await self._rows(_some(collection, query, at, limit))
        first = _states(rows)
        if len(first) <= chunks.FIRST:
            if first:
                yield first
            return
        # The read starts over: a cursor needs a transaction, whose cost small results should not
        # bear.
        if txn is not None:
            at = AtTxn(txn)
        size = chunks.size_after(first)
        async with self._opened(_some(collection, query, at, query.limit), size) as (found, left):
            while found:
                states = _states(found)
                yield states
                size = chunks.size_after(states)
                found = await left.fetch(size)

    async def _rows(self, read: CollectionRead) -> tuple[int | None, list[Any]]:
        """Return the transaction that was read, None for HEAD, and the rows."""
        for attempt in range(limits.RETRY_COUNT_MAX):
            at = await self._positioned(read)
            try:
                async with self._connection_at(at.txn) as connection:
                    return at.txn, await at.statement.fetch(connection)
            except ObstacleError as obstacle:
                await self._handle(obstacle, read, at, is_first=attempt == 0)
            await _pause(attempt)
        raise Retryable(_CHANGING.format(read.collection))

    @asynccontextmanager
    async def _opened(
        self, read: CollectionRead, size: int
    ) -> AsyncIterator[tuple[list[Any], Rows]]:
        """Open a cursor, and yield its first rows and the cursor."""
        for attempt in range(limits.RETRY_COUNT_MAX):
            at = await self._positioned(read)
            try:
                async with (
                    self._turn_to_stream(read.query),
                    self._connection_at(at.txn) as connection,
                    self._streaming(connection),
                ):
                    yield await at.statement.open(connection, size)
                return
            except ObstacleError as obstacle:
                await self._handle(obstacle, read, at, is_first=attempt == 0)
            await _pause(attempt)
        raise Retryable(_CHANGING.format(read.collection))

    async def _positioned(self, read: CollectionRead) -> PositionedRead:
        """Return the read at its version, with its statement."""
        txn, version = await self._position(read)
        overlays = overlays_of(visible(self._branch, txn))
        tables = await self._overlay_tables(read, overlays)
        sources = layers.sources(self._branch, read.collection, txn, tables)
        if read.query.part is not None:
            partitions = self._facts.partitions_of(read.collection) or 1
            sources[-1] = sources[-1]._replace(partitions=partitions)
        check = Check(read.collection, self._last_seen, version, read.history(sources), tables)
        statement = CheckedStatement.of(
            read.build(sources),
            read.columns,
            check,
            plans_for_values=statements.depends_on_values(read.query),
        )
        return PositionedRead(txn, sources, statement)

    async def _position(self, read: CollectionRead) -> tuple[int | None, int | None]:
        """Return the transaction to read at, and the one that must be published; None for HEAD."""
        if read.cursor is not None and read.cursor.at != 0:
            return read.cursor.at, None
        match read.at:
            case Head():
                return (await self._last_published() if read.pins_head else None), None
            case AtTxn(txn):
                return txn, txn
            case AtSeq(seq_number):
                known = self._facts.txn_of(seq_number)
                txn = (await self.resolve(read.at)).txn if known is None else known
            case _:
                txn = (await self.resolve(read.at)).txn
        return txn, txn or None

    async def _overlay_tables(
        self, read: CollectionRead, overlays: Sequence[int]
    ) -> dict[int, str]:
        """Return the tables of the collection in overlays; look up unknown ones."""
        collection, facts = read.collection, self._facts
        is_cut = read.query.part is not None and facts.partitions_of(collection) != _LEAVES_MAX
        if is_cut or not (self._may_fail or self._is_known(collection)):
            await self.collection(collection)
        tables = facts.overlay_tables(collection, overlays)
        if tables is None:
            async with self._connection() as connection:
                tables = await layers.overlay_tables(connection, collection, overlays)
            facts.add_overlay_tables(collection, tables)
        return tables

    async def _handle(
        self, obstacle: ObstacleError, read: CollectionRead, at: PositionedRead, *, is_first: bool
    ) -> None:
        """Raise the error that an obstacle stands for, unless the read is to be repeated."""
        match obstacle.reason:
            case "collection":
                self._facts.forget(read.collection)
                raise collection_not_found(read.collection)
            case "tables":
                # They do not exist, or are not a collection's, or were created only since.
                self._facts.forget(read.collection)
                error = obstacle.__cause__ or obstacle
                if not self._may_fail:
                    if isinstance(error, asyncpg.UndefinedTableError):
                        raise Retryable(_CHANGING.format(read.collection)) from error
                    translate(error)
                await self.collection(read.collection)
                if not is_first:
                    translate(error)
            case "version":
                await self.resolve(read.at)
            case "overlays":
                self._facts.forget(read.collection)
            case "partitions":
                async with self._connection() as connection:
                    await connection.fetchval(queries()["notice_partitions"])
            case "floor":
                async with self._connection() as connection:
                    await check_histories(connection, read.history(at.sources))

    async def matching_states(
        self,
        collection: str,
        query: Query,
        at: VersionSelector = HEAD,
        *,
        sort: Sequence[SortKey] = (),
        after: MatchingState | None = None,
    ) -> list[MatchingState]:
        check_matching_query(query, sort, after)
        columns = ("id", "uuid", *(f"value_{n}" for n in range(len(sort))))
        _, rows = await self._rows(
            CollectionRead(
                collection,
                query,
                at,
                columns,
                lambda sources: found_statement(sources, query, sort, after),
            )
        )
        return [
            MatchingState(id, uuid, tuple(None if value == "null" else value for value in values))
            for _, id, uuid, *values in rows
        ]

    async def count(self, collection: str, query: Query, at: VersionSelector = HEAD) -> int:
        _, ((_, number),) = await self._rows(
            CollectionRead(
                collection,
                query,
                at,
                ("count",),
                lambda sources: statements.layered_count(sources, query),
            )
        )
        counted: int = number
        return counted

    async def tile(
        self, collection: str, query: Query, at: VersionSelector, tile: VectorTile
    ) -> bytes:
        query = await self._sampled(collection, query, at, tile)
        made, found = await self._tile(collection, query, at, tile, ordered=False)
        if query.limit is not None and found > query.limit:
            # Sort only if needed, since it is expensive: not if all features are within the limit.
            made, _ = await self._tile(collection, query, at, tile, ordered=True)
        return made

    async def _sampled(
        self, collection: str, query: Query, at: VersionSelector, tile: VectorTile
    ) -> Query:
        """Return the query of a tile, restricted to a sample if too many features match.

        Their number is extrapolated from those of one leaf.
        """
        if tile.features_max is None or query.limit is not None or query.part is not None:
            return query
        counted = msgspec.structs.replace(query, spatial=query.spatial or tile.box(), part=_COUNTED)
        count = _COUNTED.total * await self.count(collection, counted, at)
        return msgspec.structs.replace(query, part=tile.sample_of(count))

    async def _tile(
        self,
        collection: str,
        query: Query,
        at: VersionSelector,
        tile: VectorTile,
        *,
        ordered: bool,
    ) -> tuple[bytes, int]:
        _, ((_, made, found),) = await self._rows(
            CollectionRead(
                collection,
                query,
                at,
                ("tile", "found"),
                lambda sources: tile_statement(sources, query, tile, ordered=ordered),
            )
        )
        return made, found

    async def statistics(
        self, collection: str, at: VersionSelector = HEAD, *, fast: bool = False
    ) -> Statistics:
        part = 1.0
        read = CollectionRead(
            collection,
            Query(),
            at,
            _STATISTICS_COLUMNS,
            lambda sources: statistics_statement(sources, part),
        )
        if fast:
            position = await self._positioned(read)
            async with self._connection_at(position.txn) as connection:
                part = await sample_fraction(connection, position.sources)
        _, rows = await self._rows(read)
        return statistics_of(rows, part)

    async def state(self, state_id: str) -> State:
        reference = parse_state_id(state_id)
        collection = await self._collection_of(reference, state_id)
        read = CollectionRead(
            collection,
            Query(states=States.ALL),
            HEAD,
            STATE,
            lambda sources: state_statement(sources, reference.i, reference.txn_min),
            needs_history=False,
        )
        try:
            _, rows = await self._rows(read)
        except CollectionNotFound:
            raise self._not_in_storage(state_id) from None
        if not rows:
            # Other overlays than those that are read may have it.
            async with self._connection() as connection:
                rows = await connection.fetch(
                    queries()["overlay_state"], collection, reference.i, reference.txn_min
                )
        if not rows:
            raise NotFound(
                f"The state {state_id!r} does not exist or has expired; correct its id",
                collection_id=collection,
            )
        return State(rows[0]["id"], rows[0]["feature"])

    async def _collection_of(self, reference: Guid | Uuid, state_id: str) -> str:
        storage, known = self._storage, None
        if isinstance(reference, Guid):
            known = reference.collection_id
        elif storage.knows(reference):
            async with self._connection() as connection:
                known = await connection.fetchval(
                    queries()["collection_by_number"], reference.collection_number
                )
        if known is None or not storage.wrote(reference, known):
            raise self._not_in_storage(state_id)
        return known

    def _not_in_storage(self, state_id: str) -> NotFound:
        return NotFound(
            f"The state {state_id!r} was not written by storage {self._storage.id!r}, or its "
            "collection was dropped; correct its id"
        )

    async def resolve(self, at: VersionSelector, collection: str | None = None) -> Version:
        if not isinstance(at, Head):
            with suppress(NotYetPublished):
                return await self._resolve(at, collection, has_published=False)
        await self._publish()
        return await self._resolve(at, collection, has_published=True)

    async def _resolve(
        self, at: VersionSelector, collection: str | None, *, has_published: bool
    ) -> Version:
        async with self._connection() as connection:
            version = await resolve(connection, at, has_published=has_published)
            self._facts.add_version(version.seq_number, version.txn)
            if collection is not None:
                if await self._read_collection(connection, collection, dropped=True) is None:
                    raise collection_not_found(collection)
                sources = await sources_of(connection, self._branch, collection, version.txn)
                await check_histories(connection, [(s.table, s.at) for s in sources])
            return version

    async def stored_object(self, kind: str, id: str) -> StoredObject | None:
        check_stored_object(kind, id)
        async with self._connection() as connection:
            row = await connection.fetchrow(queries()["kept"], kind, id)
        return None if row is None else _kept(row)

    async def stored_objects(self, kind: str, prefix: str = "") -> list[StoredObject]:
        check_stored_object(kind, prefix or "any")
        end = end_of_prefix(prefix)
        values = (kind, prefix) if end is None else (kind, prefix, end)
        name = "all_kept" if end is None else "kept_between"
        async with self._connection() as connection:
            rows = await connection.fetch(queries()[name], *values)
        return [_kept(row) for row in rows]

    async def _check_kept(
        self, connection: Connection, version: Version, collection: str | None
    ) -> None:
        """Raise Expired if the version, or the history needed for it, was removed."""
        if collection is not None:
            sources = await sources_of(connection, self._branch, collection, version.txn)
            await check_histories(connection, [(s.table, s.at) for s in sources])
        await check_log(connection, version.txn)


def _some(collection: str, query: Query, at: VersionSelector, limit: int | None) -> CollectionRead:
    """Return the read of up to `limit` states, in any order."""
    return CollectionRead(
        collection, query, at, STATE, lambda sources: statements.some_states(sources, query, limit)
    )


def _states(rows: Sequence[Any]) -> list[State]:
    return [State(id, feature) for _, id, feature in rows]


def _kept(row: Any) -> StoredObject:
    return StoredObject(row["kind"], row["id"], msgspec.json.decode(row["value"]), row["revision"])
