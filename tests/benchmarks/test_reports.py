"""Reports of the benchmarks: the promised keys, each with its worst case."""

import pytest

from benchmarks import __main__, _frame, bulkload, spark, timetravel, writes
from benchmarks._frame import Timing


def test_writes_has_ratios_and_rates() -> None:
    steps = ["create", "update", "delete", "plain insert", "plain update"]
    samples = {name: [2.0, 1.0, 3.0] for name in steps}
    samples |= {f"raw {name}": [1.0] for name in ("insert", "update", "delete")}
    samples["delete"] = [8.0, 6.0, 7.0]
    figures = writes._report(samples, count=100, raw_count=20).figures
    assert figures["create_ratio"] == figures["update_ratio"] == 1.0
    assert figures["delete_ratio"] == 3.5
    assert figures["create_per_s"] == 50
    assert figures["raw_insert_per_s"] == figures["raw_features"] == 20


def test_bulkload_reports_the_worse_of_its_forms() -> None:
    seconds = {
        "raw": 10.0,
        "staged": 11.0,
        "raw, from dicts": 20.0,
        "staged, from dicts": 28.0,
    }
    timings = {name: Timing((value,)) for name, value in seconds.items()}
    figures = bulkload._report(timings, 1_000).figures
    assert figures["bulk_ratio"] == 1.4
    assert figures["bulk_prepared_ratio"] == 1.1


def times(how: str, factor: float) -> timetravel.Times:
    """A second for the reference, so that ours is the factor; the single table takes double."""
    found: timetravel.Times = {}
    for shape in timetravel.SHAPES:
        found[how, "ref", "HEAD", shape] = 1.0
        for version in ("HEAD", "0", "middle", "last"):
            found[how, "ours", version, shape] = factor
            found[how, "gs", version, shape] = 2 * factor
    return found


def test_timetravel_reports_the_worst_of_all_cases() -> None:
    few = times("prepared", 1.1) | times("fresh", 1.5)
    many = times("prepared", 1.2) | times("8 sessions", 1.3)
    many["prepared", "ours", "middle", "bbox"] = 1.4
    results = {4_000: few, 10_000: many}
    report = timetravel._report(results, {"ours": 1.05, "gs": 1.8}, "Goals.")
    expected = {
        "head_full": 1.5,
        "head_bbox": 1.5,
        "past_full": 1.5,
        "past_bbox": 1.5,
        "small_extra_ms": 500.0,
        "steady_head_full": 1.3,
        "steady_past_bbox": 1.4,
        "fresh_head_bbox": 1.5,
        "gs_past_full": 3.0,
        "growth": 1.05,
        "gs_growth": 1.8,
    }
    assert {key: report.figures[key] for key in expected} == expected


@pytest.mark.parametrize(
    ("name", "option"),
    [
        ("bulkload", "--storage=sqlite"),
        ("catalog", "--storage=sqlite"),
        ("diff", "--backend=redis"),
    ],
)
def test_an_option_that_a_benchmark_does_not_take_is_refused(
    name: str, option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert __main__.main([name, option, "--quick"]) == 2
    assert "does not support --" in capsys.readouterr().err


def test_every_option_is_taken_by_some_benchmark() -> None:
    taken = {name: _frame.takes(_frame.load(name)) for name in _frame.names()}
    assert set().union(*taken.values()) == set(_frame.DEFAULTS)


def test_spark_has_ratios_and_memory() -> None:
    seconds = {"load": 30.0, "raw": 20.0, "ready": 15.0, "read": 8.0, "jdbc": 10.0}
    seconds |= {"diff": 2.0, "partition": 1.0}
    timings = {name: Timing((value,)) for name, value in seconds.items()}
    figures = spark._report(timings, 1_000, {"executor_mb": 512.4}).figures
    assert (figures["load_ratio"], figures["ready_ratio"], figures["read_ratio"]) == (
        1.5,
        2.0,
        1.25,
    )
    assert (figures["diff_s"], figures["partition_s"], figures["executor_mb"]) == (2.0, 1.0, 512)


@pytest.mark.parametrize(
    ("dsn", "url"),
    [
        ("postgresql://me@h:1/db", "jdbc:postgresql://h:1/db?user=me"),
        (
            "postgresql://me:pw@h/db?sslmode=off",
            "jdbc:postgresql://h/db?user=me&password=pw&sslmode=off",
        ),
    ],
)
def test_sparks_own_reader_has_the_same_database(dsn: str, url: str) -> None:
    assert spark._jdbc_url(dsn) == url
