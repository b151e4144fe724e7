"""Spaces: the speed of a hub with thousands of them, compared with a hub that has few.

Two hubs run as separate processes, each on its own storage; requests alternate between them.
`hub_…_growth` is the median of the hub with many spaces divided by that of the other. A start lasts
until the hub has read a feature. The list of spaces is not paginated, so `hub_list_growth` compares
the time per space with that of a hub with 100 spaces.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import Final

import msgspec
from rich.progress import track

from benchmarks import _data
from benchmarks._frame import Cell, Figure, Options, Report, postgres_database
from benchmarks._http import connected, get, read_response, send
from naksha.testing.servers.hub_server import HubServer

TAKES = ("storage",)
SPACES: Final = "/hub/spaces"
FEATURES: Final = 100
SAMPLES: Final = 20
"""Spaces that are created, written to, read, changed and deleted in each hub."""
WARM_UPS: Final = 2
"""Samples at the beginning of each step that do not count."""
STARTS: Final = 5
LISTS: Final = 7
LISTED: Final = 100
"""Spaces of the smaller hub while the lists are measured."""
CONNECTIONS: Final = 4
GROWTH_MAX: Final = 1.5
STEPS: Final = ("start", "list", "create", "write", "read", "change", "delete")
Seconds = dict[str, list[float]]


class MeasuredHub:
    """Hub and the durations of requests to it."""

    def __init__(self, server: HubServer) -> None:
        self.server = server
        self.seconds: Seconds = {step: [] for step in STEPS}

    async def request(self, method: str, path: str, body: object = None) -> bytes:
        """Send one request on its own connection."""
        port = self.server.port
        async with connected(port) as (reader, writer):
            if body is None and method == "GET":
                writer.write(get(port, path))
            else:
                content = b"" if body is None else msgspec.json.encode(body)
                writer.write(send(port, method, path, content))
            return await read_response(reader)

    async def timed(self, step: str, method: str, path: str, body: object = None) -> bytes:
        """Send a request and record its duration."""
        start = time.perf_counter()
        found = await self.request(method, path, body)
        self.seconds[step].append(time.perf_counter() - start)
        return found

    async def fill(self, prefix: str, count: int) -> None:
        """Create spaces, several at a time."""
        numbers = iter(track(range(count), f"{count:,} spaces"))

        async def create() -> None:
            for number in numbers:
                id = f"{prefix}{number}"
                await self.request("POST", SPACES, {"id": id, "title": id})

        await asyncio.gather(*(create() for _ in range(CONNECTIONS)))


def run(options: Options) -> Report:
    """Compare a hub with many spaces with one with few."""
    count = options.size(2_000, 40)
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        few, many = (
            stack.enter_context(_hub(Path(folder) / name, options.storage))
            for name in ("few", "many")
        )
        asyncio.run(_measure(few, many, count))
    return _report(few.seconds, many.seconds, count)


@contextmanager
def _hub(folder: Path, storage: str) -> Iterator[MeasuredHub]:
    folder.mkdir()
    with ExitStack() as stack:
        dsn = None
        if storage == "postgresql":
            dsn = stack.enter_context(postgres_database(tcp=True))
        server = HubServer(folder, storage=dsn, catalog=dsn, forked=False)
        yield MeasuredHub(stack.enter_context(server))


async def _measure(few: MeasuredHub, many: MeasuredHub, count: int) -> None:
    await many.fill("filled", count - SAMPLES)
    features = {"type": "FeatureCollection", "features": _data.roads(FEATURES)}
    hubs = [few, many]

    async def alternate(work: Callable[[MeasuredHub, str], Awaitable[object]], times: int) -> None:
        for number in range(times):
            for hub in hubs:
                await work(hub, f"space{number}")
            hubs.reverse()

    def create(hub: MeasuredHub, id: str) -> Awaitable[object]:
        return hub.timed("create", "POST", SPACES, {"id": id, "title": id})

    await alternate(create, SAMPLES)
    await alternate(
        lambda hub, id: hub.timed("write", "PUT", f"{SPACES}/{id}/features", features), SAMPLES
    )
    await alternate(lambda hub, id: hub.request("GET", f"{SPACES}/{id}/search"), SAMPLES)
    await alternate(lambda hub, id: hub.timed("read", "GET", f"{SPACES}/{id}/search"), SAMPLES)
    changed = {"title": "changed"}
    await alternate(
        lambda hub, id: hub.timed("change", "PATCH", f"{SPACES}/{id}", changed), SAMPLES
    )
    await alternate(lambda hub, _: _start(hub), STARTS + WARM_UPS)
    await alternate(lambda hub, id: hub.timed("delete", "DELETE", f"{SPACES}/{id}"), SAMPLES)
    await few.fill("filled", LISTED)
    await alternate(lambda hub, _: _list(hub), LISTS + WARM_UPS)


async def _list(hub: MeasuredHub) -> None:
    """List all spaces; the time counts per space."""
    found = await hub.timed("list", "GET", f"{SPACES}?owner=*")
    hub.seconds["list"][-1] /= len(msgspec.json.decode(found))


async def _start(hub: MeasuredHub) -> None:
    """Stop a hub and start it again."""
    await asyncio.to_thread(hub.server.stop)
    start = time.perf_counter()
    await asyncio.to_thread(hub.server.start)
    await hub.request("GET", f"{SPACES}/space0/features/road-7")
    hub.seconds["start"].append(time.perf_counter() - start)


def _report(few: Seconds, many: Seconds, count: int) -> Report:
    figures: dict[str, Figure] = {"spaces": count}
    rows: list[Sequence[Cell]] = []
    for step in STEPS:
        small, large = (median(hub[step][WARM_UPS:]) for hub in (few, many))
        figures[f"hub_{step}_growth"] = round(large / small, 2)
        figures[f"hub_{step}_ms"] = round(large * 1000, 3)
        rows.append([step, small * 1000, large * 1000, large / small])
    columns = ["milliseconds", "few spaces", f"{count:,} spaces", "growth"]
    return Report("Spaces", columns, rows, figures, [f"Goals: every growth ≤ {GROWTH_MAX}."])
