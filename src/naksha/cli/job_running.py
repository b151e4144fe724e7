"""A job in a process of its own, and how it goes, for the eyes or for a program."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Protocol, Self

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

from naksha.model.errors import NakshaError
from naksha.spi.job_process import JobProcess
from naksha.spi.jobs import Done, Failed, Line, Moved, Phase, Said


def run_job(
    spec: Mapping[str, Any],
    *,
    master: str,
    settings: Mapping[str, str],
    as_json: bool,
) -> None:
    """Run a job to its end; Ctrl-C cancels it.

    Raises:
        NakshaError: It did not end well.
    """
    shown: _Shown = _Lines() if as_json else _Bars() if sys.stderr.isatty() else _Plain()
    with shown:
        end = asyncio.run(_run(spec, master, settings, shown))
    if isinstance(end, Failed):
        raise end.error()
    if not as_json:
        for field, value in end.report.items():
            typer.echo(f"{field.replace('_', ' ')}: {_readable(value)}")


async def _run(
    spec: Mapping[str, Any], master: str, settings: Mapping[str, str], shown: _Shown
) -> Done | Failed:
    process = await JobProcess.start(spec, master=master, settings=settings)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, process.cancel)
    try:
        try:
            return await _listened(process, shown)
        except asyncio.CancelledError:
            process.cancel()
            await _listened(process, shown)
            raise
    finally:
        await process.close()


async def _listened(process: JobProcess, shown: _Shown) -> Done | Failed:
    async for line in process.lines():
        shown.show(line)
        if isinstance(line, Done | Failed):
            if isinstance(line, Failed) and line.code == NakshaError.code:
                sys.stderr.write("".join(f"{text}\n" for text in process.errors))
            return line
    raise AssertionError("the last line says how it ended")


def _readable(value: Any) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


class _Shown(Protocol):
    """Who sees how it goes."""

    def show(self, line: Line) -> None: ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...


class _Still:
    """Nothing has to be cleared away."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        return None


class _Lines(_Still):
    """A program."""

    def show(self, line: Line) -> None:
        sys.stdout.write(msgspec.json.encode(line).decode() + "\n")
        sys.stdout.flush()


class _Plain(_Still):
    """A file, or a pipe: what is new, line by line."""

    def show(self, line: Line) -> None:
        if isinstance(line, Phase):
            total = "" if line.total is None else f" ({line.total:,})"
            typer.echo(f"{line.name}{total}", err=True)
        elif isinstance(line, Said):
            typer.echo(line.text, err=True)


class _Bars:
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

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._progress.stop()

    def show(self, line: Line) -> None:
        if isinstance(line, Phase):
            self._finish()
            self._task = self._progress.add_task(line.name, total=line.total, count="")
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

    def _finish(self) -> None:
        """What is over is full, however much there was."""
        if self._task is not None:
            task = self._progress.tasks[self._task]
            total = task.total if task.total is not None else task.completed
            self._progress.update(self._task, total=max(total, 1), completed=max(total, 1))
            self._progress.stop_task(self._task)
