"""Reading: queries, single states and collection info, on whatever connection is at hand."""

from __future__ import annotations

import base64
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Final

import msgspec

from naksha.model.collection import CollectionInfo
from naksha.model.errors import CollectionNotFound, Expired, InvalidArgument, NotFound
from naksha.model.guid import Guid
from naksha.model.query import Query
from naksha.model.state import State
from naksha.model.uuids import Uuid, parse_state_id
from naksha.model.version import HEAD, Head, VersionSelector
from naksha.psql import statements
from naksha.psql.driver import Connection
from naksha.psql.errors import translated
from naksha.psql.sql import ident, queries, sql
from naksha.psql.statements import Cursor
from naksha.psql.versions import floor_version, resolve
from naksha.spi.storage import Page

PREFETCH: Final = 500
"""Rows fetched ahead when states are streamed."""


class PsqlReader(ABC):
    """What storage and session have in common. A subclass says which connection to read on."""

    @abstractmethod
    def _connection(self) -> AbstractAsyncContextManager[Connection]:
        """A connection to read on."""

    def _connection_at(self, txn: int | None) -> AbstractAsyncContextManager[Connection]:
        """A connection to read at a version on (None: HEAD); it may be one to a replica."""
        return self._connection()

    @asynccontextmanager
    async def _reading(self, collection: str, txn: int | None) -> AsyncIterator[Connection]:
        """A connection to read a version on, which afterwards must still be there.

        A statement is planned before it takes its snapshot, so a day of the history that is made
        in between would be missing from the plan while its rows are gone from HEAD already. Hence
        the snapshot is taken first. A session has its own transaction and cannot."""
        with translated():
            async with self._connection_at(txn) as connection:
                if txn is None or not self._pins_head:
                    yield connection
                else:
                    async with connection.transaction(isolation="repeatable_read", readonly=True):
                        await connection.fetchval(queries()["floor"], collection)
                        yield connection
                await still_there(connection, collection, txn)

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
        cursor = _decode_cursor(query.cursor)
        txn = await self._txn_of(collection, query, at, cursor)
        text, values = statements.states(collection, query, txn, cursor)
        async with self._reading(collection, txn) as connection, planned(connection, query):
            rows = await connection.fetch(text, *values)
        found = [State(row["id"], row["feature"]) for row in rows]
        if query.limit is None or len(found) <= query.limit:
            return Page(found, None)
        del found[query.limit :]
        return Page(found, _encode_cursor(txn, found[-1]))

    async def states(
        self, collection: str, query: Query, at: VersionSelector = HEAD
    ) -> AsyncIterator[State]:
        cursor = _decode_cursor(query.cursor)
        txn = await self._txn_of(collection, query, at, cursor)
        text, values = statements.states(collection, query, txn, cursor)
        left = query.limit
        async with (
            self._reading(collection, txn) as connection,
            connection.transaction(),
            planned(connection, query),
        ):
            rows = connection.cursor(text, *values, prefetch=PREFETCH)
            async for row in rows:
                if left is not None:
                    if left == 0:
                        break
                    left -= 1
                yield State(row["id"], row["feature"])

    async def count(self, collection: str, query: Query, at: VersionSelector = HEAD) -> int:
        txn = await self._txn_of(collection, msgspec.structs.replace(query, limit=None), at, None)
        text, values = statements.count(collection, query, txn)
        async with self._reading(collection, txn) as connection, planned(connection, query):
            number: int = await connection.fetchval(text, *values)
        return number

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
                await still_there(connection, collection, cursor.at)
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


async def still_there(connection: Connection, collection: str, txn: int | None) -> None:
    """Whether history that the version needs was dropped, also while we were reading."""
    if txn is None:
        return
    floor = await connection.fetchval(queries()["floor"], collection)
    if floor is None:
        raise CollectionNotFound(f"No collection {collection!r}", collection_id=collection)
    if txn < floor:
        oldest = await floor_version(connection, floor)
        raise Expired(
            f"History before version {oldest} is gone", oldest=oldest, collection_id=collection
        )


def _encode_cursor(txn: int | None, last: State) -> str:
    cursor = Cursor(txn or 0, last.id, last.txn)
    return base64.urlsafe_b64encode(msgspec.json.encode(cursor)).decode()


def _decode_cursor(text: str | None) -> Cursor | None:
    if text is None:
        return None
    try:
        return msgspec.json.decode(base64.urlsafe_b64decode(text), type=Cursor)
    except ValueError as error:
        raise InvalidArgument("Not a cursor of this storage", field="cursor") from error
