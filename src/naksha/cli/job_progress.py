"""Progress of a job, shown as bars, plain lines or JSON lines."""

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

from naksha.spi.jobs.messages import (
    DoneMessage,
    JobMessage,
    LogMessage,
    PhaseMessage,
    ProgressMessage,
)


class ProgressDisplay:
    """Progress display; this base class shows nothing."""

    def show(self, line: JobMessage) -> None:
        """Show a message of the job."""

    def close(self) -> None:
        """End the display."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def progress_display(*, as_json: bool = False) -> ProgressDisplay:
    """Return the display that fits standard error, or JSON lines."""
    if as_json:
        return _JsonLinesDisplay()
    return _BarDisplay() if sys.stderr.isatty() else _PlainDisplay()


class _JsonLinesDisplay(ProgressDisplay):
    """Display for programs: JSON lines on standard output."""

    def show(self, line: JobMessage) -> None:
        sys.stdout.write(msgspec.json.encode(line).decode() + "\n")
        sys.stdout.flush()


class _PlainDisplay(ProgressDisplay):
    """Display for files and pipes: one line per phase or message."""

    def __init__(self) -> None:
        self._phase: str | None = None

    def show(self, line: JobMessage) -> None:
        if isinstance(line, PhaseMessage):
            if line.name != self._phase:
                total = "" if line.total is None else f" ({line.total:,})"
                typer.echo(f"{line.name}{total}", err=True)
            self._phase = line.name
        elif isinstance(line, LogMessage):
            typer.echo(line.text, err=True)


class _BarDisplay(ProgressDisplay):
    """Display for terminals: one bar per phase, the current one at the bottom."""

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

    def show(self, line: JobMessage) -> None:
        if isinstance(line, PhaseMessage):
            self._begin(line)
        elif isinstance(line, ProgressMessage) and self._task is not None:
            task = self._progress.tasks[self._task]
            count = f"{line.done:,}" if task.total is None else f"{line.done:,}/{task.total:,.0f}"
            if task.elapsed:
                count += f"  {line.done / task.elapsed:,.0f}/s"
            self._progress.update(self._task, completed=line.done, count=count)
        elif isinstance(line, LogMessage):
            self._progress.console.print(Text(line.text))
        elif isinstance(line, DoneMessage):
            self._finish()

    def _begin(self, line: PhaseMessage) -> None:
        """Begin a phase, or update the total of the current one if it is reported again."""
        known = None if self._task is None else self._progress.tasks[self._task]
        if self._task is not None and known is not None and known.description == line.name:
            self._progress.update(self._task, total=line.total)
            return
        self._finish()
        self._task = self._progress.add_task(line.name, total=line.total, count="")

    def _finish(self) -> None:
        """Complete the bar of the current phase, whatever its count."""
        if self._task is not None:
            task = self._progress.tasks[self._task]
            total = task.total if task.total is not None else task.completed
            self._progress.update(self._task, total=max(total, 1), completed=max(total, 1))
            self._progress.stop_task(self._task)
