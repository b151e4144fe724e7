"""`kill -9` at any moment: no acknowledged write is lost, and none is half-written."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
from pathlib import Path

import pytest

from naksha.model.query import Query
from naksha.sqlite import SqliteStorage
from naksha.testing.storage.suite_support import Handle, ids_of
from naksha.testing.storage.write.suite_concurrency import check_history, check_log
from tests.sqlite.support import rows
from tests.sqlite.write import killed

KILLS, MORE_KILLS = 30, 200


async def kill_once(
    forks: asyncio.subprocess.Process, after_s: float, *, is_in_the_midst: bool
) -> list[str]:
    """Start a writer, kill it after a while; what it was told is done.

    Where it is killed in the midst, the while begins with its first transaction: how long a process
    takes to begin is up to the machine.
    """
    assert forks.stdin is not None
    assert forks.stdout is not None
    forks.stdin.write(b"go\n")
    word, pid = (await forks.stdout.readline()).split()
    assert word == b"pid"
    told = []
    if is_in_the_midst:
        told.append((await forks.stdout.readline()).decode().strip())
    await asyncio.sleep(after_s)
    os.kill(int(pid), signal.SIGKILL)
    while (line := (await forks.stdout.readline()).decode().strip()) != "gone":
        told.append(line)
    return told


@pytest.mark.timeout(600)
@pytest.mark.parametrize("kills", [KILLS, pytest.param(MORE_KILLS, marks=pytest.mark.long)])
async def test_killed_at_many_moments(storage: SqliteStorage, path: Path, kills: int) -> None:
    dice = random.Random(5)
    await storage.close()
    forks = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        killed.__name__,
        str(path),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    told: list[str] = []
    for n in range(kills):
        told += await kill_once(forks, dice.random() * 0.15, is_in_the_midst=n % 3 > 0)
    assert forks.stdin is not None
    forks.stdin.close()
    await forks.wait()
    assert len(told) >= kills * 2 // 3  # those in the midst got somewhere
    opened = await SqliteStorage.open(path, "test")
    roads, places = Handle(opened, "roads"), Handle(opened, "places")
    written = set(ids_of(await roads.all()))
    assert set(told) <= written
    await check_history(roads)
    await check_history(places)
    await check_log(opened)
    await check_whole(opened, len(written))
    assert rows(path, "PRAGMA integrity_check") == [("ok",)]
    await opened.close()


async def check_whole(storage: SqliteStorage, transactions: int) -> None:
    """Every transaction wrote to both collections."""
    log = [t for t in await storage.transactions(0, 100_000) if t.app_id == "killed"]
    assert len(log) == transactions
    for transaction in log:
        assert {signal.id for signal in transaction.signals} == {"roads", "places"}
    counters = (await storage.page("places", Query())).states
    assert len({state.feature["properties"]["key"] for state in counters}) == 1
