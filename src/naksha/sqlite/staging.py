"""Staging on SQLite: features that many processes bring, each attempt in a file of its own."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from pathlib import Path
from typing import IO, Any

import pyarrow as pa

from naksha.model.collection import CollectionInfo
from naksha.model.columns import check_columns
from naksha.model.errors import CollectionExists, InvalidArgument
from naksha.model.write_checks import check_points
from naksha.spi.arrow import as_given
from naksha.spi.staging import StagedPart
from naksha.sqlite.bulk import rows_of
from naksha.sqlite.errors import translated
from naksha.sqlite.rows import Collection
from naksha.sqlite.sql import queries
from naksha.sqlite.stage_files import StageFiles
from naksha.sqlite.states import shapes_of


class SqliteStage:
    """See `naksha.spi.staging.Stage`. `info` has the settings that features are checked with."""

    def __init__(self, files: StageFiles, job: str, info: CollectionInfo) -> None:
        self._job = job
        self._info = info
        self._count = 0
        self._turn = asyncio.Lock()
        self._failed = False
        self._is_open = True
        self._path: Path
        self._lock: IO[bytes]
        self._path, self._lock = files.new(job)
        try:
            self._connection = _new_stage(self._path, info)
        except BaseException:
            self._forget()
            raise

    async def add(self, batch: pa.RecordBatch) -> None:
        async with self._turn:
            self._check_open()
            try:
                self._count += await asyncio.to_thread(self._add, batch)
            except BaseException:
                # Nobody can tell which of them are staged.
                self._failed = True
                raise

    def _add(self, batch: pa.RecordBatch) -> int:
        prepared = check_columns(
            as_given(batch), id_prefix=self._info.id_prefix, first_row=self._count
        )
        check_points(prepared, self._info)
        rows: list[tuple[Any, ...]] = list(rows_of(prepared, shapes_of(prepared)))
        with translated():
            self._connection.execute(queries()["begin"])
            self._connection.executemany(queries()["staged_put"], rows)
            self._connection.execute(queries()["commit"])
        return len(rows)

    async def close(self) -> StagedPart:
        async with self._turn:
            self._check_open()
            self._is_open = False
            await asyncio.to_thread(self._finish)
        return StagedPart(self._job, self._path.name, self._count)

    def _finish(self) -> None:
        """Whoever applies it may do so after the machine has been started again."""
        with translated():
            self._connection.close()
        os.fsync(self._lock.fileno())
        os.utime(self._lock.fileno())
        self._lock.close()

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

    def _check_open(self) -> None:
        if not self._is_open or self._failed:
            why = "An earlier call failed, only abort is left" if self._failed else "It is over"
            raise InvalidArgument(f"The stage takes nothing more: {why}", field="stage")


def _new_stage(path: Path, info: CollectionInfo) -> sqlite3.Connection:
    with translated():
        connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        try:
            for pragma in ("stage_unsafe", "stage_unjournaled", "stage_alone"):
                connection.execute(queries()[pragma])
            connection.execute(queries()["staged_create"])
            connection.execute(queries()["staged_about_create"])
            connection.execute(queries()["staged_about_put"], about(info))
        except BaseException:
            connection.close()
            raise
    return connection


def about(info: CollectionInfo) -> tuple[str, str, int]:
    """The settings of a collection that its features are checked with."""
    return info.id, info.id_prefix or "", int(info.points_only)


def known_info(connection: sqlite3.Connection, name: str) -> CollectionInfo | None:
    """The collection that is to be written to, None when it is new."""
    row = connection.execute(queries()["collection"], (name,)).fetchone()
    if row is None:
        return None
    found = Collection(*row)
    if found.delete_at:
        raise CollectionExists("The collection exists and is dropped", collection_id=name)
    return found.info
