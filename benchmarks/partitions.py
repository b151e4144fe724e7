"""Planning a read of the past with a partition per day, and after maintenance has merged them.

The history has 1,100 days with 100 states each. Two statements of the storage, for an id and for a
bbox at the oldest version (for which no partition can be pruned), are planned on a new connection
and then repeatedly. Locks are counted because a server with default settings has about 6,400.
"""

from __future__ import annotations

import asyncio
import json
import time
from datetime import date, timedelta
from statistics import median
from typing import Any

import asyncpg

from benchmarks._frame import Options, Report, postgres_database
from naksha.model.collection import CollectionInfo
from naksha.model.query import Bbox, Query
from naksha.psql import PsqlStorage
from naksha.psql.read import statements

FIRST = date(2023, 1, 1)
STATES = 100
REPETITIONS = 15
QUERIES = {"id": Query(ids=("f7",)), "bbox": Query(spatial=Bbox(10.0, 10.0, 11.0, 11.0))}

DAY = """
SELECT naksha_create_partition('roads_hst', name, day, day + 1),
       naksha_attach_partition('roads_hst', name, day, day + 1)
  FROM (SELECT $1::date AS day, 'roads_hst_' || to_char($1::date, 'YYYY_MM_DD') AS name) AS d
"""
ROWS = """
INSERT INTO roads_hst SELECT n, ST_Force3D(ST_SetSRID(ST_Point(n * 7 % 360 - 180, n * 3 % 170 - 85),
    4326)), jsonb_build_object('id', 'f' || n, 'type', 'Feature', 'properties', jsonb_build_object(
    '@ns:com:here:xyz', jsonb_build_object('action', 'UPDATE',
        'txn', (naksha_day_txn($1) + n)::text, 'txn_next', (naksha_day_txn($1) + n + 1)::text,
        'tags', '[]'::jsonb)))
  FROM generate_series(1, $2::int) n
"""


def run(options: Options) -> Report:
    """Time planning before and after maintenance."""
    return asyncio.run(_run(options.size(1_100, 100)))


async def _run(days: int) -> Report:
    report = Report(
        "Planning with many partitions",
        ("history", "partitions", "query", "first, ms", "median, ms", "locks"),
    )
    with postgres_database() as dsn:
        storage = await PsqlStorage.open(dsn, "bench")
        await storage.run(lambda s: s.create_collection(CollectionInfo(id="roads")), "bench")
        await _days(dsn, days)
        await _measure(dsn, "days", report)
        start = time.perf_counter()
        await storage.maintain()
        report.figures["merge_seconds"] = round(time.perf_counter() - start, 1)
        await _measure(dsn, "merged", report)
        await storage.close()
    report.notes.append(f"{days} days merged in {report.figures['merge_seconds']} s")
    return report


async def _connect(dsn: str) -> Any:
    settings = {"search_path": "naksha, public", "naksha.managed": "on"}
    return await asyncpg.connect(dsn, server_settings=settings)


async def _days(dsn: str, days: int) -> None:
    connection = await _connect(dsn)
    for n in range(days):
        await connection.execute(DAY, FIRST + timedelta(days=n))
        await connection.execute(ROWS, FIRST + timedelta(days=n), STATES)
    await connection.close()


async def _measure(dsn: str, layout: str, report: Report) -> None:
    version = 2023_01_01_00000000000
    for name, query in QUERIES.items():
        connection = await _connect(dsn)
        count = await connection.fetchval("SELECT count(*) FROM naksha_partitions('roads_hst')")
        text, values = statements.states("roads", query, version, None)
        times = [await _planning_ms(connection, text, values) for _ in range(REPETITIONS)]
        locks = await _locks(connection, text, values)
        await connection.close()
        report.rows.append((layout, count, name, times[0], median(times), locks))
        report.figures[f"{layout}_{name}_ms"] = round(median(times), 2)


async def _planning_ms(connection: Any, text: str, values: list[Any]) -> float:
    plan = await connection.fetchval(f"EXPLAIN (ANALYZE, FORMAT JSON) {text}", *values)
    return float(json.loads(plan)[0]["Planning Time"])


async def _locks(connection: Any, text: str, values: list[Any]) -> int | str:
    count = "SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid() AND locktype = 'relation'"
    try:
        async with connection.transaction():
            await connection.fetch(text, *values)
            return int(await connection.fetchval(count))
    except asyncpg.OutOfMemoryError:
        return "out of shared memory"
