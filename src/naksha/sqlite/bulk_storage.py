"""The storage's bulk work on main: the bulk writer, staged writes, and optimal partitioning."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from naksha.model import limits
from naksha.model.collection import CollectionInfo
from naksha.model.names import check_app_id, check_author, check_collection_id, check_text
from naksha.spi.partitioning import Partitioning
from naksha.spi.staged import check_job, check_staged_write
from naksha.spi.staging import Applied, StagedPart, StagedWrite
from naksha.spi.storage import WriteSession
from naksha.sqlite import applying, bulk, partitioning, staging
from naksha.sqlite.errors import Locked
from naksha.sqlite.layers import Layers
from naksha.sqlite.rows import collection_of
from naksha.sqlite.session import SqliteSession
from naksha.sqlite.stage_files import StageFiles
from naksha.sqlite.transaction import Transaction
from naksha.sqlite.views import OpenFile, View
from naksha.sqlite.writer import Entry


class BulkStorage(View):
    """The part of `SqliteStorage` that works on whole collections of main."""

    def __init__(self, path: Path, file: OpenFile, seen: Layers) -> None:
        super().__init__(file, seen)
        self.path = path
        self._stage_files = StageFiles(path)

    async def bulk_writer(
        self,
        info: CollectionInfo,
        app_id: str,
        author: str | None = None,
        *,
        exclusive: bool = False,
        message: str | None = None,
    ) -> bulk.SqliteBulkWriter:
        """See `Storage.bulk_writer`; a collection that is there keeps its own settings."""
        check_collection_id(info.id, field="id")
        check_app_id(app_id)
        check_author(author)
        if message is not None:
            check_text(message, limits.MESSAGE_TEXT_BYTES_MAX, field="message")
        known = await self._read(lambda c: bulk.known_empty(c, info.id))
        transaction = Transaction(
            self.id, self._writer.counters, app_id, author, self._now_ms(), dated=False
        )
        entry = Entry(transaction)
        loader = bulk.SqliteBulkWriter(self._file.info, self._writer, entry, info, known)
        try:
            if message is not None:
                await self._writer.step(entry, bulk.message_step(message, draws=exclusive))
            elif exclusive:
                await self._writer.step(entry, lambda t: t.txn)
        except BaseException:
            await loader.abort()
            raise
        return loader

    # ---- Staged writes -----------------------------------------------------------------------

    async def stage(self, job: str, info: CollectionInfo) -> staging.SqliteStage:
        """See `naksha.spi.staging.Staging`."""
        check_job(job)
        check_collection_id(info.id, field="id")
        known = await self._read(lambda c: staging.known_info(c, info.id))
        files = self._stage_files

        def begin() -> staging.SqliteStage:
            files.renew(job)
            files.sweep()
            return staging.SqliteStage(files, job, known or info)

        return await asyncio.to_thread(begin)

    async def apply_staged(self, write: StagedWrite, parts: Sequence[StagedPart]) -> Applied:
        """See `naksha.spi.staging.Staging`."""
        check_staged_write(write, parts)
        applied = await self._read(lambda c: applying.find_applied(c, write.job))
        if applied is None:
            files = self._stage_files
            load = await asyncio.to_thread(applying.StagedLoad, files, write, parts)
            try:
                applied = await self._apply(load, write)
            finally:
                load.close()
        await self.drop_staged(write.job)
        return applied

    async def _apply(self, load: applying.StagedLoad, write: StagedWrite) -> Applied:
        async def apply(session: WriteSession) -> Applied:
            assert isinstance(session, SqliteSession)
            # It is large: from here on to do it again would cost more than to wait for it.
            await session.close_gates([write.info.id])
            return await session.step(load.apply)

        for attempt in range(limits.RETRY_COUNT_MAX):
            try:
                return await self.run(apply, write.app_id, write.author)
            except Locked:
                # Another process is perhaps at something as large: that ends, and all of the
                # job would have to be done again otherwise.
                if attempt + 1 == limits.RETRY_COUNT_MAX:
                    raise
        raise AssertionError("unreachable")

    async def drop_staged(self, job: str) -> None:
        """See `naksha.spi.staging.Staging`."""
        check_job(job)
        await asyncio.to_thread(self._stage_files.drop, job)

    async def sweep_staged(self, now_ms: int) -> None:
        """Remove what was staged too long ago, and what is known of writes of long ago."""
        await asyncio.to_thread(self._stage_files.sweep, now_ms / 1000)
        await self._writer.task(lambda c: applying.forget_applied(c, now_ms))

    # ---- Optimal partitioning ----------------------------------------------------------------

    async def partitioning(self, collection: str) -> dict[str, int]:
        await self._publish()
        stored = await self._read(lambda c: partitioning.kept(c, collection))
        if stored is not None:
            return stored
        async with self._readers.snapshot() as snapshot:
            computed, found = await partitioning.compute(snapshot, collection)
        if computed is not None:
            await self.keep_partitioning(collection, computed)
        return found

    async def feature_size(self, collection: str) -> int:
        return await self._read(lambda c: partitioning.byte_size(c, collection_of(c, collection)))

    async def keep_partitioning(self, collection: str, found: Partitioning) -> None:
        await self._writer.task(lambda c: partitioning.keep(c, collection, found))
