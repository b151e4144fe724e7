"""REST: requests per second of the hub against other servers and the library, interleaved.

`id_ratio`, `bbox100_ratio`, `bbox5000_ratio` and `tile_ratio` are the rate of the hub relative to
that of tipg, with one worker each; tipg gets a plain table with a primary key and a spatial index,
with the same content in columns. `bare_ratio` is the rate of look-ups by id relative to a bare
handler that sends the same bytes. `copy_ratio` compares a box of 5,000 features over one HTTP
connection with a plain COPY of the same features over one database connection.

`write100_ratio` is the rate of updates of 100 features relative to that of the library on the same
storage, and `write1_ratio` that of new features, written singly by 16 clients, relative to 16
connections that insert them into a plain table with a primary key and a spatial index. Writes
include their publication.
"""

from __future__ import annotations

import asyncio
import functools
import json
import random
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final
from urllib.parse import urlencode

import asyncpg
import msgspec
from rich.progress import track

from benchmarks import _data
from benchmarks._frame import Cell, Figure, Options, Report, postgres_database, side_by_side
from benchmarks._http import (
    Client,
    LoadResult,
    RequestSource,
    connected,
    get,
    load_alternately,
    once,
    read_response,
    send,
)
from benchmarks._rest_baselines import Inserter, LibraryWriter, bare, new_road, plain_tables, tipg
from naksha.psql import PsqlStorage
from naksha.testing.servers.hub_server import HubServer

CHUNK: Final = 10_000
CONNECTIONS: Final = 4
WRITERS: Final = 16
BATCHES: Final = 100
"""Number of disjoint sets of 100 features that are edited."""
SPACE: Final = "roads"
ZOOM: Final = 4
LON, LAT = 358.0, 160.0
"""Extent of the data in degrees."""

Box = tuple[float, float, float, float]


def run(options: Options) -> Report:
    """Start all servers on one database, and load them alternately."""
    count = options.size(200_000, 20_000)
    with (
        tempfile.TemporaryDirectory() as folder,
        postgres_database(tcp=True) as dsn,
        HubServer(Path(folder), storage=dsn, forked=False) as hub,
    ):
        asyncio.run(_fill(hub.port, _data.roads(count)))
        asyncio.run(plain_tables(dsn, SPACE))
        with tipg(dsn) as tipg_port, bare(dsn, "road-0") as bare_port:
            questions = RequestSet(count, hub.port, tipg_port, bare_port)
            return asyncio.run(_measure(options, dsn, questions))


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
    return msgspec.json.encode({"type": "FeatureCollection", "features": features})


# ---- requests ------------------------------------------------------------------------------------


class RequestSet:
    """Requests, the same for all servers, each about another area."""

    def __init__(self, count: int, hub: int, tipg: int, bare: int = 0) -> None:
        self.count = count
        self._hub = hub
        self._tipg = tipg
        self._bare = bare

    def box(self, number: int, features: int) -> Box:
        """Return a box with approximately a number of features."""
        rng = random.Random(number)
        part = features / self.count
        width, height = LON * part**0.5, LAT * part**0.5
        west, south = rng.uniform(-179, 179 - width), rng.uniform(-80, 80 - height)
        return west, south, west + width, south + height

    def by_id(self) -> dict[str, RequestSource]:
        def id(number: int) -> str:
            return f"road-{random.Random(number).randrange(self.count)}"

        return {
            "hub": self._of_hub(lambda number: f"/features/{id(number)}"),
            "tipg": self._of_tipg(lambda number: f"/items/{id(number)}?f=geojson"),
            "bare": RequestSource(self._bare, lambda number: get(self._bare, f"/{id(number)}")),
        }

    def boxes(self, features: int) -> dict[str, RequestSource]:
        def hub(number: int) -> str:
            west, south, east, north = self.box(number, features)
            box = {"west": west, "south": south, "east": east, "north": north}
            return f"/bbox?{urlencode({**box, 'limit': 100_000})}"

        def tipg(number: int) -> str:
            box = ",".join(map(str, self.box(number, features)))
            return f"/items?{urlencode({'bbox': box, 'limit': 100_000, 'f': 'geojson'})}"

        return {"hub": self._of_hub(hub), "tipg": self._of_tipg(tipg)}

    def tiles(self) -> dict[str, RequestSource]:
        def tile(number: int) -> tuple[int, int]:
            rng = random.Random(number)
            return rng.randrange(2, 14), rng.randrange(4, 12)

        def hub(number: int) -> str:
            x, y = tile(number)
            return f"/tile/web/{ZOOM}_{x}_{y}.mvt?limit=100000"

        def tipg(number: int) -> str:
            x, y = tile(number)
            return f"/tiles/WebMercatorQuad/{ZOOM}/{x}/{y}?limit=100000"

        return {"hub": self._of_hub(hub), "tipg": self._of_tipg(tipg)}

    def edits(self, writer: str, number: int) -> list[_data.Feature]:
        """Return 100 features with content that no other request has."""
        name = f"edit {number} of {writer}"
        return [
            {**road, "properties": {**road["properties"], "name": name}}
            for road in _batch(number % BATCHES)
        ]

    def writes(self, some: Callable[[int], list[_data.Feature]]) -> RequestSource:
        return RequestSource(self._hub, lambda number: _put(self._hub, _collection(some(number))))

    def _of_hub(self, path: Callable[[int], str]) -> RequestSource:
        def request(number: int) -> bytes:
            return get(self._hub, f"/hub/spaces/{SPACE}{path(number)}")

        return RequestSource(self._hub, request)

    def _of_tipg(self, path: Callable[[int], str]) -> RequestSource:
        def request(number: int) -> bytes:
            return get(self._tipg, f"/collections/public.plain{path(number)}")

        return RequestSource(self._tipg, request)


@functools.cache
def _batch(number: int) -> list[_data.Feature]:
    rng = random.Random(number)
    return [_data.road(number * 100 + each, rng) for each in range(100)]


# ---- measuring -----------------------------------------------------------------------------------


@dataclass
class RestResults:
    """Loads so far."""

    seconds: float
    rows: list[Sequence[Cell]] = field(default_factory=list)
    figures: dict[str, Figure] = field(default_factory=dict)

    async def compare(
        self, name: str, clients: Mapping[str, Client], workers: int = CONNECTIONS
    ) -> dict[str, float]:
        """Load servers in turns; return the rate of the first relative to each of the others."""
        loads = await load_alternately(list(clients.values()), self.seconds, workers)
        found = dict(zip(clients, loads, strict=True))
        for who, result in found.items():
            self.rows.append(_row(f"{name}, {who}", result))
            self.figures[f"{name}_{who}_rps"] = round(result.per_second, 1)
            self.figures[f"{name}_{who}_p99_ms"] = round(result.p99_ms, 2)
        hub = loads[0].per_second
        return {who: round(hub / result.per_second, 2) for who, result in found.items()}


async def _measure(options: Options, dsn: str, questions: RequestSet) -> Report:
    results = RestResults(0.5 if options.quick else 3.0)
    figures = results.figures
    reads = {
        "id": questions.by_id(),
        "bbox100": questions.boxes(100),
        "bbox5000": questions.boxes(5_000),
        "tile": questions.tiles(),
    }
    for name, targets in reads.items():
        await _check_same(name, targets)
        ratios = await results.compare(name, targets)
        figures[f"{name}_ratio"] = ratios["tipg"]
        if "bare" in ratios:
            figures["bare_ratio"] = ratios["bare"]
    await _writes(dsn, questions, results)
    figures["copy_ratio"] = await _copy_ratio(dsn, questions, results.rows)
    goals = (
        "Goals: id_ratio ≥ 5, bbox100_ratio ≥ 8, bbox5000_ratio ≥ 12, tile_ratio ≥ 1.2, "
        "bare_ratio ≥ 0.6, write100_ratio ≥ 0.75, write1_ratio ≥ 0.25, copy_ratio ≥ 0.5."
    )
    setting = (
        f"{CONNECTIONS} connections ({WRITERS} for single features), one worker each, "
        f"{questions.count:,} features."
    )
    columns = ["what", "per second", "p99 ms", "kB per answer"]
    return Report("REST", columns, results.rows, figures, [goals, setting])


async def _writes(dsn: str, questions: RequestSet, results: RestResults) -> None:
    storage = await PsqlStorage.open(dsn)
    try:
        clients: dict[str, Client] = {
            "hub": questions.writes(partial(questions.edits, "the hub")),
            "library": LibraryWriter(storage, SPACE, partial(questions.edits, "the library")),
        }
        ratios = await results.compare("write100", clients)
        results.figures["write100_ratio"] = ratios["library"]
    finally:
        await storage.close()
    clients = {"hub": questions.writes(lambda number: [new_road(number)]), "plain": Inserter(dsn)}
    ratios = await results.compare("write1", clients, WRITERS)
    results.figures["write1_ratio"] = ratios["plain"]


def _row(name: str, found: LoadResult) -> Sequence[Cell]:
    size = found.received / max(1, len(found.milliseconds)) / 1000
    return [name, found.per_second, found.p99_ms, size]


async def _check_same(name: str, targets: Mapping[str, RequestSource]) -> None:
    """Check that all servers return the same features, and the bare one the same bytes."""
    if name == "tile":
        return
    bodies = {who: await once(target.port, target.request(1)) for who, target in targets.items()}
    documents = {who: json.loads(body) for who, body in bodies.items()}
    ids = {
        who: sorted(f["id"] for f in each.get("features", [each]))
        for who, each in documents.items()
    }
    if ids["hub"] != ids["tipg"]:
        raise RuntimeError(f"{name}: {len(ids['hub'])} features of the hub, {len(ids['tipg'])}")
    if bodies.get("bare", bodies["hub"]) != bodies["hub"]:
        raise RuntimeError(f"{name}: {bodies['bare']!r} is not {bodies['hub']!r}")


async def _copy_ratio(dsn: str, questions: RequestSet, rows: list[Sequence[Cell]]) -> float:
    target = questions.boxes(5_000)["hub"]
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
