"""Storages for benchmarks that support several backends, and functions to fill them."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path

from rich.progress import track

from benchmarks._data import Feature
from benchmarks._frame import postgres_database
from naksha.model.collection import CollectionInfo
from naksha.model.version import Version
from naksha.psql import PsqlStorage
from naksha.spi.storage import Storage
from naksha.sqlite import SqliteStorage

CHUNK = 50_000


@asynccontextmanager
async def opened(kind: str) -> AsyncIterator[Storage]:
    """Open an empty temporary storage."""
    storage: Storage
    if kind == "sqlite":
        with tempfile.TemporaryDirectory() as folder:
            storage = await SqliteStorage.open(Path(folder) / "bench.naksha", "bench")
            try:
                yield storage
            finally:
                await storage.close()
        return
    with postgres_database() as dsn:
        storage = await PsqlStorage.open(dsn, "bench")
        try:
            yield storage
        finally:
            await storage.close()


async def load(storage: Storage, name: str, features: list[Feature]) -> Version:
    """Load a new collection in bulk."""
    writer = await storage.bulk_writer(CollectionInfo(id=name), "bench", exclusive=True)
    parts = range(0, len(features), CHUNK)
    for start in track(parts, f"{len(features):,} features into {name}"):
        await writer.add(features[start : start + CHUNK])
    return await version_of(storage, await writer.commit())


async def write(storage: Storage, name: str, features: Iterable[Feature]) -> Version:
    """Update features in one transaction."""
    async with storage.write("bench") as session:
        await session.update(name, [*features])
    return await version_of(storage, session.txn)


async def version_of(storage: Storage, txn: int | None) -> Version:
    """Wait for the version of a transaction."""
    assert txn is not None
    version = await storage.wait_published(txn, 60)
    assert version is not None
    return version
