"""Reading: queries, single states and collection info, on whatever connection is at hand."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Final, TypeVar

import msgspec

from naksha.model.collection import CollectionInfo
from naksha.model.errors import CollectionNotFound, NotFound
from naksha.model.guid import Guid
from naksha.model.query import Query, States
from naksha.model.state import State
from naksha.model.uuids import Uuid, parse_state_id
from naksha.model.version import HEAD, Head, VersionSelector
from naksha.psql import statements
from naksha.psql.driver import Connection, Rows
from naksha.psql.errors import translated
from naksha.psql.sql import ident, queries, sql
from naksha.psql.steady import SteadyHistory
from naksha.psql.versions import check_history, resolve
from naksha.spi.cursor import Cursor, decode_cursor
from naksha.spi.storage import Page

T = TypeVar("T")
PREFETCH: Final = 500
"""Rows fetched ahead when states are streamed."""


class PsqlReader(ABC):
    """What storage and session have in common. A subclass says which connection to read on."""

    def __init__(self) -> None:
        self._history = SteadyHistory()

    @abstractmethod
    def _connection(self) -> AbstractAsyncContextManager[Connection]:
        """A connection to read on."""

    def _connection_at(self, txn: int | None) -> AbstractAsyncContextManager[Connection]:
        """A connection to read at a version on (None: HEAD); it may be one to a replica."""
        return self._connection()

    @asynccontextmanager
    async def _reading(self, txn: int | None) -> AsyncIterator[Connection]:
        """A connection to read at a version on (None: HEAD)."""
        with translated():
            async with self._connection_at(txn) as connection:
                yield connection

    async def _steady(
        self,
        connection: Connection,
        collection: str,
        query: Query,
        txn: int | None,
        read: Callable[[], Awaitable[T]],
    ) -> T:
        """What `read` gives, where the history is read with all of its partitions."""
        if txn is None and query.states is States.LIVE:
            return await read()
        return await self._history.read(connection, collection, txn, read)

    @abstractmethod
    async def _publish(self) -> None:
        """Publish what can be published before a version is looked up."""

    @property
    @abstractmethod
    def _storage(self) -> tuple[str, int]:
        """Id and number of the storage."""

    @property
    def _pins_head(self) -> bool:
        """Whether paging at HEAD is pinned to the last published version."""
        return True

    async def collections(self, *, dropped: bool = False) -> list[CollectionInfo]:
        async with self._connection() as connection:
            rows = await connection.fetch(queries()["collections"], dropped)
        return [msgspec.json.decode(row[0], type=CollectionInfo) for row in rows]

    async def collection(self, collection: str, *, dropped: bool = False) -> CollectionInfo:
        async with self._connection() as connection:
            info = await connection.fetchval(queries()["collection"], collection, dropped)
        if info is None:
            raise CollectionNotFound(f"No collection {collection!r}", collection_id=collection)
        return msgspec.json.decode(info, type=CollectionInfo)

    async def page(self, collection: str, query: Query, at: VersionSelector = HEAD) -> Page:
        cursor = decode_cursor(query.cursor)
        txn = await self._txn_of(collection, query, at, cursor)
        text, values = statements.states(collection, query, txn, cursor)
        async with self._reading(txn) as connection, planned(connection, query):
            rows = await self._steady(
                connection, collection, query, txn, lambda: connection.fetch(text, *values)
            )
        found = [State(row["id"], row["feature"]) for row in rows]
        if query.limit is None or len(found) <= query.limit:
            return Page(found, None)
        del found[query.limit :]
        last = found[-1]
        return Page(found, Cursor(txn or 0, last.id, last.txn).encoded())

    async def states(
        self, collection: str, query: Query, at: VersionSelector = HEAD
    ) -> AsyncIterator[State]:
        cursor = decode_cursor(query.cursor)
        txn = await self._txn_of(collection, query, at, cursor)
        text, values = statements.states(collection, query, txn, cursor)
        left = query.limit
        async with (
            self._reading(txn) as connection,
            connection.transaction(),
            planned(connection, query),
        ):
            # What a cursor gives is settled when it is opened.
            rows = await self._steady(
                connection, collection, query, txn, lambda: _open(connection, text, values)
            )
            while left != 0:
                found = await rows.fetch(PREFETCH if left is None else min(PREFETCH, left))
                if not found:
                    break
                for row in found:
                    yield State(row["id"], row["feature"])
                left = None if left is None else left - len(found)

    async def count(self, collection: str, query: Query, at: VersionSelector = HEAD) -> int:
        txn = await self._txn_of(collection, msgspec.structs.replace(query, limit=None), at, None)
        text, values = statements.count(collection, query, txn)
        async with self._reading(txn) as connection, planned(connection, query):
            return await self._steady(
                connection, collection, query, txn, lambda: _number(connection, text, values)
            )

    async def state(self, state_id: str) -> State:
        reference = parse_state_id(state_id)
        async with self._connection() as connection:
            collection = await self._collection_of(connection, reference, state_id)
            text = sql(
                "state_by_i",
                head=ident(collection),
                del_=ident(collection + "_del"),
                hst=ident(collection + "_hst"),
            )
            with translated():
                row = await connection.fetchrow(text, reference.i, reference.txn_min)
                if row is None:
                    # It may have gone into a new partition of the history at this moment.
                    await check_history(connection, collection, None)
                    row = await connection.fetchrow(text, reference.i, reference.txn_min)
        if row is None:
            raise NotFound(f"No state {state_id!r}", collection_id=collection)
        return State(row["id"], row["feature"])

    async def _collection_of(
        self, connection: Connection, reference: Guid | Uuid, state_id: str
    ) -> str:
        storage_id, number = self._storage
        known: str | None = None
        if isinstance(reference, Guid):
            if reference.storage_id == storage_id:
                known = reference.collection_id
        elif reference.storage_number == number:
            known = await connection.fetchval(
                queries()["collection_by_number"], reference.collection_number
            )
        if known is None or not await connection.fetchval(queries()["collection"], known, False):
            raise NotFound(f"No state {state_id!r} in storage {storage_id!r}")
        return known

    async def _txn_of(
        self, collection: str, query: Query, at: VersionSelector, cursor: Cursor | None
    ) -> int | None:
        """The transaction to read at; None for HEAD. Checks that the collection is there and
        can be read at that version."""
        if cursor is not None and cursor.at == 0:
            cursor = None
        if cursor is None and not (isinstance(at, Head) and self._reads_head(query)):
            await self._publish()
        async with self._connection() as connection:
            info = await connection.fetchval(queries()["collection"], collection, False)
            if info is None:
                raise CollectionNotFound(f"No collection {collection!r}", collection_id=collection)
            if cursor is not None:
                await check_history(connection, collection, cursor.at)
                return cursor.at
            if isinstance(at, Head) and self._reads_head(query):
                return None
            version = await resolve(connection, at, collection)
            return version.txn

    def _reads_head(self, query: Query) -> bool:
        return query.limit is None or not self._pins_head


@asynccontextmanager
async def planned(connection: Connection, query: Query) -> AsyncIterator[None]:
    """Where the right plan depends on the values of the query, it is made for them."""
    if not statements.depends_on_values(query):
        yield
        return
    async with connection.transaction():
        await connection.execute(queries()["plan_for_values"], True)
        yield
        await connection.execute(queries()["plan_for_values"], False)


async def _number(connection: Connection, text: str, values: Sequence[Any]) -> int:
    number: int = await connection.fetchval(text, *values)
    return number


async def _open(connection: Connection, text: str, values: Sequence[Any]) -> Rows:
    return await connection.cursor(text, *values)
