"""Staging in files beside the storage's: by many processes, alive or dead, while others write."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from naksha.model import limits
from naksha.model.collection import CollectionInfo
from naksha.model.errors import CollectionNotFound, InvalidArgument, NotFound
from naksha.spi.staging import AppliedWrite, StagedPart, StagedWrite, WriteMode
from naksha.sqlite import SqliteStorage
from naksha.sqlite.bulk import apply_staged
from naksha.sqlite.bulk.stage_files import StagingFiles
from naksha.sqlite.connection.errors import WriteLockTimeout
from naksha.sqlite.write.states import as_json
from naksha.testing.storage.branch_case import branch_of
from naksha.testing.storage.bulk.suite_staging import StagingJob, counts
from naksha.testing.storage.input_batches import given_batch
from naksha.testing.storage.suite_support import Handle, ids_of, log_after, point, published
from tests.sqlite.bulk import staging_process
from tests.sqlite.bulk.staging_process import FEATURES, INFO
from tests.sqlite.support import rows

LATER_MS = (limits.STAGING_LEASE_SECONDS + 60) * 1000


async def start(path: Path, *arguments: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        staging_process.__name__,
        str(path),
        *arguments,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )


async def staged(path: Path, job: str, first: str) -> StagedPart:
    """The part that another process has staged."""
    said, _ = await (await start(path, "stage", job, first)).communicate()
    return msgspec.json.decode(said, type=StagedPart)


async def applied(path: Path, job: str, parts: list[StagedPart], what: str = "apply") -> bytes:
    """The output of another process that applies parts."""
    said, _ = await (await start(path, what, job)).communicate(msgspec.json.encode(parts) + b"\n")
    return said


def staging(path: Path) -> list[Path]:
    """The files that are there."""
    return sorted(path.with_name(f"{path.name}-staging").glob("*"))


async def maintain_later(storage: SqliteStorage) -> None:
    """When all leases are over."""
    await storage.maintain(time.time_ns() // 1_000_000 + LATER_MS)


async def test_processes_stage_while_another_one_writes(storage: SqliteStorage, path: Path) -> None:
    """The writer's lock is held all the time: a process that waits for it would fail."""
    writer = sqlite3.connect(path, isolation_level=None)
    writer.execute("BEGIN IMMEDIATE")
    parts = await asyncio.gather(*(staged(path, "job", f"{n}-") for n in range(3)))
    assert [part.features for part in parts] == [FEATURES] * 3
    assert len(staging(path)) == 3
    writer.rollback()
    writer.close()
    before = await published(storage)
    said = await asyncio.gather(*(applied(path, "job", list(parts)) for _ in range(2)))
    done = [msgspec.json.decode(each, type=AppliedWrite) for each in said]
    assert sorted(each.repeated for each in done) == [False, True]
    assert [counts(each) for each in done] == [(3 * FEATURES, 0, 0, 0)] * 2
    assert len(await log_after(storage, before)) == 1
    assert len(await Handle(storage, INFO.id).live()) == 3 * FEATURES
    assert not path.with_name(f"{path.name}-staging").exists()


async def test_applying_waits_for_the_writer(path: Path) -> None:
    storage = await SqliteStorage.open(path, busy_s=0.2)
    job = StagingJob(storage, INFO)
    await job.stage([point("x")])
    writer = sqlite3.connect(path, isolation_level=None)
    writer.execute("BEGIN IMMEDIATE")
    applying_ = asyncio.create_task(job.apply(WriteMode.CREATE))
    await asyncio.sleep(0.5)  # Longer than a write waits, and less than all attempts together.
    assert not applying_.done()
    writer.rollback()
    writer.close()
    assert counts(await applying_) == (1, 0, 0, 0)
    await storage.close()


async def test_waiting_is_bounded(path: Path) -> None:
    storage = await SqliteStorage.open(path, busy_s=0.01)
    job = StagingJob(storage, INFO)
    await job.stage([point("x")])
    writer = sqlite3.connect(path, isolation_level=None)
    writer.execute("BEGIN IMMEDIATE")
    with pytest.raises(WriteLockTimeout):
        await job.apply(WriteMode.CREATE)
    writer.rollback()
    writer.close()
    assert counts(await job.apply(WriteMode.CREATE)) == (1, 0, 0, 0)
    await storage.close()


async def test_killed_in_the_midst_of_applying(storage: SqliteStorage, path: Path) -> None:
    parts = [await staged(path, "job", "a"), await staged(path, "job", "b")]
    before = await published(storage)
    assert await applied(path, "job", parts, "die") == b""
    with pytest.raises(CollectionNotFound):
        await storage.collection(INFO.id)
    assert await log_after(storage, before) == []
    again = msgspec.json.decode(await applied(path, "job", parts), type=AppliedWrite)
    assert (counts(again), again.repeated) == ((2 * FEATURES, 0, 0, 0), False)
    assert rows(path, "PRAGMA integrity_check") == [("ok",)]


async def test_a_staging_process_is_left_alone_while_it_lives(
    storage: SqliteStorage, path: Path
) -> None:
    process = await start(path, "hang", "job", "x")
    assert process.stdout is not None
    assert await process.stdout.readline() == b'"hanging"\n'
    await maintain_later(storage)
    assert len(staging(path)) == 1
    os.kill(process.pid, signal.SIGKILL)
    await process.communicate()
    await storage.maintain()
    assert len(staging(path)) == 1
    await maintain_later(storage)
    assert staging(path) == []


async def test_a_part_that_was_cut_off_is_not_applied(storage: SqliteStorage, path: Path) -> None:
    part = await staged(path, "job", "x")
    (file,) = staging(path)
    connection = sqlite3.connect(file)
    connection.execute("DELETE FROM stage WHERE id = 'x7'")
    connection.commit()
    connection.close()
    write = StagedWrite(job="job", info=INFO, mode=WriteMode.CREATE, app_id="test")
    with pytest.raises(NotFound):
        await storage.apply_staged(write, [part])


async def test_other_files_in_the_directory_are_none_of_ours(
    storage: SqliteStorage, path: Path
) -> None:
    await staged(path, "job", "x")
    other = staging(path)[0].with_name("notes.txt")
    other.write_text("mine")
    await storage.drop_staged("job")
    await maintain_later(storage)
    assert staging(path) == [other]


@pytest.mark.parametrize("was_there", [True, False])
async def test_a_filled_collection_has_all_indices(
    storage: SqliteStorage, path: Path, monkeypatch: pytest.MonkeyPatch, was_there: bool
) -> None:
    """Also where rows come in several chunks, by number or by size."""
    monkeypatch.setattr(apply_staged, "STAGED_CHUNK_FEATURES", 10)
    monkeypatch.setattr(apply_staged, "STAGED_CHUNK_BYTES", 1500)
    name, before = "places" if was_there else "new", indices(path)
    job = StagingJob(storage, CollectionInfo(id=name))
    await job.stage([point(f"a{n}") for n in range(25)])
    await job.stage([point(f"b{n}", text="x" * 400) for n in range(25)])
    assert counts(await job.apply(WriteMode.CREATE)) == (50, 0, 0, 0)
    assert len(ids_of(await job.handle.live())) == 50
    assert indices(path) == before


def indices(path: Path) -> set[str]:
    found = rows(path, "SELECT name FROM sqlite_schema WHERE type = 'index' AND sql IS NOT NULL")
    return {name for (name,) in found}


async def test_a_link_to_the_file_is_the_same_storage(storage: SqliteStorage, path: Path) -> None:
    link = path.with_name("link")
    link.mkdir()
    (link / "other.naksha").symlink_to(path)
    beside = await SqliteStorage.open(link / "other.naksha")
    part = await StagingJob(beside, INFO).stage([point("x")])
    write = StagedWrite(job=part.job, info=INFO, mode=WriteMode.CREATE, app_id="test")
    assert counts(await storage.apply_staged(write, [part])) == (1, 0, 0, 0)
    await beside.close()


async def test_a_dropped_attempt_raises(storage: SqliteStorage) -> None:
    begun = await storage.stage("job", INFO)
    await begun.add(given_batch([point("x")]))
    await storage.drop_staged("job")
    with pytest.raises(NotFound):
        await begun.add(given_batch([point("y")]))
    await begun.abort()
    second = await storage.stage("job", INFO)
    await storage.drop_staged("job")
    with pytest.raises(NotFound):
        await second.close()
    await second.abort()


async def test_a_part_of_a_storage_that_was_here_before_is_refused(
    storage: SqliteStorage, path: Path
) -> None:
    job = StagingJob(storage, INFO)
    await job.stage([point("x")])
    for suffix in ("", "-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
    made = await SqliteStorage.open(path, "test", number=8)
    try:
        with pytest.raises(InvalidArgument, match="another storage") as caught:
            await job.apply(on=made)
        assert caught.value.field == "parts"
    finally:
        await made.close()


async def test_a_write_succeeds_even_if_staged_files_cannot_be_removed(
    storage: SqliteStorage, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(files: StagingFiles, job: str) -> None:
        raise PermissionError(job)

    job = StagingJob(storage, INFO)
    await job.stage([point("x")])
    with monkeypatch.context() as patched:
        patched.setattr(StagingFiles, "drop", refuse)
        assert counts(await job.apply()) == (1, 0, 0, 0)
        assert (await job.apply()).repeated
    assert len(staging(path)) == 1
    await maintain_later(storage)
    assert staging(path) == []


async def test_deletions_on_a_branch_are_found_in_chunks(
    storage: SqliteStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = Handle(storage, "places")
    await places.create(*(point(f"f{n}") for n in range(100)))
    branch = await branch_of(storage)
    sizes: list[int] = []

    def measured(value: Any) -> str:
        sizes.append(len(value))
        return as_json(value)

    monkeypatch.setattr(apply_staged, "STAGED_CHUNK_FEATURES", 10)
    monkeypatch.setattr(apply_staged, "as_json", measured)
    job = StagingJob(branch.storage, "places")
    await job.stage([point("f7"), point("new")])
    assert counts(await job.apply(WriteMode.MIRROR)) == (1, 0, 99, 1)
    assert max(sizes) == 10
