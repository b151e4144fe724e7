"""Output of a job: written once and completely, even if its process dies."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pyspark.sql import SparkSession

from naksha.model.errors import Cancelled, Conflict
from naksha.spark.jobs import diff, export, partition, verify
from naksha.spark.jobs.frame import AnyJob, SilentProgress
from naksha.spark.jobs.publish_directory import (
    check_output,
    earlier_report,
    published,
    write_report,
)
from tests.spark.jobs.town import Town, point


class UnexpectedProgress(SilentProgress):
    """Progress that fails when a phase begins: a repeated job must not work again."""

    def phase(self, name: str, total: int | None = None) -> None:
        raise Cancelled("It was done already")


@pytest.mark.parametrize(
    ("job", "more"),
    [
        (diff.JOB, {"old": "1"}),
        (export.JOB, {}),
        (partition.JOB, {}),
        (verify.JOB, {}),
    ],
    ids=["diff", "export", "partition", "verify"],
)
def test_output_of_an_earlier_attempt_of_the_job_is_its_result(
    spark: SparkSession, small_town: Town, tmp_path: Path, job: AnyJob, more: dict[str, Any]
) -> None:
    """Its process may have died after that, before anybody heard of it."""
    small_town.put(point("a", 1.0, 2.0), point("b", 3.0, 4.0))
    spec = job.spec(
        place=small_town.place,
        collection="places",
        output=str(tmp_path / "out"),
        job_id="one",
        **more,
    )
    report = job.run(spark, spec, SilentProgress())
    made = sorted((tmp_path / "out").rglob("*"))
    for again in (spec, msgspec.structs.replace(spec, overwrite=True)):
        assert job.run(spark, again, UnexpectedProgress()) == report
    assert sorted((tmp_path / "out").rglob("*")) == made
    for other in ("two", ""):
        with pytest.raises(Conflict, match="already exists"):
            job.run(spark, msgspec.structs.replace(spec, job_id=other), SilentProgress())


class SampleReport(msgspec.Struct):
    """The report of some job."""

    number: int


def test_a_foreign_directory_is_not_a_result(tmp_path: Path) -> None:
    output = tmp_path / "out"
    assert earlier_report(str(output), "one", SampleReport) is None
    output.mkdir()
    assert earlier_report(str(output), "one", SampleReport) is None
    (output / "_report.json").write_bytes(b"[]")
    assert earlier_report(str(output), "one", SampleReport) is None
    write_report(output, "one", SampleReport(7))
    assert earlier_report(str(output), "one", SampleReport) == SampleReport(7)
    assert earlier_report(str(output), "two", SampleReport) is None
    write_report(output, "", SampleReport(7))
    assert earlier_report(str(output), "", SampleReport) is None


# ---- Processes that die --------------------------------------------------------------------------

WRITES = """
import sys, time
from pathlib import Path
from naksha.spark.jobs.publish_directory import published
with published(Path(sys.argv[1]), overwrite=False) as work:
    (work / "half").touch()
    print("writing", flush=True)
    time.sleep(600)
"""


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_only_leftovers_of_dead_jobs_are_removed(tmp_path: Path) -> None:
    target = tmp_path / "out"
    others = {".out.x", ".out.0123.lock", ".outer." + "a" * 32, "out.lock"}
    for name in others:
        (tmp_path / name).mkdir()
    process = subprocess.Popen(
        [sys.executable, "-c", WRITES, str(target)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "writing\n"
        # It lives: what it writes is left alone, by this process, too.
        check_output(str(target), overwrite=False)
        (half,) = tmp_path.glob(".out.*/half")
        with published(target, overwrite=False) as work:
            check_output(str(target), overwrite=False)
            assert half.exists()
            assert work.exists()
            (work / "whole").touch()
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()
    assert names(tmp_path) > {"out", half.parent.name, *others}
    check_output(str(target), overwrite=True)
    assert names(tmp_path) == {"out", *others}
    assert names(target) == {"whole"}


@pytest.mark.parametrize("is_replaced", [False, True])
def test_a_set_aside_result_is_restored_unless_it_was_replaced(
    tmp_path: Path, is_replaced: bool
) -> None:
    """The directories are those of a process that died between two renames, or after them."""
    target, aside = tmp_path / "out", tmp_path / f".out.{'a' * 32}"
    old, work = aside.with_name(aside.name + ".old"), target if is_replaced else aside
    for folder, file in ((old, "old"), (work, "new")):
        folder.mkdir()
        (folder / file).touch()
    aside.with_name(aside.name + ".lock").touch()
    check_output(str(target), overwrite=True)
    assert names(tmp_path) == {"out"}
    assert names(target) == {"new" if is_replaced else "old"}
