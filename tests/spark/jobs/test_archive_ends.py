"""Interrupted and repeated archive jobs: nothing is lost, and dropped history is reported."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from pyspark.sql import SparkSession

from naksha.model.errors import Cancelled, Conflict, Expired, InvalidArgument
from naksha.spark.archive.archive import MANIFEST, UNFINISHED, Manifest, new_name, write_manifest
from naksha.spark.jobs.frame import SilentProgress
from tests.spark.jobs.test_archive import EDITS, LATER, archived, content, found, imported


class FailingProgress(SilentProgress):
    """Progress that raises an error at the start of a phase."""

    def __init__(self, phase: str, how: type[Exception]) -> None:
        self._phase = phase
        self._how = how

    def phase(self, name: str, total: int | None = None) -> None:
        if name == self._phase:
            raise self._how("enough")


@pytest.mark.parametrize("phase", ["drop", "count what is left"])
def test_a_cancellation_after_a_drop_reports_what_was_dropped(
    spark: SparkSession, file: str, tmp_path: Path, phase: str
) -> None:
    imported(file, EDITS)
    done = archived(spark, file, tmp_path / "archive", FailingProgress(phase, Cancelled))
    assert (done.states, done.dropped, done.left) == (5, 5, 0)
    with pytest.raises(Expired):
        content(file, 1)


def test_a_cancellation_before_the_drop_keeps_everything(
    spark: SparkSession, file: str, tmp_path: Path
) -> None:
    imported(file, EDITS)

    class Late(SilentProgress):
        def disable_cancellation(self) -> None:
            raise Cancelled("enough")

    with pytest.raises(Cancelled):
        archived(spark, file, tmp_path / "archive", Late())
    assert content(file, 1) == {"a": 1, "b": 1, "c": 1}


@pytest.mark.parametrize("phase", ["drop", "count what is left"])
def test_a_repeated_job_reports_all_its_work(
    spark: SparkSession, file: str, tmp_path: Path, phase: str
) -> None:
    """Its process died just before history was dropped, or just after."""
    imported(file, EDITS)
    folder = tmp_path / "archive"
    with pytest.raises(MemoryError):
        archived(spark, file, folder, FailingProgress(phase, MemoryError), job_id="mine")
    done = archived(spark, file, folder, job_id="mine")
    assert (done.states, done.dropped, done.left, done.files) == (5, 5, 0, 2)
    assert done.segment is not None
    # Others may have come since; and what has no name is never taken for what was before.
    imported(file, LATER)
    assert archived(spark, file, folder, job_id="yours").states == 3
    assert archived(spark, file, folder, job_id="mine") == done
    for _ in range(2):
        assert archived(spark, file, folder).states == 0
    for other in ({"older_than_days": 2}, {"keep": True}):
        with pytest.raises(Conflict) as refused:
            archived(spark, file, folder, job_id="mine", **other)
        assert refused.value.field == "job_id"


def test_a_job_that_died_leaves_nothing_that_counts(
    spark: SparkSession, file: str, tmp_path: Path
) -> None:
    imported(file, EDITS)
    folder = tmp_path / "archive"
    orphan = archived(spark, file, folder, keep=True).segment
    assert orphan is not None
    manifest = folder / MANIFEST
    # As if it had died just before it wrote the manifest; another one in the middle of a segment.
    known = msgspec.json.decode(manifest.read_bytes(), type=Manifest)
    write_manifest(folder, msgspec.structs.replace(known, segments=[]))
    unfinished = folder / f"{new_name(0, 1)}{UNFINISHED}"
    unfinished.mkdir()
    foreign = folder / f"movie{UNFINISHED}"
    foreign.mkdir()
    (unfinished / "1-x.parquet").write_bytes(b"PAR1")
    (folder / f".{MANIFEST}.0123").touch()
    done = archived(spark, file, folder)
    assert (done.states, done.dropped, done.segment != orphan) == (5, 5, True)
    assert found(spark, file, folder, 1) == {"a": 1, "b": 1, "c": 1}
    left = {path.name for path in folder.iterdir() if path.is_dir() or MANIFEST in path.name}
    assert left == {MANIFEST, orphan, done.segment, foreign.name}
    manifest.unlink()
    with pytest.raises(InvalidArgument, match="has segments, but the file"):
        archived(spark, file, folder)
