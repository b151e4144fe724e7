"""Catalog backend in PostgreSQL: two tables in their own schema, one statement per call."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, Self

from naksha.psql.catalog.pool import POOL_MAX, CatalogPool
from naksha.psql.catalog.setup import set_up
from naksha.psql.catalog.sql import statements
from naksha.psql.maintenance import backup
from naksha.psql.maintenance.diagnosis import diagnose
from naksha.spi.catalog import (
    ObjectKey,
    ObjectRow,
    PointerRow,
    Scanned,
    ScannedObject,
    ScannedPointer,
    by_key,
)
from naksha.spi.diagnosis import DiagnosisLoad, DiagnosisResult
from naksha.spi.support.batches import batches, name_range

SCHEMA: Final = "naksha_catalog"
_CALL_S: Final = 10.0
"""Timeout of a statement."""
BATCH_ROWS: Final = 1_000
BATCH_BYTES: Final = 16 * 2**20
"""Most rows and bytes that one statement writes."""
_FETCH_ROWS: Final = 100
"""Objects read by one statement: at most 35 MB."""
SCAN_PAGE: Final = 1_000

Columns = list[list[Any]]


class PsqlCatalog:
    """Catalog backend in a PostgreSQL schema; see `naksha.spi.catalog.CatalogBackend`.

    Open it with `PsqlCatalog.open`.
    """

    name = "postgresql"
    deletes_realms = True

    def __init__(self, pool: CatalogPool, queries: dict[str, str]) -> None:
        self._pool = pool
        self._queries = queries

    @classmethod
    async def open(
        cls,
        location: str,
        *,
        schema: str = SCHEMA,
        pool_max: int = POOL_MAX,
        call_s: float = _CALL_S,
    ) -> Self:
        """Open the catalog in a schema, and create its tables if the schema is new.

        Raises:
            NotSupported: The schema holds other tables, or was written by a newer version.
            Unavailable: The server cannot be reached.
        """
        settings = await set_up(location, schema)
        pool = await CatalogPool.open(location, settings, pool_max=pool_max, call_s=call_s)
        return cls(pool, statements(schema))

    @classmethod
    async def back_up(cls, location: str, file: Path, *, schema: str = SCHEMA) -> None:
        """See `naksha.spi.backups`."""

        async def nothing(_: object) -> None:
            """Count nothing: a catalog has no features."""

        await backup.dump_schema(location, schema, file, nothing)

    @classmethod
    async def check_empty(cls, location: str, *, schema: str = SCHEMA) -> None:
        """See `naksha.spi.backups`."""
        await backup.check_empty(location, schema)

    @classmethod
    async def restore(cls, location: str, file: Path, *, schema: str = SCHEMA) -> None:
        """See `naksha.spi.backups`."""
        await backup.restore_schema(location, schema, file)

    @classmethod
    async def diagnose(
        cls, location: str, load: DiagnosisLoad, *, schema: str = SCHEMA
    ) -> list[DiagnosisResult]:
        """See `naksha.spi.diagnosis`."""
        return await diagnose(location, schema, load, postgis=False)

    async def close(self) -> None:
        await self._pool.close()

    async def now_us(self) -> int:
        [row] = await self._fetch("now")
        return int(row[0])

    # ---- Pointers ----------------------------------------------------------------------------

    async def create_pointer(self, realm: str, row: PointerRow) -> bool:
        return await self._changes("pointer_create", realm, *_values(row))

    async def create_pointers(self, realm: str, rows: Sequence[PointerRow]) -> int:
        made = 0
        for batch in batches(sorted(rows, key=lambda row: row.name), BATCH_ROWS):
            columns = _columns([_values(row) for row in batch])
            made += await self._change("pointers_create", realm, *columns)
        return made

    async def fetch_pointers(self, realm: str, names: Collection[str]) -> dict[str, PointerRow]:
        found: dict[str, PointerRow] = {}
        for batch in batches(dict.fromkeys(names), BATCH_ROWS):
            for row in await self._fetch("pointers_fetch", realm, batch):
                found[row[0]] = PointerRow(*row)
        return found

    async def list_pointers(
        self, realm: str, prefix: str, after: str, limit: int
    ) -> list[PointerRow]:
        first, end = name_range(prefix, after)
        rows = await self._fetch("pointers_list", realm, first, end, after, limit)
        return [PointerRow(*row) for row in rows]

    async def swap_pointer(self, realm: str, expected: PointerRow, row: PointerRow) -> bool:
        return await self._changes("pointer_swap", realm, *_swap_values(expected, row))

    async def delete_pointer(self, realm: str, expected: PointerRow) -> bool:
        *compared, _ = _values(expected)
        return await self._changes("pointer_delete", realm, *compared)

    # ---- Objects -----------------------------------------------------------------------------

    async def fetch(self, realm: str, keys: Collection[ObjectKey]) -> dict[ObjectKey, ObjectRow]:
        found: dict[ObjectKey, ObjectRow] = {}
        for batch in batches(sorted(set(keys)), _FETCH_ROWS):
            for row in await self._fetch("objects_fetch", realm, *_columns(batch)):
                found[ObjectKey(row[0], row[1])] = ObjectRow(*row)
        return found

    async def write(self, realm: str, rows: Sequence[ObjectRow]) -> None:
        for columns in _object_batches(rows):
            await self._change("objects_write", realm, *columns)

    async def delete(self, realm: str, keys: Collection[ObjectKey]) -> None:
        for batch in batches(sorted(set(keys)), BATCH_ROWS):
            await self._change("objects_delete", realm, *_columns(batch))

    async def insert(self, realm: str, row: ObjectRow) -> bool:
        return await self._changes("object_insert", realm, *_object_values(row))

    async def replace(self, realm: str, row: ObjectRow, expected_token: str) -> bool:
        values = (*_object_values(row), expected_token)
        return await self._changes("object_replace", realm, *values)

    async def delete_if(self, realm: str, key: ObjectKey, expected_token: str) -> bool:
        return await self._changes("object_delete_if", realm, *key, expected_token)

    async def publish(
        self, realm: str, rows: Sequence[ObjectRow], expected: PointerRow, row: PointerRow
    ) -> bool:
        if not rows:
            return await self.swap_pointer(realm, expected, row)
        *before, last = _object_batches(rows)
        for columns in before:
            await self._change("objects_write", realm, *columns)
        return await self._changes("publish", realm, *_swap_values(expected, row), *last)

    # ---- Maintenance -------------------------------------------------------------------------

    async def scan(self) -> AsyncIterator[Sequence[Scanned]]:
        after: tuple[Any, ...] = ("", "")
        while rows := await self._fetch("pointers_scan", *after, SCAN_PAGE):
            yield [ScannedPointer(*row) for row in rows]
            after = rows[-1][:2]
        after = ("", -1, -1)
        while rows := await self._fetch("objects_scan", *after, SCAN_PAGE):
            yield [ScannedObject(r, ObjectKey(i, a), y, c) for r, i, a, y, c in rows]
            after = rows[-1][:3]

    async def delete_scanned(self, rows: Sequence[Scanned]) -> int:
        # Sorted and without duplicates; a row that a statement meets twice is deleted once anyway.
        pointers = sorted({tuple(row) for row in rows if isinstance(row, ScannedPointer)})
        objects = sorted(
            {(r.realm, *r.key, r.created_us) for r in rows if isinstance(r, ScannedObject)}
        )
        deleted = 0
        for batch in batches(pointers, BATCH_ROWS):
            deleted += await self._change("pointers_delete_scanned", *_columns(batch))
        for seen in batches(objects, BATCH_ROWS):
            deleted += await self._change("objects_delete_scanned", *_columns(seen))
        return deleted

    async def delete_realms(self, realms: Collection[str]) -> None:
        for realm in realms:
            for query in ("pointers_delete_some", "objects_delete_some"):
                while await self._change(query, realm):
                    pass

    # ---- Inside ------------------------------------------------------------------------------

    async def _fetch(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        rows = await self._pool.fetch(self._queries[query], *values)
        return [tuple(row) for row in rows]

    async def _change(self, query: str, *values: object) -> Any:
        return await self._pool.change(self._queries[query], *values)

    async def _changes(self, query: str, *values: object) -> bool:
        """Run a conditional change; return whether it found its row."""
        return await self._change(query, *values) is True


def _values(row: PointerRow) -> tuple[Any, ...]:
    return (row.name, row.target, row.created, row.epoch, row.previous)


def _swap_values(expected: PointerRow, row: PointerRow) -> tuple[Any, ...]:
    new = (row.target, row.created, row.epoch, row.previous)
    return (expected.name, expected.target, expected.created, *new, expected.epoch)


def _object_values(row: ObjectRow) -> tuple[Any, ...]:
    return (row.id, row.part, row.parts, row.type, row.value, row.created_us, row.token)


def _columns(rows: Sequence[tuple[Any, ...]]) -> Columns:
    """Transpose rows into arrays, one per column."""
    return [list(column) for column in zip(*rows, strict=True)]


def _object_batches(rows: Sequence[ObjectRow]) -> Iterator[Columns]:
    """Split rows into batches, ordered by key and without duplicates.

    A single statement must not contain the same key twice.
    """
    unique = by_key(rows)
    values = [_object_values(unique[key]) for key in sorted(unique)]
    for batch in batches(values, BATCH_ROWS, BATCH_BYTES, size=lambda row: len(row[4])):
        yield _columns(batch)
