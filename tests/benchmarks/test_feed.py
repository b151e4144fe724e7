"""Counts and reports of the change feed benchmark; with --long, a quick run."""

import asyncio
from pathlib import Path

import pytest

from benchmarks import _feed_hub, feed
from benchmarks._feed_hub import HANDLER, Arrivals
from benchmarks._frame import STORAGES, Options
from naksha.hub.pipeline.handler_registry import handler_names

GOALS = ("publish_p99_ms", "publish_tps", "deliver_tps")
OTHERS = ("publish_p50_ms", "deliver_p50_ms", "deliver_p99_ms", "sustained_tps")


def found() -> feed.Measurements:
    """One transaction of a hundred takes long."""
    latencies = feed.Latencies([1.0] * 98 + [60.0] * 2, [2.0] * 98 + [80.0] * 2)
    return feed.Measurements({"library": latencies}, 2_000.4, 1_000.4, 300.4)


def test_feed_reports_both_storages_by_the_names_of_the_goals() -> None:
    own = found()
    own.scheduled["plain SQL"] = feed.Latencies([3.0] * 100, [4.0] * 100)
    report = feed._report({"postgresql": own, "sqlite": found()})
    for prefix in ("", "sqlite_"):
        reported = {name: report.figures[f"{prefix}{name}"] for name in (*GOALS, *OTHERS)}
        assert reported == {
            "publish_p99_ms": 60.0,
            "publish_tps": 2_000,
            "deliver_tps": 1_000,
            "publish_p50_ms": 1.0,
            "deliver_p50_ms": 2.0,
            "deliver_p99_ms": 80.0,
            "sustained_tps": 300,
        }
    assert report.figures["sql_publish_p99_ms"] == 3.0
    assert report.figures["sql_deliver_p99_ms"] == 4.0
    assert [row[0] for row in report.rows] == [
        "postgresql, library",
        "postgresql, plain SQL",
        "sqlite, library",
    ]


def test_a_version_is_known_as_soon_as_one_that_is_not_before_it() -> None:
    heard = feed.Notifications([3, 4, 9], [0.1, 0.2, 0.3])
    assert [heard.time_of(version) for version in (1, 3, 4, 5, 9)] == [0.1, 0.1, 0.2, 0.3, 0.3]


async def test_all_that_was_delivered_is_waited_for() -> None:
    arrivals = Arrivals()
    arrivals.note(1)
    for version in (3, 5):  # the second one must not take the first one's news for its own
        waiting = asyncio.create_task(arrivals.up_to(version))
        await asyncio.sleep(0)
        arrivals.note(version - 1)
        await asyncio.sleep(0)
        assert not waiting.done()
        arrivals.note(version)
        await waiting
    await arrivals.up_to(2)


@pytest.mark.parametrize("versions", [(1, 3), (1, 2, 2, 3), (2, 1, 3)])
async def test_skipped_or_repeated_events_are_not_measured(
    versions: tuple[int, ...],
) -> None:
    arrivals = Arrivals()
    for version in versions:
        arrivals.note(version)
    with pytest.raises(AssertionError):
        await arrivals.up_to(3)


def test_the_handler_is_known_while_it_is_installed(tmp_path: Path) -> None:
    before = handler_names()
    with _feed_hub._installed(tmp_path / "handlers"):
        assert handler_names() == sorted([*before, HANDLER])
    assert handler_names() == before


@pytest.mark.long
@pytest.mark.postgres
def test_a_quick_run_has_all_its_figures() -> None:
    figures = feed.run(Options(quick=True)).figures
    for kind in STORAGES:
        prefix = "" if kind == "postgresql" else f"{kind}_"
        for name in (*GOALS, *OTHERS):
            assert float(str(figures[f"{prefix}{name}"])) >= 0
    assert float(str(figures["sql_publish_p99_ms"])) > 0
