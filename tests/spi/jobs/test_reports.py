"""Reports of jobs: truncated to their limit, with a note of it."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from naksha.spi.jobs.reports import TRUNCATED, fitting

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(0, 1_000_000) | st.text(max_size=200),
    lambda inner: st.lists(inner, max_size=20) | st.dictionaries(st.text(), inner, max_size=9),
    max_leaves=60,
)
FIELDS = ("files", "found", "count", "output")
REPORTS = st.fixed_dictionaries(dict.fromkeys(FIELDS, VALUES))
ROOM = 250
"""Enough for the names of all fields, and numbers."""


def size(report: dict[str, Any]) -> int:
    return len(msgspec.json.encode(report))


@given(REPORTS, st.integers(ROOM, 2_000))
def test_any_report_fits_and_says_what_is_not_there(report: dict[str, Any], room: int) -> None:
    told = fitting(report, room)
    assert size(told) <= room
    if size(report) <= room:
        assert told == report
        return
    assert told.keys() == {*FIELDS, TRUNCATED}
    for field in FIELDS:
        assert (told[field] != report[field]) == (field in told[TRUNCATED])
    # Truncate it once more to less room: what was left out before still counts.
    again = fitting(told, ROOM)
    for field, count in told[TRUNCATED].items():
        assert again[TRUNCATED][field] >= count


def test_the_longest_lists_are_cut_and_no_more_than_it_takes() -> None:
    files = [{"path": f"part-{n:04}", "bbox": [1.5, 2.5, 3.5, 4.5]} for n in range(1_000)]
    report = {"features": 7, "files": files, "columns": ["id", "geometry"]}
    told = fitting(report, 10_000)
    kept = len(told["files"])
    assert told == {**report, "files": files[:kept], "truncated": {"files": 1_000 - kept}}
    more = {**told, "files": files[: kept + 1]}
    assert size(told) <= 10_000 < size(more)
    assert fitting(told, 5_000)[TRUNCATED]["files"] == 1_000 - len(fitting(told, 5_000)["files"])
