"""Dated histories: the result of loading the steps of files, without Spark."""

from __future__ import annotations

import bz2
import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from naksha.model.collection import CollectionInfo
from naksha.model.errors import Cancelled, InvalidArgument
from naksha.model.query import Query
from naksha.spark.jobs.frame import JobProgress, SilentProgress
from naksha.spark.jobs.load import JOB, load
from naksha.spark.jobs.loading.spec import Load, Loaded
from naksha.spark.runtime.storage_cache import close_all, shared_storage
from naksha.spark.source.options import StorageRef
from naksha.spi.storage import Storage


class CancelAfterSteps(SilentProgress):
    """Progress that cancels a load after a number of steps."""

    def __init__(self, after: int) -> None:
        self._left = after

    def advance(self, count: int = 1) -> None:
        self._left -= count
        if self._left <= 0:
            raise Cancelled("The job was cancelled")


def steps_of(path: Path, *days: int) -> Path:
    """A file with a step for each of these days of a month, which makes a feature."""
    steps = [
        {"at": f"2024-01-{day:02}", "put": [{"type": "Feature", "id": f"d{day}"}]} for day in days
    ]
    path.write_text("\n".join(map(json.dumps, steps)))
    return path


@pytest.fixture
def place(tmp_path: Path) -> Iterator[StorageRef]:
    yield StorageRef(f"file:{tmp_path}/town.naksha")
    close_all()


def loaded(
    place: StorageRef, *files: Path, progress: JobProgress | None = None, **more: Any
) -> Loaded:
    names = tuple(map(str, files))
    spec = Load(place=place, collection="places", files=names, app_id="test", history=True, **more)
    spark: Any = None  # which it never asks for
    return load(spark, spec, progress or SilentProgress())


def ids(place: StorageRef) -> set[str]:
    async def read(storage: Storage) -> set[str]:
        return {state.id async for state in storage.states("places", Query())}

    return shared_storage(place).call(read)


def test_files_are_read_by_their_exact_names(place: StorageRef, tmp_path: Path) -> None:
    """Whatever is special in them elsewhere, and packed or not."""
    names = ["a,b.jsonl", "c[1].jsonl", "{d}.jsonl", "_e.jsonl", "f .jsonl"]
    files = [steps_of(tmp_path / name, day) for day, name in enumerate(names, 1)]
    packed = tmp_path / "g,h.jsonl.bz2"
    packed.write_bytes(bz2.compress(steps_of(tmp_path / "g", 6).read_bytes()))
    zipped = tmp_path / "i.jsonl.gz"
    zipped.write_bytes(gzip.compress(steps_of(tmp_path / "i", 7).read_bytes()))
    assert loaded(place, zipped, packed, *files).transactions == 7
    assert ids(place) == {f"d{day}" for day in range(1, 8)}


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.jsonl", b'\n{"at": 1}\n{"put": 1}', "a.jsonl: line 3 is not a valid step"),
        ("a.jsonl", b'{"at": "\xff"}', "a.jsonl: line 1 is not a valid step"),
        ("a.jsonl", b'{"at": "someday"}', "a.jsonl: line 1: 'someday' is not a valid date or time"),
        ("a.jsonl.gz", b"nothing", "a.jsonl.gz cannot be read"),
        ("a.jsonl.gz", gzip.compress(b'{"at": 1}', mtime=0)[:-9], "a.jsonl.gz cannot be read"),
        ("a.jsonl.bz2", b"nothing", "a.jsonl.bz2 cannot be read"),
    ],
)
def test_an_invalid_history_is_reported(
    name: str, content: bytes, words: str, place: StorageRef, tmp_path: Path
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(InvalidArgument, match=words):
        loaded(place, path)


def test_only_before_its_last_step_a_history_can_be_cancelled(
    place: StorageRef, tmp_path: Path
) -> None:
    path = steps_of(tmp_path / "a.jsonl", 1, 2, 3)
    reading = 1
    with pytest.raises(Cancelled):
        loaded(place, path, progress=CancelAfterSteps(reading + 2), job_id="mine")
    assert ids(place) == {"d1", "d2"}
    done = loaded(place, path, progress=CancelAfterSteps(reading + 3), job_id="mine")
    assert (done.created, done.repeated) == (1, True)
    assert ids(place) == {"d1", "d2", "d3"}


def test_a_finished_history_stays_finished_after_later_writes(
    place: StorageRef, tmp_path: Path
) -> None:
    """A job that is resumed after its last step leaves later writes of other clients alone."""
    path = steps_of(tmp_path / "a.jsonl", 1, 2, 3)
    with pytest.raises(Cancelled):
        loaded(place, path, progress=CancelAfterSteps(3), job_id="mine")
    loaded(place, path, job_id="mine")

    async def write(storage: Storage) -> None:
        async with storage.write("another") as session:
            await session.delete("places", ["d2"])

    shared_storage(place).call(write)
    path.unlink()
    again = loaded(place, path, job_id="mine")
    assert (again.created, again.transactions, again.repeated) == (1, 1, True)
    assert ids(place) == {"d1", "d3"}
    with pytest.raises(InvalidArgument):
        loaded(place, steps_of(path, 1, 2, 3), job_id="yours")


def test_a_new_collection_has_the_requested_settings(place: StorageRef, tmp_path: Path) -> None:
    info = CollectionInfo(id="places", max_age=7, id_prefix="d", author="ann", points_only=True)
    loaded(place, steps_of(tmp_path / "a.jsonl", 1, 2), info=info)
    made = shared_storage(place).call(lambda s: s.collection("places"))
    for name in ("max_age", "id_prefix", "author", "points_only"):
        assert getattr(made, name) == getattr(info, name)
    assert ids(place) == {"1", "2"}


def test_a_history_takes_no_spark() -> None:
    spec = Load(place=StorageRef("file:x"), collection="places", files=("x",), app_id="test")
    assert JOB.takes_spark(spec)
    assert not JOB.takes_spark(msgspec.structs.replace(spec, history=True))
