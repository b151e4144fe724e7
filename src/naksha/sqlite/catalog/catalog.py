"""The catalog in one SQLite file, shared by any number of processes on one machine."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import AsyncIterator, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Self

from naksha.spi.catalog import (
    ObjectKey,
    ObjectRow,
    PointerRow,
    Scanned,
    ScannedObject,
    ScannedPointer,
)
from naksha.spi.diagnosis import DiagnosisLoad, DiagnosisResult
from naksha.spi.locations import CATALOGS, path_of
from naksha.spi.support.batches import batches, name_range
from naksha.sqlite.catalog.file import APPLICATION_ID, open_file
from naksha.sqlite.catalog.sql import sql
from naksha.sqlite.catalog.threads import CatalogReaders, CatalogWriter, Work
from naksha.sqlite.maintenance.backup import check_new, copy_file, restore_file
from naksha.sqlite.maintenance.diagnosis import diagnose_file

BUSY_S: Final = 10.0
"""How long a writer waits for the write lock of another process."""
BATCH_ROWS: Final = 1_000
BATCH_BYTES: Final = 16 * 2**20
"""Limits of one write operation; other writers may run between two of them."""
SCAN_PAGE: Final = 1_000

Values = tuple[Any, ...]


class SqliteCatalog:
    """Catalog backend in a SQLite file; open it with `SqliteCatalog.open`.

    See `naksha.spi.catalog.CatalogBackend`.
    """

    name = "sqlite"
    deletes_realms = True

    def __init__(self, writer: CatalogWriter, readers: CatalogReaders) -> None:
        self._writer = writer
        self._readers = readers

    @classmethod
    async def open(cls, location: str, *, busy_s: float = BUSY_S) -> Self:
        """Open the catalog at `file:path`; create its tables if the file is new.

        Raises:
            NotSupported: The file is not a catalog, or was written by a newer version.
            Unavailable: The file cannot be opened, or other processes keep it locked for longer
                than `busy_s`.
        """
        path = path_of(location, CATALOGS.noun).absolute()
        connection = await asyncio.to_thread(open_file, path, busy_s)
        return cls(CatalogWriter(connection, busy_s), CatalogReaders(path, busy_s))

    @classmethod
    async def back_up(cls, location: str, file: Path) -> None:
        """See `naksha.spi.backups`."""
        await asyncio.to_thread(copy_file, path_of(location, CATALOGS.noun), file)

    @classmethod
    async def check_empty(cls, location: str) -> None:
        """See `naksha.spi.backups`."""
        await asyncio.to_thread(check_new, path_of(location, CATALOGS.noun))

    @classmethod
    async def restore(cls, location: str, file: Path) -> None:
        """See `naksha.spi.backups`."""
        await asyncio.to_thread(restore_file, file, path_of(location, CATALOGS.noun))

    @classmethod
    async def diagnose(cls, location: str, load: DiagnosisLoad) -> list[DiagnosisResult]:
        """See `naksha.spi.diagnosis`."""
        path = path_of(location, CATALOGS.noun)
        return await asyncio.to_thread(diagnose_file, path, APPLICATION_ID, load)

    async def close(self) -> None:
        await self._readers.close()
        await self._writer.close()

    async def now_us(self) -> int:
        return await self._readers.do(lambda _: time.time_ns() // 1_000)

    # ---- Pointers ----------------------------------------------------------------------------

    async def create_pointer(self, realm: str, row: PointerRow) -> bool:
        return await self._changes("pointer_create", (realm, *_pointer_values(row)))

    async def create_pointers(self, realm: str, rows: Sequence[PointerRow]) -> int:
        return await self._changed(
            "pointer_create", [(realm, *_pointer_values(row)) for row in rows]
        )

    async def fetch_pointers(self, realm: str, names: Collection[str]) -> dict[str, PointerRow]:
        keys = [(realm, name) for name in names]
        rows = await self._readers.do(lambda connection: _all(connection, "pointer_fetch", keys))
        return {row[0]: PointerRow(*row) for row in rows}

    async def list_pointers(
        self, realm: str, prefix: str, after: str, limit: int
    ) -> list[PointerRow]:
        values = (realm, *name_range(prefix, after), after, limit)
        rows = await self._readers.do(
            lambda connection: _all(connection, "pointers_list", [values])
        )
        return [PointerRow(*row) for row in rows]

    async def swap_pointer(self, realm: str, expected: PointerRow, row: PointerRow) -> bool:
        return await self._changes("pointer_swap", _swap_values(realm, expected, row))

    async def delete_pointer(self, realm: str, expected: PointerRow) -> bool:
        return await self._changes("pointer_delete", (realm, *_compared(expected)))

    # ---- Objects -----------------------------------------------------------------------------

    async def fetch(self, realm: str, keys: Collection[ObjectKey]) -> dict[ObjectKey, ObjectRow]:
        values = [(realm, *key) for key in keys]
        rows = await self._readers.do(lambda connection: _all(connection, "object_fetch", values))
        return {ObjectKey(row[0], row[1]): ObjectRow(*row) for row in rows}

    async def write(self, realm: str, rows: Sequence[ObjectRow]) -> None:
        for batch in _object_batches(realm, rows):
            await self._changed("object_write", batch)

    async def delete(self, realm: str, keys: Collection[ObjectKey]) -> None:
        await self._changed("object_delete", [(realm, *key) for key in keys])

    async def insert(self, realm: str, row: ObjectRow) -> bool:
        return await self._changes("object_insert", _object_values(realm, row))

    async def replace(self, realm: str, row: ObjectRow, expected_token: str) -> bool:
        new = (row.parts, bytes(row.value), row.created_us, row.token)
        there = (realm, row.id, row.part, row.type, expected_token)
        return await self._changes("object_replace", (*new, *there))

    async def delete_if(self, realm: str, key: ObjectKey, expected_token: str) -> bool:
        return await self._changes("object_delete_if", (realm, *key, expected_token))

    async def publish(
        self, realm: str, rows: Sequence[ObjectRow], expected: PointerRow, row: PointerRow
    ) -> bool:
        swap = _swap_values(realm, expected, row)
        *before, last = list(_object_batches(realm, rows)) or [[]]
        for batch in before:
            await self._changed("object_write", batch)

        def work(connection: sqlite3.Connection) -> bool:
            connection.executemany(sql("object_write"), last)
            return connection.execute(sql("pointer_swap"), swap).rowcount == 1

        return await self._writer.do(work)

    # ---- Maintenance -------------------------------------------------------------------------

    async def scan(self) -> AsyncIterator[Sequence[Scanned]]:
        after: Values = ("", "")
        while pointers := await self._page("pointers_scan", after):
            yield [ScannedPointer(*row) for row in pointers]
            after = pointers[-1][:2]
        after = ("", -1, -1)
        while objects := await self._page("objects_scan", after):
            yield [ScannedObject(r, ObjectKey(i, a), y, c) for r, i, a, y, c in objects]
            after = objects[-1][:3]

    async def delete_scanned(self, rows: Sequence[Scanned]) -> int:
        pointers = [tuple(row) for row in rows if isinstance(row, ScannedPointer)]
        objects = [
            (row.realm, *row.key, row.created_us) for row in rows if isinstance(row, ScannedObject)
        ]
        return await self._changed("pointer_delete_scanned", pointers) + await self._changed(
            "object_delete_scanned", objects
        )

    async def delete_realms(self, realms: Collection[str]) -> None:
        for realm in realms:
            some = {"realm": realm, "most": BATCH_ROWS}
            for query in ("pointers_delete_some", "objects_delete_some"):
                while await self._writer.do(_counting(query, some)):
                    pass

    # ---- Inside ------------------------------------------------------------------------------

    async def _changes(self, query: str, values: Values) -> bool:
        """Run a statement; return whether it changed its row."""
        return await self._writer.do(_counting(query, values)) == 1

    async def _changed(self, query: str, rows: Iterable[Values]) -> int:
        """Run a statement for many rows; return how many of them it changed."""
        total = 0
        for batch in batches(rows, BATCH_ROWS):
            total += await self._writer.do(_counting_many(query, batch))
        return total

    async def _page(self, query: str, after: Values) -> list[Values]:
        values = [(*after, SCAN_PAGE)]
        return await self._readers.do(lambda connection: _all(connection, query, values))


def _counting(query: str, values: Values | dict[str, Any]) -> Work[int]:
    return lambda connection: connection.execute(sql(query), values).rowcount


def _counting_many(query: str, rows: Sequence[Values]) -> Work[int]:
    return lambda connection: connection.executemany(sql(query), rows).rowcount


def _all(connection: sqlite3.Connection, query: str, keys: Sequence[Values]) -> list[Values]:
    """Run a query for each of the keys in one snapshot; return all rows."""
    with _snapshot(connection):
        text = sql(query)
        return [row for values in keys for row in connection.execute(text, values)]


@contextmanager
def _snapshot(connection: sqlite3.Connection) -> Iterator[None]:
    connection.execute(sql("begin_reading"))
    try:
        yield
    finally:
        if connection.in_transaction:
            connection.execute(sql("rollback"))


def _compared(row: PointerRow) -> Values:
    return (row.name, bytes(row.target), row.created, row.epoch)


def _pointer_values(row: PointerRow) -> Values:
    return (*_compared(row), bytes(row.previous))


def _swap_values(realm: str, expected: PointerRow, row: PointerRow) -> Values:
    new = (bytes(row.target), row.created, row.epoch, bytes(row.previous))
    return (*new, realm, *_compared(expected))


def _object_values(realm: str, row: ObjectRow) -> Values:
    """Return the columns of an object.

    The value is copied, because the caller might change it before the writer thread gets to it.
    """
    value = bytes(row.value)
    return (realm, row.id, row.part, row.parts, row.type, value, row.created_us, row.token)


def _object_batches(realm: str, rows: Sequence[ObjectRow]) -> Iterator[list[Values]]:
    values = [_object_values(realm, row) for row in rows]
    return batches(values, BATCH_ROWS, BATCH_BYTES, size=lambda row: len(row[5]))
