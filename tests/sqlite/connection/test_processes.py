"""Several processes on one file: concurrent readers, and writers one at a time."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from naksha.sqlite import SqliteStorage
from naksha.testing.storage.suite_support import Handle, point
from naksha.testing.storage.write.suite_concurrency import check_history, check_log
from tests.sqlite.connection import other_process
from tests.sqlite.support import shell


async def run(path: Path, what: str, name: str) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        other_process.__name__,
        str(path),
        what,
        name,
        stderr=asyncio.subprocess.PIPE,
    )
    _, said = await process.communicate()
    assert process.returncode == 0, said.decode()


async def test_readers_and_writers_in_processes_of_their_own(
    storage: SqliteStorage, path: Path
) -> None:
    roads, places = Handle(storage, "roads"), Handle(storage, "places")
    await roads.create(*(point(f"k{k}", by="first") for k in range(other_process.FEATURES)))
    await asyncio.gather(
        run(path, "write", "one"),
        run(path, "write", "two"),
        run(path, "read", "three"),
        run(path, "read", "four"),
        other_process.write(storage, "here"),
    )
    written = 3 * other_process.ROUNDS
    assert len(await places.live()) == written
    chains = await check_history(roads)
    assert {len(chain) for chain in chains.values()} == {written + 1}
    await check_history(places)
    await check_log(storage)


async def test_waiters_see_versions_of_other_processes(storage: SqliteStorage, path: Path) -> None:
    """The library's, which publish what they write, and sqlite3's, which leave that to others."""
    await Handle(storage, "roads").create(point("a"))
    last = await storage.wait_beyond(-1, 0)
    waiting = [asyncio.create_task(storage.wait_beyond(last, 60)) for _ in range(10)]
    await asyncio.to_thread(shell, path, "DELETE FROM roads WHERE id = 'a'")
    assert await asyncio.gather(*waiting) == [last + 1] * 10
    rounds = other_process.ROUNDS
    waiting = [asyncio.create_task(storage.wait_beyond(last + rounds, 60)) for _ in range(10)]
    await run(path, "write", "one")
    assert await asyncio.gather(*waiting) == [last + 1 + rounds] * 10
