"""Output of verbs: tables or JSON, errors, and progress."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

import msgspec
import typer

from naksha.cli.failures import readable_errors

SILENT_SECONDS_MAX: Final = 2.0
"""A verb that takes longer shows its progress."""
_REPEAT_SECONDS: Final = 10.0
"""Interval of progress lines in a file or pipe."""


class Progress:
    """Progress of a verb on standard error: nothing at first, then the current phase.

    On a terminal it is one line with a spinner; in a file or pipe, a line per phase and interval.
    """

    def __init__(self, text: str, *, as_json: bool = False) -> None:
        self._text = text
        # A program that asked for JSON reads the error as JSON from standard error.
        self._is_shown = not as_json or sys.stderr.isatty()
        self._began = time.monotonic()
        self._printed = ""
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def phase(self, text: str) -> None:
        """Set the phase that is shown."""
        self._text = text

    def __enter__(self) -> Progress:
        if self._is_shown:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        if self._is_shown:
            self._thread.join()

    def _run(self) -> None:
        if self._ended.wait(SILENT_SECONDS_MAX):
            return
        if not sys.stderr.isatty():
            self._print_lines()
            return
        from rich.console import Console

        with Console(stderr=True).status(self._line()) as status:
            while not self._ended.wait(0.25):
                status.update(self._line())

    def _print_lines(self) -> None:
        printed_at = 0.0
        while True:
            now = time.monotonic()
            if self._text != self._printed or now - printed_at >= _REPEAT_SECONDS:
                self._printed, printed_at = self._text, now
                typer.echo(self._line(), err=True)
            if self._ended.wait(0.25):
                return

    def _line(self) -> str:
        return f"{self._text} ({time.monotonic() - self._began:.0f} s)"


@contextmanager
def running(text: str, *, as_json: bool = False) -> Iterator[Progress]:
    """Run a verb: readable errors with exit codes, and progress after two seconds."""
    with readable_errors(as_json=as_json), Progress(text, as_json=as_json) as progress:
        yield progress


def print_json(value: Any) -> None:
    """Print one JSON document."""
    typer.echo(msgspec.json.format(msgspec.json.encode(value)))


def print_table(
    rows: Iterable[Sequence[Any]], columns: Sequence[str], *, as_json: bool = False
) -> None:
    """Print rows: a table on a terminal, else a line per row with tabs, or a JSON array."""
    found = list(rows)
    if as_json:
        print_json([dict(zip(columns, row, strict=True)) for row in found])
    elif sys.stdout.isatty():
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        table = Table(*columns, box=None)
        for row in found:
            table.add_row(*(Text(_cell(value)) for value in row))
        Console().print(table)
    else:
        for row in found:
            typer.echo("\t".join(map(_cell, row)))


def print_object(value: Mapping[str, Any], *, as_json: bool = False) -> None:
    """Print an object: a line per member, or JSON."""
    if as_json:
        print_json(value)
        return
    for name, member in value.items():
        typer.echo(f"{name}: {_cell(member)}")


def _cell(value: Any) -> str:
    if value is None or value == "":
        return "-"
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
