"""The daily window of heavy work."""

from __future__ import annotations

import pytest

from naksha.hub.maintenance.schedule import DailyWindow, MaintenanceSchedule
from naksha.model.errors import InvalidArgument

HOUR_MS = 3_600_000


@pytest.mark.parametrize(
    ("text", "inside", "outside"),
    [("22:00-04:30", (22, 0, 4), (5, 12, 21)), ("01:00-02:00", (1,), (0, 2, 3))],
)
def test_a_window_may_extend_over_midnight(
    text: str, inside: tuple[int, ...], outside: tuple[int, ...]
) -> None:
    window = DailyWindow.parse(text)
    day_ms = 20_000 * 24 * HOUR_MS
    assert all(window.contains(day_ms + hour * HOUR_MS) for hour in inside)
    assert not any(window.contains(day_ms + hour * HOUR_MS) for hour in outside)


@pytest.mark.parametrize("text", ["22-4", "24:00-01:00", "22:00", "22:00 - 23:00"])
def test_a_window_that_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(InvalidArgument, match="HH:MM-HH:MM"):
        DailyWindow.parse(text)


def test_without_a_window_heavy_work_may_run_at_any_time() -> None:
    assert MaintenanceSchedule().is_heavy_at(0)


@pytest.mark.parametrize(
    ("text", "now", "opens"),
    [
        ("22:00-04:30", 5, 22),
        ("22:00-04:30", 23, 23),
        ("01:00-02:00", 3, 25),
        ("01:00-01:00", 1, 25),
    ],
)
def test_a_window_opens_next(text: str, now: int, opens: int) -> None:
    day_ms = 20_000 * 24 * HOUR_MS
    now_ms = day_ms + now * HOUR_MS
    assert DailyWindow.parse(text).opens_ms(now_ms) == day_ms + opens * HOUR_MS
