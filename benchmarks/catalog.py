"""Commits to the catalog against a bare compare-and-swap loop on the same database.

Every commit puts one entity of about 400 bytes, beside 1,000 others, and is durable when it
returns. Writers are tasks of one process. The bare loop is one client that swaps one row through
the database's own driver, as fast as it is acknowledged durably; it runs before and after each
measurement.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from statistics import median, quantiles

import msgspec

from benchmarks._catalog_databases import RunningDatabase, database
from benchmarks._frame import Options, Report
from naksha.catalog.catalog import Catalog
from naksha.catalog.entities import Entities, EntityEdit
from naksha.catalog.index import IndexContainer, SortedIndex, Stripe
from naksha.catalog.objects import ObjectRef, object_type
from naksha.catalog.persistence import Persistence
from naksha.catalog.realms import RealmStatus
from naksha.model.errors import NakshaError

TAKES = ("backend",)
ENTITIES = 1_000
INDEX_KEYS = 500_000
TEXT = "x" * 360


@object_type("bench-entity")
class BenchEntity(msgspec.Struct, frozen=True):
    """Entity to commit."""

    number: int
    text: str


@dataclass
class WriterResult:
    """Result of the writers of one measurement."""

    seconds: float
    latencies: list[list[float]] = field(default_factory=list)
    """Latencies of each writer."""
    failures: int = 0

    @property
    def commits(self) -> int:
        return sum(len(each) for each in self.latencies)

    @property
    def per_second(self) -> float:
        return self.commits / self.seconds

    @property
    def fairness(self) -> float:
        counts = [len(each) for each in self.latencies]
        return min(counts) / max(counts)

    def percentile_ms(self, percent: int) -> float:
        every = [latency for each in self.latencies for latency in each]
        return quantiles(every, n=100)[percent - 1] * 1e3


def run(options: Options) -> Report:
    """Measure one backend; the goals are for PostgreSQL and SQLite."""
    with database(options.backend) as opened:
        return asyncio.run(_measure(opened, options))


async def _measure(opened: RunningDatabase, options: Options) -> Report:
    seconds = 0.5 if options.quick else 4.0
    report = Report(
        f"Commits on {opened.name}",
        ["case", "commits/s", "p50 ms", "p99 ms", "slowest/fastest", "failed", "bare CAS/s"],
    )
    catalog = await Catalog.open(await opened.open())
    realm = await catalog.realms.create("bench")
    realm = await catalog.realms.update(realm, RealmStatus.INITIALIZING)
    await catalog.realms.update(realm, RealmStatus.ACTIVE)
    persistence = (await catalog.realm("bench")).persistence
    for shared, writers in ((True, 1), (True, 8), (True, 32), (False, 8), (False, 32)):
        before = await opened.bare(seconds / 4)
        found = await _commits(persistence, writers, shared, seconds)
        bare = median([before, await opened.bare(seconds / 4)])
        _add(report, found, writers, shared, bare)
    size = options.size(INDEX_KEYS, 20_000)
    report.figures["index_keys"] = size
    report.figures["stripe_fetches"] = await _stripe_fetches(persistence, size)
    await catalog.close()
    report.notes.append(
        "Goals on PostgreSQL and SQLite with 8 writers on one pointer: ≥ 2,000 commits/s, no "
        "failures, fairness ≥ 0.8, cas_ratio ≥ 0.7; stripe_fetches ≤ 1 for any key."
    )
    return report


def _add(report: Report, found: WriterResult, writers: int, shared: bool, bare: float) -> None:
    case = f"{writers} on one pointer" if shared else f"{writers} on pointers of their own"
    p50, p99 = found.percentile_ms(50), found.percentile_ms(99)
    fairness = found.fairness
    report.rows.append([case, found.per_second, p50, p99, fairness, found.failures, bare])
    prefix = f"{'one' if shared else 'own'}_{writers}_"
    report.figures |= {
        f"{prefix}commits_per_s": round(found.per_second),
        f"{prefix}p50_ms": round(p50, 2),
        f"{prefix}p99_ms": round(p99, 2),
        f"{prefix}fairness": round(fairness, 3),
        f"{prefix}failures": found.failures,
        f"{prefix}bare_per_s": round(bare),
    }
    if shared and writers == 8:
        report.figures |= {
            "commits_per_s": round(found.per_second),
            "timeouts": found.failures,
            "fairness": round(fairness, 3),
            "cas_ratio": round(found.per_second / bare, 3),
        }


async def _commits(
    persistence: Persistence, writers: int, shared: bool, seconds: float
) -> WriterResult:
    names = [f"{'shared' if shared else 'own'}-{writers}-{n}" for n in range(writers)]
    if shared:
        names = names[:1]
    await persistence.ensure_pointers(names)
    everything = [Entities(persistence, name) for name in names]
    for entities in everything:
        await entities.commit(_filled)
    for writer in range(writers):  # warm up
        await everything[writer % len(everything)].commit(_put(writer))
    found = WriterResult(0.0)
    begin = time.perf_counter()
    end = begin + seconds
    found.latencies = await asyncio.gather(
        *(_writer(everything[n % len(everything)], n, end, found) for n in range(writers))
    )
    found.seconds = time.perf_counter() - begin
    return found


async def _filled(edit: EntityEdit) -> None:
    for number in range(ENTITIES):
        edit.put(f"space/{number:05}", BenchEntity(number, TEXT))


def _put(number: int) -> Callable[[EntityEdit], Awaitable[None]]:
    async def change(edit: EntityEdit) -> None:
        edit.put(f"space/{number % ENTITIES:05}", BenchEntity(number, TEXT))

    return change


async def _writer(entities: Entities, writer: int, end: float, found: WriterResult) -> list[float]:
    rng = random.Random(writer)
    latencies = []
    while (begin := time.perf_counter()) < end:
        try:
            await entities.commit(_put(rng.randrange(ENTITIES)))
        except NakshaError:
            found.failures += 1
        else:
            latencies.append(time.perf_counter() - begin)
    return latencies


async def _stripe_fetches(persistence: Persistence, size: int) -> int:
    """Return the maximum number of stripes that are read to find one key without a cache."""
    index = SortedIndex(persistence.fetch_values)
    for number in range(size):
        index.put(
            f"space/{number * 7919 % size:09}".encode(), ObjectRef("space", number).to_bytes()
        )
    container, objects = await index.save(persistence.new_id)
    for start in range(0, len(objects), 50):
        await persistence.write(list(objects[start : start + 50]))
    numbers = random.Random(1).sample(range(size), 200)
    return max([await _fetched_by_get(persistence, container, number) for number in numbers])


async def _fetched_by_get(persistence: Persistence, container: IndexContainer, number: int) -> int:
    fetched: list[object] = []

    async def counted(refs: Sequence[ObjectRef]) -> list[object]:
        values = await persistence.fetch_values(refs)
        fetched.extend(value for value in values if isinstance(value, Stripe))
        return values

    found = await SortedIndex(counted, container).get(f"space/{number:09}".encode())
    assert found is not None
    return len(fetched)
