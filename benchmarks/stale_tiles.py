"""Cached tiles while features change: none is stale, few are rendered again for nothing.

16 clients request tiles of a million places with the validators that they have, while features are
moved and deleted over REST, by plain SQL and on a branch. The client knows which tiles an edit
touches, and that each edit gives them other bytes. A response is `stale` if it has, or confirms by
304, bytes that were sent before the begin of an edit that was acknowledged before the request. It
is `needless` if the tile is sent again though no edit has touched it since; `needless_percent` is
relative to all responses that should have been 304. `different` counts tiles that are not the same
in the end as those of a new hub without a cache.
"""

from __future__ import annotations

import asyncio
import hashlib
import math
import random
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, Final

import asyncpg
import mapbox_vector_tile
import msgspec

from benchmarks._frame import Cell, Figure, Options, Report, postgres_database
from benchmarks._http import connected, get, once, read_head, send
from benchmarks._places import Places, Tile
from benchmarks.tiles import fill
from naksha.model.geo.tiles import VectorTile
from naksha.testing.servers.hub_server import HubServer

SPACE: Final = "places"
BRANCH: Final = "survey"
CLIENTS: Final = 16
HITS: Final = (2, 5_000)
MARGIN_PIXELS: Final = 4
BUFFER: Final = MARGIN_PIXELS * 16
MOVE_DEGREES: Final = 0.01
_SQL_MOVE: Final = """
UPDATE {schema}.places SET geo = ST_Force3D(ST_SetSRID(ST_MakePoint($2, $3), 4326)),
       jsondata = jsonb_set(jsondata, '{{properties,note}}', to_jsonb($4::text))
 WHERE jsondata->>'id' = $1"""
_SQL_DELETE: Final = "DELETE FROM {schema}.places WHERE jsondata->>'id' = $1"


def run(options: Options) -> Report:
    """Edit and request at the same time, then compare with a hub without a cache."""
    places = Places.generate(options.size(1_000_000, 20_000))
    edits, requests = options.size(2_000, 100), options.size(50_000, 2_000)
    with (
        tempfile.TemporaryDirectory() as folder,
        tempfile.TemporaryDirectory() as other,
        postgres_database(tcp=True) as dsn,
    ):
        with HubServer(Path(folder), storage=dsn, forked=False) as hub:
            asyncio.run(fill(dsn, hub.port, places))
            experiment = Experiment(hub.port, dsn, places)
            asyncio.run(experiment.run(edits, requests))
            contents = asyncio.run(experiment.contents(hub.port))
        arguments = ["--tile-memory-bytes", "0", "--tile-disk-bytes", "0"]
        catalog = f"file:{folder}/hub.catalog"
        with HubServer(
            Path(other), storage=dsn, catalog=catalog, arguments=arguments, forked=False
        ) as fresh:
            expected = asyncio.run(experiment.contents(fresh.port))
    return experiment.report(
        sum(a != b for a, b in zip(contents, expected, strict=True)), places.count
    )


@dataclass
class WatchedTile:
    """A tile, and what a client knows about its content."""

    path: str
    box: tuple[float, float, float, float]
    is_branch: bool
    observed: list[tuple[bytes, float]] = field(default_factory=list)
    """Contents, and when their responses ended."""
    outdated: dict[bytes, float] = field(default_factory=dict)
    """Contents before an edit, and when that edit was acknowledged."""
    touched: list[tuple[float, float]] = field(default_factory=list)
    """Begin and acknowledgement of each edit that touched it."""

    def has(self, lon: float, lat: float) -> bool:
        west, south, east, north = self.box
        return west <= lon <= east and south <= lat <= north

    def edit(self, begin: float, end: float) -> None:
        """Note an acknowledged edit; contents that were sent before its begin are outdated."""
        for content, ended in self.observed:
            if ended < begin:
                self.outdated.setdefault(content, end)
        self.observed = [one for one in self.observed if one[1] >= begin]

    def is_untouched(self, since: float) -> bool:
        return all(end < since for _, end in self.touched)


class Experiment:
    """Clients, an editor, and what was counted."""

    def __init__(self, port: int, dsn: str, places: Places) -> None:
        self._port = port
        self._dsn = dsn
        self._places = places
        self._rng = random.Random(1)
        self._edited = self._rng.sample(range(places.count), min(places.count // 4, 5_000))
        self._tiles = self._watched(places)
        self._due = asyncio.Semaphore(0)
        self._sent = 0
        self._done = 0
        self.counts = {"stale": 0, "needless": 0, "unmodified": 0, "sent": 0, "unchanged": 0}
        self.seconds = 0.0

    def _watched(self, places: Places) -> list[WatchedTile]:
        """Return tiles of several zooms around places that are edited, on main and a branch."""
        found: dict[Tile, None] = {}
        for number in self._edited[:400]:
            lon, lat = float(places.lon[number]), float(places.lat[number])
            zoom = self._rng.randint(9, 15)
            x = int((lon + 180) / 360 * 2**zoom)
            y = int((1 - math.asinh(math.tan(math.radians(lat))) / math.pi) / 2 * 2**zoom)
            found |= {(x, y, zoom): None, (min(x + 1, 2**zoom - 1), y, zoom): None}
        found |= dict.fromkeys(islice(places.tiles(*HITS, 1), 200))
        watched = []
        for x, y, zoom in found:
            box = VectorTile.web(zoom, x, y, buffer=BUFFER).box()
            edges = box.west, box.south, box.east, box.north
            path = f"/hub/spaces/{SPACE}/tile/web/{zoom}_{x}_{y}.mvt?margin={MARGIN_PIXELS}"
            watched.append(WatchedTile(path, edges, is_branch=False))
            if len(watched) % 4 == 0:
                watched.append(WatchedTile(f"{path}&versionRef={BRANCH}", edges, is_branch=True))
        return watched

    async def run(self, edits: int, requests: int) -> None:
        await once(
            self._port,
            send(
                self._port,
                "POST",
                f"/hub/spaces/{SPACE}/branches",
                msgspec.json.encode({"id": BRANCH}),
            ),
        )
        start = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            for _ in range(CLIENTS):
                group.create_task(self._client(requests, requests // edits))
            group.create_task(self._editor(edits))
        self.seconds = time.perf_counter() - start

    async def contents(self, port: int) -> list[set[str]]:
        """Return the features of tiles, in no order."""
        bodies = [await once(port, get(port, tile.path)) for tile in self._tiles[::3]]
        return [_features(body) for body in bodies]

    # ---- requests --------------------------------------------------------------------------------

    async def _client(self, requests: int, per_edit: int) -> None:
        rng = random.Random(self._rng.random())
        known: dict[int, tuple[str, bytes, float]] = {}
        async with connected(self._port) as (reader, writer):
            while self._sent < requests:
                self._sent += 1
                if self._sent % per_edit == 0:
                    self._due.release()
                number = rng.randrange(len(self._tiles))
                await self._request(reader, writer, number, known)

    async def _request(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        number: int,
        known: dict[int, tuple[str, bytes, float]],
    ) -> None:
        tile = self._tiles[number]
        etag, content, since = known.get(number, ("", b"", 0.0))
        request = get(self._port, tile.path)
        if etag:
            request = request[:-2] + f"If-None-Match: {etag}\r\n\r\n".encode()
        start = time.perf_counter()
        writer.write(request)
        head = await read_head(reader)
        if head.status == 200:
            body = await reader.readexactly(int(head.headers["content-length"]))
            content = hashlib.sha256(body).digest()
        elif head.status != 304:
            raise RuntimeError(f"{tile.path}: status {head.status}")
        end = time.perf_counter()
        self._count(tile, head.status, etag, content, since, start)
        tile.observed.append((content, end))
        if tag := head.headers.get("etag"):
            known[number] = tag, content, start
        else:
            known.pop(number, None)

    def _count(
        self, tile: WatchedTile, status: int, etag: str, content: bytes, since: float, start: float
    ) -> None:
        counts = self.counts
        counts["stale"] += tile.outdated.get(content, math.inf) <= start
        counts["unmodified" if status == 304 else "sent"] += 1
        if etag and tile.is_untouched(since):
            counts["unchanged"] += 1
            counts["needless"] += status == 200

    # ---- edits -----------------------------------------------------------------------------------

    async def _editor(self, edits: int) -> None:
        connection = await asyncpg.connect(self._dsn)
        schema = await connection.fetchval(
            "SELECT schemaname FROM pg_tables WHERE tablename = 'naksha_storage'"
        )
        await connection.execute(f'SET search_path TO "{schema}", public')
        try:
            for number in range(edits):
                await self._due.acquire()
                await self._edit(connection, schema, number)
        finally:
            await connection.close()

    async def _edit(self, connection: asyncpg.Connection[Any], schema: str, number: int) -> None:
        place = self._edited[number % len(self._edited)]
        lon, lat = float(self._places.lon[place]), float(self._places.lat[place])
        moved = [
            round(lon + self._rng.uniform(-MOVE_DEGREES, MOVE_DEGREES), 7),
            round(lat + self._rng.uniform(-MOVE_DEGREES, MOVE_DEGREES), 7),
        ]
        kind = ("rest", "sql", "branch", "delete", "sql-delete")[number % 5]
        touched = [
            tile
            for tile in self._tiles
            if tile.is_branch == (kind == "branch")
            and (tile.has(lon, lat) or ("delete" not in kind and tile.has(*moved)))
        ]
        begin = time.perf_counter()
        marks = [(begin, math.inf)] * len(touched)
        for tile, mark in zip(touched, marks, strict=True):
            tile.touched.append(mark)
        if kind.startswith("sql"):
            async with connection.transaction():
                await connection.execute("SELECT naksha_tx_start('bench')")
                if kind == "sql":
                    await connection.execute(
                        _SQL_MOVE.format(schema=schema), f"place-{place}", *moved, f"edit {number}"
                    )
                else:
                    await connection.execute(_SQL_DELETE.format(schema=schema), f"place-{place}")
        else:
            await self._rest(kind, place, moved, number)
        end = time.perf_counter()
        if kind in {"rest", "sql"}:
            self._places.lon[place], self._places.lat[place] = moved
        for tile in touched:
            tile.touched[-1] = begin, end
            tile.edit(begin, end)
        self._done += 1

    async def _rest(self, kind: str, place: int, moved: list[float], number: int) -> None:
        path = f"/hub/spaces/{SPACE}/features"
        if kind == "delete":
            request = get(self._port, f"{path}?id=place-{place}")
            await once(self._port, request.replace(b"GET", b"DELETE", 1))
            return
        feature = self._places.feature(place, f"edit {number}")
        feature["geometry"] = {"type": "Point", "coordinates": moved}
        ref = f"?versionRef={BRANCH}" if kind == "branch" else ""
        body = msgspec.json.encode({"type": "FeatureCollection", "features": [feature]})
        await once(self._port, send(self._port, "PUT", f"{path}{ref}", body))

    # ---- report ----------------------------------------------------------------------------------

    def report(self, different: int, features: int) -> Report:
        counts = self.counts
        percent = 100 * counts["needless"] / max(1, counts["unchanged"])
        figures: dict[str, Figure] = {
            **counts,
            "needless_percent": round(percent, 2),
            "different": different,
            "edits": self._done,
            "requests_per_s": round(self._sent / self.seconds, 1),
        }
        rows: list[Sequence[Cell]] = [[name, str(value)] for name, value in figures.items()]
        notes = [
            f"{features:,} features, {len(self._tiles)} tiles, {CLIENTS} clients.",
            "Goals: stale = 0, different = 0, needless_percent ≤ 2.",
        ]
        return Report("Tiles while features change", ["what", "value"], rows, figures, notes)


def _features(body: bytes) -> set[str]:
    layers = mapbox_vector_tile.decode(body) if body else {}
    return {repr(feature) for layer in layers.values() for feature in layer["features"]}
