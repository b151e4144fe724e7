"""Helpers of the write tests: DataFrames of features, and the resulting storage content."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import asyncpg
from pyspark.sql import DataFrame, SparkSession

from naksha.model.query import Query
from naksha.model.state import State
from naksha.model.transaction import Transaction
from naksha.spark.source.options import storage_ref_of
from naksha.spi.locations import FILE, path_of
from naksha.spi.storage import Storage
from naksha.testing.storage.suite_support import in_order
from tests.spark.towns import Town

COLUMNS = "id string, properties string"
_numbers = itertools.count(1)


def fresh() -> str:
    """The name of a collection that is not there."""
    return f"written{next(_numbers)}"


def frame(spark: SparkSession, values: Mapping[str, Any], parts: int = 2) -> DataFrame:
    """Features with a number (or null) each, in some partitions."""
    rows = [(id_, f'{{"n":{"null" if n is None else n}}}') for id_, n in values.items()]
    return spark.createDataFrame(rows, COLUMNS).repartition(parts)


def options(town: Town, collection: str, **more: str) -> dict[str, str]:
    return {"storage": town.location, "collection": collection, "appId": "test", **more}


def held(town: Town, collection: str) -> list[State]:
    """All features of a collection."""

    async def ask(storage: Storage) -> list[State]:
        return in_order([state async for state in storage.states(collection, Query())])

    return town.call(ask)


def numbers(town: Town, collection: str) -> dict[str, Any]:
    return {s.id: s.feature["properties"].get("n") for s in held(town, collection)}


def log(town: Town) -> list[Transaction]:
    """All transactions."""

    async def ask(storage: Storage) -> list[Transaction]:
        return await storage.transactions(0, 1000)

    return town.call(ask)


def staged(town: Town) -> int:
    """How many attempts have left something staged."""
    return len(staged_bytes(town))


def staged_bytes(town: Town) -> list[int]:
    """How much each attempt has left."""
    location = storage_ref_of({"storage": town.location}).location
    if location.startswith(f"{FILE}:"):
        files = Path(f"{path_of(location)}-staging").glob("*.stage")
        return [path.stat().st_size for path in files]

    async def ask(_: Storage) -> list[int]:
        connection = await asyncpg.connect(town.location)
        try:
            rows = await connection.fetch(
                "SELECT pg_relation_size(to_regclass('naksha.' || name)) FROM naksha.naksha_staged"
            )
            return [row[0] for row in rows]
        finally:
            await connection.close()

    return town.call(ask)
