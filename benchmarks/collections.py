"""Collections: the size of an empty one, and the speed of one among a thousand others.

Collections of 100 features are created in one storage; `create_growth`, `write_growth`,
`read_growth` and `open_growth` compare the last of them with the first ten. `read_growth` is the
worse of two cases: beside small collections, and beside one of a million features. `hub_mb` is the
resident memory of a hub after one write and one read in as many spaces.
"""

from __future__ import annotations

import asyncio
import random
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import median
from typing import Final

import msgspec
from rich.progress import track

from benchmarks import _collections_psql as postgresql
from benchmarks import _data
from benchmarks._frame import Cell, Figure, Options, Report, postgres_database
from benchmarks._http import get, once, send
from benchmarks._memory import resident_mb
from benchmarks._stores import load, version_of
from naksha.model.collection import CollectionInfo
from naksha.model.query import Bbox, Query
from naksha.psql import PsqlStorage
from naksha.spi.storage import Storage
from naksha.sqlite import SqliteStorage
from naksha.testing.servers.hub_server import HubServer

TAKES = ("storage",)
FEATURES: Final = 100
FIRST: Final = 10
SAMPLES: Final = 20
"""Number of collections to write and read; each is read once before it is measured."""
OPENINGS: Final = 5
WORLD: Final = Query(spatial=Bbox(-180, -90, 180, 90))
GOALS: Final = "Goals: every growth ≤ 1.5, hub_mb ≤ 300"


def run(options: Options) -> Report:
    """Fill one storage, then one hub."""
    count = options.size(1_000, 60)
    figures: dict[str, Figure] = {}
    rows: list[Sequence[Cell]] = []
    notes = [f"{GOALS}."]
    with tempfile.TemporaryDirectory() as folder:
        if options.storage == "sqlite":
            location = f"{folder}/bench.naksha"
            asyncio.run(_measure(options, count, location, figures, rows))
            _hub(Path(folder), None, count, figures, rows)
        else:
            notes = [f"{GOALS}; {postgresql.GOALS}."]
            with postgres_database(tcp=True) as dsn:
                asyncio.run(_measure(options, count, dsn, figures, rows))
                asyncio.run(postgresql.measure(dsn, options, figures, rows))
                figures["dump_ok"] = postgresql.dump_and_restore(dsn, Path(folder))
            with postgres_database(tcp=True) as dsn:
                _hub(Path(folder), dsn, count, figures, rows)
    return Report("Collections", ["what", "value"], rows, figures, notes)


# ---- one storage ---------------------------------------------------------------------------------


async def _measure(
    options: Options,
    count: int,
    location: str,
    figures: dict[str, Figure],
    rows: list[Sequence[Cell]],
) -> None:
    features = _data.roads(FEATURES)
    async with _opened(options.storage, location) as storage:
        create = [await _create(storage, n, features) for n in range(FIRST)]
        early = await _timings(storage, options.storage, location, FIRST)
        progress = track(range(FIRST, count), f"{count:,} collections of {FEATURES} features")
        create += [await _create(storage, n, features) for n in progress]
        late = await _timings(storage, options.storage, location, count)
        await load(storage, "large", _data.roads(options.size(1_000_000, 20_000)))
        beside = await _timings(storage, options.storage, location, count)
    early["create"], late["create"] = median(create[:FIRST]), median(create[-FIRST:])
    for name in ("create", "write", "read", "open"):
        worst = max(late[name], beside[name]) if name == "read" else late[name]
        figures[f"{name}_growth"] = round(worst / early[name], 2)
        figures[f"{name}_ms"] = round(worst * 1000, 2)
        rows.append([f"{name} at {FIRST} collections, ms", early[name] * 1000])
        rows.append([f"{name} at {count:,} collections, ms", late[name] * 1000])
    rows.append(["read beside a large collection, ms", beside["read"] * 1000])


@asynccontextmanager
async def _opened(kind: str, location: str) -> AsyncIterator[Storage]:
    storage: Storage
    if kind == "sqlite":
        storage = await SqliteStorage.open(Path(location), "bench")
    else:
        storage = await PsqlStorage.open(location, "bench")
    try:
        yield storage
    finally:
        await storage.close()


async def _create(storage: Storage, number: int, features: list[_data.Feature]) -> float:
    """Return the seconds to create a collection and write its features."""
    start = time.perf_counter()
    await storage.run(lambda s: s.create_collection(CollectionInfo(id=_name(number))), "bench")
    await storage.run(lambda s: s.create(_name(number), features), "bench")
    return time.perf_counter() - start


def _name(number: int) -> str:
    return f"roads{number}"


async def _timings(storage: Storage, kind: str, location: str, count: int) -> dict[str, float]:
    names = [_name(n) for n in random.Random(count).sample(range(count), min(SAMPLES, count))]

    async def write(name: str) -> None:
        edit = _data.edited(_data.roads(1), seed=time.perf_counter_ns())
        async with storage.write("bench") as session:
            await session.update(name, edit)
        await version_of(storage, session.txn)

    async def read(name: str) -> None:
        await storage.page(name, Query(ids=("road-7",)))
        assert await storage.count(name, WORLD) == FEATURES

    async def open_() -> None:
        async with _opened(kind, location) as other:
            await other.page(names[0], Query(ids=("road-7",)))

    for name in names:
        await write(name)
        await read(name)
    return {
        "write": median([await _seconds(write(name)) for name in names]),
        "read": median([await _seconds(read(name)) for name in names]),
        "open": median([await _seconds(open_()) for _ in range(OPENINGS)]),
    }


async def _seconds(work: Awaitable[None]) -> float:
    start = time.perf_counter()
    await work
    return time.perf_counter() - start


# ---- a hub ---------------------------------------------------------------------------------------


def _hub(
    folder: Path,
    storage: str | None,
    count: int,
    figures: dict[str, Figure],
    rows: list[Sequence[Cell]],
) -> None:
    with HubServer(folder, storage=storage, forked=False) as hub:
        before = resident_mb(hub.process.pid)
        asyncio.run(_touch(hub.port, count))
        after = resident_mb(hub.process.pid)
    figures["hub_mb"] = round(after)
    rows += [
        ["hub without spaces, MB", before],
        [f"hub with {count:,} spaces, MB", after],
    ]


async def _touch(port: int, count: int) -> None:
    body = msgspec.json.encode({"type": "FeatureCollection", "features": _data.roads(10)})
    for number in track(range(count), f"{count:,} spaces"):
        id = _name(number)
        space = msgspec.json.encode({"id": id, "title": id})
        await once(port, send(port, "POST", "/hub/spaces", space))
        await once(port, send(port, "PUT", f"/hub/spaces/{id}/features", body))
        await once(port, get(port, f"/hub/spaces/{id}/features/road-7"))
