"""Storages for benchmarks that support several backends, and functions to fill them."""

from __future__ import annotations

import asyncio
import tempfile
import uuid
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path

import pyarrow as pa
from rich.progress import track

from benchmarks._data import Feature
from benchmarks._frame import postgres_database
from naksha.model.collection import CollectionInfo
from naksha.model.features import PreparedFeatures
from naksha.model.version import Version
from naksha.psql import PsqlStorage
from naksha.spi.staging import StagedPart, StagedWrite, WriteMode
from naksha.spi.storage import Storage
from naksha.sqlite import SqliteStorage
from naksha.testing.storage.input_batches import given_batch

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
    parts = range(0, len(features), CHUNK)
    shown = track(parts, f"{len(features):,} features into {name}")
    batches = (given_batch(features[start : start + CHUNK]) for start in shown)
    return await version_of(storage, await staged_load(storage, CollectionInfo(id=name), batches))


async def staged_load(
    storage: Storage,
    info: CollectionInfo,
    batches: Iterable[pa.RecordBatch | PreparedFeatures],
    parts: int = 1,
) -> int | None:
    """Load a new collection from so many parts, which are staged side by side."""
    job, left = str(uuid.uuid4()), iter(batches)

    async def staged() -> StagedPart:
        stage = await storage.stage(job, info)
        try:
            while (batch := await asyncio.to_thread(next, left, None)) is not None:
                await stage.add(batch)
            return await stage.close()
        finally:
            await stage.abort()

    found = await asyncio.gather(*(staged() for _ in range(parts)))
    write = StagedWrite(job=job, info=info, mode=WriteMode.CREATE, app_id="bench")
    return (await storage.apply_staged(write, found)).txn


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
