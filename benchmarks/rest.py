"""REST: requests per second of the hub against tipg on the same rows, interleaved.

`id_ratio`, `bbox100_ratio`, `bbox5000_ratio` and `tile_ratio` are the rate of the hub relative to
that of tipg, with one worker each; tipg gets a plain table with a primary key and a spatial index,
with the same content in columns. `copy_ratio` compares a box of 5,000 features over one HTTP
connection with a plain COPY of the same features over one database connection.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from urllib.parse import urlencode

import asyncpg
from rich.progress import track

from benchmarks import _data
from benchmarks._frame import Cell, Figure, Options, Report, postgres_database, side_by_side
from benchmarks._http import (
    LoadResult,
    RequestSource,
    connected,
    get,
    load,
    once,
    read_response,
    send,
)
from naksha.testing.servers._private_server import free_port
from naksha.testing.servers.hub_server import HubServer

CHUNK: Final = 10_000
CONNECTIONS: Final = 4
ROUNDS: Final = 4
SPACE: Final = "roads"
ZOOM: Final = 4
LON, LAT = 358.0, 160.0
"""Extent of the data in degrees."""
START_SECONDS_MAX: Final = 60.0

Box = tuple[float, float, float, float]


def run(options: Options) -> Report:
    """Start both servers on one database, and load them alternately."""
    count = options.size(200_000, 20_000)
    with (
        tempfile.TemporaryDirectory() as folder,
        postgres_database(tcp=True) as dsn,
        HubServer(Path(folder), storage=dsn, forked=False) as hub,
    ):
        asyncio.run(_fill(hub.port, _data.roads(count)))
        asyncio.run(_plain_table(dsn))
        with _tipg(dsn) as tipg:
            return asyncio.run(_measure(options, dsn, hub.port, tipg, count))


# ---- the data ------------------------------------------------------------------------------------


async def _fill(port: int, features: list[_data.Feature]) -> None:
    space = {"id": SPACE, "title": SPACE, "properties": {"collection": {"id": SPACE}}}
    await once(port, send(port, "POST", "/hub/spaces", json.dumps(space).encode()))
    for start in track(range(0, len(features), CHUNK), f"{len(features):,} features"):
        body = _collection(features[start : start + CHUNK])
        await once(port, _put(port, body, accept="application/x-empty"))


def _put(port: int, body: bytes, accept: str = "application/geo+json") -> bytes:
    request = send(port, "PUT", f"/hub/spaces/{SPACE}/features", body)
    return request.replace(b"\r\n", f"\r\nAccept: {accept}\r\n".encode(), 1)


def _collection(features: Sequence[_data.Feature]) -> bytes:
    return json.dumps({"type": "FeatureCollection", "features": features}).encode()


async def _plain_table(dsn: str) -> None:
    """Create a table with the same rows for tipg, without versions."""
    connection = await asyncpg.connect(dsn)
    try:
        schema = await connection.fetchval(
            "SELECT schemaname FROM pg_tables WHERE tablename = $1", SPACE
        )
        await connection.execute(f"""
            CREATE TABLE public.plain AS
            SELECT jsondata->>'id' AS id, ST_Force2D(geo)::geometry(Geometry, 4326) AS geom,
                   p->>'name' AS name, (p->>'speedLimit')::int AS speed_limit,
                   (p->>'lanes')::int AS lanes, (p->>'oneway')::bool AS oneway,
                   p->>'surface' AS surface, p->'@ns:com:here:xyz' AS xyz
              FROM "{schema}"."{SPACE}", LATERAL (SELECT jsondata->'properties' AS p) AS q
             ORDER BY id""")
        await connection.execute("ALTER TABLE public.plain ADD PRIMARY KEY (id)")
        await connection.execute("CREATE INDEX ON public.plain USING gist (geom)")
        await connection.execute("VACUUM ANALYZE")
    finally:
        await connection.close()


@contextmanager
def _tipg(dsn: str) -> Iterator[int]:
    """Run tipg with one worker; yield its port."""
    port = free_port()
    environment = {
        "DATABASE_URL": dsn,
        "TIPG_DB_SCHEMAS": '["public"]',
        "TIPG_MAX_FEATURES_PER_QUERY": "100000",
        "TIPG_MAX_FEATURES_PER_TILE": "100000",
        "TIPG_CATALOG_TTL": "100000",
    }
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "uvicorn", "tipg.main:app", "--port", str(port)),
            *("--loop", "uvloop", "--http", "httptools", "--log-level", "warning"),
        ],
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
    )
    try:
        asyncio.run(_wait(port))
        yield port
    finally:
        process.terminate()
        process.wait()


async def _wait(port: int) -> None:
    deadline = time.monotonic() + START_SECONDS_MAX
    while True:
        try:
            await once(port, get(port, "/collections/public.plain"))
            return
        except (OSError, asyncio.IncompleteReadError):
            if time.monotonic() > deadline:
                raise
            await asyncio.sleep(0.1)


# ---- requests ------------------------------------------------------------------------------------


class RequestSet:
    """Requests, the same for both servers, each about another area."""

    def __init__(self, count: int, hub: int, tipg: int) -> None:
        self._count = count
        self._hub = hub
        self._tipg = tipg

    def box(self, number: int, features: int) -> Box:
        """Return a box with approximately a number of features."""
        rng = random.Random(number)
        part = features / self._count
        width, height = LON * part**0.5, LAT * part**0.5
        west, south = rng.uniform(-179, 179 - width), rng.uniform(-80, 80 - height)
        return west, south, west + width, south + height

    def by_id(self) -> tuple[RequestSource, RequestSource]:
        def id(number: int) -> str:
            return f"road-{random.Random(number).randrange(self._count)}"

        return (
            self._of_hub(lambda number: f"/features/{id(number)}"),
            self._of_tipg(lambda number: f"/items/{id(number)}?f=geojson"),
        )

    def boxes(self, features: int) -> tuple[RequestSource, RequestSource]:
        def hub(number: int) -> str:
            west, south, east, north = self.box(number, features)
            box = {"west": west, "south": south, "east": east, "north": north}
            return f"/bbox?{urlencode({**box, 'limit': 100_000})}"

        def tipg(number: int) -> str:
            box = ",".join(map(str, self.box(number, features)))
            return f"/items?{urlencode({'bbox': box, 'limit': 100_000, 'f': 'geojson'})}"

        return self._of_hub(hub), self._of_tipg(tipg)

    def tiles(self) -> tuple[RequestSource, RequestSource]:
        def tile(number: int) -> tuple[int, int]:
            rng = random.Random(number)
            return rng.randrange(2, 14), rng.randrange(4, 12)

        def hub(number: int) -> str:
            x, y = tile(number)
            return f"/tile/web/{ZOOM}_{x}_{y}.mvt?limit=100000"

        def tipg(number: int) -> str:
            x, y = tile(number)
            return f"/tiles/WebMercatorQuad/{ZOOM}/{x}/{y}?limit=100000"

        return self._of_hub(hub), self._of_tipg(tipg)

    def writes(self, features: int) -> RequestSource:
        """Return writes of changed features."""

        def request(number: int) -> bytes:
            rng = random.Random(number)
            some = [
                _data.road(rng.randrange(self._count), random.Random(rng.random()))
                for _ in range(features)
            ]
            return _put(self._hub, _collection(some))

        return RequestSource(self._hub, request)

    def _of_hub(self, path: Callable[[int], str]) -> RequestSource:
        def request(number: int) -> bytes:
            return get(self._hub, f"/hub/spaces/{SPACE}{path(number)}")

        return RequestSource(self._hub, request)

    def _of_tipg(self, path: Callable[[int], str]) -> RequestSource:
        def request(number: int) -> bytes:
            return get(self._tipg, f"/collections/public.plain{path(number)}")

        return RequestSource(self._tipg, request)


# ---- measuring -----------------------------------------------------------------------------------


async def _measure(options: Options, dsn: str, hub: int, tipg: int, count: int) -> Report:
    questions = RequestSet(count, hub, tipg)
    seconds = 0.5 if options.quick else 4.0
    cases = {
        "id": questions.by_id(),
        "bbox100": questions.boxes(100),
        "bbox5000": questions.boxes(5_000),
        "tile": questions.tiles(),
    }
    figures: dict[str, Figure] = {}
    rows: list[Sequence[Cell]] = []
    for name, (ours, theirs) in cases.items():
        await _check_same(name, ours, theirs)
        one, other = await _load_alternately((ours, theirs), seconds)
        figures[f"{name}_ratio"] = round(one.per_second / other.per_second, 2)
        for who, found in (("hub", one), ("tipg", other)):
            rows.append(_row(f"{name}, {who}", found))
            figures[f"{name}_{who}_rps"] = round(found.per_second, 1)
            figures[f"{name}_{who}_p99_ms"] = round(found.p99_ms, 2)
    (written,) = await _load_alternately((questions.writes(100),), seconds)
    rows.append(_row("write of 100 features, hub", written))
    figures["write100_rps"] = round(written.per_second, 1)
    figures["write100_p99_ms"] = round(written.p99_ms, 2)
    figures["copy_ratio"] = await _copy_ratio(dsn, questions, rows)
    notes = [
        "Goals: id_ratio, bbox100_ratio, bbox5000_ratio ≥ 3, tile_ratio ≥ 1.2, copy_ratio ≥ 0.5.",
        f"{CONNECTIONS} connections, one worker each, {count:,} features.",
    ]
    columns = ["what", "per second", "p99 ms", "kB per answer"]
    return Report("REST", columns, rows, figures, notes)


def _row(name: str, found: LoadResult) -> Sequence[Cell]:
    size = found.received / max(1, len(found.milliseconds)) / 1000
    return [name, found.per_second, found.p99_ms, size]


async def _load_alternately(targets: Sequence[RequestSource], seconds: float) -> list[LoadResult]:
    """Load targets alternately with the same requests; the first round is a warm-up."""
    found = [LoadResult() for _ in targets]
    for turn in range(ROUNDS + 1):
        for target, total in zip(targets, found, strict=True):
            gc.collect()
            part = await load(target, seconds, CONNECTIONS, first=turn * 1_000_000)
            if turn > 0:
                total.add(part)
    return found


async def _check_same(name: str, ours: RequestSource, theirs: RequestSource) -> None:
    """Check that both servers return the same features."""
    if name == "tile":
        return
    one = json.loads(await once(ours.port, ours.request(1)))
    other = json.loads(await once(theirs.port, theirs.request(1)))
    ids = [sorted(f["id"] for f in each.get("features", [each])) for each in (one, other)]
    if ids[0] != ids[1]:
        raise RuntimeError(f"{name}: {len(ids[0])} features of the hub, {len(ids[1])} of tipg")


async def _copy_ratio(dsn: str, questions: RequestSet, rows: list[Sequence[Cell]]) -> float:
    target, _ = questions.boxes(5_000)
    west, south, east, north = questions.box(1, 5_000)
    connection = await asyncpg.connect(dsn)
    schema = await connection.fetchval(
        "SELECT schemaname FROM pg_tables WHERE tablename = $1", SPACE
    )
    await connection.execute(f'SET search_path TO "{schema}", public')
    copy = (
        f'COPY (SELECT naksha_feature(geo, jsondata) FROM "{SPACE}" WHERE geo && '
        f"ST_MakeEnvelope({west}, {south}, {east}, {north}, 4326)) TO STDOUT"
    )

    async def sink(data: bytes) -> None:
        del data

    async with connected(target.port) as (reader, writer):

        async def over_http() -> None:
            writer.write(target.request(1))
            await read_response(reader)

        async def plain_copy() -> None:
            await connection.copy_from_query(copy[6 : -len(") TO STDOUT")], output=sink)

        timings = await side_by_side({"http": over_http, "copy": plain_copy}, repetitions=15)
    await connection.close()
    for name, timing in timings.items():
        rows.append([f"5,000 features, {name}", 1 / timing.median, timing.median * 1000, ""])
    return round(timings["copy"].median / timings["http"].median, 2)
