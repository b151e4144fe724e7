"""Bulk writer: one new collection, filled by many connections, visible by one transaction.

Staged: features go into staging tables without a number; `commit` draws one, moves them into 16 new
tables, indexes these side by side and attaches them, so publication waits for that half only.
Exclusive: the number is drawn first and each row is written once, into its final table. In both
forms the last one of several features with the same id wins.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from contextlib import suppress
from io import BytesIO
from typing import Any, Final, Self

import asyncpg
import msgspec

from naksha.model.collection import CollectionInfo
from naksha.model.errors import InvalidArgument
from naksha.model.features import PreparedFeatures, check_features
from naksha.model.geo.tile_cells import merged
from naksha.model.identity.storage_identity import StorageIdentity
from naksha.model.write_checks import check_points, check_unlocked
from naksha.psql.bulk import staged_rows
from naksha.psql.bulk.splits import LEAVES
from naksha.psql.connection.driver import Direct
from naksha.psql.connection.errors import translated
from naksha.psql.connection.servers import DatabaseServer
from naksha.psql.sql import ident, queries, sql
from naksha.spi.storage import Feature

CLOSE_S: Final = 10.0
"""Time that a server has to end a cancelled statement."""
LANES: Final = 4
"""Connections that copy and index side by side, besides the coordinator's."""
MESSAGE_ID: Final = "bulk-load"
SETTINGS: Final = {
    # Durability comes from the coordinator's commit, which flushes everything written before it.
    "synchronous_commit": "off",
    # The tables are built side by side; parallel workers for each of them would only compete.
    "max_parallel_maintenance_workers": "0",
    "maintenance_work_mem": "256MB",
    "jit": "off",
}


class LoadAttributes(msgspec.Struct, frozen=True):
    """Attributes of the transaction of a load."""

    app_id: str
    author: str | None
    now_ms: int | None
    message: str | None


class Lanes:
    """The working connections; each leaf is processed by one, so none waits for a table."""

    def __init__(self) -> None:
        self._connections: list[Direct] = []
        self._locks: list[asyncio.Lock] = []

    @classmethod
    async def open(cls, server: DatabaseServer, count: int) -> Self:
        lanes = cls()
        try:
            await gather_all(lanes._add(server) for _ in range(count))
        except BaseException:
            await lanes.close()
            raise
        return lanes

    async def _add(self, server: DatabaseServer) -> None:
        self._connections.append(await server.connect(**SETTINGS))
        self._locks.append(asyncio.Lock())

    async def own(self) -> int:
        """Create a job; these connections own it as long as they live."""
        job: int = await self.first("stage_open")
        return job

    async def first(self, query: str, *values: Any) -> Any:
        """Call a function of the schema on the first connection."""
        async with self._locks[0]:
            with translated():
                return await self._connections[0].fetchval(queries()[query], *values)

    async def close(self) -> None:
        """Close the connections.

        A cancelled statement is waited for: otherwise its tables might be created after the
        cleanup.
        """
        try:
            for connection in self._connections:
                with suppress(asyncpg.PostgresError, asyncpg.InterfaceError, OSError, TimeoutError):
                    await connection.close(timeout=CLOSE_S)
        finally:
            for connection in self._connections:
                connection.terminate()

    async def each(self, work: Callable[[Direct, int], Awaitable[Any]]) -> list[Any]:
        """Run work for each of the 16 leaves; a free connection takes the next leaf."""
        results: list[Any] = [None] * staged_rows.LEAF_COUNT
        left = iter(range(staged_rows.LEAF_COUNT))

        async def lane(number: int) -> None:
            for leaf in left:
                async with self._locks[number]:
                    results[leaf] = await work(self._connections[number], leaf)

        with translated():
            await gather_all(lane(number) for number in range(len(self._connections)))
        return results

    async def call(self, query: str, *values: Any) -> None:
        """Call a function of the schema for each leaf; its first arguments are job and leaf."""
        job, *rest = values

        async def one(connection: Direct, leaf: int) -> None:
            await connection.fetchval(queries()[query], job, LEAVES[leaf], *rest)

        await self.each(one)

    async def copy(self, table: str, columns: list[str], data: staged_rows.Data) -> None:
        """Copy into the tables `table` + leaf; atomically per connection."""

        async def lane(number: int) -> None:
            connection = self._connections[number]
            async with self._locks[number], connection.transaction():
                for leaf in range(number, staged_rows.LEAF_COUNT, len(self._connections)):
                    if data[leaf]:
                        await connection.copy_to_table(
                            table + LEAVES[leaf],
                            source=BytesIO(data[leaf]),
                            columns=columns,
                            format="binary",
                        )

        with translated():
            await gather_all(lane(number) for number in range(len(self._connections)))


class PsqlBulkWriter:
    """Bulk writer on PostgreSQL; see `naksha.spi.storage.BulkWriter`."""

    def __init__(
        self,
        control: Direct,
        lanes: Lanes,
        job: int,
        storage: StorageIdentity,
        info: CollectionInfo,
        request: LoadAttributes,
        *,
        is_new: bool,
    ) -> None:
        self._control = control
        self._lanes = lanes
        self._job = job
        self._storage = storage
        self._info = info
        self._talking = asyncio.Lock()
        self._request = request
        self._is_new = is_new
        self._transaction: asyncpg.transaction.Transaction | None = None
        self._begun: Any = None
        self._next_i = 0
        self._over = False
        self._failed = False
        self.committed: Callable[[], None] = lambda: None

    @classmethod
    async def open(
        cls,
        server: DatabaseServer,
        storage: StorageIdentity,
        info: CollectionInfo,
        request: LoadAttributes,
        *,
        exclusive: bool,
        lanes: int = LANES,
    ) -> Self:
        """Begin a load into a collection that is new or empty."""
        if not 1 <= lanes <= staged_rows.LEAF_COUNT:
            raise InvalidArgument(
                f"lanes must be between 1 and {staged_rows.LEAF_COUNT}, not {lanes}", field="lanes"
            )
        control = await server.connect()
        working: Lanes | None = None
        try:
            with translated():
                await control.fetchval(queries()["sweep_staging"])
                found = await control.fetchval(queries()["bulk_look"], info.id)
                if found is not None:
                    info = msgspec.json.decode(found, type=CollectionInfo)
                job = await control.fetchval(queries()["stage_open"])
            working = await Lanes.open(server, lanes)
            writer = cls(control, working, job, storage, info, request, is_new=found is None)
            if exclusive:
                await writer._begin()
            kind = "stage_create_leaf" if exclusive else "stage_create"
            await working.call(kind, job)
        except BaseException:
            # Tables created so far are swept, since their owner is gone.
            if working is not None:
                await working.close()
            control.terminate()
            raise
        return writer

    async def add(self, features: Iterable[Feature]) -> int:
        self._check_open()
        try:
            return await self._add(features)
        except BaseException:
            self._failed = True
            raise

    async def add_prepared(self, prepared: PreparedFeatures) -> int:
        """Stage features that `check_features` has already prepared."""
        pieces = await asyncio.to_thread(staged_rows.pieces_of, prepared)
        await self._copy(pieces, prepared.ids)
        return len(prepared)

    async def commit(self) -> int:
        self._check_open()
        self._over = True
        try:
            txn = await self._load()
        except BaseException:
            await asyncio.shield(self._give_up())
            raise
        await self._close()
        self.committed()
        return txn

    async def abort(self) -> None:
        if not self._over:
            self._over = True
            await self._give_up()

    def _check_open(self) -> None:
        if self._over or self._failed:
            why = (
                "failed in an earlier call; abort it and open another one"
                if self._failed
                else "was already committed or aborted; open another one"
            )
            raise InvalidArgument(
                f"The bulk writer of collection {self._info.id!r} {why}", field="bulk_writer"
            )

    async def _add(self, features: Iterable[Feature]) -> int:
        count, copying = 0, None
        try:
            for chunk in staged_rows.chunks_of(features):
                prepared = await asyncio.to_thread(self._check, chunk)
                pieces = await asyncio.to_thread(staged_rows.pieces_of, prepared, chunk)
                if copying is not None:
                    await copying
                # The next features are checked while these are copied.
                copying = asyncio.ensure_future(self._copy(pieces, prepared.ids))
                count += len(chunk)
            if copying is not None:
                await copying
        finally:
            if copying is not None and not copying.done():
                copying.cancel()
                await asyncio.wait([copying])
        return count

    def _check(self, features: Sequence[Feature]) -> PreparedFeatures:
        prepared = check_features(features, id_prefix=self._info.id_prefix, generate_ids=True)
        check_points(prepared, self._info)
        check_unlocked(prepared, self._storage, self._info)
        return prepared

    async def _copy(self, pieces: list[staged_rows.Piece], ids: Sequence[str]) -> None:
        leaves = staged_rows.leaves_of(ids)
        if self._begun is None:
            async with self._talking:
                with translated():
                    number = await self._control.fetchval(queries()["stage_number"])
            data = await asyncio.to_thread(staged_rows.staged_data, pieces, leaves, number)
            table = f"naksha_stage_{self._job}_s"
            await self._lanes.copy(table, ["n", "wkb", "head", "tail"], data)
            return
        first_i = self._next_i
        self._next_i += len(pieces)
        mark, after_i = self._begun["mark"].encode(), self._begun["after_i"].encode()
        data = await asyncio.to_thread(
            staged_rows.leaf_data, pieces, leaves, first_i, mark, after_i
        )
        table = f"naksha_stage_{self._job}_p"
        await self._lanes.copy(table, ["i", "geo", "jsondata"], data)

    async def _begin(self) -> None:
        """Begin the transaction and draw its number; from here on publication waits for it."""
        request, info = self._request, self._info
        settings = msgspec.json.encode(info).decode()
        with translated():
            self._transaction = self._control.transaction()
            await self._transaction.start()
            await self._control.fetchval(
                queries()["tx_start"], request.app_id, request.author, request.now_ms, False
            )
            self._begun = await self._control.fetchrow(
                queries()["bulk_begin"], info.id, settings, None if self._is_new else settings
            )
        self._next_i = self._begun["first_i"]

    async def _load(self) -> int:
        loaded = await (self._fill() if self._begun is None else self._index())
        with translated():
            await self._control.fetchval(
                queries()["bulk_finish"],
                self._info.id,
                self._job,
                self._next_i - 1,
                sum(row["features"] for row in loaded),
                [row["area"] for row in loaded],
                merged_cells(loaded),
            )
            if self._request.message is not None:
                await self._control.fetchval(
                    queries()["tx_message"], MESSAGE_ID, self._request.message, None, None
                )
            assert self._transaction is not None
            await self._transaction.commit()
        return int(self._begun["txn"])

    async def _fill(self) -> list[Any]:
        """Draw the number, and build the leaf tables from the staged features."""
        job, points_only = self._job, self._info.points_only
        counts = await self._lanes.each(self._count)
        await self._begin()
        firsts = [self._next_i + sum(counts[:leaf]) for leaf in range(staged_rows.LEAF_COUNT)]
        self._next_i += sum(counts)
        common = (self._begun["mark"], self._begun["after_i"], points_only)

        async def fill(connection: Direct, leaf: int) -> Any:
            return await connection.fetchrow(
                queries()["stage_leaf"], job, LEAVES[leaf], firsts[leaf], *common
            )

        return await self._lanes.each(fill)

    async def _index(self) -> list[Any]:
        job, points_only = self._job, self._info.points_only

        async def index(connection: Direct, leaf: int) -> Any:
            return await connection.fetchrow(
                queries()["stage_index"], job, LEAVES[leaf], points_only
            )

        return await self._lanes.each(index)

    async def _count(self, connection: Direct, leaf: int) -> int:
        table = ident(f"naksha_stage_{self._job}_s{LEAVES[leaf]}")
        count: int = await connection.fetchval(sql("stage_count", table=table))
        return count

    async def _give_up(self) -> None:
        """Drop everything that was loaded; what cannot be dropped now is swept later."""
        await self._lanes.close()
        with suppress(asyncpg.PostgresError, asyncpg.InterfaceError, OSError):
            if self._transaction is not None:
                await self._transaction.rollback()
            await self._control.fetchval(queries()["stage_drop"], self._job)
        self._control.terminate()

    async def _close(self) -> None:
        await self._lanes.close()
        self._control.terminate()


def merged_cells(loaded: Iterable[Any]) -> list[int]:
    """Return the tile cells of all leaves."""
    return sorted(merged(cell for row in loaded for cell in row["cells"]))


async def gather_all(works: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Run coroutines side by side; if one fails, cancel the others and wait for them."""
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        await asyncio.gather(*tasks)
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise
