"""Create, update and delete through the library against INSERT and UPDATE on a plain table.

The plain table has the same columns and indexes as a leaf of HEAD and gets complete rows: encoded
geometry and JSON, namespace included, in one statement with array parameters. The library starts
with GeoJSON objects, so its time includes validating and encoding them. Each round uses a new
collection and a new table; every step is one transaction, commit included. Raw SQL through the
triggers is timed, too.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from statistics import median
from typing import Any

import asyncpg

from benchmarks import _data, _sqlite_writes
from benchmarks._frame import Options, Report, postgres_database
from naksha.model.collection import CollectionInfo
from naksha.model.features import check_features
from naksha.psql import PsqlStorage

TAKES = ("storage",)
ROUNDS = 5
PLAIN_TABLE = (
    "CREATE TABLE {t} (i int8 NOT NULL, geo geometry(GeometryZ, 4326), jsondata jsonb NOT NULL)"
)
PLAIN_INDICES = "SELECT naksha_create_indices('{t}', 'head', false)"
PLAIN_INSERT = """INSERT INTO {t} SELECT i, ST_Force3D(ST_SetSRID(ST_GeomFromWKB(geo), 4326)), j
  FROM unnest($1::int8[], $2::bytea[], $3::jsonb[]) AS u(i, geo, j)"""
PLAIN_UPDATE = """UPDATE {t} SET i = u.i, geo = ST_Force3D(ST_SetSRID(ST_GeomFromWKB(u.geo), 4326)),
  jsondata = u.j FROM unnest($1::int8[], $2::bytea[], $3::jsonb[]) AS u(i, geo, j)
 WHERE {t}.jsondata->>'id' = u.j->>'id'"""
RAW_INSERT = """INSERT INTO {t} (geo, jsondata)
SELECT ST_Force3D(ST_SetSRID(ST_GeomFromWKB(geo), 4326)), j
  FROM unnest($1::bytea[], $2::jsonb[]) AS u(geo, j)"""
RAW_UPDATE = "UPDATE {t} SET jsondata = jsonb_set(jsondata, '{{properties,lanes}}', '9')"
RAW_DELETE = "DELETE FROM {t}"

Rows = tuple[list[int], list[bytes | None], list[str]]
Samples = dict[str, list[float]]


def run(options: Options) -> Report:
    """Time all steps interleaved and compare the medians."""
    count, rounds = options.size(100_000, 5_000), options.size(ROUNDS, 1)
    if options.storage == "sqlite":
        samples = _sqlite_writes.measure(count, rounds)
        goals = "create ≤ 2.5, update ≤ 3 (of the plain statements)"
    else:
        with postgres_database() as dsn:
            samples = asyncio.run(_measure(dsn, count, rounds))
        goals = "create ≤ 1.3, update ≤ 1.8, delete ≤ 2.5 (of the plain INSERT)"
    report = _report(samples, count, raw_count=count // 5)
    report.notes.append(f"Goals: {goals}.")
    return report


def plain_rows(features: list[_data.Feature], first_i: int, txn: int) -> Rows:
    """Build rows as the storage would store them, ready to be sent."""
    prepared = check_features(features)
    numbers = list(range(first_i, first_i + len(prepared)))
    texts = [
        _with_namespace(json_bytes, i, txn, qrid, tags)
        for i, json_bytes, qrid, tags in zip(
            numbers, prepared.json, prepared.qrid, prepared.tags, strict=True
        )
    ]
    return numbers, prepared.wkb, texts


def _with_namespace(
    content: bytes, i: int, txn: int, qrid: str | None, tags: list[str] | None
) -> str:
    feature: dict[str, Any] = json.loads(content)
    feature["properties"]["@ns:com:here:xyz"] = {
        "action": "CREATE", "version": 1, "author": "bench", "appId": "bench",
        "uuid": f"bench:roads:2026:1:1:{i}", "puuid": None, "muuid": None, "txn": str(txn),
        "txn_next": "0", "createdAt": 1767225600000, "updatedAt": 1767225600000,
        "rtcts": 1767225600000, "rtuts": 1767225600000, "tags": tags or [], "crid": None,
        "qrid": qrid, "mrid": qrid,
    }  # fmt: skip
    return json.dumps(feature, separators=(",", ":"))


async def _measure(dsn: str, count: int, rounds: int) -> Samples:
    features = _data.roads(count)
    edited = _data.edited(features)
    first = plain_rows(features, 1, 2026010100000000000)
    second = plain_rows(edited, count + 1, 2026010100000000001)
    samples: Samples = {}
    storage = await PsqlStorage.open(dsn, "bench")
    plain = await asyncpg.connect(dsn, server_settings={"search_path": "naksha, public"})
    try:
        for turn in range(rounds):
            steps = [
                _library(storage, f"lib{turn}", features, edited),
                _plain(plain, f"plain{turn}", first, second),
                _raw(plain, storage, f"raw{turn}", features[: count // 5]),
            ]
            for step in steps if turn % 2 else reversed(steps):
                await step(samples)
            await plain.execute("CHECKPOINT")
    finally:
        await plain.close()
        await storage.close()
    return samples


Step = Callable[[Samples], Awaitable[None]]


async def _timed(samples: Samples, name: str, work: Awaitable[object]) -> None:
    start = time.perf_counter()
    await work
    samples.setdefault(name, []).append(time.perf_counter() - start)


def _library(
    storage: PsqlStorage, name: str, features: list[_data.Feature], edited: list[_data.Feature]
) -> Step:
    ids = [feature["id"] for feature in features]

    async def step(samples: Samples) -> None:
        async with storage.write("bench") as session:
            await session.create_collection(CollectionInfo(id=name))
        app = "bench"
        create = storage.run(lambda s: s.create(name, features), app)
        await _timed(samples, "create", create)
        await _timed(samples, "update", storage.run(lambda s: s.update(name, edited), app))
        await _timed(samples, "delete", storage.run(lambda s: s.delete(name, ids), app))

    return step


def _plain(connection: asyncpg.Connection[Any], name: str, first: Rows, second: Rows) -> Step:
    async def step(samples: Samples) -> None:
        await connection.execute(PLAIN_TABLE.format(t=name))
        await connection.execute(PLAIN_INDICES.format(t=name))
        insert = connection.execute(PLAIN_INSERT.format(t=name), *first)
        await _timed(samples, "plain insert", insert)
        update = connection.execute(PLAIN_UPDATE.format(t=name), *second)
        await _timed(samples, "plain update", update)

    return step


def _raw(
    connection: asyncpg.Connection[Any],
    storage: PsqlStorage,
    name: str,
    features: list[_data.Feature],
) -> Step:
    prepared = check_features(features)
    texts = [text.decode() for text in prepared.json]

    async def step(samples: Samples) -> None:
        async with storage.write("bench") as session:
            await session.create_collection(CollectionInfo(id=name))
        for label, sql, values in (
            ("raw insert", RAW_INSERT, (prepared.wkb, texts)),
            ("raw update", RAW_UPDATE, ()),
            ("raw delete", RAW_DELETE, ()),
        ):
            await _timed(samples, label, _transaction(connection, sql.format(t=name), values))

    return step


async def _transaction(
    connection: asyncpg.Connection[Any], sql: str, values: tuple[Any, ...]
) -> None:
    async with connection.transaction():
        await connection.execute("SELECT naksha_tx_start('bench')")
        await connection.execute(sql, *values)


def _report(samples: Samples, count: int, raw_count: int) -> Report:
    seconds = {name: median(values) for name, values in samples.items()}
    ratios = {
        "create": seconds["create"] / seconds["plain insert"],
        "update": seconds["update"] / seconds["plain update"],
        "delete": seconds["delete"] / seconds["plain insert"],
    }
    report = Report(
        f"Writing {count:,} features in one transaction", ["step", "s", "features/s", "ratio"]
    )
    for name, value in seconds.items():
        rate = (raw_count if name.startswith("raw") else count) / value
        report.rows.append([name, value, rate, ratios.get(name, "")])
        report.figures[name.replace(" ", "_") + "_per_s"] = round(rate)
    for name, ratio in ratios.items():
        report.figures[f"{name}_ratio"] = round(ratio, 3)
    report.figures["raw_features"] = raw_count
    return report
