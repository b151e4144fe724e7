"""Fixtures and helpers of the catalog suite: the open backend, separate realms, and rows."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import TypeAlias, TypeVar

import pytest

from naksha.spi.catalog import (
    CatalogBackend,
    ObjectKey,
    ObjectRow,
    PointerRow,
    Scanned,
    ScannedObject,
    ScannedPointer,
)

OpenCatalog: TypeAlias = Callable[[], Awaitable[CatalogBackend]]
"""Opens one more instance on the data of the tests."""

Row = TypeVar("Row")

_numbers = itertools.count(1)


def fresh_number() -> int:
    """Return a number that no other row of this run has."""
    return next(_numbers)


def fresh_realm() -> str:
    """Return a new realm; no realm's name is a prefix of another's."""
    return f"realm-{fresh_number()}-"


def pointer(
    name: str = "main",
    target: bytes = b"",
    *,
    created: int | None = None,
    epoch: int = 1,
    previous: bytes = b"",
) -> PointerRow:
    created = fresh_number() if created is None else created
    return PointerRow(name, target, created, epoch, previous)


def moved(row: PointerRow, target: bytes, *, epoch: int | None = None) -> PointerRow:
    """Return the pointer after a swap."""
    epoch = row.epoch if epoch is None else epoch
    return PointerRow(row.name, target, row.created, epoch, row.target)


def thing(
    id: int,
    value: bytes = b"value",
    *,
    part: int = 0,
    parts: int = 1,
    kind: str = "test",
    token: str | None = None,
    created_us: int | None = None,
) -> ObjectRow:
    created_us = fresh_number() if created_us is None else created_us
    return ObjectRow(id, part, parts, kind, value, created_us, token)


async def get_pointer(backend: CatalogBackend, realm: str, name: str) -> PointerRow | None:
    return (await backend.fetch_pointers(realm, [name])).get(name)


async def get(backend: CatalogBackend, realm: str, id: int, part: int = 0) -> ObjectRow | None:
    key = ObjectKey(id, part)
    return (await backend.fetch(realm, [key])).get(key)


async def holds(backend: CatalogBackend, realm: str, rows: Iterable[ObjectRow]) -> None:
    """Check that the backend has exactly these rows under their keys."""
    wanted = {row.key: row for row in rows}
    assert await backend.fetch(realm, list(wanted)) == wanted


async def scanned(backend: CatalogBackend, *realms: str) -> list[Scanned]:
    """Scan and return the rows of these realms."""
    return [row async for page in backend.scan() for row in page if row.realm in realms]


def as_scanned(realm: str, row: PointerRow | ObjectRow) -> Scanned:
    """Return a row as a scan returns it."""
    if isinstance(row, PointerRow):
        return ScannedPointer(realm, row.name, row.created)
    return ScannedObject(realm, row.key, row.type, row.created_us)


# ---- Fixtures --------------------------------------------------------------------------------


@pytest.fixture(scope="class")
async def catalog_backend(open_catalog: OpenCatalog) -> AsyncIterator[CatalogBackend]:
    """An open backend for all tests of a class, each in its own realms."""
    backend = await open_catalog()
    yield backend
    await backend.close()


@pytest.fixture
async def second_backend(open_catalog: OpenCatalog) -> AsyncIterator[CatalogBackend]:
    """Another instance on the same data; a test may close it."""
    backend = await open_catalog()
    yield backend
    await backend.close()


@pytest.fixture
def realm() -> str:
    """A realm that no other test uses."""
    return fresh_realm()
