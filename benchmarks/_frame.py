"""Framework of the benchmarks: options, reports, registry, interleaved timing, a server.

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
"""Backends of the catalog."""
DEFAULTS: dict[str, str | tuple[int, ...]] = {
    "storage": STORAGES[0],
    "backend": BACKENDS[0],
    "sizes": (),
}
REPETITIONS_DEFAULT = 7

Cell = str | int | float
Figure = str | int | float | bool | None


@dataclass(frozen=True)
class Options:
    """Options of the command line."""

    quick: bool = False
    storage: str = STORAGES[0]
    backend: str = BACKENDS[0]
    sizes: tuple[int, ...] = ()
    """Numbers of features, instead of a benchmark's own."""

    @property
    def chosen(self) -> set[str]:
        """Names of changed options, of those that not every benchmark supports."""
        return {name for name, default in DEFAULTS.items() if getattr(self, name) != default}

    def size(self, full: int, quick: int) -> int:
        """Choose a size: a quick run only tests that the benchmark works."""
        return quick if self.quick else full


@dataclass
class Report:
    """Result of a benchmark: rows for people, figures for programs."""

    title: str
    columns: Sequence[str]
    rows: list[Sequence[Cell]] = field(default_factory=list)
    figures: dict[str, Figure] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


class Benchmark(Protocol):
    """Module of this package with a benchmark."""

    __doc__: str | None

    def run(self, options: Options) -> Report: ...


class UnknownBenchmarkError(LookupError):
    """Unknown name of a benchmark."""


# ---- registry ------------------------------------------------------------------------------------


def names() -> list[str]:
    """Return the names of all benchmarks: the modules of this package without an underscore."""
    found = (module.name for module in pkgutil.iter_modules(benchmarks.__path__))
    return sorted(name for name in found if not name.startswith("_"))


def load(name: str) -> Benchmark:
    """Import the benchmark with a name."""
    if name not in names():
        raise UnknownBenchmarkError(name)
    return cast(Benchmark, importlib.import_module(f"{benchmarks.__name__}.{name}"))


def takes(benchmark: Benchmark) -> set[str]:
    """Return the options that a benchmark supports beyond --quick: its constant TAKES."""
    return set(getattr(benchmark, "TAKES", ()))


def purpose(benchmark: Benchmark) -> str:
    """Return the first line of a benchmark's docstring."""
    return (benchmark.__doc__ or "").strip().partition("\n")[0]


# ---- timing --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Timing:
    """Durations of the repetitions of one variant, in seconds."""

    seconds: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    @property
    def spread(self) -> float:
        """Range of the durations relative to their median: 0.1 is 10 %."""
        return (max(self.seconds) - min(self.seconds)) / self.median if self.median else 0.0

    def per_second(self, count: int) -> float:
        """Return the rate if each repetition did `count` operations."""
        return count / self.median


async def side_by_side(
    ways: Mapping[str, Callable[[], Awaitable[object]]],
    *,
    repetitions: int = REPETITIONS_DEFAULT,
    warm_ups: int = 1,
    before_each: Callable[[], Awaitable[object]] | None = None,
) -> dict[str, Timing]:
    """Time several variants of the same work, interleaved.

    A disturbance of the machine usually lasts longer than one repetition. With interleaved
    repetitions, and another variant first in each round, it affects all variants alike.
    `before_each` is not timed.
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
    """Create a PostGIS database on its own server with default settings; yield its DSN."""
    with PostgresCluster(tcp=tcp) as cluster:
        cluster.create_database(name)
        cluster.execute("CREATE EXTENSION postgis SCHEMA public", name)
        yield cluster.dsn(name, tcp=tcp)


# ---- output --------------------------------------------------------------------------------------


def print_report(report: Report, console: Console) -> None:
    """Print a report as a table, with its notes below."""
    table = Table(title=report.title, title_justify="left", title_style="bold")
    for number, column in enumerate(report.columns):
        table.add_column(column, justify="left" if number == 0 else "right")
    for row in report.rows:
        table.add_row(*(show(cell) for cell in row))
    console.print(table)
    for note in report.notes:
        console.print(note, markup=False)


def show(cell: Cell) -> str:
    """Format a cell with separators of thousands and three significant digits."""
    if isinstance(cell, str):
        return cell
    if isinstance(cell, int) or abs(cell) >= 1000:
        return f"{cell:,.0f}"
    return f"{cell:.3g}"


def as_json(results: Mapping[str, Report], options: Options, *, nested: bool) -> str:
    """Encode all results as one line, the last one of a run, for programs.

    The figures of a single benchmark are members of the object itself; those of several benchmarks
    are `nested` under their names.
    """
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
