"""Staging attempt (see `naksha.spi.staging.StagingAttempt`): one table, one connection."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from io import BytesIO
from typing import Final, Self

import asyncpg
import pyarrow as pa

from naksha.model import limits
from naksha.model.collection import CollectionInfo
from naksha.model.errors import InvalidArgument
from naksha.model.features import PreparedFeatures
from naksha.model.identity.storage_identity import StorageIdentity
from naksha.model.write_checks import lock_of
from naksha.psql.bulk import staged_rows
from naksha.psql.bulk.lanes import CLOSE_S, SETTINGS
from naksha.psql.connection.driver import Direct
from naksha.psql.connection.errors import DRIVER_ERRORS, translated
from naksha.psql.connection.servers import DatabaseServer
from naksha.psql.sql import queries
from naksha.spi.clock import Clock
from naksha.spi.staging import StagedPart, checked, not_staged

CHUNK_BYTES: Final = 16 * limits.MIB
"""Bytes of large features that are checked and copied together."""
_RENEW_MS: Final = limits.STAGING_LEASE_SECONDS * 1000 // 4
"""Interval at which a long attempt renews the lease of its job."""
COLUMNS: Final = ["leaf", "given", "lock", "id", "geo", "head", "tail"]


@dataclass(frozen=True)
class AttemptContext:
    """Job, collection, storage and clock of an attempt."""

    job: str
    info: CollectionInfo
    storage: StorageIdentity
    clock: Clock | None

    @property
    def lease(self) -> tuple[int | None, int]:
        """The start of its lease, in ms of an injected clock, and its duration in seconds."""
        now_ms = None if self.clock is None else self.clock.now_ms()
        return now_ms, limits.STAGING_LEASE_SECONDS

    def passed_ms(self) -> float:
        """Return a time in ms that advances at the rate of the leases' clock."""
        return time.monotonic() * 1000 if self.clock is None else self.clock.now_ms()


class PsqlStagingAttempt:
    """Staging attempt on PostgreSQL; see `naksha.spi.staging.StagingAttempt`.

    Features are checked at once, and copied in chunks of some thousand while the next ones are
    checked.
    """

    def __init__(self, connection: Direct, attempt: AttemptContext, table: str) -> None:
        self._connection = connection
        self._attempt = attempt
        self._table = table
        self._renewed_ms = attempt.passed_ms()
        self._rows = 0
        self._counts = [0] * staged_rows.LEAF_COUNT
        self._has_locks = False
        self._waiting = staged_rows.PartRows()
        self._copying: asyncio.Future[None] | None = None
        self._over = ""

    @classmethod
    async def open(cls, server: DatabaseServer, attempt: AttemptContext) -> Self:
        connection = await server.connect(**SETTINGS)
        try:
            info = attempt.info
            with translated():
                table = await connection.fetchval(
                    queries()["staged_open"],
                    attempt.job,
                    info.id,
                    info.id_prefix,
                    info.points_only,
                    *attempt.lease,
                )
        except BaseException:
            connection.terminate()
            raise
        return cls(connection, attempt, table)

    async def add(self, features: pa.RecordBatch | PreparedFeatures) -> None:
        self._check_open()
        try:
            if isinstance(features, PreparedFeatures):
                await self._take(lambda: features)
            else:
                for some in _pieces(features):
                    await self._take(partial(checked, some, self._attempt.info, self._rows))
            await self._renew()
        except BaseException:
            self._over = "failed in an earlier call; abort it and start a new attempt"
            raise

    async def close(self) -> StagedPart:
        self._check_open()
        self._over = "was already closed or aborted; start a new attempt"
        try:
            with translated():
                await self._flush()
                await self._copied()
                is_there = await self._connection.fetchval(
                    queries()["staged_close"],
                    self._table,
                    self._counts,
                    self._has_locks,
                    *self._attempt.lease,
                )
            if not is_there:
                raise not_staged(self._part)
        except BaseException:
            await self._forget()
            raise
        await self._connection.close()
        return self._part

    async def abort(self) -> None:
        if not self._connection.is_closed():
            self._over = "was already closed or aborted; start a new attempt"
            await self._forget()

    @property
    def _part(self) -> StagedPart:
        return StagedPart(self._attempt.job, self._table, sum(self._counts))

    def _check_open(self) -> None:
        if self._over:
            raise InvalidArgument(
                f"The staging attempt of job {self._attempt.job!r} {self._over}",
                field="stage",
            )

    async def _take(self, check: Callable[[], PreparedFeatures]) -> None:
        """Check features and encode them as rows, and copy these once there are enough."""
        await asyncio.to_thread(lambda: self._put(check()))
        if len(self._waiting) >= staged_rows.CHUNK_FEATURES or self._waiting.size >= CHUNK_BYTES:
            await self._flush()

    def _put(self, prepared: PreparedFeatures) -> None:
        info, storage = self._attempt.info, self._attempt.storage
        uuids = prepared.lock_uuid
        locks = [None if uuid is None else lock_of(uuid, storage, info) for uuid in uuids]
        self._has_locks |= any(lock is not None for lock in locks)
        self._waiting.add(prepared, locks)
        self._rows += len(prepared)

    async def _flush(self) -> None:
        """Copy the buffered rows, once the previous copy has ended."""
        rows, self._waiting = self._waiting, staged_rows.PartRows()
        if not len(rows):
            return
        data = await asyncio.to_thread(rows.data)
        await self._copied()
        for leaf, count in enumerate(rows.counts):
            self._counts[leaf] += count
        self._copying = asyncio.ensure_future(self._copy(data))

    async def _copy(self, data: bytes) -> None:
        await self._connection.copy_to_table(
            self._table, source=BytesIO(data), columns=COLUMNS, format="binary"
        )

    async def _copied(self) -> None:
        copying, self._copying = self._copying, None
        if copying is not None:
            with translated():
                try:
                    await copying
                except asyncpg.UndefinedTableError:
                    raise not_staged(self._part) from None

    async def _renew(self) -> None:
        now_ms = self._attempt.passed_ms()
        if now_ms < self._renewed_ms + _RENEW_MS:
            return
        await self._copied()
        with translated():
            await self._connection.fetchval(
                queries()["staged_renew"], self._attempt.job, *self._attempt.lease
            )
        self._renewed_ms = now_ms

    async def _forget(self) -> None:
        """Drop everything that was staged; what cannot be dropped now is swept later."""
        if self._copying is not None:
            self._copying.cancel()
            await asyncio.wait([self._copying])
        try:
            await self._connection.fetchval(
                queries()["staged_release"], self._attempt.job, self._table
            )
            await self._connection.fetchval(queries()["sweep_staged"], 0)
            await self._connection.close(timeout=CLOSE_S)
        except (*DRIVER_ERRORS, TimeoutError):
            self._connection.terminate()


def _pieces(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Split a batch into slices that are checked together."""
    fitting: int = batch.num_rows * CHUNK_BYTES // max(batch.nbytes, 1)
    step = max(1, min(staged_rows.CHUNK_FEATURES, fitting))
    return (batch.slice(first, step) for first in range(0, batch.num_rows, step))
