"""Queries, disk and memory of a hub with 200,000, 1,000,000 and 5,000,000 places.

The places are the towns of GeoNames; each size is a space of its own in one storage, loaded in
bulk, and then 1 % of its features is edited in 100 versions. All sizes are queried in turns: by id,
by boxes and tiles with equal hit counts, by boxes at a version, and for differences with equal
numbers of changes. The growth of a query is the rate for the fewest features relative to the rate
for the most. `disk_ratio` compares a collection, history included, with a plain table that has the
same columns and indexes and got the same edits. `hub_mb` and `server_mb` are the memory of a hub
that has served only this size, and the private memory of its database connections.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import random
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import asyncpg
import msgspec
import pyarrow as pa
from rich.progress import track

from benchmarks._frame import Cell, Figure, Options, Report, postgres_database
from benchmarks._http import LoadResult, RequestSource, get, load, load_alternately, once, send
from benchmarks._memory import private_mb, resident_mb
from benchmarks._places import Places
from benchmarks._stores import staged_load, version_of
from naksha.model.collection import CollectionInfo
from naksha.model.version import Version
from naksha.psql import PsqlStorage
from naksha.testing.servers.hub_server import HubServer
from naksha.testing.storage.input_batches import given_batch

TAKES = ("sizes",)
SIZES: Final = (200_000, 1_000_000, 5_000_000)
SIZES_QUICK: Final = (20_000, 100_000)
VERSIONS: Final = 100
EDITED: Final = 0.01
"""Part of the features that is edited, in all versions together."""
CHUNK: Final = 50_000
CONNECTIONS: Final = 4
HITS: Final = 100
TILE_HITS: Final = (250, 500)
REQUESTS: Final = 200
"""Number of different boxes and tiles."""
_PLAIN: Final = "CREATE TABLE public.{plain} AS SELECT * FROM {name}"
_INDICES: Final = "SELECT naksha_create_indices($1, 'head', false)"
_EDIT: Final = """UPDATE public.{plain} AS p SET i = h.i, geo = h.geo, jsondata = h.jsondata
  FROM {name} AS h
 WHERE p.jsondata->>'id' = ANY($1) AND h.jsondata->>'id' = p.jsondata->>'id'"""
_SIZE: Final = """SELECT sum(pg_total_relation_size(coalesce(p.relid, t.name::regclass)))::int8
  FROM unnest($1::text[]) AS t(name) LEFT JOIN pg_partition_tree(t.name::regclass) AS p
    ON p.isleaf"""
_BACKENDS: Final = """SELECT pid FROM pg_stat_activity
 WHERE application_name LIKE 'naksha%' AND backend_type = 'client backend'"""


@dataclass
class MeasuredSpace:
    """Space with the places of one size, and what was measured of it."""

    places: Places
    load_per_s: float = 0.0
    bytes_per_feature: float = 0.0
    disk_ratio: float = 0.0
    hub_mb: float = 0.0
    server_mb: float = 0.0
    versions: list[Version] = field(default_factory=list)
    """The load, and the versions with edits."""
    loads: dict[str, LoadResult] = field(default_factory=dict)

    @property
    def label(self) -> str:
        count = self.places.count
        return f"{count // 1_000_000}m" if count % 1_000_000 == 0 else f"{count // 1_000}k"

    @property
    def name(self) -> str:
        return f"places_{self.label}"

    @property
    def edits(self) -> int:
        """Return the number of edits of a version."""
        return round(self.places.count * EDITED / VERSIONS)


def run(options: Options) -> Report:
    """Fill all spaces, measure the memory for each of them, and query all of them in turns."""
    sizes = sorted(options.sizes or (SIZES_QUICK if options.quick else SIZES))
    places = Places.generate(sizes[-1])
    gc.freeze()  # keeps gc.collect() before every measurement fast
    spaces = [MeasuredSpace(places.first(size)) for size in sizes]
    seconds = 0.3 if options.quick else 2.0
    with tempfile.TemporaryDirectory() as folder, postgres_database(tcp=True) as dsn:

        def hub() -> HubServer:
            return HubServer(Path(folder), storage=dsn, forked=False)

        with hub() as first:
            for space in spaces:
                asyncio.run(_fill(dsn, first.port, space))
        targets = [_targets(space, spaces[-1].edits) for space in spaces]
        for space, of_space in zip(spaces, targets, strict=True):
            with hub() as server:
                asyncio.run(_memory(dsn, server, space, of_space, seconds))
        with hub() as server:
            asyncio.run(_measure(server.port, spaces, targets, seconds))
    return _report(spaces)


# ---- the data ------------------------------------------------------------------------------------


async def _fill(dsn: str, port: int, space: MeasuredSpace) -> None:
    document = {"id": space.name, "properties": {"collection": {"id": space.name}}}
    await once(port, get(port, "/hub/spaces"))
    storage = await PsqlStorage.open(dsn)
    connection = await asyncpg.connect(dsn, server_settings={"search_path": "naksha, public"})
    try:
        await _load(storage, space)
        await once(port, send(port, "POST", "/hub/spaces", msgspec.json.encode(document)))
        plain = f"plain_{space.label}"
        await connection.execute(_PLAIN.format(plain=plain, name=space.name))
        await connection.execute(_INDICES, plain)
        for table in (space.name, f"public.{plain}"):
            await connection.execute(f"VACUUM ANALYZE {table}")
        await _edit(storage, connection, space, _EDIT.format(plain=plain, name=space.name))
        await storage.maintain()
        await _measure_disk(connection, space, plain)
    finally:
        await connection.close()
        await storage.close()


async def _load(storage: PsqlStorage, space: MeasuredSpace) -> None:
    count, generating = space.places.count, 0.0

    def batches() -> Iterator[pa.RecordBatch]:
        nonlocal generating
        for start in track(range(0, count, CHUNK), f"{count:,} features"):
            begin = time.perf_counter()
            features = space.places.features(start, min(start + CHUNK, count))
            generating += time.perf_counter() - begin
            yield given_batch(features)

    begin = time.perf_counter()
    loaded = await staged_load(storage, CollectionInfo(id=space.name), batches())
    version = await version_of(storage, loaded)
    space.load_per_s = count / (time.perf_counter() - begin - generating)
    space.versions.append(version)


async def _edit(
    storage: PsqlStorage, connection: asyncpg.Connection[Any], space: MeasuredSpace, plain_edit: str
) -> None:
    numbers = random.Random(1).sample(range(space.places.count), space.edits * VERSIONS)
    for version in range(VERSIONS):
        some = numbers[version * space.edits : (version + 1) * space.edits]
        features = [space.places.feature(number, f"edit {version}") for number in some]
        async with storage.write("bench") as session:
            await session.update(space.name, features)
        space.versions.append(await version_of(storage, session.txn))
        await connection.execute(plain_edit, [feature["id"] for feature in features])


async def _measure_disk(
    connection: asyncpg.Connection[Any], space: MeasuredSpace, plain: str
) -> None:
    tables = [space.name + suffix for suffix in ("", "_hst", "_del", "_meta")]
    for table in (*tables, f"public.{plain}"):
        await connection.execute(f"VACUUM ANALYZE {table}")
    size: int = await connection.fetchval(_SIZE, tables)
    plain_size: int = await connection.fetchval(_SIZE, [f"public.{plain}"])
    space.bytes_per_feature = size / space.places.count
    space.disk_ratio = size / plain_size


# ---- queries -------------------------------------------------------------------------------------

Paths = dict[str, Callable[[int], str]]


def _targets(space: MeasuredSpace, changes: int) -> Paths:
    """Return the path of the n-th request of each kind; differences have a number of changes."""
    places, seed = space.places, space.places.count
    boxes = list(itertools.islice(places.boxes(HITS, seed), REQUESTS))
    tiles = list(itertools.islice(places.tiles(*TILE_HITS, seed), REQUESTS))
    numbers = [version.seq_number for version in space.versions]

    def box(number: int) -> str:
        west, south, east, north = boxes[number % REQUESTS]
        return f"/bbox?west={west}&south={south}&east={east}&north={north}&limit=1000"

    def tile(number: int) -> str:
        x, y, zoom = tiles[number % REQUESTS]
        return f"/tile/web/{zoom}_{x}_{y}.mvt?limit=1000"

    def difference(number: int) -> str:
        span = changes // space.edits
        older = random.Random(number).randrange(VERSIONS + 1 - span)
        return f"/diff?versionRef={numbers[older]}..{numbers[older + span]}"

    return {
        "id": lambda number: f"/features/place-{random.Random(number).randrange(places.count)}",
        "bbox": box,
        "tile": tile,
        "version": lambda number: f"{box(number)}&versionRef={numbers[VERSIONS // 2]}",
        "diff": difference,
    }


def _target(port: int, space: MeasuredSpace, path: Callable[[int], str]) -> RequestSource:
    return RequestSource(port, lambda number: get(port, f"/hub/spaces/{space.name}{path(number)}"))


async def _memory(
    dsn: str, hub: HubServer, space: MeasuredSpace, paths: Paths, seconds: float
) -> None:
    """Measure the memory after all kinds of requests to one space."""
    for path in paths.values():
        await load(_target(hub.port, space, path), seconds, CONNECTIONS)
    connection = await asyncpg.connect(dsn)
    backends = [row["pid"] for row in await connection.fetch(_BACKENDS)]
    await connection.close()
    space.hub_mb = resident_mb(hub.process.pid)
    space.server_mb = sum(private_mb(pid) for pid in backends)


async def _measure(
    port: int, spaces: Sequence[MeasuredSpace], paths: Sequence[Paths], seconds: float
) -> None:
    for kind in paths[0]:
        targets = [
            _target(port, space, of_space[kind])
            for space, of_space in zip(spaces, paths, strict=True)
        ]
        await _check_hits(kind, targets, spaces[-1].edits)
        loads = await load_alternately(targets, seconds, CONNECTIONS)
        for space, found in zip(spaces, loads, strict=True):
            space.loads[kind] = found


async def _check_hits(kind: str, targets: Sequence[RequestSource], changes: int) -> None:
    """Check that the responses have the expected numbers of features or changes."""
    member, expected = {
        "bbox": ("features", HITS),
        "version": ("features", HITS),
        "diff": ("changes", changes),
    }.get(kind, ("", 0))
    for target in targets if member else ():
        for number in range(3):
            document = msgspec.json.decode(await once(target.port, target.request(number)))
            if not 0 <= len(document[member]) - expected <= 0.05 * expected:
                raise RuntimeError(f"{kind}: {len(document[member])} hits, not {expected}")


# ---- report --------------------------------------------------------------------------------------


def _report(spaces: Sequence[MeasuredSpace]) -> Report:
    rows: list[Sequence[Cell]] = []
    figures: dict[str, Figure] = {}
    for space in spaces:
        of_space: Mapping[str, float] = {
            "load_per_s": space.load_per_s,
            "bytes_per_feature": space.bytes_per_feature,
            "disk_ratio": space.disk_ratio,
            "hub_mb": space.hub_mb,
            "server_mb": space.server_mb,
            **{f"{kind}_rps": found.per_second for kind, found in space.loads.items()},
            **{f"{kind}_p99_ms": found.p99_ms for kind, found in space.loads.items()},
        }
        rows += [[f"{name}, {space.label}", value] for name, value in of_space.items()]
        figures |= {f"{name}_{space.label}": round(value, 2) for name, value in of_space.items()}
    few, many = spaces[0], spaces[-1]
    growths = {kind: few.loads[kind].per_second / many.loads[kind].per_second for kind in few.loads}
    figures |= {f"{kind}_growth": round(growth, 2) for kind, growth in growths.items()}
    figures["query_growth"] = round(max(growths.values()), 2)
    figures["disk_ratio"] = round(max(space.disk_ratio for space in spaces), 2)
    goals = "Goals from 200,000 to 5,000,000: query_growth ≤ 1.3; disk_ratio ≤ 1.5."
    return Report("Scale", ["what", "value"], rows, figures, [goals])
