"""Optimal partitioning: the tree over the qrid index against one GROUP BY over all features.

GROUP BY counts every quad key in one statement, with the server's default number of parallel
workers; building the tree from its counts is not timed. The tree reads each cell through the index,
up to its limit. Most points are clustered in towns; small features have a few properties, large
ones an additional text of 4 kB. The call that finds the stored partitioning up to date is timed,
too. The collections are created by adopting a table.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

import asyncpg

from benchmarks._frame import Options, Report, postgres_database, side_by_side
from naksha.psql import PsqlStorage
from naksha.psql.connection.driver import Direct
from naksha.spi.partitioning import features_max

SMALL, LARGE = 360, 4_460
"""Sizes of a feature in bytes."""
SOURCE = """CREATE TABLE public.points AS
SELECT jsonb_build_object('id', 'point-' || n, 'type', 'Feature', 'properties',
           jsonb_build_object('name', 'Point ' || n, 'kind', n % 17, 'text', (
               SELECT string_agg(md5((n * {lines} + line)::text), '')
                 FROM generate_series(1, {lines}) AS line))) AS jsondata,
       ST_SetSRID(ST_MakePoint(
           greatest(least(town * 97 % 340 - 170 + exp(random() * 3.4 - 1) * cos(n), 180), -180),
           greatest(least(town * 61 % 130 - 60 + exp(random() * 3.4 - 1) * sin(n), 90), -90), 0),
           4326)::geometry(GeometryZ, 4326) AS geo, n::int8 AS i
  FROM generate_series(1, {count}) AS n, LATERAL (SELECT n::int8 * 7919 % 40) AS t(town)"""
GROUPED = """SELECT naksha_xyz(jsondata)->>'qrid' AS qrid, count(*) FROM {table}
 WHERE naksha_xyz_txn(jsondata) <= $1 GROUP BY 1"""


def run(options: Options) -> Report:
    """Time the tree, GROUP BY and the look-up interleaved, for small and for large features."""
    report = Report("Optimal partitioning", ["way", "features", "bytes", "seconds", "spread"])
    sizes = {
        "small": (options.size(1_000_000, 20_000), SMALL),
        "large": (options.size(100_000, 5_000), LARGE),
    }
    with postgres_database() as dsn:
        for name, (count, byte_size) in sizes.items():
            repetitions = options.size(5, 1)
            asyncio.run(_measure(dsn, name, count, byte_size, repetitions, report))
    return report


async def _measure(
    dsn: str, name: str, count: int, byte_size: int, repetitions: int, report: Report
) -> None:
    storage = await PsqlStorage.open(dsn, "bench")
    connection = await asyncpg.connect(dsn, server_settings={"search_path": "naksha, public"})
    try:
        loaded_s = await _load(connection, name, count, byte_size)
        txn = (await storage.transactions())[-1].txn

        async def tree() -> dict[str, int]:
            return await storage._partitionings.refresh(name)

        async def group_by() -> object:
            grouped = GROUPED.format(table=name)
            return await connection.fetchval(f"SELECT count(*) FROM ({grouped}) AS g", txn)

        async def kept() -> dict[str, int]:
            return await storage.partitioning(name)

        found = await tree()
        assert sum(found.values()) == count
        ways: dict[str, Callable[[], Awaitable[object]]] = {}
        ways |= {"tree": tree, "GROUP BY": group_by, "up to date": kept}
        timings = await side_by_side(ways, repetitions=repetitions)
    finally:
        await connection.close()
        await storage.close()
    for way, timing in timings.items():
        report.rows.append([way, count, byte_size, timing.median, timing.spread])
        report.figures[f"{way.replace(' ', '_').lower()}_{name}_s"] = timing.median
    report.figures |= {f"cells_{name}": len(found), f"adopted_{name}_per_s": count / loaded_s}
    most = features_max(byte_size)
    report.notes.append(
        f"{name}: {len(found)} cells of at most {most:,}, adopted in {loaded_s:.0f} s"
    )


async def _load(connection: Direct, name: str, count: int, byte_size: int) -> float:
    await connection.execute(SOURCE.format(count=count, lines=(byte_size - SMALL) // 32))
    start = time.perf_counter()
    async with connection.transaction():
        await connection.execute("SELECT naksha_tx_start('bench')")
        await connection.execute("SELECT naksha_adopt('public.points', $1)", name)
    seconds = time.perf_counter() - start
    await connection.execute("SELECT naksha_publish()")
    async with connection.transaction():
        await connection.execute("SET LOCAL naksha.managed = 'on'")
        await connection.execute(
            "UPDATE naksha_collection SET byte_size = $1 WHERE id = $2", byte_size, name
        )
    await connection.execute(f"VACUUM ANALYZE {name}")
    return seconds
