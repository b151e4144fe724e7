"""Command line of the benchmarks: `python -m benchmarks NAME… [--quick]`, `--all`, `--list`."""

import argparse
import sys
from collections.abc import Sequence

from rich.console import Console

from benchmarks import _frame


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the chosen benchmarks; the last line of the output is a JSON object."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="benchmarks to run")
    parser.add_argument("--all", action="store_true", help="run all benchmarks")
    parser.add_argument("--list", action="store_true", help="list the benchmarks")
    parser.add_argument(
        "--quick",
        action="store_true",
        help="use small sizes, only to test that the benchmarks work",
    )
    parser.add_argument("--storage", choices=_frame.STORAGES, default=_frame.STORAGES[0])
    parser.add_argument("--backend", choices=_frame.BACKENDS, default=_frame.BACKENDS[0])
    parser.add_argument(
        "--sizes",
        type=lambda text: tuple(map(int, text.split(","))),
        default=(),
        metavar="N,N…",
        help="numbers of features, for benchmarks that grow",
    )
    chosen = parser.parse_args(arguments)
    if chosen.list:
        for name in _frame.names():
            print(f"{name:<20}{_frame.purpose(_frame.load(name))}")
        return 0
    if not chosen.names and not chosen.all:
        parser.error("name a benchmark, or --all, or --list")
    options = _frame.Options(
        quick=chosen.quick, storage=chosen.storage, backend=chosen.backend, sizes=chosen.sizes
    )
    return run(
        _frame.names() if chosen.all else chosen.names,
        options,
        nested=chosen.all or len(chosen.names) > 1,
    )


def run(names: Sequence[str], options: _frame.Options, *, nested: bool) -> int:
    """Run benchmarks one after the other; none if one of the names is unknown."""
    try:
        benchmarks = {name: _frame.load(name) for name in names}
    except _frame.UnknownBenchmarkError as error:
        print(
            f"unknown benchmark {error}; known benchmarks: {', '.join(_frame.names())}",
            file=sys.stderr,
        )
        return 2
    for name, benchmark in benchmarks.items():
        unknown = options.chosen - _frame.takes(benchmark)
        if unknown and not nested:
            print(f"the benchmark {name} does not support --{unknown.pop()}", file=sys.stderr)
            return 2
    console = Console()
    results: dict[str, _frame.Report] = {}
    for name, benchmark in benchmarks.items():
        results[name] = benchmark.run(options)
        _frame.print_report(results[name], console)
    print(_frame.as_json(results, options, nested=nested), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
