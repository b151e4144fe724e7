"""Staging on SQLite: many processes stage features, each attempt in its own file."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import IO, Final

import pyarrow as pa

from naksha.model.collection import CollectionInfo
from naksha.model.errors import InvalidArgument
from naksha.model.features import PreparedFeatures
from naksha.model.limits import STAGING_LEASE_SECONDS
from naksha.spi.staging import StagedPart, checked, not_staged
from naksha.sqlite.bulk.stage_files import StagingFiles
from naksha.sqlite.bulk.staged_rows import rows_of
from naksha.sqlite.connection.errors import translated
from naksha.sqlite.sql import queries
from naksha.sqlite.write.states import stored_geometries_of

_RENEWED_MS: Final = STAGING_LEASE_SECONDS * 1000 // 10
"""Time after which an addition renews the lease of its job."""


class SqliteStagingAttempt:
    """Staging attempt in one file; see `naksha.spi.staging.StagingAttempt`.

    `number` is the number of the storage, `info` has the settings that features are checked
    against; `clock` returns the time in ms.
    """

    def __init__(
        self,
        files: StagingFiles,
        job: str,
        number: int,
        info: CollectionInfo,
        clock: Callable[[], int],
    ) -> None:
        self._files = files
        self._job = job
        self._info = info
        self._clock = clock
        self._count = 0
        self._turn = asyncio.Lock()
        self._failed = False
        self._is_open = True
        self._renewed_ms = clock()
        self._path: Path
        self._lock: IO[bytes]
        self._path, self._lock = files.new(job)
        try:
            self._connection = _new_stage(self._path, number, info)
        except BaseException:
            self._forget()
            raise

    async def add(self, features: pa.RecordBatch | PreparedFeatures) -> None:
        async with self._turn:
            self._check_open()
            try:
                self._count += await asyncio.to_thread(self._add, features)
            except BaseException:
                # It is unknown which of the features are staged.
                self._failed = True
                raise

    def _add(self, features: pa.RecordBatch | PreparedFeatures) -> int:
        prepared = features
        if isinstance(prepared, pa.RecordBatch):
            prepared = checked(prepared, self._info, self._count)
        rows = zip(
            rows_of(prepared, stored_geometries_of(prepared)), prepared.lock_uuid, strict=True
        )
        self._check_there()
        with translated():
            self._connection.execute(queries()["begin"])
            self._connection.executemany(
                queries()["staged_put"], [(*row, uuid) for row, uuid in rows]
            )
            self._connection.execute(queries()["commit"])
        now_ms = self._clock()
        if now_ms - self._renewed_ms >= _RENEWED_MS:
            self._files.renew(self._job, now_ms)
            self._renewed_ms = now_ms
        return len(prepared)

    async def close(self) -> StagedPart:
        async with self._turn:
            self._check_open()
            self._is_open = False
            await asyncio.to_thread(self._finish)
            return self._part

    def _finish(self) -> None:
        with translated():
            self._connection.close()
        with self._lock:
            # The file may be applied after the machine was restarted, so it must be durable.
            os.fsync(self._lock.fileno())
            self._check_there()
            now_s = self._clock() / 1000
            os.utime(self._lock.fileno(), (now_s, now_s))

    async def abort(self) -> None:
        async with self._turn:
            if self._is_open:
                self._is_open = False
                await asyncio.to_thread(self._abort)

    def _abort(self) -> None:
        try:
            self._connection.close()
        finally:
            self._forget()

    def _forget(self) -> None:
        self._path.unlink(missing_ok=True)
        self._lock.close()

    @property
    def _part(self) -> StagedPart:
        return StagedPart(self._job, self._path.name, self._count)

    def _check_there(self) -> None:
        """Check that the file was not removed by a concurrent drop of the job."""
        if os.fstat(self._lock.fileno()).st_nlink == 0:
            raise not_staged(self._part)

    def _check_open(self) -> None:
        if not self._is_open or self._failed:
            why = (
                "failed in an earlier call; abort it and start a new attempt"
                if self._failed
                else "was already closed or aborted; start a new attempt"
            )
            raise InvalidArgument(f"The staging attempt of job {self._job!r} {why}", field="stage")


def _new_stage(path: Path, number: int, info: CollectionInfo) -> sqlite3.Connection:
    with translated():
        connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        try:
            for pragma in ("stage_unsafe", "stage_unjournaled", "stage_alone"):
                connection.execute(queries()[pragma])
            connection.execute(queries()["staged_create"])
            connection.execute(queries()["staged_about_create"])
            stage_owner = (number, info.id, info.id_prefix or None, info.points_only)
            connection.execute(queries()["staged_about_put"], stage_owner)
        except BaseException:
            connection.close()
            raise
    return connection


def stage_owner(connection: sqlite3.Connection) -> tuple[int, CollectionInfo]:
    """Return the storage number and the collection that features were staged for.

    The collection has the settings that the features were checked against.
    """
    number, id_, prefix, points_only = connection.execute(queries()["staged_about"]).fetchone()
    return number, CollectionInfo(id=id_, id_prefix=prefix, points_only=bool(points_only))
