"""Reference storage on PostgreSQL with PostGIS."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any, Final, Self, TypeVar

from naksha.model import limits
from naksha.model.errors import InvalidArgument, NotSupported, VersionNotFound
from naksha.model.identity.names import check_storage_id
from naksha.model.identity.storage_identity import StorageIdentity, check_fork, parse_identity
from naksha.model.identity.txn import txn_of
from naksha.model.query import Bbox
from naksha.model.transaction import MAIN, MAIN_LOG, LogFilter, PublicationStatus, Transaction
from naksha.model.version import Version
from naksha.psql.bulk.apply_staged import StagedWrites
from naksha.psql.bulk.bulk_storage import BulkStorage
from naksha.psql.connection.background_task import BackgroundTask
from naksha.psql.connection.driver import (
    POOL_WAIT_S,
    Connection,
    Connections,
    acquired,
    create_pool,
)
from naksha.psql.connection.errors import translated
from naksha.psql.connection.poolers import connect_checked
from naksha.psql.connection.servers import DatabaseServer, Replica, Servers
from naksha.psql.maintenance import backup
from naksha.psql.maintenance.cells import CellFoldingTask
from naksha.psql.maintenance.checks import mismatches
from naksha.psql.maintenance.daily_partitions import DailyPartitions, DailyPartitionTask
from naksha.psql.maintenance.diagnosis import diagnose
from naksha.psql.maintenance.growth import GrowthTask, grow_due
from naksha.psql.maintenance.maintenance_task import MaintenanceTask
from naksha.psql.maintenance.partitioning import PartitioningStore
from naksha.psql.maintenance.partitioning_task import PartitioningTask, refresh_outdated
from naksha.psql.maintenance.rounds import expire, maintain, preview
from naksha.psql.maintenance.sequencer import Follower, Sequencer
from naksha.psql.read import log, meta, tile_cells, versions
from naksha.psql.read.layers import NO_BRANCH, check_layers
from naksha.psql.schema.install import (
    DEFAULT_SCHEMA,
    SchemaPrivileges,
    check_installed,
    default_id,
    install,
    privileges_on,
    search_path,
    use_installed,
)
from naksha.psql.sql import queries
from naksha.psql.write.branch import PsqlBranch
from naksha.spi.backups import StorageFacts
from naksha.spi.clock import Clock
from naksha.spi.diagnosis import DiagnosisLoad, DiagnosisResult
from naksha.spi.locations import redacted
from naksha.spi.maintenance import RoundMemory, StorageRound
from naksha.spi.partitioning import Partitioning
from naksha.spi.storage import BranchLayer, Mismatch, Storage
from naksha.spi.support.log_rows import transactions_of
from naksha.spi.support.scheduled_deletion import drop_due
from naksha.spi.support.stream_limit import StreamLimit
from naksha.spi.tile_cells import CellLog

POOL_MAX: Final = 16
"""Connections in the pool of one open storage."""
_STORAGE_NUMBER_BITS: Final = 40
_OWNER_MAINTAINS: Final = (
    "only the role that owns the schema can maintain a storage; open it as that role"
)
_LookUp = TypeVar("_LookUp", CellLog, tile_cells.RecordedChange)
_log = logging.getLogger(__name__)
_random = random.SystemRandom()


def session_settings(path: str, storage_id: str, *, read_only: bool = False) -> dict[str, str]:
    """Return the settings of every connection of a storage.

    Every statement is written so that its generic plan is the right one. Planning a statement for
    each call costs more than running a small query, and JIT compilation costs more than any of
    them.
    """
    return {
        "search_path": path,
        "application_name": f"naksha {storage_id}",
        "default_transaction_isolation": "read committed",
        "default_transaction_read_only": "on" if read_only else "off",
        "plan_cache_mode": "force_generic_plan",
        "jit": "off",
        "lock_timeout": f"{limits.LOCK_WAIT_SECONDS_MAX * 1000}",
    }


class PsqlStorage(BulkStorage, StagedWrites):
    """Storage in a PostgreSQL schema; see `naksha.spi.storage.Storage`.

    Open it with `PsqlStorage.open`.
    """

    def __init__(
        self,
        connections: Connections,
        servers: Servers,
        info: StorageIdentity,
        sequencer: Sequencer,
        clock: Clock | None,
    ) -> None:
        super().__init__()
        self._connections = connections
        self._streams = StreamLimit(connections.pool.get_max_size(), POOL_WAIT_S)
        self._servers = servers
        self._info = info
        self._sequencer = sequencer
        self._clock = clock
        self._connect = servers.primary.connect
        self._days = DailyPartitions(connections, self._connect, clock)
        # `_replica` rotates through the replicas, so the same function is listed once for each of
        # them: the length of the list says how many reads may run at once.
        replicas = [self._replica] * len(servers.replicas)
        self._partitionings = PartitioningStore(self._primary, self._publish, replicas)
        self._background: list[BackgroundTask] = []
        self._growth = GrowthTask(servers.primary)
        self._cell_folding = CellFoldingTask(connections)
        self._access: SchemaPrivileges

    @classmethod
    async def open(
        cls,
        dsn: str,
        storage_id: str | None = None,
        *,
        schema: str = DEFAULT_SCHEMA,
        number: int | None = None,
        clock: Clock | None = None,
        pool_max: int = POOL_MAX,
        maintain_every_s: float | None = None,
        partition_every_s: float | None = None,
        readers: Sequence[str] = (),
        must_exist: bool = False,
        new_id: str | None = None,
        read_only: bool = False,
    ) -> Self:
        """Open the storage in a schema, and create or upgrade the schema when needed.

        `storage_id` is the id of a new storage, and must be that of an existing one; `new_id` is
        for a new one only. The default is the schema's name, or the database's for the default
        schema. `number` is the 40-bit number of a new storage, random by default. With `must_exist`
        nothing is created (NotFound); with `read_only` nothing is written, which suits a reader's
        role and a hot standby. `clock` replaces the database's clock. `maintain_every_s` enables
        background maintenance, `partition_every_s` background partitioning: after new versions, and
        at least that often. `readers` are DSNs of replicas, which serve reads at versions that they
        know.
        """
        for id_ in (storage_id, new_id):
            if id_ is not None:
                check_storage_id(id_)
        if len(schema.encode()) > limits.SCHEMA_BYTES_MAX:
            raise InvalidArgument(
                f"The schema name {schema!r} is too long; at most {limits.SCHEMA_BYTES_MAX} bytes "
                "are accepted",
                field="schema",
            )
        if number is None:
            number = _random.getrandbits(_STORAGE_NUMBER_BITS)
        with translated():
            first = await connect_checked(dsn)
            try:
                if must_exist or read_only:
                    await check_installed(first, schema, redacted(dsn))
                if read_only:
                    storage_id = await use_installed(first, schema, storage_id)
                else:
                    storage_id = await install(first, schema, storage_id, number, new_id=new_id)
                path = await search_path(first, schema)
                access = await privileges_on(first, schema)
            finally:
                await first.close()
            settings = session_settings(path, storage_id, read_only=read_only)
            pool = await create_pool(dsn, settings, max_size=pool_max)
            async with pool.acquire() as connection:
                identity = await _identity_on(connection)

        replicas = [Replica(reader, settings, pool_max) for reader in readers]
        servers = Servers(DatabaseServer(dsn, settings), replicas)
        await servers.check(storage_id)
        connections = Connections(pool)
        kind = Follower if read_only else Sequencer
        sequencer = kind(connections, servers.primary.connect)
        sequencer.start()
        storage = cls(connections, servers, identity, sequencer, clock)
        assert access is not None
        storage._access = access._replace(may_write=not read_only)
        if not read_only:
            await storage._days.prepare_log(storage._now_ms())
        storage._start_background(maintain_every_s, partition_every_s)
        return storage

    def _start_background(self, maintain_every_s: float | None, partition_s: float | None) -> None:
        if maintain_every_s is not None and self._access.maintains:
            work = partial(self._maintain_in_background, RoundMemory())
            self._background.append(MaintenanceTask(work, maintain_every_s))
        elif maintain_every_s is not None:
            _log.warning(
                "Storage %s is not maintained in the background: %s", self.id, _OWNER_MAINTAINS
            )
        if self._access.maintains:
            self._background.append(self._growth)
        if self._access.may_write:
            self._background.append(
                DailyPartitionTask(self._days, lambda: self._sequencer.is_elected)
            )
            self._background.append(self._cell_folding)
        if partition_s is not None and self._access.may_write:
            wait, connect = self._sequencer.wait_for_version, self._servers.primary.connect
            self._background.append(
                PartitioningTask(self._partitionings, connect, wait, partition_s)
            )
        for task in self._background:
            task.start()

    @classmethod
    async def fork(
        cls,
        dsn: str,
        storage_id: str | None = None,
        *,
        schema: str = DEFAULT_SCHEMA,
        number: int | None = None,
    ) -> StorageIdentity:
        """Give a copied schema an id and a number of its own.

        By default the id is the one that a new storage in the schema would get, and the number is
        random. The storage must not be open anywhere.

        Raises:
            Conflict: The storage is open, or has had that id before.
        """
        if number is None:
            number = _random.getrandbits(_STORAGE_NUMBER_BITS)
        with translated():
            connection = await connect_checked(dsn)
            try:
                await check_installed(connection, schema, redacted(dsn))
                await install(connection, schema, None, number)
                wanted = check_storage_id(storage_id or await default_id(connection, schema))
                path = await search_path(connection, schema)
                await connection.fetchval(queries()["search_path_set"], path, False)
                check_fork(await _identity_on(connection), wanted)
                await connection.fetchval(queries()["storage_fork"], wanted, number)
                return await _identity_on(connection)
            finally:
                await connection.close()

    @classmethod
    async def back_up(cls, dsn: str, file: Path, *, schema: str = DEFAULT_SCHEMA) -> StorageFacts:
        """See `naksha.spi.backups`."""
        return await backup.back_up_storage(dsn, schema, file)

    @classmethod
    async def check_empty(
        cls,
        dsn: str,
        *,
        schema: str = DEFAULT_SCHEMA,
        extensions: Mapping[str, str] | None = None,
    ) -> None:
        """See `naksha.spi.backups`."""
        await backup.check_empty(dsn, schema, extensions)

    @classmethod
    async def restore(
        cls,
        dsn: str,
        file: Path,
        *,
        schema: str = DEFAULT_SCHEMA,
        extensions: Mapping[str, str] | None = None,
    ) -> None:
        """See `naksha.spi.backups`."""
        await backup.restore_schema(dsn, schema, file, extensions)

    @classmethod
    async def diagnose(
        cls, dsn: str, load: DiagnosisLoad, *, schema: str = DEFAULT_SCHEMA
    ) -> list[DiagnosisResult]:
        """See `naksha.spi.diagnosis`."""
        return await diagnose(dsn, schema, load, postgis=True)

    async def close(self) -> None:
        for task in self._background:
            await task.close()
        await self._sequencer.close()
        await self._servers.close()
        await self._connections.close()

    @property
    def _server(self) -> DatabaseServer:
        return self._servers.primary

    def _now_ms(self) -> int | None:
        return None if self._clock is None else self._clock.now_ms()

    def _primary(self, _: int) -> AbstractAsyncContextManager[Connection]:
        """Return a connection to the primary, which knows every version."""
        return self._connection()

    @asynccontextmanager
    async def _replica(self, txn: int) -> AsyncIterator[Connection]:
        """Connect to the next replica that has replayed the version, else to the primary."""
        async with self._servers.replica_at(txn) as found:
            if found is not None:
                yield found[1]
                return
        async with self._connection() as connection:
            yield connection

    async def transaction(self, txn: int | str) -> Transaction:
        number = self.identity.txn_of(txn)
        async with self._connection() as connection:
            rows = await connection.fetch(queries()["transaction"], number)
            if not rows:
                await versions.check_log(connection, number)
        if not rows:
            raise VersionNotFound(f"Transaction {txn} does not exist")
        return transactions_of(rows)[0]

    async def transactions(
        self,
        after: int = 0,
        limit: int = 1000,
        where: LogFilter = MAIN_LOG,
        *,
        newest_first: bool = False,
    ) -> list[Transaction]:
        await self._publish()
        async with self._connection() as connection:
            return await log.transactions(connection, after, limit, where, newest_first)

    async def wait_published(self, txn: int, timeout_s: float = 5.0) -> Version | None:
        deadline, signal = time.monotonic() + timeout_s, self._sequencer.version_signal
        while True:
            next_version = signal.next_version
            with translated():
                version = await self._sequencer.version_of(txn)
            left = deadline - time.monotonic()
            if version is not None or left <= 0:
                return version
            await signal.wait(next_version, left)

    async def wait_beyond(self, seq_number: int, timeout_s: float) -> int:
        async def poll() -> int:
            await self._publish()
            return self._sequencer.version_signal.last

        return await self._sequencer.version_signal.wait_beyond(seq_number, timeout_s, poll)

    async def cell_log(self, after_txn: int) -> CellLog:
        found = await self._settled(partial(tile_cells.cell_log, after_txn=after_txn))
        if found.is_settled:
            return found
        async with self._connection() as connection:
            return await tile_cells.with_pending(connection, found)

    async def last_cell_change(self, collection: str, box: Bbox, *, overlay: int = MAIN) -> int:
        work = partial(tile_cells.last_cell_change, collection=collection, box=box, overlay=overlay)
        found = await self._settled(work)
        self._cell_folding.looked_up(found.unfolded)
        return found.txn

    async def _settled(self, look_up: Callable[..., Awaitable[_LookUp]]) -> _LookUp:
        """Look up tile cells, and again after publication if something was to be published."""
        is_writable = self._access.may_write
        async with self._connection() as connection:
            found = await look_up(connection, is_writable=is_writable)
        if found.is_settled or not is_writable:
            return found
        await self._publish()
        async with self._connection() as connection:
            return await look_up(connection, is_writable=is_writable)

    def connections(self) -> dict[str, int]:
        """Return how many connections of the pool are in use, and how many are idle."""
        return self._connections.in_use()

    async def publication(self) -> PublicationStatus:
        with translated():
            return await self._sequencer.status()

    def on_branch(
        self, layers: Sequence[BranchLayer], collections: Collection[str] | None = None
    ) -> Storage:
        branch = check_layers(layers)
        return self if branch == NO_BRANCH else PsqlBranch(self, branch, collections)

    async def partitioning(self, collection: str) -> dict[str, int]:
        return await self._partitionings.of(collection)

    async def feature_size(self, collection: str) -> int:
        return await self._partitionings.feature_size(collection)

    async def store_partitioning(self, collection: str, found: Partitioning) -> None:
        await self._partitionings.keep(collection, found)

    async def mismatches(self, collection: str, limit: int) -> list[Mismatch]:
        await self.collection(collection)
        with translated():
            async with acquired(self._connections) as connection:
                return await mismatches(connection, collection, limit)

    async def meta(self, collection: str, id: str) -> dict[str, Any] | None:
        async with self._meta_connection(collection) as connection:
            return await meta.find(connection, collection, id)

    async def all_meta(self, collection: str) -> list[dict[str, Any]]:
        async with self._meta_connection(collection) as connection:
            return await meta.find_all(connection, collection)

    async def put_meta(self, collection: str, feature: Mapping[str, Any]) -> None:
        async with self._meta_connection(collection) as connection:
            await meta.put(connection, collection, feature)

    async def remove_meta(self, collection: str, id: str) -> bool:
        async with self._meta_connection(collection) as connection:
            return await meta.remove(connection, collection, id)

    @asynccontextmanager
    async def _meta_connection(self, collection: str) -> AsyncIterator[Connection]:
        """Check that a collection exists, and connect to read or write its meta table."""
        await self.collection(collection)
        with translated():
            async with acquired(self._connections) as connection:
                yield connection

    def _check_maintains(self) -> None:
        if not self._access.maintains:
            raise NotSupported(f"Storage {self.id!r} cannot be maintained: {_OWNER_MAINTAINS}")

    async def expire(self, collection: str, before: date) -> None:
        self._check_maintains()
        await self.collection(collection)
        await self._publish()
        with translated():
            async with acquired(self._connections) as connection:
                await expire(connection, collection, txn_of(before, 0))

    async def maintain(
        self, now_ms: int | None = None, *, record: StorageRound | None = None
    ) -> None:
        self._check_maintains()
        own = record or StorageRound()
        await self._maintain(now_ms, own)
        if record is None:
            own.raise_failures()

    async def _maintain(self, now_ms: int | None, record: StorageRound) -> None:
        if now_ms is None:
            now_ms = self._now_ms()
        await self._publish()
        if record.is_dry:
            with translated():
                async with acquired(self._connections) as connection:
                    await preview(connection, now_ms, record)
            return
        due_ms = now_ms or time.time_ns() // 1_000_000
        await record.attempt("scheduled deletions", lambda: drop_due(self, due_ms))
        with translated():
            async with acquired(self._connections) as connection:
                await maintain(connection, now_ms, record)
        await record.attempt("growth of collections", lambda: grow_due(self._servers.primary))
        await record.attempt("partitionings", self.refresh_partitionings)
        record.finish()

    async def _maintain_in_background(self, memory: RoundMemory) -> None:
        record = StorageRound(memory=memory)
        await self._maintain(None, record)
        record.raise_failures()

    async def refresh_partitionings(self) -> list[str]:
        async with self._connection() as connection:
            if not await connection.fetch(queries()["partitioned_collections"]):
                return []
        return await refresh_outdated(self._partitionings, self._connect)


async def _identity_on(connection: Connection) -> StorageIdentity:
    row = await connection.fetchrow(queries()["storage_identity"])
    assert row is not None
    return parse_identity(row["id"], row["number"], row["former"])
