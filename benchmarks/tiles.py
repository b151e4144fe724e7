"""Vector tiles: the hub against tipg, ST_AsMVT alone, and a bare server that sends the same bytes.

Cold tiles were not requested before: `cold_tipg_ratio` and `cold_mvt_ratio` are the rate of the hub
relative to that of tipg over HTTP, and of `ST_AsMVT` on a plain table over database connections.
Warm tiles are requested again and again: `warm_bare_ratio` and `warm_tipg_ratio` are relative to a
bare ASGI application that has the tiles in memory, and to tipg. `unmodified_bare_ratio` compares
requests with `If-None-Match` that are answered by 304, on both sides. One worker each; writes to
the hub's storage would be seen by each of its responses.

`world_s` is the time of the first tile of the whole world, with a million features, and `world_kb`
its size.
"""

from __future__ import annotations

import asyncio
import os
import random
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import asyncpg
import msgspec
import numpy as np

from benchmarks._frame import Cell, Figure, Options, Report, postgres_database
from benchmarks._http import (
    ROUNDS,
    Client,
    RequestSource,
    SendRequest,
    connected,
    get,
    load_alternately,
    once,
    read_head,
    send,
)
from benchmarks._places import Places, Tile
from benchmarks._rest_baselines import served, tipg
from benchmarks._stores import staged_load, version_of
from naksha.model.collection import CollectionInfo
from naksha.psql import PsqlStorage
from naksha.testing.servers.hub_server import HubServer
from naksha.testing.storage.input_batches import given_batch

SPACE: Final = "places"
CONNECTIONS: Final = 4
CHUNK: Final = 50_000
PLACES_PER_HIT: Final = 10_000
"""A tile has at least one of so many features, 100 of a million, and at most ten times that."""
ZOOMS: Final = range(5, 13)
WARM: Final = 100
"""Number of tiles that are requested again and again."""
BUFFER: Final = 16
"""Margin of all tiles in units of the grid."""
_TILES_DIR: Final = "BARE_TILES"
_PLAIN: Final = """
CREATE TABLE public.plain AS
SELECT jsondata->>'id' AS id, ST_Force2D(geo)::geometry(Point, 4326) AS geom, p->>'name' AS name,
       (p->>'population')::int AS population, p->>'timezone' AS timezone, p->>'admin1' AS admin1,
       p->>'note' AS note
  FROM {schema}.places, LATERAL (SELECT jsondata->'properties' AS p) AS q;
ALTER TABLE public.plain ADD PRIMARY KEY (id);
CREATE INDEX ON public.plain USING gist (geom);"""
_MVT: Final = """
SELECT ST_AsMVT(t.*, 'default', 4096, 'geom') FROM (
    SELECT p.id, p.name, p.population, p.timezone, p.admin1, p.note,
           ST_AsMVTGeom(ST_Transform(p.geom, 3857), b.tile, 4096, {buffer}, true) AS geom
      FROM public.plain p, (SELECT ST_TileEnvelope($1, $2, $3) AS tile,
           ST_Transform(ST_TileEnvelope($1, $2, $3, margin => {margin}), 4326) AS box) AS b
     WHERE p.geom && b.box) AS t"""


def run(options: Options) -> Report:
    """Load the places into both tables, and compare the servers in turns."""
    places = Places.generate(options.size(1_000_000, 20_000))
    seconds = 0.3 if options.quick else 2.0
    with (
        tempfile.TemporaryDirectory() as folder,
        postgres_database(tcp=True) as dsn,
        HubServer(Path(folder), storage=dsn, forked=False) as hub,
    ):
        asyncio.run(fill(dsn, hub.port, places))
        world = asyncio.run(_world(hub.port))
        tiles = TileSet(places)
        asyncio.run(tiles.save(hub.port, Path(folder)))
        with tipg(dsn) as tipg_port, bare(Path(folder)) as bare_port:
            ports = Ports(hub.port, tipg_port, bare_port)
            return asyncio.run(_measure(tiles, dsn, ports, seconds, world))


async def fill(dsn: str, port: int, places: Places) -> None:
    """Load places into a space of the hub, and copy them to a plain table."""
    await once(port, get(port, "/hub/spaces"))
    storage = await PsqlStorage.open(dsn)
    try:
        starts = range(0, places.count, CHUNK)
        batches = (given_batch(places.features(n, min(n + CHUNK, places.count))) for n in starts)
        txn = await staged_load(storage, CollectionInfo(id=SPACE), batches)
        await version_of(storage, txn)
    finally:
        await storage.close()
    document = {"id": SPACE, "properties": {"collection": {"id": SPACE}}}
    await once(port, send(port, "POST", "/hub/spaces", msgspec.json.encode(document)))
    connection = await asyncpg.connect(dsn)
    try:
        schema = await connection.fetchval(
            "SELECT schemaname FROM pg_tables WHERE tablename = 'naksha_storage'"
        )
        await connection.execute(_PLAIN.format(schema=schema))
        await connection.execute("VACUUM ANALYZE")
    finally:
        await connection.close()


async def _world(port: int) -> dict[str, Figure]:
    start = time.perf_counter()
    body = await once(port, get(port, _path((0, 0, 0))))
    return {
        "world_s": round(time.perf_counter() - start, 3),
        "world_kb": round(len(body) / 1000, 1),
    }


def _path(tile: Tile) -> str:
    x, y, zoom = tile
    return f"/hub/spaces/{SPACE}/tile/web/{zoom}_{x}_{y}.mvt?margin=1"


# ---- requests ------------------------------------------------------------------------------------


class TileSet:
    """Tiles around places: some that are requested again and again, others once."""

    def __init__(self, places: Places) -> None:
        least = max(places.count // PLACES_PER_HIT, 2)
        distinct = list(_crowded(places, least, 10 * least))
        random.Random(1).shuffle(distinct)
        self.warm, self.cold = distinct[:WARM], distinct[WARM:]
        self.validators: list[str] = []

    async def save(self, port: int, folder: Path) -> None:
        """Write the warm tiles of the hub to files, for the bare server, and keep validators."""
        for number, tile in enumerate(self.warm):
            async with connected(port) as (reader, writer):
                writer.write(get(port, _path(tile)))
                head = await read_head(reader)
                body = await reader.readexactly(int(head.headers["content-length"]))
            self.validators.append(head.headers["etag"])
            (folder / f"{number}.mvt").write_bytes(body)

    def cold_tile(self, number: int) -> Tile:
        """Return a tile that no other number of the same server has."""
        turn, within = divmod(number, 1_000_000)
        share = len(self.cold) // (ROUNDS + 1)
        return self.cold[(turn * share + within) % len(self.cold)]

    def warm_tile(self, number: int) -> Tile:
        return self.warm[number % len(self.warm)]


def _crowded(places: Places, least: int, most: int) -> Iterator[Tile]:
    """Generate the tiles of all zooms that have a number of places inside."""
    x = (places.lon + 180) / 360
    y = (1 - np.arcsinh(np.tan(np.radians(places.lat))) / np.pi) / 2
    for zoom in ZOOMS:
        cells = np.column_stack([x, y]) * 2**zoom
        found, counts = np.unique(cells.astype(np.int64), axis=0, return_counts=True)
        for column, row in found[(counts >= least) & (counts <= most)].tolist():
            yield column, row, zoom


class Validated:
    """Requests with `If-None-Match`, which must be answered by 304."""

    def __init__(self, port: int, request: Callable[[int], bytes]) -> None:
        self._port = port
        self._request = request

    @asynccontextmanager
    async def worker(self) -> AsyncIterator[SendRequest]:
        async with connected(self._port) as (reader, writer):

            async def send_request(number: int) -> int:
                writer.write(self._request(number))
                head = await read_head(reader)
                if head.status != 304:
                    raise RuntimeError(f"expected 304, not {head.status}")
                return 0

            yield send_request


class PlainTiles:
    """Tiles of the plain table, by ST_AsMVT on database connections."""

    def __init__(self, dsn: str, tile: Callable[[int], Tile]) -> None:
        self._dsn = dsn
        self._tile = tile

    @asynccontextmanager
    async def worker(self) -> AsyncIterator[SendRequest]:
        connection = await asyncpg.connect(self._dsn)
        statement = await connection.prepare(_MVT.format(buffer=BUFFER, margin=BUFFER / 4096))

        async def send_request(number: int) -> int:
            x, y, zoom = self._tile(number)
            return len(await statement.fetchval(zoom, x, y))

        try:
            yield send_request
        finally:
            await connection.close()


# ---- the bare server -----------------------------------------------------------------------------


@contextmanager
def bare(folder: Path) -> Iterator[int]:
    """Run the bare server on the tiles of a folder; yield its port."""
    with served(f"{__name__}:bare_app", {_TILES_DIR: str(folder)}, "/0") as port:
        yield port


_bodies: dict[str, bytes] = {}
_ETAG: Final = b'"bare"'


async def bare_app(scope: Any, receive: Callable[[], Any], send: Callable[[Any], Any]) -> None:
    """Send a tile from memory, or 304 to a request that has its validator."""
    if scope["type"] == "lifespan":
        await receive()
        for file in Path(os.environ[_TILES_DIR]).glob("*.mvt"):  # noqa: ASYNC240
            _bodies[f"/{file.stem}"] = file.read_bytes()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await send({"type": "lifespan.shutdown.complete"})
        return
    body = _bodies[scope["path"]]
    headers = [(b"etag", _ETAG), (b"cache-control", b"no-cache")]
    if (b"if-none-match", _ETAG) in scope["headers"]:
        await send({"type": "http.response.start", "status": 304, "headers": headers})
        await send({"type": "http.response.body", "body": b""})
        return
    headers += [
        (b"content-type", b"application/vnd.mapbox-vector-tile"),
        (b"content-length", b"%d" % len(body)),
    ]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


# ---- measuring -----------------------------------------------------------------------------------


@dataclass
class Ports:
    """Ports of the compared servers."""

    hub: int
    tipg: int
    bare: int


def _clients(tiles: TileSet, dsn: str, ports: Ports) -> dict[str, dict[str, Client]]:
    """Return the clients to compare for cold, warm and unmodified tiles, the hub's first."""
    hub, tipg_port, bare_port, count = ports.hub, ports.tipg, ports.bare, len(tiles.warm)

    def at_hub(tile: Tile) -> bytes:
        return get(hub, _path(tile))

    def at_tipg(tile: Tile) -> bytes:
        x, y, zoom = tile
        path = f"/tiles/WebMercatorQuad/{zoom}/{x}/{y}?limit=100000&buffer={BUFFER}"
        return get(tipg_port, f"/collections/public.plain{path}")

    def at_bare(number: int) -> bytes:
        return get(bare_port, f"/{number % count}")

    def validated(request: bytes, etag: str) -> bytes:
        return request[:-2] + f"If-None-Match: {etag}\r\n\r\n".encode()

    def known(number: int) -> bytes:
        return validated(at_hub(tiles.warm_tile(number)), tiles.validators[number % count])

    return {
        "cold": {
            "hub": RequestSource(hub, lambda n: at_hub(tiles.cold_tile(n))),
            "tipg": RequestSource(tipg_port, lambda n: at_tipg(tiles.cold_tile(n))),
            "mvt": PlainTiles(dsn, tiles.cold_tile),
        },
        "warm": {
            "hub": RequestSource(hub, lambda n: at_hub(tiles.warm_tile(n))),
            "tipg": RequestSource(tipg_port, lambda n: at_tipg(tiles.warm_tile(n))),
            "bare": RequestSource(bare_port, at_bare),
        },
        "unmodified": {
            "hub": Validated(hub, known),
            "bare": Validated(bare_port, lambda n: validated(at_bare(n), _ETAG.decode())),
        },
    }


async def _measure(
    tiles: TileSet, dsn: str, ports: Ports, seconds: float, world: Mapping[str, Figure]
) -> Report:
    rows: list[Sequence[Cell]] = []
    figures: dict[str, Figure] = dict(world)
    ratios: dict[str, Figure] = {}
    for name, clients in _clients(tiles, dsn, ports).items():
        loads = await load_alternately(list(clients.values()), seconds, CONNECTIONS)
        for who, result in zip(clients, loads, strict=True):
            size = result.received / max(1, len(result.milliseconds)) / 1000
            rows.append([f"{name}, {who}", result.per_second, result.p99_ms, size])
            figures[f"{name}_{who}_rps"] = round(result.per_second, 1)
            ratios[f"{name}_{who}_ratio"] = round(loads[0].per_second / result.per_second, 2)
    figures |= {name: ratio for name, ratio in ratios.items() if "_hub_" not in name}
    goals = (
        "Goals: cold_tipg_ratio ≥ 1.5, cold_mvt_ratio ≥ 0.8, warm_bare_ratio ≥ 0.6, "
        "warm_tipg_ratio ≥ 20, unmodified_bare_ratio ≥ 0.8, world_s < 2, world_kb < 500."
    )
    columns = ["what", "per second", "p99 ms", "kB per tile"]
    return Report("Vector tiles", columns, rows, figures, [goals])
