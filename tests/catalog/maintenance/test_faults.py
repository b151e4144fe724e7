"""Maintenance under failures: killed processes and lost database connections."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest

from naksha.catalog.backends import open_backend
from naksha.catalog.maintenance import Maintenance, Retention, RetentionRule, RunPhase
from naksha.catalog.system_objects import SYSTEM_REALM
from naksha.memory import MemoryCatalog
from naksha.model.errors import Conflict, NakshaError, OutcomeUnknown, Retryable
from naksha.testing.catalog.faulty import FaultyCatalog, random_faults
from tests.catalog.maintenance.support import GRACE, SHORT, Store


def killed_run(location: str, batches: int) -> None:
    """Runs maintenance in a process that is killed before it deletes the next batch."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.catalog.maintenance.killed", location, str(batches)],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    line = process.stdout.readline()
    process.kill()
    process.wait()
    process.stdout.close()
    assert line == "now\n"


async def test_the_next_process_finishes_the_work_of_a_killed_one(tmp_path: Path) -> None:
    location = f"file:{tmp_path / 'maintained.catalog'}"
    store = await Store.open(await open_backend(location))
    await store.realm()
    for number in range(20):
        await store.put({f"k{number % 3}": str(number)})
    await store.write(500)
    expected = await store.texts()
    before = len(await store.ids())

    await asyncio.to_thread(killed_run, location, 2)
    left = len(await store.ids())
    assert before - 200 <= left < before
    assert await store.is_consistent("maps", SYSTEM_REALM)
    store.time.passes(GRACE + 2)
    maintenance = await store.maintenance(rules=[SHORT])
    [died] = await maintenance.runs.list()
    assert died.phase is RunPhase.SWEEP
    with pytest.raises(Conflict, match=str(died.id)):
        await maintenance.run()
    await maintenance.run(supersede=died.id)
    assert await store.texts() == expected
    [check] = await store.check()
    assert (check.consistency, check.orphans) == ("CONSISTENT", 0)
    await store.catalog.close()


async def run_until_done(maintenance: Maintenance) -> int:
    """How many runs it took."""
    for count in range(1, 200):
        try:
            runs = await maintenance.runs.list()
            running = [run.id for run in runs if not run.phase.is_over]
            await maintenance.run(supersede=running[0] if running else None)
        except (Retryable, OutcomeUnknown, Conflict):
            continue
        return count
    raise AssertionError("No run came to its end")


@pytest.mark.parametrize("seed", range(4))
async def test_nothing_is_lost_when_the_database_fails(seed: int) -> None:
    """Writers and runs of maintenance among faults of all kinds; what was acknowledged is there."""
    faulty = FaultyCatalog(await MemoryCatalog.open("memory:"), lambda _: None)
    store = await Store.open(faulty)
    await store.realm()
    random = Random(seed)
    expected: dict[str, set[str]] = {}

    async def write(writer: int) -> None:
        for number in range(60):
            key = f"{writer}/{number % 5}"
            may_be = expected.setdefault(key, set())
            try:
                await store.put({key: str(number)})
            except OutcomeUnknown:
                may_be.add(str(number))
            except NakshaError:
                continue
            else:
                may_be.clear()
                may_be.add(str(number))

    await asyncio.gather(*(write(writer) for writer in range(3)))
    await store.write(50)
    store.time.passes(GRACE + 1)
    rule = RetentionRule("*", Retention(commits=5, seconds=0))
    maintenance = await store.maintenance(rules=[rule])
    faulty.plan = random_faults(random, 0.01)
    _, runs = await asyncio.gather(
        asyncio.gather(*(write(writer) for writer in range(3))), run_until_done(maintenance)
    )
    store.time.passes(GRACE + 1)
    runs += await run_until_done(maintenance)
    faulty.plan = lambda _: None
    await faulty.settled()
    await run_until_done(maintenance)
    assert faulty.injected > 0
    found = await store.texts()
    assert found.keys() == expected.keys()
    assert all(found[key] in texts for key, texts in expected.items())
    checks = await store.check("maps", SYSTEM_REALM)
    assert {check.consistency for check in checks} == {"CONSISTENT"}
    assert len(await store.log()) < 360
    await store.catalog.close()
