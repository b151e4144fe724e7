"""Bulk part of the storage: splits, and reads from replicas."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import pyarrow as pa

from naksha.model.errors import NakshaError, Retryable
from naksha.model.geo.tiles import VectorTile
from naksha.model.query import Query, SortKey
from naksha.model.state import MatchingState, State
from naksha.model.statistics import Statistics
from naksha.model.version import HEAD, VersionSelector
from naksha.psql.bulk import splits
from naksha.psql.connection.driver import Connection
from naksha.psql.connection.errors import translated
from naksha.psql.connection.servers import Servers
from naksha.psql.read import versions
from naksha.psql.read.reader import PsqlReader
from naksha.spi.arrow import STATES, schema_of
from naksha.spi.query.plan import check_hidden
from naksha.spi.storage import Split, StatePage


class BulkStorage(PsqlReader):
    """Base of `PsqlStorage` with everything besides transactions."""

    _servers: Servers

    # ---- Reads at a version, from a replica if possible ------------------------------------------

    def _connection_at(self, txn: int | None) -> AbstractAsyncContextManager[Connection]:
        if txn is None or not self._servers.replicas:
            return self._connection()
        return self._replica_at(txn)

    @asynccontextmanager
    async def _replica_at(self, txn: int) -> AsyncIterator[Connection]:
        """Connect to a replica that knows the version, else to the primary."""
        async with self._servers.replica_at(txn) as found:
            if found is None:
                async with self._connection() as connection:
                    yield connection
                return
            replica, other = found
            try:
                with translated():
                    yield other
            except Retryable:
                replica.rest()
                raise

    async def page(self, collection: str, query: Query, at: VersionSelector = HEAD) -> StatePage:
        for _ in self._servers.replicas:
            try:
                return await super().page(collection, query, at)
            except Retryable:
                continue  # Retry on the next server; the failed one is skipped for a while.
        return await super().page(collection, query, at)

    async def matching_states(
        self,
        collection: str,
        query: Query,
        at: VersionSelector = HEAD,
        *,
        sort: Sequence[SortKey] = (),
        after: MatchingState | None = None,
    ) -> list[MatchingState]:
        for _ in self._servers.replicas:
            try:
                return await super().matching_states(collection, query, at, sort=sort, after=after)
            except Retryable:
                continue
        return await super().matching_states(collection, query, at, sort=sort, after=after)

    async def count(self, collection: str, query: Query, at: VersionSelector = HEAD) -> int:
        for _ in self._servers.replicas:
            try:
                return await super().count(collection, query, at)
            except Retryable:
                continue
        return await super().count(collection, query, at)

    async def tile(
        self, collection: str, query: Query, at: VersionSelector, tile: VectorTile
    ) -> bytes:
        for _ in self._servers.replicas:
            try:
                return await super().tile(collection, query, at, tile)
            except Retryable:
                continue
        return await super().tile(collection, query, at, tile)

    async def statistics(
        self, collection: str, at: VersionSelector = HEAD, *, fast: bool = False
    ) -> Statistics:
        for _ in self._servers.replicas:
            try:
                return await super().statistics(collection, at, fast=fast)
            except Retryable:
                continue
        return await super().statistics(collection, at, fast=fast)

    async def states(
        self, collection: str, query: Query, at: VersionSelector = HEAD
    ) -> AsyncIterator[State]:
        begun = False
        for last in (*(False for _ in self._servers.replicas), True):
            try:
                async for state in super().states(collection, query, at):
                    begun = True
                    yield state
                return
            except Retryable:
                # Rows that the caller has received cannot be taken back.
                if begun or last:
                    raise

    def chunks(
        self, collection: str, query: Query, at: VersionSelector = HEAD
    ) -> AsyncIterator[list[State]]:
        chunks = super().chunks if not self._servers.replicas else self._chunks_of_any
        return chunks(collection, query, at)

    async def _chunks_of_any(
        self, collection: str, query: Query, at: VersionSelector
    ) -> AsyncIterator[list[State]]:
        """Read from a replica, and from the next server if it fails."""
        begun = False
        for last in (*(False for _ in self._servers.replicas), True):
            try:
                async for states in super().chunks(collection, query, at):
                    begun = True
                    yield states
                return
            except Retryable:
                if begun or last:
                    raise

    # ---- Splits ----------------------------------------------------------------------------------

    async def plan(
        self, collection: str, query: Query, at: VersionSelector = HEAD, *, hidden: bool = False
    ) -> list[Split]:
        check_hidden(query, hidden)
        await self._publish()
        async with self._connection() as connection:
            return await splits.plan(
                connection, self._storage.key, collection, query, at, hidden=hidden
            )

    async def read(
        self, split: Split, columns: Sequence[str] | None = None
    ) -> AsyncIterator[pa.RecordBatch]:
        schema = STATES if columns is None else schema_of(columns)
        split.check_storage(self._storage.key)
        part = splits.payload_of(split)
        await self._check_floor(split, part)
        begun = False
        for last in (*(False for _ in self._servers.replicas), True):
            server = self._servers.primary
            if not part.sources:
                server = await self._servers.server_at(part.published)
            before, query = splits.statements(
                server.settings["search_path"], split.collection, part, schema.names
            )
            try:
                async for batch in server.arrow.batches(before, query, schema):
                    begun = True
                    yield batch
                break
            except NakshaError as error:
                await self._check_floor(split, part)
                if begun or last or not isinstance(error, Retryable):
                    raise
                self._servers.leave_out(server)
        await self._check_floor(split, part)

    async def _check_floor(self, split: Split, part: splits.SplitPayload) -> None:
        async with self._connection() as connection:
            await versions.check_histories(connection, part.needs(split.collection))
