"""Reads shared by storages and sessions: queries, single states and collection info."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from typing import Any, Final, NamedTuple, TypeVar

import asyncpg
import msgspec

from naksha.model import limits
from naksha.model.collection import CollectionInfo
from naksha.model.errors import CollectionNotFound, NotFound, NotYetPublished
from naksha.model.geo.tiles import VectorTile
from naksha.model.identity.guid import Guid
from naksha.model.identity.storage_identity import StorageIdentity
from naksha.model.identity.uuids import Uuid, parse_state_id
from naksha.model.query import Query, SortKey, States
from naksha.model.state import MatchingState, State
from naksha.model.statistics import Statistics
from naksha.model.version import HEAD, AtSeq, AtTxn, Head, Version, VersionSelector
from naksha.psql.connection.driver import Connection, Rows
from naksha.psql.connection.errors import translated
from naksha.psql.read import statements
from naksha.psql.read.id_queries import found_statement
from naksha.psql.read.layers import NO_BRANCH, Branch, sources_of
from naksha.psql.read.partition_retry import SteadyHistory
from naksha.psql.read.statements import LayerTables
from naksha.psql.read.statistics import sample_fraction, statistics_of, statistics_statement
from naksha.psql.read.tiles import tile_statement
from naksha.psql.read.versions import check_histories, check_history, check_log, resolve
from naksha.psql.sql import ident, queries, sql
from naksha.spi.cursor import PageCursor, decode_cursor
from naksha.spi.query.sort_keys import check_matching_query
from naksha.spi.query.values import end_of_prefix
from naksha.spi.storage import StatePage, StoredObject
from naksha.spi.support import chunks
from naksha.spi.support.write_input import check_stored_object

T = TypeVar("T")
PREFETCH: Final = 500
"""Rows fetched ahead while states are streamed."""


class Moment(NamedTuple):
    """Time of a read: a transaction (None for HEAD), and the sources to read there."""

    txn: int | None
    sources: list[LayerTables]
    if_there: str | None = None
    """The collection, if its existence has not been checked yet."""

    def reads_history(self, query: Query) -> bool:
        """Whether the query reads history.

        The layers below the top of a branch are read at a version even if the branch is read at
        HEAD.
        """
        return (
            query.states is not States.LIVE
            or query.replaced_since is not None
            or any(source.at is not None for source in self.sources)
        )

    def needs(self, query: Query) -> list[tuple[str, int | None]]:
        """Return the tables, each with the transaction from which its history must be kept."""
        return statements.needs(self.sources, query)


class PsqlReader(ABC):
    """Base class of storages and sessions; a subclass provides the connections to read on."""

    _branch: Branch = NO_BRANCH
    """The layers that are read: those of the branch, or main alone."""

    def __init__(self) -> None:
        self._history = SteadyHistory()

    @abstractmethod
    def _connection(self) -> AbstractAsyncContextManager[Connection]:
        """Return a connection to read on."""

    def _connection_at(self, txn: int | None) -> AbstractAsyncContextManager[Connection]:
        """Return a connection to read at a version on (None: HEAD), perhaps to a replica."""
        return self._connection()

    def _turn_to_stream(self, query: Query) -> AbstractAsyncContextManager[object]:
        """Wait for a stream slot before a connection is taken.

        See `naksha.spi.support.stream_limit`.
        """
        return nullcontext()

    def _streaming(self, connection: Connection) -> AbstractAsyncContextManager[object]:
        """Return the transaction that a cursor lives in."""
        return connection.transaction()

    async def _steady(
        self,
        connection: Connection,
        query: Query,
        moment: Moment,
        read: Callable[[], Awaitable[T]],
    ) -> T:
        """Run `read` such that it has seen all partitions of the history, and return its result."""
        if not moment.reads_history(query):
            return await read()
        return await self._history.read(connection, moment.needs(query), read)

    @abstractmethod
    async def _publish(self) -> None:
        """Publish all that can be published, before a version is looked up."""

    @property
    @abstractmethod
    def _storage(self) -> StorageIdentity:
        """Id and number of the storage."""

    @property
    def _may_fail(self) -> bool:
        """Whether main is read outside any transaction, so that a failed statement is harmless."""
        return False

    @property
    def _pins_head(self) -> bool:
        """Whether paging at HEAD is pinned to the last published version."""
        return True

    async def collections(self, *, dropped: bool = False) -> list[CollectionInfo]:
        async with self._connection() as connection:
            rows = await connection.fetch(queries()["collections"], dropped, self._last_seen)
        return [msgspec.json.decode(row[0], type=CollectionInfo) for row in rows]

    async def collection(self, collection: str, *, dropped: bool = False) -> CollectionInfo:
        async with self._connection() as connection:
            info = await self._info_of(connection, collection, dropped)
        if info is None:
            raise CollectionNotFound(
                f"The collection {collection!r} does not exist", collection_id=collection
            )
        return msgspec.json.decode(info, type=CollectionInfo)

    @property
    def _last_seen(self) -> int:
        """The last visible transaction of main."""
        txn = self._branch[-1].txn
        return limits.INT8_MAX if txn is None else txn

    async def _info_of(
        self, connection: Connection, collection: str, dropped: bool = False
    ) -> str | None:
        info: str | None = await connection.fetchval(
            queries()["collection"], collection, dropped, self._last_seen
        )
        return info

    async def page(self, collection: str, query: Query, at: VersionSelector = HEAD) -> StatePage:
        cursor = decode_cursor(query.cursor)
        moment = await self._moment(collection, query, at, cursor)
        text, values = statements.layered_states(moment.sources, query, cursor)
        found = _states(await self._fetched(query, moment, text, values))
        if query.limit is None or len(found) <= query.limit:
            return StatePage(found, None)
        del found[query.limit :]
        last = found[-1]
        return StatePage(found, PageCursor(moment.txn or 0, last.id, last.txn).encoded())

    async def states(
        self, collection: str, query: Query, at: VersionSelector = HEAD
    ) -> AsyncIterator[State]:
        cursor = decode_cursor(query.cursor)
        moment = await self._moment(collection, query, at, cursor)
        text, values = statements.layered_states(moment.sources, query, cursor)
        left = query.limit
        async with self._opened(query, moment, text, values) as rows:
            while left != 0:
                found = await rows.fetch(PREFETCH if left is None else min(PREFETCH, left))
                if not found:
                    break
                for row in found:
                    yield State(row["id"], row["feature"])
                left = None if left is None else left - len(found)

    async def chunks(
        self, collection: str, query: Query, at: VersionSelector = HEAD
    ) -> AsyncIterator[list[State]]:
        moment = await self._present(collection, query, at)
        first = await self._first(query, moment)
        if len(first) <= chunks.FIRST:
            if first:
                yield first
            return
        # The read starts over: a cursor needs a transaction, whose cost small results should not
        # bear.
        text, values = statements.some_states(moment.sources, query, query.limit)
        size = chunks.size_after(first)
        async with self._opened(query, moment, text, values) as rows:
            while found := _states(await rows.fetch(size)):
                yield found
                size = chunks.size_after(found)

    async def _first(self, query: Query, moment: Moment) -> list[State]:
        """Return the first states: the limit of a single read, and one more if there are more."""
        limit = chunks.FIRST + 1 if query.limit is None else min(chunks.FIRST + 1, query.limit)
        text, values = statements.some_states(
            moment.sources, query, limit, if_there=moment.if_there
        )
        return _states(await self._fetched(query, moment, text, values))

    async def _present(self, collection: str, query: Query, at: VersionSelector) -> Moment:
        """Return the time of a read that needs no consistent paging.

        For a plain query at HEAD the existence of the collection is not checked beforehand: the
        query itself does that, and finds nothing if the collection does not exist.
        """
        is_plain = (
            query.states is States.LIVE and query.replaced_since is None and query.part is None
        )
        if self._may_fail and is_plain and isinstance(at, Head):
            return Moment(None, [LayerTables(collection, None)], if_there=collection)
        whole = msgspec.structs.replace(query, limit=None, cursor=None)
        return await self._moment(collection, whole, at, None)

    async def _check_there(self, moment: Moment, connection: Connection) -> None:
        """Raise CollectionNotFound if an empty result means that the collection does not exist."""
        id = moment.if_there
        if id is not None and await self._info_of(connection, id) is None:
            raise CollectionNotFound(f"The collection {id!r} does not exist", collection_id=id)

    async def _fetched(
        self, query: Query, moment: Moment, text: str, values: Sequence[Any]
    ) -> list[Any]:
        """Fetch the rows of a statement.

        An empty result, or 0 in the last column of the first row, means that nothing was found.
        """
        async with self._connection_at(moment.txn) as connection:

            async def fetch() -> list[Any]:
                async with planned(connection, query):
                    return await self._steady(
                        connection, query, moment, lambda: connection.fetch(text, *values)
                    )

            try:
                rows = await fetch()
                if not rows or rows[0][-1] == 0:
                    await self._check_there(moment, connection)
                return rows
            except asyncpg.SyntaxOrAccessError:
                # The table does not exist, or is not a collection's, or was created only since.
                if moment.if_there is None:
                    raise
                await self._check_there(moment, connection)
                return await fetch()

    @asynccontextmanager
    async def _opened(
        self, query: Query, moment: Moment, text: str, values: Sequence[Any]
    ) -> AsyncIterator[Rows]:
        """Open a cursor over the rows of a statement."""
        async with (
            self._turn_to_stream(query),
            self._connection_at(moment.txn) as connection,
            self._streaming(connection),
        ):
            # The snapshot and the plan of a cursor are fixed when it is opened.
            async with planned(connection, query):
                rows = await self._steady(
                    connection, query, moment, lambda: _open(connection, text, values)
                )
            yield rows

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
        moment = await self._present(collection, query, at)
        text, values = found_statement(moment.sources, query, sort, after, if_there=moment.if_there)
        rows = await self._fetched(query, moment, text, values)
        return [
            MatchingState(id, uuid, tuple(None if value == "null" else value for value in found))
            for id, uuid, *found in rows
        ]

    async def count(self, collection: str, query: Query, at: VersionSelector = HEAD) -> int:
        moment = await self._present(collection, query, at)
        text, values = statements.layered_count(moment.sources, query, if_there=moment.if_there)
        ((number,),) = await self._fetched(query, moment, text, values)
        counted: int = number
        return counted

    async def tile(
        self, collection: str, query: Query, at: VersionSelector, tile: VectorTile
    ) -> bytes:
        moment = await self._present(collection, query, at)
        made, found = await self._tile(moment, query, tile, ordered=False)
        if query.limit is not None and found > query.limit:
            # Sort only if needed, since it is expensive: not if all features are within the limit.
            made, _ = await self._tile(moment, query, tile, ordered=True)
        return made

    async def _tile(
        self, moment: Moment, query: Query, tile: VectorTile, *, ordered: bool
    ) -> tuple[bytes, int]:
        text, values = tile_statement(
            moment.sources, query, tile, ordered=ordered, if_there=moment.if_there
        )
        ((made, found),) = await self._fetched(query, moment, text, values)
        return made, found

    async def statistics(
        self, collection: str, at: VersionSelector = HEAD, *, fast: bool = False
    ) -> Statistics:
        query = Query()
        moment = await self._moment(collection, query, at, None)
        async with self._connection_at(moment.txn) as connection:
            part = await sample_fraction(connection, moment.sources) if fast else 1.0
            text, values = statistics_statement(moment.sources, part)
            rows = await self._steady(
                connection, query, moment, lambda: connection.fetch(text, *values)
            )
        return statistics_of(rows, part)

    async def state(self, state_id: str) -> State:
        reference = parse_state_id(state_id)
        async with self._connection() as connection:
            collection = await self._collection_of(connection, reference, state_id)
            with translated():
                row = await self._find_state(connection, collection, reference)
                if row is None:
                    # The state may just have moved into a new partition of the history.
                    await check_history(connection, collection, None)
                    row = await self._find_state(connection, collection, reference)
        if row is None:
            raise NotFound(f"The state {state_id!r} does not exist", collection_id=collection)
        return State(row["id"], row["feature"])

    async def _find_state(
        self, connection: Connection, collection: str, reference: Guid | Uuid
    ) -> Any:
        """Find a state in the layers that are read, topmost first, then in all other overlays.

        A state that a branch took from below ends there when the branch replaced it; what ended it
        below since then is not visible on the branch.
        """
        place = (reference.i, reference.txn_min)
        for source in await sources_of(connection, self._branch, collection, None):
            seen = sql("feature")
            if source.at is not None:
                seen = sql("state_seen_at", at=str(source.at))
            text = sql(
                "state_by_i",
                head=ident(source.table),
                del_=ident(source.table + "_del"),
                hst=ident(source.table + "_hst"),
                seen=seen,
            )
            row = await connection.fetchrow(text, *place)
            if row is not None:
                return row
        return await connection.fetchrow(queries()["overlay_state"], collection, *place)

    async def _collection_of(
        self, connection: Connection, reference: Guid | Uuid, state_id: str
    ) -> str:
        storage, known = self._storage, None
        if isinstance(reference, Guid):
            known = reference.collection_id
        elif storage.knows(reference):
            known = await connection.fetchval(
                queries()["collection_by_number"], reference.collection_number
            )
        is_ours = known is not None and storage.wrote(reference, known)
        if known is None or not is_ours or not await self._info_of(connection, known):
            raise NotFound(f"The state {state_id!r} does not exist in storage {storage.id!r}")
        return known

    async def resolve(self, at: VersionSelector, collection: str | None = None) -> Version:
        return await self._published(at, lambda: self._resolve(at, collection))

    async def _published(self, at: VersionSelector, read: Callable[[], Awaitable[T]]) -> T:
        """Run a read at a version after publishing it if needed.

        A published version never changes: a read at a known version need not wait for publication.
        """
        if isinstance(at, AtSeq | AtTxn):
            try:
                return await read()
            except NotYetPublished:
                pass
        await self._publish()
        return await read()

    async def _resolve(self, at: VersionSelector, collection: str | None) -> Version:
        async with self._connection() as connection:
            version = await resolve(connection, at)
            if collection is not None:
                if await self._info_of(connection, collection, dropped=True) is None:
                    raise CollectionNotFound(
                        f"The collection {collection!r} does not exist", collection_id=collection
                    )
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

    async def _moment(
        self, collection: str, query: Query, at: VersionSelector, cursor: PageCursor | None
    ) -> Moment:
        """Return the time of a read, after checking that the collection and its history exist."""
        if cursor is not None and cursor.at == 0:
            cursor = None
        if cursor is not None or (isinstance(at, Head) and self._reads_head(query)):
            return await self._moment_now(collection, query, at, cursor)
        return await self._published(at, lambda: self._moment_now(collection, query, at, None))

    async def _moment_now(
        self, collection: str, query: Query, at: VersionSelector, cursor: PageCursor | None
    ) -> Moment:
        async with self._connection() as connection:
            info = await self._info_of(connection, collection)
            if info is None:
                raise CollectionNotFound(
                    f"The collection {collection!r} does not exist", collection_id=collection
                )
            if cursor is not None:
                txn: int | None = cursor.at
            elif isinstance(at, Head) and self._reads_head(query):
                txn = None
            else:
                txn = (await resolve(connection, at)).txn
            sources = await sources_of(connection, self._branch, collection, txn)
            if query.part is not None:
                partitions = msgspec.json.decode(info, type=CollectionInfo).partitions
                sources[-1] = sources[-1]._replace(partitions=partitions)
            moment = Moment(txn, sources)
            if txn is not None or query.replaced_since is not None:
                await check_histories(connection, moment.needs(query))
            return moment

    def _reads_head(self, query: Query) -> bool:
        return query.limit is None or not self._pins_head


@asynccontextmanager
async def planned(connection: Connection, query: Query) -> AsyncIterator[None]:
    """Plan the statements of a block for their values, if the query's plan depends on them."""
    if not statements.depends_on_values(query):
        yield
        return
    async with planned_for_values(connection):
        yield


@asynccontextmanager
async def planned_for_values(connection: Connection) -> AsyncIterator[None]:
    """Plan the statements of a block for their values."""
    async with connection.transaction():
        await connection.execute(queries()["plan_for_values"], True)
        yield
        await connection.execute(queries()["plan_for_values"], False)


async def _open(connection: Connection, text: str, values: Sequence[Any]) -> Rows:
    return await connection.cursor(text, *values)


def _states(rows: Sequence[Any]) -> list[State]:
    return [State(id, feature) for id, feature in rows]


def _kept(row: Any) -> StoredObject:
    return StoredObject(row["kind"], row["id"], msgspec.json.decode(row["value"]), row["revision"])
