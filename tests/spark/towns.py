"""A storage whose history has states of every kind, for tests that read it on Spark."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

import pyarrow as pa
from pyspark.sql import DataFrame, Row, SparkSession

from naksha.model.collection import CollectionInfo
from naksha.model.query import Query
from naksha.model.state import State
from naksha.spark.runtime.storage_cache import shared_storage
from naksha.spark.source.options import StorageRef
from naksha.spi.arrow import COLUMNS
from naksha.spi.storage import Storage
from naksha.testing.models.strategies import FEW_GEOMETRIES, FEW_PROPERTIES, SMALL_CRIDS, SMALL_TAGS
from naksha.testing.storage.suite_support import feature, in_order, published
from naksha.versioning import Attribution, create_branch, create_tag, line_of, place_of

T = TypeVar("T")
ANN = Attribution("editor", "ann")
COLLECTION = "places"
IDS = tuple(f"f{n:02}" for n in range(30))
REFS = ("HEAD", "3", "first", "fix", "fix:HEAD", "fix:3", "0", "older")
"""Versions that a town has: `first` is a tag, `fix` a branch, `older` a tag on it."""


@dataclass(frozen=True)
class Town:
    """A storage that is filled."""

    location: str

    @property
    def place(self) -> StorageRef:
        return StorageRef(self.location)

    def call(self, work: Callable[[Storage], Coroutine[Any, Any, T]]) -> T:
        return shared_storage(self.place).call(work)

    def options(self, **options: str) -> dict[str, str]:
        return {"storage": self.location, "collection": COLLECTION, **options}

    def table(self, spark: SparkSession, **options: str) -> DataFrame:
        return spark.read.format("naksha").options(**self.options(**options)).load()

    def states(self, query: Query, ref: str = "HEAD") -> list[State]:
        """Return the states from the storage itself."""

        async def ask(storage: Storage) -> list[State]:
            place = await place_of(storage, ref)
            if place.version.seq_number == 0:
                return []
            found = place.storage.states(COLLECTION, query, place.at)
            return in_order([state async for state in found])

        return self.call(ask)

    def rows(self, query: Query) -> pa.Table:
        """The same as a table of all columns."""

        async def ask(storage: Storage) -> list[pa.RecordBatch]:
            splits = await storage.plan(COLLECTION, query)
            return [b for s in splits async for b in storage.read(s, COLUMNS.names)]

        return pa.Table.from_batches(self.call(ask), COLUMNS)


def some_feature(n: int, value: int) -> dict[str, Any]:
    xyz: dict[str, Any] = {"tags": [SMALL_TAGS[n % len(SMALL_TAGS)], SMALL_TAGS[n % 3]]}
    if n % 4 == 0:
        xyz["crid"] = SMALL_CRIDS[n % len(SMALL_CRIDS)]
    geometry = FEW_GEOMETRIES[(n + value) % len(FEW_GEOMETRIES)]
    made = feature(IDS[n], geometry, xyz, **FEW_PROPERTIES[(n * 3 + value) % len(FEW_PROPERTIES)])
    return made | {"other": {"n": n}} if n % 5 == 0 else made


async def fill(storage: Storage) -> None:
    """Five versions on main, some more on a branch, and names for some of them."""
    async with storage.write("editor", "ann") as session:
        await session.create_collection(CollectionInfo(id=COLLECTION))
        await session.create(COLLECTION, [some_feature(n, 0) for n in range(24)])
    async with storage.write("robot", "bob") as session:
        await session.update(COLLECTION, [some_feature(n, 1) for n in range(0, 24, 3)])
    await create_tag(storage, "first", ANN)
    async with storage.write("editor", "bob") as session:
        await session.delete(COLLECTION, IDS[:24:5])
        await session.create_collection(CollectionInfo(id="others"))
    await create_branch(storage, "fix", ANN)
    fix = (await line_of(storage, "fix")).storage
    async with fix.write("robot", "carl") as session:
        await session.upsert(COLLECTION, [some_feature(n, 2) for n in range(1, 28, 4)])
    await published(storage)
    await create_tag(storage, "older", ANN, "fix:HEAD")
    async with fix.write("robot", "carl") as session:
        await session.delete(COLLECTION, [IDS[1], IDS[2]])
    async with storage.write("editor", "ann") as session:
        await session.upsert(COLLECTION, [some_feature(n, 3) for n in range(0, 30, 4)])
    await published(storage)


def found(table: DataFrame) -> list[Row]:
    """The rows of a table, by id and txn."""
    return sorted(table.collect(), key=lambda row: (row.id, row.txn))
