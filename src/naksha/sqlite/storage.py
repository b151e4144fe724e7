"""The embedded storage: one SQLite file, no server."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Collection, Mapping, Sequence
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any, Self

from naksha.model.errors import NakshaError, ReadOnly
from naksha.model.identity.names import check_storage_id, storage_id_from
from naksha.model.identity.storage_identity import StorageIdentity
from naksha.model.identity.uuids import STORAGE_NUMBER_MAX
from naksha.spi.backups import StorageFacts, facts_of
from naksha.spi.clock import Clock
from naksha.spi.diagnosis import DiagnosisLoad, DiagnosisResult
from naksha.spi.locations import path_of
from naksha.spi.maintenance import StorageRound
from naksha.spi.storage import BranchLayer, Mismatch, Storage
from naksha.spi.support.cancellation import check_cancelled
from naksha.spi.support.scheduled_deletion import drop_due
from naksha.spi.support.version_signal import VersionSignal
from naksha.spi.tile_cells import CellLog
from naksha.sqlite.bulk.bulk_storage import BulkStorage
from naksha.sqlite.bulk.stage_files import StagingFiles
from naksha.sqlite.connection.file_watch import FileWatch
from naksha.sqlite.connection.readers import READERS_MAX, ReaderPool
from naksha.sqlite.maintenance.backup import check_new, copy_file, restore_file
from naksha.sqlite.maintenance.checks import mismatches
from naksha.sqlite.maintenance.diagnosis import diagnose_file
from naksha.sqlite.maintenance.partitioning import kept
from naksha.sqlite.maintenance.rounds import checkpoint, expire, maintain, preview
from naksha.sqlite.read import meta
from naksha.sqlite.read.layered_storage import LOOK_S, OpenFile
from naksha.sqlite.read.layers import MAIN_ONLY, checked_layers
from naksha.sqlite.read.rows import collection_of
from naksha.sqlite.schema.file import (
    APPLICATION_ID,
    BUSY_S,
    FORK_BUSY_S,
    connect,
    fork_file,
    open_file,
)
from naksha.sqlite.schema.shell import add_view
from naksha.sqlite.write.branch import SqliteBranch
from naksha.sqlite.write.writer import WriterThread

_log = logging.getLogger(__name__)
_random = random.SystemRandom()


class SqliteStorage(BulkStorage):
    """Storage in a SQLite file; open it with `SqliteStorage.open`.

    See `naksha.spi.storage.Storage`.
    """

    def __init__(self, path: Path, file: OpenFile) -> None:
        super().__init__(file, MAIN_ONLY)
        self.path = path

    @classmethod
    async def open(
        cls,
        path: str | Path,
        storage_id: str | None = None,
        *,
        number: int | None = None,
        clock: Clock | None = None,
        busy_s: float = BUSY_S,
        readers_max: int = READERS_MAX,
        must_exist: bool = False,
        new_id: str | None = None,
        read_only: bool = False,
    ) -> Self:
        """Open the storage in a file; create the file if it does not exist.

        Args:
            path: A path, or a location `file:…`.
            storage_id: Id for a new storage; an existing storage must have this id.
            new_id: Id for a new storage only. Without both, the id is derived from the file name.
            number: 40-bit number for a new storage; random by default.
            clock: Source of the start times of transactions; the system clock by default.
            busy_s: Seconds that a writer waits while another process writes.
            readers_max: Maximum number of connections for reading.
            must_exist: Raise NotFound instead of creating a storage.
            read_only: Write nothing to the file.
        """
        place = path_of(path)
        for id_ in (storage_id, new_id):
            if id_ is not None:
                check_storage_id(id_)
        if number is None:
            number = _random.randint(0, STORAGE_NUMBER_MAX)
        made = (storage_id or new_id or storage_id_from(place.stem), number)
        connection, identity = await asyncio.to_thread(
            partial(open_file, must_exist=must_exist, read_only=read_only),
            *(place, storage_id, made, busy_s),
        )
        loop, version_signal = asyncio.get_running_loop(), VersionSignal(LOOK_S)

        def published(last: int) -> None:
            loop.call_soon_threadsafe(version_signal.notify, last)

        writer = WriterThread(connection, published, is_read_only=read_only)

        async def complete() -> None:
            if read_only:
                raise ReadOnly(
                    "The file has geometries that plain SQL wrote and that are not processed yet; "
                    "open it once without read_only"
                )
            await writer.task(lambda _: None)  # Every writer task begins with the completion.

        readers = ReaderPool(place, busy_s, readers_max, complete, read_only=read_only)
        watch = FileWatch[CellLog](lambda: connect(place, 0, read_only=read_only))
        stages = StagingFiles(place)
        file = OpenFile(identity, clock, readers, writer, version_signal, stages, watch)
        storage = cls(place, file)
        try:
            await storage._publish()
        except BaseException:
            await storage.close()
            raise
        return storage

    @classmethod
    async def fork(
        cls,
        path: str | Path,
        storage_id: str | None = None,
        *,
        number: int | None = None,
        busy_s: float = FORK_BUSY_S,
    ) -> StorageIdentity:
        """Give the storage in a copied file its own id and number.

        By default the id is the one that a new file of that name would get, and the number is
        random. The file must not be open anywhere.

        Raises:
            Conflict: The file is open, or the storage had that id before.
        """
        place = path_of(path)
        wanted = check_storage_id(storage_id or storage_id_from(place.stem))
        if number is None:
            number = _random.randint(0, STORAGE_NUMBER_MAX)
        return await asyncio.to_thread(fork_file, place, (wanted, number), busy_s)

    @classmethod
    async def back_up(cls, path: str | Path, file: Path) -> StorageFacts:
        """See `naksha.spi.backups`."""
        await asyncio.to_thread(copy_file, path_of(path), file)
        storage = await cls.open(file, must_exist=True)
        try:
            return await facts_of(storage)
        finally:
            await storage.close()

    @classmethod
    async def check_empty(cls, path: str | Path) -> None:
        """See `naksha.spi.backups`."""
        await asyncio.to_thread(check_new, path_of(path))

    @classmethod
    async def restore(cls, path: str | Path, file: Path) -> None:
        """See `naksha.spi.backups`."""
        await asyncio.to_thread(restore_file, file, path_of(path))

    @classmethod
    async def diagnose(cls, path: str | Path, load: DiagnosisLoad) -> list[DiagnosisResult]:
        """See `naksha.spi.diagnosis`."""
        return await asyncio.to_thread(diagnose_file, path_of(path), APPLICATION_ID, load)

    async def close(self) -> None:
        await self._writer.close()
        self._readers.close()
        self._file.cell_log_end.close()

    def on_branch(
        self, layers: Sequence[BranchLayer], collections: Collection[str] | None = None
    ) -> Storage:
        return SqliteBranch(self._file, self, checked_layers(layers), collections)

    async def expire(self, collection: str, before: date) -> None:
        await self.collection(collection)
        await self._publish()
        await expire(self._writer, collection, before)

    async def mismatches(self, collection: str, limit: int) -> list[Mismatch]:
        return await self._read(lambda c: mismatches(c, collection, limit))

    async def meta(self, collection: str, id: str) -> dict[str, Any] | None:
        return await self._read(lambda c: meta.find(c, collection, id))

    async def all_meta(self, collection: str) -> list[dict[str, Any]]:
        return await self._read(lambda c: meta.find_all(c, collection))

    async def put_meta(self, collection: str, feature: Mapping[str, Any]) -> None:
        await self._writer.task(lambda c: meta.put(c, collection, feature))

    async def remove_meta(self, collection: str, id: str) -> bool:
        return await self._writer.task(lambda c: meta.remove(c, collection, id))

    async def add_view(self, collection: str) -> None:
        """Create a view with the collection's name, for writers that do not use the library."""
        await self._writer.task(lambda c: add_view(c, collection_of(c, collection)))

    async def maintain(
        self, now_ms: int | None = None, *, record: StorageRound | None = None
    ) -> None:
        if now_ms is None:
            now_ms = self._now_ms()
        now_ms = now_ms or time.time_ns() // 1_000_000
        if self._writer.is_read_only:
            raise ReadOnly(f"Storage {self.id!r} is open read-only and cannot be maintained here")
        own = record or StorageRound()
        await self._publish()
        if own.is_dry:
            await preview(self._read, now_ms, own)
            return
        await own.attempt("scheduled deletions", partial(drop_due, self, now_ms))
        await maintain(self._writer, self._read, now_ms, own)
        await own.attempt("sweep of staged writes", partial(self.sweep_staged, now_ms))
        await own.attempt("partitionings", self.refresh_partitionings)
        await own.attempt("write-ahead log", partial(asyncio.to_thread, checkpoint, self.path))
        own.finish()
        if record is None:
            own.raise_failures()

    async def refresh_partitionings(self) -> list[str]:
        names = [info.id for info in await self.collections() if info.optimal_partitioning]
        return [name for name in names if await self._is_refreshed(name)]

    async def _is_refreshed(self, name: str) -> bool:
        """Compute an outdated partitioning; a failure of one collection does not affect others."""
        try:
            if await self._read(lambda c: kept(c, name)) is not None:
                return False
            await self.partitioning(name)
        except NakshaError as error:
            check_cancelled()
            _log.warning("Could not compute the partitioning of collection %s: %s", name, error)
            return False
        return True
