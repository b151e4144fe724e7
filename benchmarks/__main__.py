"""The command line: `python -m benchmarks NAME… [--quick]`, `--all`, `--list`."""

import argparse
import sys
from collections.abc import Sequence

from rich.console import Console

from benchmarks import _frame


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what was asked for; the last line printed is one JSON object."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="which benchmarks to run")
    parser.add_argument("--all", action="store_true", help="run all of them")
    parser.add_argument("--list", action="store_true", help="say which there are")
    parser.add_argument("--quick", action="store_true", help="small sizes: does it still work?")
    parser.add_argument("--storage", choices=_frame.STORAGES, default=_frame.STORAGES[0])
    parser.add_argument("--backend", choices=_frame.BACKENDS, default=_frame.BACKENDS[0])
    chosen = parser.parse_args(arguments)
    if chosen.list:
        for name in _frame.names():
            print(f"{name:<20}{_frame.purpose(_frame.load(name))}")
        return 0
    if not chosen.names and not chosen.all:
        parser.error("name a benchmark, or --all, or --list")
    return run(
        _frame.names() if chosen.all else chosen.names,
        _frame.Options(quick=chosen.quick, storage=chosen.storage, backend=chosen.backend),
        nested=chosen.all or len(chosen.names) > 1,
    )


def run(names: Sequence[str], options: _frame.Options, *, nested: bool) -> int:
    """Run the benchmarks one after the other; nothing runs when one of the names is wrong."""
    try:
        benchmarks = {name: _frame.load(name) for name in names}
    except _frame.UnknownBenchmarkError as error:
        print(f"no benchmark {error}; there are: {', '.join(_frame.names())}", file=sys.stderr)
        return 2
    for name, benchmark in benchmarks.items():
        unknown = options.chosen - _frame.takes(benchmark)
        if unknown and not nested:
            print(f"the benchmark {name} takes no --{unknown.pop()}", file=sys.stderr)
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
