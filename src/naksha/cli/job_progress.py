"""How far a job is, for the eyes or for a program."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Self

import msgspec
import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    SpinnerColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)
from rich.text import Text

from naksha.spi.jobs.messages import Done, Line, Moved, Phase, Said


class Shown:
    """Who sees how it goes: nobody."""

    def show(self, line: Line) -> None:
        """Show a line that a job has told."""

    def close(self) -> None:
        """Nothing more will be shown."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def shown(*, as_json: bool = False) -> Shown:
    """As it is fit for whoever has called the command."""
    if as_json:
        return _Lines()
    return _Bars() if sys.stderr.isatty() else _Plain()


class _Lines(Shown):
    """A program."""

    def show(self, line: Line) -> None:
        sys.stdout.write(msgspec.json.encode(line).decode() + "\n")
        sys.stdout.flush()


class _Plain(Shown):
    """A file, or a pipe: what is new, line by line."""

    def __init__(self) -> None:
        self._phase: str | None = None

    def show(self, line: Line) -> None:
        if isinstance(line, Phase):
            if line.name != self._phase:
                total = "" if line.total is None else f" ({line.total:,})"
                typer.echo(f"{line.name}{total}", err=True)
            self._phase = line.name
        elif isinstance(line, Said):
            typer.echo(line.text, err=True)


class _Bars(Shown):
    """A person at a terminal: a bar for each phase, the one that is going on at the bottom."""

    def __init__(self) -> None:
        self._progress = Progress(
            SpinnerColumn(finished_text="[green]✓"),
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TextColumn("{task.fields[count]}", markup=False),
            TimeElapsedColumn(),
            console=Console(stderr=True),
        )
        self._task: TaskID | None = None
        self._progress.start()

    def close(self) -> None:
        self._progress.stop()

    def show(self, line: Line) -> None:
        if isinstance(line, Phase):
            self._begin(line)
        elif isinstance(line, Moved) and self._task is not None:
            task = self._progress.tasks[self._task]
            count = f"{line.done:,}" if task.total is None else f"{line.done:,}/{task.total:,.0f}"
            if task.elapsed:
                count += f"  {line.done / task.elapsed:,.0f}/s"
            self._progress.update(self._task, completed=line.done, count=count)
        elif isinstance(line, Said):
            self._progress.console.print(Text(line.text))
        elif isinstance(line, Done):
            self._finish()

    def _begin(self, line: Phase) -> None:
        """A phase that is told again knows more of what is to be done."""
        known = None if self._task is None else self._progress.tasks[self._task]
        if self._task is not None and known is not None and known.description == line.name:
            self._progress.update(self._task, total=line.total)
            return
        self._finish()
        self._task = self._progress.add_task(line.name, total=line.total, count="")

    def _finish(self) -> None:
        """What is over is full, however much there was."""
        if self._task is not None:
            task = self._progress.tasks[self._task]
            total = task.total if task.total is not None else task.completed
            self._progress.update(self._task, total=max(total, 1), completed=max(total, 1))
            self._progress.stop_task(self._task)
