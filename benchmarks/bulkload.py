"""Bulk loads against raw parallel COPY and CREATE INDEX of the same rows.

The figure `bulk_ratio` is the worse of two forms. The first one starts with the same prepared
columns (the result of `check_columns`: JSON, WKB, tags) and ends with indexed tables:

- raw builds the same rows with the same code, namespace included, copies them into 16 plain tables
  and creates the same indexes. It gives no guarantees: no log, numbers, validation or collection.
- staged stages parts, one per connection, and applies them.

Both use the same number of connections with the same settings. The second form, `from_dicts`, also
times the client, which starts with feature dicts: Naksha converts them to columns, validates and
encodes them; raw only encodes features that already have the complete namespace.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import shapely

from benchmarks._data import Feature, roads
from benchmarks._frame import Options, Report, Timing, postgres_database, side_by_side
from benchmarks._raw import (
    COLLECTION,
    RAW,
    RAW_INDICES,
    UUID,
    VALUES,
    Data,
    Piece,
    clear,
    copied,
    indexed,
    leaf_data,
)
from benchmarks._stores import staged_load
from naksha.model.collection import CollectionInfo
from naksha.model.features import NAMESPACE, PreparedFeatures
from naksha.model.geo.geometry import encode_geometries
from naksha.model.json_text import close_namespace, open_properties
from naksha.psql import PsqlStorage
from naksha.psql.bulk.lanes import LANES, SETTINGS
from naksha.psql.bulk.splits import LEAVES
from naksha.psql.bulk.staged_rows import CHUNK_FEATURES, LEAF_COUNT, leaves_of
from naksha.psql.connection.driver import Direct
from naksha.spi.staging import checked
from naksha.testing.storage.input_batches import given_batch

Rows = list[list[tuple[int, bytes, str]]]


def run(options: Options) -> Report:
    """Time the variants interleaved and compare the medians."""
    count = options.size(1_000_000, 100_000)
    features = roads(count)
    finished = [_with_namespace(number, each) for number, each in enumerate(features)]
    with postgres_database() as dsn:
        timings = asyncio.run(_measure(dsn, features, finished, options))
    return _report(timings, count)


def _with_namespace(number: int, feature: Feature) -> Feature:
    """Return a feature as the storage would store it, with values of the usual length."""
    tags = feature["properties"][NAMESPACE]["tags"]
    # qrid and mrid are added later, for all features at once.
    namespace = {**VALUES, "uuid": f"{UUID}{number}", "tags": tags, "crid": None}
    return {**feature, "properties": {**feature["properties"], NAMESPACE: namespace}}


async def _measure(
    dsn: str, features: list[Feature], finished: list[Feature], options: Options
) -> dict[str, Timing]:
    storage = await PsqlStorage.open(dsn, "bench")
    bench = _LoadVariants(storage, features, finished)
    try:
        prepared = await side_by_side(
            {
                "raw": bench.raw_prepared,
                "staged": bench.load_prepared,
            },
            repetitions=3,
            warm_ups=options.size(0, 1),
            before_each=bench.clear,
        )
        loads = await side_by_side(
            {
                "raw, from dicts": bench.raw,
                "staged, from dicts": bench.load,
            },
            repetitions=options.size(2, 3),
            warm_ups=0,
            before_each=bench.clear,
        )
    finally:
        await storage.close()
    return prepared | loads


class _LoadVariants:
    """Variants of a load on one database."""

    def __init__(
        self, storage: PsqlStorage, features: list[Feature], finished: list[Feature]
    ) -> None:
        self._storage = storage
        self._server = storage._servers.primary
        self._features = features
        self._finished = finished
        self._info = CollectionInfo(id=COLLECTION)
        self._prepared = [checked(given_batch(some), self._info) for some in _chunks(features)]
        for chunk in _chunks(finished):
            for each, qrid in zip(chunk, encode_geometries(chunk).qrid, strict=True):
                each["properties"][NAMESPACE] |= {"qrid": qrid, "mrid": qrid}
        # Otherwise garbage collection of millions of objects would dominate all variants.
        gc.freeze()

    async def clear(self) -> None:
        """Remove the result of the previous variant, and run a checkpoint."""
        await clear(self._server)

    # ---- From dicts ------------------------------------------------------------------------------

    async def raw(self) -> None:
        await self._load_raw(map(_raw_rows, _chunks(self._finished), _starts(self._finished)))

    async def load(self) -> None:
        await self._load(map(given_batch, _chunks(self._features)))

    # ---- From prepared columns -------------------------------------------------------------------

    async def raw_prepared(self) -> None:
        await copied(self._server, self._raw_data())
        await indexed(self._server)

    def _raw_data(self) -> Iterator[Data]:
        first_i = 1
        for prepared in self._prepared:
            yield _raw_data(prepared, first_i)
            first_i += len(prepared)

    async def load_prepared(self) -> None:
        await self._load(self._prepared)

    # ---- Inside ----------------------------------------------------------------------------------

    async def _load(self, batches: Iterable[pa.RecordBatch | PreparedFeatures]) -> None:
        await staged_load(self._storage, self._info, batches, LANES)

    async def _load_raw(self, chunks: Iterator[Rows]) -> None:
        """Copy rows while the next ones are built; then each connection indexes table by table."""
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


def _raw_data(prepared: PreparedFeatures, first_i: int) -> Data:
    """Build the same rows as a load, with values of the usual length."""
    heads = map(open_properties, prepared.json)
    tails = map(close_namespace, prepared.tags, prepared.crid, prepared.qrid)
    pieces: list[Piece] = list(zip(prepared.wkb, heads, tails, strict=True))
    return leaf_data(pieces, leaves_of(prepared.ids), first_i)


def _raw_rows(features: Sequence[Feature], start: int) -> Rows:
    """Build the rows for COPY, by table."""
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
        base = timings[f"raw, {form}" if form else "raw"]
        ratio = timing.median / base.median
        report.rows.append([name, timing.median, timing.per_second(count), ratio])
        suffix = f"_{form.replace(' ', '_')}" if form else ""
        figures[f"{way}{suffix}_features_per_second"] = round(timing.per_second(count))
        figures[f"{way}{suffix}_seconds"] = round(timing.median, 3)
        if way != "raw":
            figures[f"bulk{suffix or '_prepared'}_ratio"] = round(ratio, 3)
            figures["bulk_ratio"] = max(figures.get("bulk_ratio", 0.0), round(ratio, 3))
    report.figures = figures
    return report
