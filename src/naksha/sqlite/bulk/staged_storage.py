"""Staged writes, on main and on branches; see `naksha.spi.staging`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress

from naksha.model import limits
from naksha.model.collection import CollectionInfo
from naksha.model.errors import NakshaError
from naksha.model.identity.names import check_collection_id
from naksha.spi.staging import AppliedWrite, StagedPart, StagedWrite, check_job, check_write
from naksha.spi.storage import WriteSession
from naksha.sqlite.bulk.apply_staged import StagedLoad, find_applied, forget_applied, known_info
from naksha.sqlite.bulk.stage import SqliteStagingAttempt
from naksha.sqlite.connection.errors import WriteLockTimeout
from naksha.sqlite.read.layered_storage import LayeredStorage
from naksha.sqlite.write.session import SqliteSession


class StagedStorage(LayeredStorage):
    """Base of a storage with staged writes, which many processes prepare together."""

    async def stage(self, job: str, info: CollectionInfo) -> SqliteStagingAttempt:
        """See `naksha.spi.staging.StagingStorage`."""
        check_job(job)
        check_collection_id(info.id, field="id")
        known = await self._read(lambda c: known_info(c, self._layers, info.id))
        files = self._file.stages

        def begin() -> SqliteStagingAttempt:
            now_ms = self._time_ms()
            files.renew(job, now_ms)
            files.sweep(now_ms)
            return SqliteStagingAttempt(files, job, self.number, known or info, self._time_ms)

        return await asyncio.to_thread(begin)

    async def apply_staged(self, write: StagedWrite, parts: Sequence[StagedPart]) -> AppliedWrite:
        """See `naksha.spi.staging.StagingStorage`."""
        check_write(write, parts)
        applied = await self._find_applied(write)
        if applied is None:
            applied = await self._applied(write, parts)
        with suppress(OSError):  # The write is committed; files that remain are swept later.
            await self.drop_staged(write.job)
        return applied

    async def _find_applied(self, write: StagedWrite) -> AppliedWrite | None:
        overlay = self._layers[0].overlay
        return await self._read(lambda c: find_applied(c, write, overlay))

    async def _applied(self, write: StagedWrite, parts: Sequence[StagedPart]) -> AppliedWrite:
        def gather() -> StagedLoad:
            now_ms = self._time_ms()
            found = [(part, self._file.stages.path_of(part, now_ms)) for part in parts]
            return StagedLoad(self._file.info, write, found)

        try:
            load = await asyncio.to_thread(gather)
        except NakshaError:
            # Another process may have applied the job since the check above, and dropped its files.
            applied = await self._find_applied(write)
            if applied is None:
                raise
            return applied

        async def apply(session: WriteSession) -> AppliedWrite:
            assert isinstance(session, SqliteSession)
            return await session.load(write.info.id, load.apply)

        try:
            for attempt in range(limits.RETRY_COUNT_MAX):
                try:
                    return await self.run(apply, write.app_id, write.author)
                except WriteLockTimeout:
                    # Another process may be committing an equally large write. Waiting for it is
                    # cheaper than failing, which would make the whole job run again.
                    if attempt + 1 == limits.RETRY_COUNT_MAX:
                        raise
            raise AssertionError("unreachable")
        finally:
            load.close()

    async def drop_staged(self, job: str) -> None:
        """See `naksha.spi.staging.StagingStorage`."""
        check_job(job)
        await asyncio.to_thread(self._file.stages.drop, job)

    async def sweep_staged(self, now_ms: int) -> None:
        """Remove staged files whose lease has expired, and records of old jobs."""
        await asyncio.to_thread(self._file.stages.sweep, now_ms)
        await self._writer.task(lambda c: forget_applied(c, now_ms))

    def _time_ms(self) -> int:
        now_ms = self._now_ms()
        return time.time_ns() // 1_000_000 if now_ms is None else now_ms
