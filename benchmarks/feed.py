"""Latency and throughput of publication and delivery of commits.

The hub runs in this process, with its catalog and storage on the same kind of database, durable and
with default settings. It has one space, one subscription to it, and a handler that only records the
time. Every transaction creates one feature.

- On schedule: transactions begin at fixed times, whether or not previous ones are done. Latency is
  measured from the return of the commit to its writer. A commit is published when a client that
  waits for the next version is notified, and delivered when the handler is called. On PostgreSQL
  the same is measured for writers with plain SQL, which do not publish themselves.
- Catching up: an open transaction delays publication while others commit; then it ends, and all
  are published. A subscription that starts at the beginning then gets all of them.
- Sustained: writers without pauses between commits, until the last commit is delivered.
"""

from __future__ import annotations

import asyncio
import gc
import time
from bisect import bisect_left
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from statistics import quantiles
from typing import Any, NamedTuple

import asyncpg

from benchmarks import _data
from benchmarks._feed_hub import COLLECTION, Arrivals, FeedHub, opened
from benchmarks._frame import STORAGES, Options, Report
from naksha.model.features import check_features
from naksha.spi.storage import Storage

RATE = 200
"""Scheduled transactions per second."""
WRITERS = 8
INSERT = """INSERT INTO {} (geo, jsondata)
VALUES (ST_Force3D(ST_SetSRID(ST_GeomFromWKB($1), 4326)), $2::jsonb)"""


class Commit(NamedTuple):
    """Transaction, and the time at which its commit returned."""

    txn: int
    at: float


Write = Callable[[_data.Feature], Awaitable[Commit]]


@dataclass
class Notifications:
    """Versions that a waiting client was notified of, and the times."""

    versions: list[int] = field(default_factory=list)
    times: list[float] = field(default_factory=list)

    def time_of(self, version: int) -> float:
        """Return the time of the notification that covers a version."""
        return self.times[bisect_left(self.versions, version)]


@dataclass
class Latencies:
    """Milliseconds from commits to their publication and delivery."""

    published: list[float] = field(default_factory=list)
    delivered: list[float] = field(default_factory=list)


@dataclass
class Measurements:
    """Measurements on one kind of database."""

    scheduled: dict[str, Latencies] = field(default_factory=dict)
    publish_tps: float = 0.0
    deliver_tps: float = 0.0
    sustained_tps: float = 0.0


def run(options: Options) -> Report:
    """Measure both kinds of databases, one after the other."""
    return _report({kind: asyncio.run(_measure(kind, options)) for kind in STORAGES})


async def _measure(kind: str, options: Options) -> Measurements:
    found = Measurements()
    count, waiting = RATE * options.size(10, 1), options.size(10_000, 300)
    async with opened(kind) as hub:
        roads = _Roads()
        found.publish_tps = await _caught_up(hub, roads.some(waiting))
        everything = await hub.subscribe("all", "beginning")
        await everything.up_to(await hub.storage.wait_beyond(0, 0))
        found.deliver_tps = len(everything.times) / (everything.times[-1] - everything.begun)
        write = _by_library(hub.storage)
        found.scheduled["library"] = await _scheduled(hub, everything, write, roads.some(count))
        if kind == "postgresql":
            async with _by_sql(hub) as write:
                latencies = await _scheduled(hub, everything, write, roads.some(count))
                found.scheduled["plain SQL"] = latencies
        found.sustained_tps = await _sustained(hub, everything, roads.some(waiting // 2))
    return found


class _Roads:
    """Generator of new features."""

    def __init__(self) -> None:
        self._made = 0

    def some(self, count: int) -> list[_data.Feature]:
        """Generate a number of features with new ids."""
        self._made += 1
        return [
            {**road, "id": f"{self._made}-{road['id']}"}
            for road in _data.roads(count, seed=self._made)
        ]


# ---- Writers -------------------------------------------------------------------------------------


def _by_library(storage: Storage) -> Write:
    async def write(feature: _data.Feature) -> Commit:
        async with storage.write("bench") as session:
            await session.create(COLLECTION, [feature])
        at = time.perf_counter()
        assert session.txn is not None
        return Commit(session.txn, at)

    return write


@asynccontextmanager
async def _by_sql(hub: FeedHub) -> AsyncIterator[Write]:
    """Write with database connections, without the library."""
    pool: Any = await asyncpg.create_pool(
        hub.location,
        server_settings={"search_path": "naksha, public"},
        min_size=WRITERS,
        max_size=WRITERS,
    )

    async def write(feature: _data.Feature) -> Commit:
        async with pool.acquire() as connection:
            async with connection.transaction():
                await connection.execute("SELECT naksha_tx_start('bench')")
                await connection.execute(INSERT.format(COLLECTION), *_row(feature))
                txn: int = await connection.fetchval("SELECT naksha_txn()")
            return Commit(txn, time.perf_counter())

    async with pool:
        yield write


def _row(feature: _data.Feature) -> tuple[bytes | None, str]:
    prepared = check_features([feature])
    return prepared.wkb[0], prepared.json[0].decode()


async def _write_concurrently(write: Write, features: Sequence[_data.Feature]) -> None:
    """Run writers that take the next feature as soon as their commit is done."""
    left = iter(features)

    async def writer() -> None:
        for feature in left:
            await write(feature)

    await asyncio.gather(*(writer() for _ in range(WRITERS)))


# ---- Measurements --------------------------------------------------------------------------------


async def _scheduled(
    hub: FeedHub, arrivals: Arrivals, write: Write, features: Sequence[_data.Feature]
) -> Latencies:
    first = await hub.storage.wait_beyond(0, 0)
    await arrivals.up_to(first)
    heard = Notifications()
    listening = asyncio.create_task(_listen(hub.storage, first, first + len(features), heard))
    gc.collect()
    writing, begin = [], time.perf_counter() + 0.01
    for number, feature in enumerate(features):
        await asyncio.sleep(max(0.0, begin + number / RATE - time.perf_counter()))
        writing.append(asyncio.create_task(_written(write, feature)))
    commits = await asyncio.gather(*writing)
    await listening
    await arrivals.up_to(first + len(features))
    versions = await _versions(hub.storage, first)
    latencies, offset = Latencies(), arrivals.versions[0]
    for commit in commits:
        version = versions[commit.txn]
        published, delivered = heard.time_of(version), arrivals.times[version - offset]
        latencies.published.append(max(0.0, published - commit.at) * 1e3)
        latencies.delivered.append(max(0.0, delivered - commit.at) * 1e3)
    return latencies


async def _written(write: Write, feature: _data.Feature) -> Commit:
    return await write(feature)


async def _listen(storage: Storage, after: int, until: int, heard: Notifications) -> None:
    while after < until:
        last = await storage.wait_beyond(after, 30)
        assert last > after
        heard.versions.append(last)
        heard.times.append(time.perf_counter())
        after = last


async def _versions(storage: Storage, after: int) -> dict[int, int]:
    """Return the version of each transaction after a version."""
    found: dict[int, int] = {}
    while some := await storage.transactions(after):
        found |= {one.txn: one.seq_number for one in some if one.seq_number is not None}
        after += len(some)
    return found


async def _caught_up(hub: FeedHub, features: Sequence[_data.Feature]) -> float:
    """Measure the transactions published per second when all of them are waiting."""
    storage, write = hub.storage, _by_library(hub.storage)
    before, held, *others = features
    await write(before)  # the first write creates tables, which would block others
    first = await storage.wait_beyond(0, 0)
    async with storage.write("bench") as session:
        await session.create(COLLECTION, [held])
        await _write_concurrently(write, others)
        assert (await storage.publication()).last_seq_number == first
        gc.collect()
        begin = time.perf_counter()
    last = first
    while last <= first + len(others):
        last = await storage.wait_beyond(last, 30)
    return (last - first) / (time.perf_counter() - begin)


async def _sustained(hub: FeedHub, arrivals: Arrivals, features: Sequence[_data.Feature]) -> float:
    """Measure the transactions written, published and delivered per second."""
    first = await hub.storage.wait_beyond(0, 0)
    await arrivals.up_to(first)
    gc.collect()
    begin = time.perf_counter()
    await _write_concurrently(_by_library(hub.storage), features)
    await arrivals.up_to(first + len(features))
    return len(features) / (arrivals.times[-1] - begin)


# ---- Report --------------------------------------------------------------------------------------


def _percentiles(milliseconds: Sequence[float]) -> tuple[float, float]:
    cuts = quantiles(milliseconds, n=100)
    return cuts[49], cuts[98]


def _report(results: dict[str, Measurements]) -> Report:
    report = Report(
        f"From the commit to the subscription, {RATE} transactions/s on schedule",
        ["storage, writers", "published p50 ms", "p99 ms", "delivered p50 ms", "p99 ms"],
    )
    for kind, found in results.items():
        prefix = "" if kind == "postgresql" else f"{kind}_"
        for writers, latencies in found.scheduled.items():
            published, delivered = map(_percentiles, (latencies.published, latencies.delivered))
            report.rows.append([f"{kind}, {writers}", *published, *delivered])
            name = prefix if writers == "library" else f"{prefix}sql_"
            for what, (p50, p99) in (("publish", published), ("deliver", delivered)):
                report.figures[f"{name}{what}_p50_ms"] = round(p50, 2)
                report.figures[f"{name}{what}_p99_ms"] = round(p99, 2)
        report.figures[f"{prefix}publish_tps"] = round(found.publish_tps)
        report.figures[f"{prefix}deliver_tps"] = round(found.deliver_tps)
        report.figures[f"{prefix}sustained_tps"] = round(found.sustained_tps)
        report.notes.append(
            f"{kind}: {found.publish_tps:,.0f} published/s and {found.deliver_tps:,.0f} "
            f"delivered/s while catching up; {found.sustained_tps:,.0f} written, published and "
            f"delivered/s with {WRITERS} writers."
        )
    report.notes.append(
        f"Goals: publish_p99_ms ≤ 40 at {RATE} transactions/s, publish_tps ≥ 2,000, "
        "deliver_tps ≥ 1,000; the same with sqlite_ before them."
    )
    return report
