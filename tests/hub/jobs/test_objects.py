"""The stored record of a job."""

from __future__ import annotations

import msgspec

from naksha.hub.jobs.objects import JobLog, JobState, LogLine
from naksha.model import limits


def test_a_log_keeps_the_newest_lines() -> None:
    log = JobLog()
    for start in range(0, limits.JOB_LOG_LINES_MAX + 500, 100):
        log = log.with_lines([LogLine(n, f"line {n}") for n in range(start, start + 100)])
    assert len(log.lines) == limits.JOB_LOG_LINES_MAX
    assert log.dropped == 500
    assert log.lines[0].text == "line 500"
    large = log.with_lines([LogLine(n, "ü" * 1_500) for n in range(200)])
    assert len(msgspec.msgpack.encode(large)) < limits.CATALOG_ROW_BYTES_MAX
    assert large.lines[-1].at == 199
    assert large.dropped + len(large.lines) == limits.JOB_LOG_LINES_MAX + 500 + 200


def test_the_status_has_documented_members_only() -> None:
    state = JobState(submitted_ms=5)
    assert state.to_json() == {"state": "submitted", "submittedAt": 5, "attempt": 0}
