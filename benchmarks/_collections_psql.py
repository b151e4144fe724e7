"""PostgreSQL part of the benchmark `collections`.

It measures the size of an empty collection, the memory of a backend, the first query of a
connection, and a dump.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median
from typing import Final

import asyncpg

from benchmarks import _data
from benchmarks._frame import Cell, Figure, Options, postgres_database
from benchmarks._memory import private_mb
from benchmarks._stores import load, version_of
from naksha.model.collection import CollectionInfo
from naksha.model.query import Query
from naksha.model.version import AtSeq, Version
from naksha.psql import PsqlStorage
from naksha.psql.read.statements import states

GOALS: Final = (
    "empty_kb ≤ 130, empty_relations ≤ 18, backend_mb ≤ 40, first_query_ms ≤ 5, dump_ok = true"
)
READ: Final = 50
DAYS: Final = 52
SAMPLES: Final = 15
EMPTY: Final = "empty"
AGED: Final = "aged"
_MINE: Final = """
SELECT count(*), coalesce(sum(pg_relation_size(k.oid)), 0) / 1024 FROM pg_class k
 WHERE k.oid IN (SELECT c.oid FROM pg_class c WHERE c.relnamespace = 'naksha'::regnamespace)
    OR k.relnamespace = 'pg_toast'::regnamespace"""
_BACKENDS: Final = "SELECT pid FROM pg_stat_activity WHERE application_name = 'naksha bench'"
_PLAIN: Final = "SELECT ST_AsGeoJSON(geom), document FROM public.plain WHERE id = $1"


class _Clock:
    """Clock that only advances when it is set."""

    def __init__(self) -> None:
        self.now = datetime.now(UTC) - timedelta(days=DAYS)

    def now_ms(self) -> int:
        return int(self.now.timestamp() * 1000)


async def measure(
    dsn: str, options: Options, figures: dict[str, Figure], rows: list[Sequence[Cell]]
) -> None:
    """Measure on the storage with the small collections, and on one with a long history."""
    relations, kb = await _empty(dsn)
    found: dict[str, Figure] = {"empty_relations": relations, "empty_kb": kb}
    with postgres_database() as aged:
        clock = _Clock()
        storage = await PsqlStorage.open(aged, "bench", clock=clock)
        try:
            names = await _fill(storage, clock, options.size(READ, 10))
            past = await storage.resolve(AtSeq(len(names)))
        finally:
            await storage.close()
        found["backend_mb"] = round(await _backend(aged, names, past), 1)
        found |= await _first_query(aged, names[0], past)
    rows += [[name, str(value)] for name, value in found.items()]
    figures |= found


async def _empty(dsn: str) -> tuple[int, int]:
    """Return the number of relations and kilobytes of an additional empty collection."""
    plain = await asyncpg.connect(dsn)
    storage = await PsqlStorage.open(dsn, "bench")
    try:
        before = await plain.fetchrow(_MINE)
        await storage.run(lambda s: s.create_collection(CollectionInfo(id=EMPTY)), "bench")
        after = await plain.fetchrow(_MINE)
    finally:
        await storage.close()
        await plain.close()
    assert before is not None
    assert after is not None
    return int(after[0] - before[0]), int(after[1] - before[1])


async def _first_query(dsn: str, small: str, past: Version) -> dict[str, Figure]:
    """Measure how much longer the first query of a connection takes than on a plain table, in ms.

    It reads a feature at HEAD or at a version: of a small collection, of one with sixteen leaves at
    HEAD, and at a version that many days of history follow.
    """
    plain = await _connected(dsn)
    await plain.execute(
        "CREATE TABLE public.plain AS SELECT jsondata->>'id' AS id, geo AS geom,"
        f" jsondata AS document FROM {AGED}; ALTER TABLE public.plain ADD PRIMARY KEY (id)"
    )
    await plain.close()
    one = Query(ids=("road-7",))
    statements = {
        "plain": (_PLAIN, ["road-7"]),
        "head": states(small, one, None),
        "past": states(small, one, past.txn),
        "leaves": states(AGED, one, None),
        "days": states(AGED, one, past.txn),
    }
    times: dict[str, list[float]] = {name: [] for name in statements}
    for _ in range(SAMPLES):
        for name, (statement, values) in statements.items():
            new = await _connected(dsn)
            await new.execute("SELECT ST_AsGeoJSON('POINT(1 1)'::geometry)")  # loads PostGIS
            start = time.perf_counter()
            assert await new.fetch(statement, *values)
            times[name].append((time.perf_counter() - start) * 1000)
            await new.close()
    baseline = median(times.pop("plain"))
    above = {name: round(median(found) - baseline, 2) for name, found in times.items()}
    return {
        "first_query_ms": max(above["head"], above["past"]),
        "first_query_leaves_ms": above["leaves"],
        "first_query_days_ms": above["days"],
    }


async def _connected(dsn: str) -> asyncpg.Connection[asyncpg.Record]:
    settings = {"search_path": "naksha, public", "plan_cache_mode": "force_generic_plan"}
    return await asyncpg.connect(dsn, server_settings=settings)


async def _backend(dsn: str, names: Sequence[str], past: Version) -> float:
    """Return the private memory of the largest backend after reading all collections.

    They are read at HEAD and at a version.
    """
    storage = await PsqlStorage.open(dsn, "bench", pool_max=4)
    plain = await asyncpg.connect(dsn)
    try:
        for name in names:
            await storage.page(name, Query(limit=10))
            await storage.page(name, Query(limit=10), AtSeq(past.seq_number))
        return max([private_mb(row["pid"]) for row in await plain.fetch(_BACKENDS)])
    finally:
        await plain.close()
        await storage.close()


async def _fill(storage: PsqlStorage, clock: _Clock, count: int) -> list[str]:
    """Create small collections, and one with sixteen leaves and many days of history."""
    features = _data.roads(100)
    names = [f"roads{number}" for number in range(count - 1)]
    for name in names:
        async with storage.write("bench") as session:
            await session.create_collection(CollectionInfo(id=name))
            await session.create(name, features)
        await version_of(storage, session.txn)
    await load(storage, AGED, _data.roads(1_000))
    for _ in range(DAYS):
        async with storage.write("bench") as session:
            await session.update(AGED, _data.edited(features, seed=clock.now_ms()))
        await version_of(storage, session.txn)
        clock.now += timedelta(days=1)
    return [*names, AGED]


def dump_and_restore(dsn: str, folder: Path) -> bool:
    """Whether `pg_dump` and `pg_restore` can copy the storage with default settings."""
    file = folder / "bench.dump"
    target = dsn.replace("/bench", "/restored")
    commands = [
        ["pg_dump", "-Fc", "-Z1", "-f", str(file), dsn],
        ["createdb", "--maintenance-db", dsn, "restored"],
        ["pg_restore", "--exit-on-error", "-d", target, str(file)],
    ]
    return all(subprocess.run(each, check=False).returncode == 0 for each in commands)
