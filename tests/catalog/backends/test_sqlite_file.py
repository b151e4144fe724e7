"""Tests specific to a catalog in a file: foreign files, killed and other processes, and groups."""

from __future__ import annotations

import asyncio
import os
import random
import resource
import signal
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import cast

import pytest

from naksha.model.errors import InvalidArgument, NotSupported, OutcomeUnknown, Unavailable
from naksha.spi.catalog import ObjectKey
from naksha.sqlite import SqliteCatalog, SqliteStorage
from naksha.testing.catalog.suite_support import get, get_pointer, moved, pointer, thing
from tests.catalog.backends import sqlite_process
from tests.catalog.backends.sqlite_process import OBJECTS, REALM, WRITERS

KILLS = 25


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "hub.catalog"


def run(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for statement in statements:
            connection.execute(statement)


async def refused(path: Path, message: str) -> None:
    """The file is not opened, and none of its bytes change."""
    before = path.read_bytes()
    with pytest.raises(NotSupported, match=message):
        await SqliteCatalog.open(f"file:{path}")
    assert path.read_bytes() == before
    assert [each.name for each in path.parent.iterdir()] == [path.name]


@contextmanager
def file_size_max(size: int) -> Iterator[None]:
    """No file of this process grows any further: a disk that fails in the middle of writing."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


class TestFiles:
    async def test_a_file_that_is_not_a_database_is_refused(self, path: Path) -> None:
        path.write_text("Dear Ann, " * 1000)
        await refused(path, "not an SQLite database")

    async def test_a_foreign_database_is_refused(self, path: Path) -> None:
        run(path, "CREATE TABLE p (r, n, t, c, e, v)", "INSERT INTO p VALUES (1, 2, 3, 4, 5, 6)")
        await refused(path, "not a Naksha catalog")

    async def test_an_empty_database_with_a_foreign_mark_is_refused(self, path: Path) -> None:
        run(path, "PRAGMA application_id = 7")
        await refused(path, "not a Naksha catalog")

    async def test_a_storage_is_refused(self, path: Path) -> None:
        await (await SqliteStorage.open(path)).close()
        await refused(path, "give the catalog its own file")

    async def test_a_catalog_is_not_a_storage(self, path: Path) -> None:
        await (await SqliteCatalog.open(f"file:{path}")).close()
        with pytest.raises(NotSupported):
            await SqliteStorage.open(path)

    async def test_data_of_a_newer_version_is_refused(self, path: Path) -> None:
        await (await SqliteCatalog.open(f"file:{path}")).close()
        run(path, "PRAGMA user_version = 1000")
        await refused(path, r"newer Naksha \(schema 1000.*upgrade")

    async def test_a_folder_that_is_not_there_is_unavailable(self, path: Path) -> None:
        with pytest.raises(Unavailable, match="cannot be opened"):
            await SqliteCatalog.open(f"file:{path}/inside/hub.catalog")

    async def test_an_empty_file_becomes_a_catalog(self, path: Path) -> None:
        path.touch()
        backend = await SqliteCatalog.open(f"file:{path}")
        assert await backend.create_pointer("r", pointer("main"))
        await backend.close()

    async def test_many_may_set_it_up_at_once(self, path: Path) -> None:
        opened = await asyncio.gather(*(SqliteCatalog.open(f"file:{path}") for _ in range(8)))
        made = [await backend.create_pointer("r", pointer("main")) for backend in opened]
        assert made == [True] + [False] * 7
        for backend in opened:
            await backend.close()

    async def test_it_is_durable_and_one_file_when_it_is_closed(self, path: Path) -> None:
        backend = await SqliteCatalog.open(f"file:{path}")
        assert backend._writer._connection.execute("PRAGMA synchronous").fetchone() == (2,)
        assert backend._writer._connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        await backend.write("r", [thing(1)])
        await backend.close()
        assert [each.name for each in path.parent.iterdir()] == [path.name]


class TestGroups:
    async def test_waiting_commits_are_committed_together(self, path: Path) -> None:
        backend = await SqliteCatalog.open(f"file:{path}")
        seen: list[str] = []
        backend._writer._connection.set_trace_callback(seen.append)
        await asyncio.gather(*(backend.insert("r", thing(n, token="t")) for n in range(100)))
        backend._writer._connection.set_trace_callback(None)
        assert sum(text.startswith("INSERT") for text in seen) == 100
        assert seen.count("COMMIT") < 10
        await backend.close()

    async def test_a_failing_call_does_not_affect_the_others(self, path: Path) -> None:
        backend = await SqliteCatalog.open(f"file:{path}")
        row = pointer("main")
        assert await backend.create_pointer("r", row)
        none = thing(1000, kind=cast(str, None))
        calls = [backend.write("r", [thing(n)]) for n in range(20)]
        bad = backend.publish("r", [thing(2000), none], row, moved(row, b"never"))
        too_large = backend.write("r", [thing(3000), thing(2**70)])
        results = await asyncio.gather(
            *calls[:10], bad, too_large, *calls[10:], return_exceptions=True
        )
        assert results[:10] + results[12:] == [None] * 20
        assert isinstance(results[11], InvalidArgument)
        assert isinstance(results[10], Exception)
        assert len(await backend.fetch("r", [ObjectKey(n) for n in range(20)])) == 20
        assert await backend.fetch("r", [ObjectKey(2000), ObjectKey(3000)]) == {}
        assert await get_pointer(backend, "r", "main") == row
        await backend.close()

    async def test_a_full_disk_changes_nothing(self, path: Path) -> None:
        backend = await SqliteCatalog.open(f"file:{path}")
        row = pointer("main")
        assert await backend.create_pointer("r", row)
        connection = backend._writer._connection
        (pages,) = connection.execute("PRAGMA page_count").fetchone()
        connection.execute(f"PRAGMA max_page_count = {pages + 20}")
        large = [thing(n, b"x" * 100_000) for n in range(3)]
        results = await asyncio.gather(
            backend.write("r", [thing(100)]),
            backend.publish("r", large, row, moved(row, b"there")),
            backend.write("r", [thing(101)]),
            return_exceptions=True,
        )
        assert isinstance(results[1], Unavailable)
        assert await get_pointer(backend, "r", "main") == row
        for number, result in ((100, results[0]), (101, results[2])):
            assert result is None or isinstance(result, Unavailable)
            assert (await get(backend, "r", number) is not None) == (result is None)
        connection.execute(f"PRAGMA max_page_count = {pages + 2000}")
        assert await backend.publish("r", large, row, moved(row, b"there"))
        await backend.close()

    async def test_the_outcome_of_an_interrupted_commit_is_unknown(self, path: Path) -> None:
        backend = await SqliteCatalog.open(f"file:{path}")
        row = pointer("main")
        assert await backend.create_pointer("r", row)
        after = moved(row, b"there")
        with file_size_max(path.with_name(path.name + "-wal").stat().st_size + 10_000):
            results = await asyncio.gather(
                backend.publish("r", [thing(1, b"x" * 100_000)], row, after),
                backend.write("r", [thing(2)]),
                return_exceptions=True,
            )
        assert [type(result) for result in results] == [OutcomeUnknown, OutcomeUnknown]
        found = await get_pointer(backend, "r", "main")
        assert found in (row, after)
        assert (await get(backend, "r", 1) is not None) == (found == after)
        assert await backend.swap_pointer("r", found, moved(found, b"further"))
        await backend.close()


class TestOtherProcesses:
    async def test_a_lock_timeout_raises_and_writes_nothing(self, path: Path) -> None:
        backend = await SqliteCatalog.open(f"file:{path}", busy_s=0.2)
        row = pointer("main")
        assert await backend.create_pointer("r", row)
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(Unavailable, match="Another process is writing"):
                await backend.swap_pointer("r", row, moved(row, b"late"))
            assert await get_pointer(backend, "r", "main") == row  # reading goes on
            other.execute("ROLLBACK")
        assert await get_pointer(backend, "r", "main") == row
        assert await backend.swap_pointer("r", row, moved(row, b"there"))
        await backend.close()

    async def test_processes_wait_for_each_other(self, path: Path) -> None:
        backend = await SqliteCatalog.open(f"file:{path}")
        row = pointer("main")
        assert await backend.create_pointer("r", row)
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            swap = asyncio.create_task(backend.swap_pointer("r", row, moved(row, b"there")))
            await asyncio.sleep(0.1)
            assert not swap.done()
            other.execute("COMMIT")
            assert await swap is True
        await backend.close()

    async def test_a_counter_of_several_processes_counts_right(self, path: Path) -> None:
        forks = await start(path)
        assert forks.stdin is not None
        forks.stdin.write(b"count 100\n" * 3)
        forks.stdin.close()
        assert await forks.wait() == 0
        backend = await SqliteCatalog.open(f"file:{path}")
        row = await get_pointer(backend, "counted", "counter")
        assert row is not None
        assert row.target == b"300"
        await backend.close()

    async def test_killed_at_any_moment_nothing_acknowledged_is_lost(self, path: Path) -> None:
        dice = random.Random(5)
        forks = await start(path)
        reported: dict[int, int] = dict.fromkeys(range(WRITERS), 0)
        for _ in range(KILLS):
            for number, n in await kill_once(forks, 0.02 + dice.random() * 0.1):
                reported[number] = max(reported[number], n)
        assert forks.stdin is not None
        forks.stdin.close()
        await forks.wait()
        assert min(reported.values()) > 0
        backend = await SqliteCatalog.open(f"file:{path}")
        for number, last in reported.items():
            row = await get_pointer(backend, REALM, f"p{number}")
            assert row is not None
            assert int(row.target) >= last
            keys = [
                ObjectKey(n, number * OBJECTS + part)
                for n in range(1, int(row.target) + 1)
                for part in range(OBJECTS)
            ]
            assert len(await backend.fetch(REALM, keys)) == len(keys)
            assert await get(backend, REALM, int(row.target) + 1, number * OBJECTS) is None
        await backend.close()
        with closing(sqlite3.connect(path)) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


async def start(path: Path) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        sqlite_process.__name__,
        str(path),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )


async def kill_once(forks: asyncio.subprocess.Process, after_s: float) -> list[tuple[int, int]]:
    """Start a writer, kill it after a while; what it was told is done: writer and number."""
    assert forks.stdin is not None
    assert forks.stdout is not None
    forks.stdin.write(b"write\n")
    word, pid = (await forks.stdout.readline()).split()
    assert word == b"pid"
    await asyncio.sleep(after_s)
    os.kill(int(pid), signal.SIGKILL)
    reported = []
    while (line := (await forks.stdout.readline()).decode().strip()) != "gone":
        number, n = line.split()
        reported.append((int(number), int(n)))
    return reported


async def test_a_copy_of_vacuum_into_is_in_wal_mode_once_it_was_opened(tmp_path: Path) -> None:
    original, copy = tmp_path / "one.catalog", tmp_path / "copy.catalog"
    await (await SqliteCatalog.open(f"file:{original}")).close()
    with closing(sqlite3.connect(original)) as connection:
        connection.execute("VACUUM INTO ?", (str(copy),))
    opened = await SqliteCatalog.open(f"file:{copy}")
    with closing(sqlite3.connect(copy)) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    await opened.close()
