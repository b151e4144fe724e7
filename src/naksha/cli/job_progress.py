"""How far a job is, as a person watches it: a bar for what it is about now."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from naksha.spi.jobs import Line, Moved, Phase, Said


class JobBar:
    """Shows what the lines of a job tell; where nobody watches, only what it says."""

    def __init__(self, console: Console | None = None) -> None:
        self._progress = Progress(
            TextColumn("[progress.description]{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=console or Console(stderr=True),
        )
        self._task = self._progress.add_task("starting", total=None)

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
        """Show one line."""
        if isinstance(line, Phase):
            self._progress.update(self._task, visible=False)
            self._task = self._progress.add_task(line.name, total=line.total)
        elif isinstance(line, Moved):
            self._progress.update(self._task, completed=line.done)
        elif isinstance(line, Said):
            self._progress.console.print(line.text)
