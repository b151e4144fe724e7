"""Bulk loads, staged and exclusive, against raw parallel COPY and CREATE INDEX of the same rows.

All sides start from Python feature dicts, and everything up to indexed tables is inside the clock:

- raw encodes JSON and geometry (with the same code as ours), chooses one of 16 tables by the id,
  copies by the driver's `copy_records_to_table` and creates the same indices. Its features carry
  the whole namespace from the beginning; it checks nothing, keeps no numbers and writes no log.
- staged and exclusive are `bulk_writer`, `add` and `commit`; what comes out is a collection.

All use the same number of connections with the same settings. For the `prepared` figures the clock
starts later, on both sides: raw has finished rows, ours what `check_features` gives.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Iterator, Sequence
from typing import Any

import msgspec
import numpy as np
import shapely

from benchmarks._data import Feature, roads
from benchmarks._frame import Options, Report, Timing, postgres_database, side_by_side
from naksha.model.collection import CollectionInfo
from naksha.model.features import NAMESPACE, PreparedFeatures, check_features
from naksha.model.geometry import encode_geometries
from naksha.psql import PsqlStorage
from naksha.psql.bulk import LANES, SETTINGS, PsqlBulkWriter
from naksha.psql.driver import Direct
from naksha.psql.splits import LEAVES
from naksha.psql.staging import CHUNK_FEATURES, LEAF_COUNT, leaves_of

RAW = "raw_p"
RAW_TABLE = (
    "CREATE TABLE {t} (i int8 NOT NULL, geo geometry(GeometryZ, 4326), jsondata jsonb NOT NULL)"
)
RAW_INDICES = "SELECT naksha_create_indices($1, 'head', false)"
COLLECTION = "loaded"

Rows = list[list[tuple[int, bytes, str]]]


def run(options: Options) -> Report:
    """Time the ways in turns and compare the medians."""
    count = options.size(1_000_000, 100_000)
    features = roads(count)
    finished = [_with_namespace(number, each) for number, each in enumerate(features)]
    # A collection of millions of living objects would be the slowest part of all ways.
    gc.freeze()
    with postgres_database() as dsn:
        timings = asyncio.run(_measure(dsn, features, finished, options))
    return _report(timings, count)


def _with_namespace(number: int, feature: Feature) -> Feature:
    """The feature as the storage would keep it, with values of the usual length."""
    tags = feature["properties"][NAMESPACE]["tags"]
    namespace = {
        "action": "CREATE",
        "version": 1,
        "author": "bench",
        "appId": "bench",
        "uuid": f"bench:{COLLECTION}:2026:1:30:{number}",
        "puuid": None,
        "muuid": None,
        "txn": "2026013000000000001",
        "txn_next": "0",
        "createdAt": 1769731200000,
        "updatedAt": 1769731200000,
        "rtcts": 1769731200000,
        "rtuts": 1769731200000,
        "tags": tags,
        "crid": None,
        # qrid and mrid follow, for all features at once.
    }
    return {**feature, "properties": {**feature["properties"], NAMESPACE: namespace}}


async def _measure(
    dsn: str, features: list[Feature], finished: list[Feature], options: Options
) -> dict[str, Timing]:
    storage = await PsqlStorage.open(dsn, "bench")
    bench = _Bench(storage, features, finished)
    repetitions = options.size(2, 3)
    try:
        timings = await side_by_side(
            {"raw": bench.raw, "staged": bench.staged, "exclusive": bench.exclusive},
            repetitions=repetitions,
            warm_ups=options.size(0, 1),
            before_each=bench.clear,
        )
        bench.prepare()
        prepared = await side_by_side(
            {
                "raw, prepared": bench.raw_prepared,
                "staged, prepared": lambda: bench.load_prepared(exclusive=False),
                "exclusive, prepared": lambda: bench.load_prepared(exclusive=True),
            },
            repetitions=repetitions,
            warm_ups=0,
            before_each=bench.clear,
        )
    finally:
        await storage.close()
    return timings | prepared


class _Bench:
    """The ways, on one database."""

    def __init__(
        self, storage: PsqlStorage, features: list[Feature], finished: list[Feature]
    ) -> None:
        self._storage = storage
        self._server = storage._servers.primary
        self._features = features
        self._finished = finished
        self._prepared: list[PreparedFeatures] = []
        self._rows: list[Rows] = []
        for chunk in _chunks(finished):
            for each, qrid in zip(chunk, encode_geometries(chunk).qrid, strict=True):
                each["properties"][NAMESPACE] |= {"qrid": qrid, "mrid": qrid}

    async def clear(self) -> None:
        """Remove what the last way made, and let the server come to rest."""
        connection = await self._server.connect()
        names = [RAW + leaf for leaf in LEAVES]
        await connection.execute(f"DROP TABLE IF EXISTS {', '.join(names)}")
        async with connection.transaction():
            await connection.execute("SELECT naksha_collection_destroy($1)", COLLECTION)
        for name in names:
            await connection.execute(RAW_TABLE.format(t=name))
        await connection.execute("CHECKPOINT")
        await connection.close()

    # ---- From dicts ------------------------------------------------------------------------------

    async def raw(self) -> None:
        await self._load_raw(map(_raw_rows, _chunks(self._finished), _starts(self._finished)))

    async def staged(self) -> None:
        writer = await self._writer(exclusive=False)
        await writer.add(self._features)
        await writer.commit()

    async def exclusive(self) -> None:
        writer = await self._writer(exclusive=True)
        await writer.add(self._features)
        await writer.commit()

    # ---- From prepared columns -------------------------------------------------------------------

    def prepare(self) -> None:
        """Encode everything, outside of the clock."""
        self._prepared = [check_features(chunk) for chunk in _chunks(self._features)]
        self._rows = list(map(_raw_rows, _chunks(self._finished), _starts(self._finished)))
        gc.freeze()

    async def raw_prepared(self) -> None:
        await self._load_raw(iter(self._rows))

    async def load_prepared(self, *, exclusive: bool) -> None:
        writer = await self._writer(exclusive=exclusive)
        copying: Awaitable[int] | None = None
        for prepared in self._prepared:
            if copying is not None:
                await copying
            copying = asyncio.ensure_future(writer.add_prepared(prepared))
        if copying is not None:
            await copying
        await writer.commit()

    # ---- Inside ----------------------------------------------------------------------------------

    async def _writer(self, *, exclusive: bool) -> PsqlBulkWriter:
        info = CollectionInfo(id=COLLECTION)
        return await self._storage.bulk_writer(info, "bench", exclusive=exclusive)

    async def _load_raw(self, chunks: Iterator[Rows]) -> None:
        """COPY while the next rows are made, then the indices of one table at a time each."""
        connections = [await self._raw_connection() for _ in range(LANES)]
        copying: asyncio.Future[Any] | None = None
        while (rows := await asyncio.to_thread(next, chunks, None)) is not None:
            if copying is not None:
                await copying
            copying = asyncio.gather(
                *(_copy_raw(each, rows, number) for number, each in enumerate(connections))
            )
        if copying is not None:
            await copying
        left = iter(LEAVES)
        await asyncio.gather(*(_index_raw(connection, left) for connection in connections))
        for connection in connections:
            await connection.close()

    async def _raw_connection(self) -> Direct:
        connection = await self._server.connect(**SETTINGS)
        await connection.set_type_codec(
            "geometry", schema="public", encoder=bytes, decoder=bytes, format="binary"
        )
        return connection


async def _copy_raw(connection: Direct, rows: Rows, number: int) -> None:
    async with connection.transaction():
        for leaf in range(number, LEAF_COUNT, LANES):
            await connection.copy_records_to_table(RAW + LEAVES[leaf], records=rows[leaf])


async def _index_raw(connection: Direct, left: Iterator[str]) -> None:
    for leaf in left:
        await connection.execute(RAW_INDICES, RAW + leaf)


def _chunks(features: Sequence[Feature]) -> Iterator[Sequence[Feature]]:
    for start in _starts(features):
        yield features[start : start + CHUNK_FEATURES]


def _starts(features: Sequence[Feature]) -> range:
    return range(0, len(features), CHUNK_FEATURES)


_encode = msgspec.json.Encoder().encode


def _raw_rows(features: Sequence[Feature], start: int) -> Rows:
    """Rows for COPY, by table."""
    rows: Rows = [[] for _ in range(LEAF_COUNT)]
    shapes = shapely.from_wkb(np.array(encode_geometries(features).wkb, dtype=object))
    geometries = shapely.to_wkb(shapely.force_3d(shapes), byte_order=1)
    leaves = leaves_of([feature["id"] for feature in features])
    for i, (leaf, geo, feature) in enumerate(zip(leaves, geometries, features, strict=True), start):
        body = {**feature}
        del body["geometry"]
        rows[leaf].append((i, geo, _encode(body).decode()))
    return rows


def _report(timings: dict[str, Timing], count: int) -> Report:
    report = Report(
        f"Loading {count:,} features over {LANES} connections",
        ["way", "seconds", "features/s", "of raw"],
        notes=["raw: COPY and CREATE INDEX of the same rows into 16 plain tables"],
    )
    figures: dict[str, Any] = {"features": count, "connections": LANES}
    for name, timing in timings.items():
        way, _, form = name.partition(", ")
        base = timings["raw, prepared" if form else "raw"]
        ratio = timing.median / base.median
        report.rows.append([name, timing.median, timing.per_second(count), ratio])
        suffix = f"_{form}" if form else ""
        figures[f"{way}{suffix}_features_per_second"] = round(timing.per_second(count))
        figures[f"{way}{suffix}_seconds"] = round(timing.median, 3)
        if way != "raw":
            key = "bulk" if way == "staged" else way
            figures[f"{key}{suffix}_ratio"] = round(ratio, 3)
    report.figures = figures
    return report
