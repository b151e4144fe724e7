"""Branches: creation in constant time, reads compared with main, merges by number of changes.

`create_growth` is the time to create a branch with 1,000,000 features relative to 10,000,
`merge_growth` that of merging 1,000 changes at both sizes. `branch_read` is the time to read a box
of about 10,000 features on a branch with 1 % of them changed, relative to the same box on main.
"""

from __future__ import annotations

import asyncio
import gc
import random
import time
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from statistics import median

from benchmarks import _data
from benchmarks._frame import Cell, Options, Report, side_by_side
from benchmarks._stores import load, opened, write
from naksha.model.query import Bbox, Query
from naksha.spi.storage import Storage
from naksha.versioning import Attribution, create_branch, merge, open_branch

TAKES = ("storage",)
BY = Attribution("bench")
BOX = Query(spatial=Bbox(0.0, 0.0, 36.0, 16.0))
ROUNDS = 7


def run(options: Options) -> Report:
    """Measure both sizes, each in its own storage."""
    sizes = (options.size(10_000, 2_000), options.size(1_000_000, 20_000))
    return asyncio.run(_measure(options, sizes))


async def _measure(options: Options, sizes: tuple[int, int]) -> Report:
    features = _data.roads(sizes[1])
    gc.freeze()  # keeps gc.collect() before every measurement fast
    async with AsyncExitStack() as stack:
        storages = {
            size: await stack.enter_async_context(opened(options.storage)) for size in sizes
        }
        for size, storage in storages.items():
            await load(storage, "roads", features[:size])
        create = await _create(storages)
        merging = await _merge(storages, features, options.size(1_000, 200))
        read, hits = await _read(storages[sizes[1]], features)
    figures = {
        "create_growth": round(create[sizes[1]] / create[sizes[0]], 3),
        "merge_growth": round(merging[sizes[1]] / merging[sizes[0]], 3),
        "branch_read": round(read["branch"] / read["main"], 3),
        "create_ms": round(create[sizes[1]] * 1000, 2),
        "merge_ms": round(merging[sizes[1]] * 1000, 1),
    }
    rows: list[Sequence[Cell]] = []
    for size in sizes:
        rows.append([f"create, {size:,} features", round(create[size] * 1000, 2)])
        rows.append([f"merge, {size:,} features", round(merging[size] * 1000, 1)])
    for name, seconds in read.items():
        rows.append([f"read {hits:,} features on {name}", round(seconds * 1000, 1)])
    notes = ["Goals: create_growth ≤ 1.2, branch_read ≤ 1.5, merge_growth ≤ 1.5."]
    return Report("Branches", ["what", "ms"], rows, dict(figures), notes)


async def _create(storages: Mapping[int, Storage]) -> dict[int, float]:
    """Measure the creation of branches as the median of many, as one takes a few milliseconds.

    Sizes are interleaved, since a large load causes disk writes for a while.
    """
    seconds: dict[int, list[float]] = {size: [] for size in storages}
    for number in range(ROUNDS * 5):
        for size, storage in storages.items():
            start = time.perf_counter()
            await create_branch(storage, f"empty{number}", BY)
            seconds[size].append(time.perf_counter() - start)
    return {size: median(each) for size, each in seconds.items()}


async def _merge(
    storages: Mapping[int, Storage], features: list[_data.Feature], count: int
) -> dict[int, float]:
    """Measure merges of a number of edits, interleaved like the creation."""
    seconds: dict[int, list[float]] = {size: [] for size in storages}
    edits = {
        size: _data.edited(random.Random(5).sample(features[:size], count)) for size in storages
    }
    for number in range(ROUNDS):
        for size, storage in storages.items():
            seconds[size].append(await _merge_once(storage, f"merged{number}", edits[size], number))
    return {size: median(each) for size, each in seconds.items()}


async def _merge_once(
    storage: Storage, name: str, edits: list[_data.Feature], number: int
) -> float:
    await create_branch(storage, name, BY)
    line = await open_branch(storage, name)
    for edit in edits:
        edit["properties"]["lanes"] = 10 + number
    await write(line.storage, "roads", edits)
    start = time.perf_counter()
    done = await merge(storage, name, "main", BY)
    seconds = time.perf_counter() - start
    assert done.count == len(edits)
    return seconds


async def _read(storage: Storage, features: list[_data.Feature]) -> tuple[dict[str, float], int]:
    await create_branch(storage, "changed", BY)
    line = await open_branch(storage, "changed")
    edits = _data.edited(random.Random(6).sample(features, len(features) // 100))
    await write(line.storage, "roads", edits)
    await storage.maintain()

    async def read(source: Storage) -> int:
        return len([state async for state in source.states("roads", BOX)])

    hits = await read(storage)
    times = await side_by_side(
        {"main": lambda: read(storage), "branch": lambda: read(line.storage)},
        repetitions=15,
    )
    return {name: timing.median for name, timing in times.items()}, hits
