"""The result of a job process after a failure, determined from the storage first."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import pytest

from naksha.model.errors import Cancelled, InvalidArgument, NakshaError, NotFound, Unavailable
from naksha.spark.jobs.registry import JobRequest
from naksha.spark.runtime.job_thread import JobRun
from naksha.spark.runtime.progress import LineProgress
from naksha.spark.runtime.storage_cache import close_all
from naksha.spark.source.options import StorageRef
from naksha.spi.jobs.messages import (
    DoneMessage,
    FailedMessage,
    PhaseMessage,
    UncancellableMessage,
    read_message,
)
from tests.hub.jobs.sample import Load, load, load_job
from tests.hub.jobs.support import town

Work = Callable[..., NoReturn]


def end_of(directory: Path, work: Work) -> object:
    """Description of a job with this behaviour."""
    place = StorageRef(location=town(directory))
    spec = Load(place=place, collection="roads", source="/", job_id="j", app_id="test")
    run = JobRun(JobRequest(load_job._replace(run=work), spec), LineProgress(io.BytesIO()), "", {})
    try:
        run._work()
    finally:
        close_all()
    return run._news.get_nowait()


def test_an_irreversible_step_cannot_be_cancelled() -> None:
    out = io.BytesIO()
    progress = LineProgress(out)
    progress.disable_cancellation()
    assert not progress.cancel()
    progress.phase("dropping")
    assert [read_message(text) for text in out.getvalue().splitlines()] == [
        UncancellableMessage(),
        PhaseMessage("dropping"),
    ]


def test_a_cancelled_job_starts_no_irreversible_step() -> None:
    progress = LineProgress(io.BytesIO())
    assert progress.cancel()
    assert not progress.cancel()
    with pytest.raises(Cancelled):
        progress.disable_cancellation()


@pytest.mark.parametrize("error", [NotFound, Unavailable])
def test_a_job_written_by_another_run_is_done(error: type[NakshaError], tmp_path: Path) -> None:
    """It was slower than a run that was believed to be gone, which dropped what both had staged."""

    def work(*given: Any) -> NoReturn:
        load(*given)
        raise error("what was staged is not there")

    line = end_of(tmp_path, work)
    assert isinstance(line, DoneMessage)
    assert line.report["created"] == 3


@pytest.mark.parametrize("error", [NotFound, Unavailable, InvalidArgument])
def test_an_unwritten_job_reports_its_failure(error: type[NakshaError], tmp_path: Path) -> None:
    def work(*given: Any) -> NoReturn:
        raise error("it did not even begin")

    line = end_of(tmp_path, work)
    assert isinstance(line, FailedMessage)
    assert line.code == error.code
