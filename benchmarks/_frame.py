"""What all benchmarks share: their options and report, the registry, timing side by side, a server.

A benchmark is a module of this package with a docstring and `run(options: Options) -> Report`.
"""

import gc
import importlib
import json
import os
import pkgutil
import platform
import statistics
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol, cast

from rich.console import Console
from rich.table import Table

import benchmarks
from naksha.testing.servers.postgres import PostgresCluster

STORAGES = ("postgresql", "sqlite")
BACKENDS = ("postgresql", "sqlite", "redis", "mariadb", "memory")
"""Of the catalog."""
DEFAULTS = {"storage": STORAGES[0], "backend": BACKENDS[0]}
REPETITIONS_DEFAULT = 7

Cell = str | int | float
Figure = str | int | float | bool | None


@dataclass(frozen=True)
class Options:
    """What the person at the command line chose."""

    quick: bool = False
    storage: str = STORAGES[0]
    backend: str = BACKENDS[0]

    @property
    def chosen(self) -> set[str]:
        """The names of the options that differ from their defaults, of those that not every
        benchmark takes."""
        return {name for name in ("storage", "backend") if getattr(self, name) != DEFAULTS[name]}

    def size(self, full: int, quick: int) -> int:
        """The one that fits: a quick run shows that the benchmark works, not how fast we are."""
        return quick if self.quick else full


@dataclass
class Report:
    """What a benchmark found: rows for people, figures for programs."""

    title: str
    columns: Sequence[str]
    rows: list[Sequence[Cell]] = field(default_factory=list)
    figures: dict[str, Figure] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


class Benchmark(Protocol):
    """A module of this package."""

    __doc__: str | None

    def run(self, options: Options) -> Report: ...


class UnknownBenchmarkError(LookupError):
    """There is no benchmark of that name."""


# ---- registry ------------------------------------------------------------------------------------


def names() -> list[str]:
    """All benchmarks: the modules of this package that do not begin with an underscore."""
    found = (module.name for module in pkgutil.iter_modules(benchmarks.__path__))
    return sorted(name for name in found if not name.startswith("_"))


def load(name: str) -> Benchmark:
    """The benchmark of that name."""
    if name not in names():
        raise UnknownBenchmarkError(name)
    return cast(Benchmark, importlib.import_module(f"{benchmarks.__name__}.{name}"))


def takes(benchmark: Benchmark) -> set[str]:
    """The options it takes beyond --quick: its constant TAKES."""
    return set(getattr(benchmark, "TAKES", ()))


def purpose(benchmark: Benchmark) -> str:
    """The first line of its docstring."""
    return (benchmark.__doc__ or "").strip().partition("\n")[0]


# ---- timing --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Timing:
    """The seconds that each repetition of one way took."""

    seconds: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    @property
    def spread(self) -> float:
        """How far the repetitions lie apart, as a part of the median: 0.1 is 10 %."""
        return (max(self.seconds) - min(self.seconds)) / self.median if self.median else 0.0

    def per_second(self, count: int) -> float:
        """The rate, when each repetition did `count` things."""
        return count / self.median


async def side_by_side(
    ways: Mapping[str, Callable[[], Awaitable[object]]],
    *,
    repetitions: int = REPETITIONS_DEFAULT,
    warm_ups: int = 1,
    before_each: Callable[[], Awaitable[object]] | None = None,
) -> dict[str, Timing]:
    """Time several ways of doing the same, taking turns.

    What disturbs a machine lasts longer than one repetition; taking turns, and beginning with
    another way each round, it disturbs all of them alike. `before_each` is not timed.
    """
    samples: dict[str, list[float]] = {name: [] for name in ways}
    order = list(ways)
    for turn in range(warm_ups + repetitions):
        for name in order:
            if before_each is not None:
                await before_each()
            gc.collect()
            start = time.perf_counter()
            await ways[name]()
            seconds = time.perf_counter() - start
            if turn >= warm_ups:
                samples[name].append(seconds)
        order.append(order.pop(0))
    return {name: Timing(tuple(values)) for name, values in samples.items()}


# ---- servers -------------------------------------------------------------------------------------


@contextmanager
def postgres_database(name: str = "bench", *, tcp: bool = False) -> Iterator[str]:
    """The DSN of a new PostGIS database on a server of its own, with the server's own defaults."""
    with PostgresCluster(tcp=tcp) as cluster:
        cluster.create_database(name)
        cluster.execute("CREATE EXTENSION postgis SCHEMA public", name)
        yield cluster.dsn(name, tcp=tcp)


# ---- output --------------------------------------------------------------------------------------


def print_report(report: Report, console: Console) -> None:
    """The report as a table, with its notes below."""
    table = Table(title=report.title, title_justify="left", title_style="bold")
    for number, column in enumerate(report.columns):
        table.add_column(column, justify="left" if number == 0 else "right")
    for row in report.rows:
        table.add_row(*(show(cell) for cell in row))
    console.print(table)
    for note in report.notes:
        console.print(note, markup=False)


def show(cell: Cell) -> str:
    """A cell as people read it: thousands apart, three digits that count."""
    if isinstance(cell, str):
        return cell
    if isinstance(cell, int) or abs(cell) >= 1000:
        return f"{cell:,.0f}"
    return f"{cell:.3g}"


def as_json(results: Mapping[str, Report], options: Options, *, nested: bool) -> str:
    """All results on one line: the last line of a run, for programs. The figures of one benchmark
    are members of the object itself; those of several are `nested` under their names."""
    machine = {
        "cores": len(os.sched_getaffinity(0)),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
    }
    document: dict[str, Any] = {
        "quick": options.quick,
        "storage": options.storage,
        "machine": machine,
    }
    figures = {name: report.figures for name, report in results.items()}
    if nested:
        document["benchmarks"] = figures
    else:
        for own in figures.values():
            document |= own
    return json.dumps(document, allow_nan=False)
