"""The frame of the benchmarks: registry, mutual exclusion, and output."""

import json
import runpy
from pathlib import Path

import asyncpg
import pytest

import benchmarks
from benchmarks import __main__, _frame

BENCHMARK = '''
"""Counts to a number.

And no further.
"""
from benchmarks._frame import Options, Report

def run(options: Options) -> Report:
    top = options.size(full=1000, quick=10)
    rows = [["all", 1234567, 0.012345]]
    return Report("Counting", ["way", "top", "s"], rows, {"top": top, "slow": None}, ["[so far]"])
'''


@pytest.fixture
def counting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> str:
    """The only benchmark there is, for as long as the test runs; its name."""
    name = f"counting_{abs(hash(request.node.name))}"
    (tmp_path / f"{name}.py").write_text(BENCHMARK)
    (tmp_path / "_helper.py").write_text('"""Not a benchmark."""')
    monkeypatch.setattr(benchmarks, "__path__", [str(tmp_path)])
    return name


def test_every_module_without_underscore_is_a_benchmark(
    counting: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert __main__.main(["--list"]) == 0
    assert capsys.readouterr().out == f"{counting:<20}Counts to a number.\n"


@pytest.mark.parametrize(("arguments", "top"), [(["--all"], 1000), (["--all", "--quick"], 10)])
def test_the_last_line_is_one_json_object(
    counting: str, arguments: list[str], top: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert __main__.main(arguments) == 0
    *table, last = capsys.readouterr().out.splitlines()
    document = json.loads(last)
    assert document["benchmarks"] == {counting: {"top": top, "slow": None}}
    assert document["storage"] == "postgresql"
    text = "\n".join(table)
    assert "Counting" in text
    assert "1,234,567" in text
    assert "0.0123" in text
    assert table[-1] == "[so far]"


def test_the_figures_of_one_benchmark_are_at_the_top(
    counting: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert __main__.main([counting, "--quick"]) == 0
    document = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert document["top"] == 10
    assert document["quick"] is True
    assert "benchmarks" not in document


def test_a_wrong_name_runs_nothing(counting: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert __main__.main([counting, "_helper"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == f"unknown benchmark _helper; known benchmarks: {counting}\n"


def test_all_benchmarks_can_be_loaded_and_have_a_description() -> None:
    for name in _frame.names():
        benchmark = _frame.load(name)
        assert callable(benchmark.run), name
        assert _frame.purpose(benchmark), name


async def test_ways_take_turns_and_warm_ups_do_not_count() -> None:
    done: list[str] = []

    async def first() -> None:
        done.append("a")

    async def second() -> None:
        done.append("b")

    async def before() -> None:
        done.append(".")

    timings = await _frame.side_by_side(
        {"a": first, "b": second}, repetitions=2, warm_ups=1, before_each=before
    )
    assert "".join(done) == ".a.b.b.a.a.b"
    assert [len(timing.seconds) for timing in timings.values()] == [2, 2]


def test_a_timing_reports_its_median() -> None:
    timing = _frame.Timing((0.5, 0.4, 2.0))
    assert timing.median == 0.5
    assert timing.per_second(1000) == 2000
    assert timing.spread == pytest.approx(3.2)


@pytest.mark.postgres
async def test_a_benchmark_gets_a_server_with_its_defaults() -> None:
    with _frame.postgres_database() as dsn:
        connection = await asyncpg.connect(dsn)
        assert await connection.fetchval("SELECT postgis_lib_version()")
        assert await connection.fetchval("SHOW fsync") == "on"
        changed = await connection.fetch(
            "SELECT name FROM pg_settings WHERE source = 'configuration file'"
            " AND sourcefile LIKE '%naksha.conf'"
        )
        assert {row["name"] for row in changed} <= {
            "listen_addresses",
            "port",
            "unix_socket_directories",
        }
        await connection.close()


def test_the_table_of_results_is_filled_by_benchmark_and_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = (
        "| `rest` | `id_ratio` | ≥ 5 | 3.1–3.6 | – |\n"
        "| `writes --storage sqlite` | `id_ratio` | ≥ 5 | – | 1 |\n"
        "| `rest` | `other` | ≥ 5 | – | – |\n"
    )
    document = tmp_path / "benchmarks.md"
    document.write_text(table)
    rest, writes = tmp_path / "rest.json", tmp_path / "writes-storage-sqlite.json"
    rest.write_text('progress\n{"id_ratio": 5.2}\n')
    writes.write_text('{"id_ratio": 2}')
    script = Path(__file__).parents[2] / "scripts" / "fill_benchmarks.py"
    monkeypatch.setattr("sys.argv", [str(script), *map(str, (document, rest, writes))])
    runpy.run_path(str(script), run_name="__main__")
    assert document.read_text().splitlines() == [
        "| `rest` | `id_ratio` | ≥ 5 | 3.1–3.6 | 5.2 |",
        "| `writes --storage sqlite` | `id_ratio` | ≥ 5 | – | 2 |",
        "| `rest` | `other` | ≥ 5 | – | – |",
    ]
