"""The catalog backend in memory: two dictionaries and a lock.

memory:        a private catalog
memory:name    a catalog shared by all callers in this process that have opened it
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from typing import Final, Self
from weakref import WeakValueDictionary

import msgspec

from naksha.model.errors import InvalidArgument, Unavailable
from naksha.spi.catalog import (
    ObjectKey,
    ObjectRow,
    PointerRow,
    Scanned,
    ScannedObject,
    ScannedPointer,
)

_SCHEME: Final = "memory:"
SCAN_PAGE: Final = 1_000


class _Tables:
    """The rows, by realm and name or key."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.pointers: dict[tuple[str, str], PointerRow] = {}
        self.objects: dict[tuple[str, ObjectKey], ObjectRow] = {}


_SHARED: Final[WeakValueDictionary[str, _Tables]] = WeakValueDictionary()


class MemoryCatalog:
    """Catalog backend in memory; open it with `MemoryCatalog.open`.

    See `naksha.spi.catalog.CatalogBackend`.
    """

    name = "memory"
    deletes_realms = True

    def __init__(self, tables: _Tables) -> None:
        self._tables = tables
        self._is_closed = False

    @classmethod
    async def open(cls, location: str = _SCHEME) -> Self:
        """Open a new private catalog, or the shared one of that name."""
        if not location.startswith(_SCHEME):
            raise InvalidArgument(
                f"The location of a catalog in memory must be memory: or memory:name, not "
                f"{location!r}",
                field="location",
            )
        shared = location.removeprefix(_SCHEME)
        return cls(_SHARED.setdefault(shared, _Tables()) if shared else _Tables())

    async def close(self) -> None:
        self._is_closed = True
        self._tables = _Tables()  # Drops the data unless another caller has the catalog open.

    async def now_us(self) -> int:
        async with self._locked():
            return time.time_ns() // 1_000

    @asynccontextmanager
    async def _locked(self) -> AsyncIterator[_Tables]:
        await asyncio.sleep(0)  # Let other tasks run, as with any database.
        if self._is_closed:
            raise Unavailable("The catalog is closed; open it again")
        with self._tables.lock:
            yield self._tables

    # ---- Pointers ----------------------------------------------------------------------------

    async def create_pointer(self, realm: str, row: PointerRow) -> bool:
        return await self.create_pointers(realm, [row]) == 1

    async def create_pointers(self, realm: str, rows: Sequence[PointerRow]) -> int:
        async with self._locked() as tables:
            before = len(tables.pointers)
            for row in rows:
                tables.pointers.setdefault((realm, row.name), _immutable_pointer(row))
            return len(tables.pointers) - before

    async def fetch_pointers(self, realm: str, names: Collection[str]) -> dict[str, PointerRow]:
        async with self._locked() as tables:
            found = ((name, tables.pointers.get((realm, name))) for name in names)
            return {name: row for name, row in found if row is not None}

    async def list_pointers(
        self, realm: str, prefix: str, after: str, limit: int
    ) -> list[PointerRow]:
        async with self._locked() as tables:
            # Python orders strings by code point, which is also the order of their UTF-8 bytes.
            names = sorted(
                name
                for owner, name in tables.pointers
                if owner == realm and name.startswith(prefix) and name > after
            )
            return [tables.pointers[realm, name] for name in names[:limit]]

    async def swap_pointer(self, realm: str, expected: PointerRow, row: PointerRow) -> bool:
        return await self.publish(realm, [], expected, row)

    async def delete_pointer(self, realm: str, expected: PointerRow) -> bool:
        async with self._locked() as tables:
            found = _matches(tables.pointers.get((realm, expected.name)), expected)
            if found:
                del tables.pointers[realm, expected.name]
            return found

    # ---- Objects -----------------------------------------------------------------------------

    async def fetch(self, realm: str, keys: Collection[ObjectKey]) -> dict[ObjectKey, ObjectRow]:
        async with self._locked() as tables:
            found = ((key, tables.objects.get((realm, key))) for key in keys)
            return {key: row for key, row in found if row is not None}

    async def write(self, realm: str, rows: Sequence[ObjectRow]) -> None:
        async with self._locked() as tables:
            tables.objects.update({(realm, row.key): _immutable_object(row) for row in rows})

    async def delete(self, realm: str, keys: Collection[ObjectKey]) -> None:
        async with self._locked() as tables:
            for key in keys:
                tables.objects.pop((realm, key), None)

    async def insert(self, realm: str, row: ObjectRow) -> bool:
        async with self._locked() as tables:
            if (realm, row.key) in tables.objects:
                return False
            tables.objects[realm, row.key] = _immutable_object(row)
            return True

    async def replace(self, realm: str, row: ObjectRow, expected_token: str) -> bool:
        async with self._locked() as tables:
            current = tables.objects.get((realm, row.key))
            if current is None or (current.type, current.token) != (row.type, expected_token):
                return False
            tables.objects[realm, row.key] = _immutable_object(row)
            return True

    async def delete_if(self, realm: str, key: ObjectKey, expected_token: str) -> bool:
        async with self._locked() as tables:
            current = tables.objects.get((realm, key))
            if current is None or current.token != expected_token:
                return False
            del tables.objects[realm, key]
            return True

    async def publish(
        self, realm: str, rows: Sequence[ObjectRow], expected: PointerRow, row: PointerRow
    ) -> bool:
        async with self._locked() as tables:
            tables.objects.update({(realm, each.key): _immutable_object(each) for each in rows})
            found = _matches(tables.pointers.get((realm, expected.name)), expected)
            if found:
                tables.pointers[realm, expected.name] = _immutable_pointer(row)
            return found

    # ---- Maintenance -------------------------------------------------------------------------

    async def scan(self) -> AsyncIterator[Sequence[Scanned]]:
        async with self._locked() as tables:
            rows = _scanned(tables)
        for start in range(0, len(rows), SCAN_PAGE):
            yield rows[start : start + SCAN_PAGE]
            await asyncio.sleep(0)

    async def delete_scanned(self, rows: Sequence[Scanned]) -> int:
        async with self._locked() as tables:
            return sum(_delete_scanned(tables, row) for row in rows)

    async def delete_realms(self, realms: Collection[str]) -> None:
        async with self._locked() as tables:
            tables.pointers = {k: v for k, v in tables.pointers.items() if k[0] not in realms}
            tables.objects = {k: v for k, v in tables.objects.items() if k[0] not in realms}


def _matches(current: PointerRow | None, expected: PointerRow) -> bool:
    return current is not None and (current.target, current.created, current.epoch) == (
        expected.target,
        expected.created,
        expected.epoch,
    )


def _immutable_pointer(row: PointerRow) -> PointerRow:
    """Return the row with immutable bytes."""
    if type(row.target) is type(row.previous) is bytes:
        return row
    return msgspec.structs.replace(row, target=bytes(row.target), previous=bytes(row.previous))


def _immutable_object(row: ObjectRow) -> ObjectRow:
    if type(row.value) is bytes:
        return row
    return msgspec.structs.replace(row, value=bytes(row.value))


def _scanned(tables: _Tables) -> list[Scanned]:
    """Return all current rows; rows that are deleted during the scan may be included or not."""
    pointers = (
        ScannedPointer(realm, name, row.created) for (realm, name), row in tables.pointers.items()
    )
    objects = (
        ScannedObject(realm, key, row.type, row.created_us)
        for (realm, key), row in tables.objects.items()
    )
    return [*pointers, *objects]


def _delete_scanned(tables: _Tables, row: Scanned) -> bool:
    if isinstance(row, ScannedPointer):
        pointer = tables.pointers.get((row.realm, row.name))
        if pointer is None or pointer.created != row.created:
            return False
        del tables.pointers[row.realm, row.name]
        return True
    current = tables.objects.get((row.realm, row.key))
    if current is None or current.created_us != row.created_us:
        return False
    del tables.objects[row.realm, row.key]
    return True
