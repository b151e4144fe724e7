"""Run a job in a separate process, for a command."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import Mapping
from typing import Any

import typer

from naksha.cli.job_progress import ProgressDisplay, progress_display
from naksha.model.errors import NakshaError
from naksha.spi.jobs.messages import DoneMessage, FailedMessage
from naksha.spi.jobs.process import JobProcess


def run_job(
    spec: Mapping[str, Any],
    *,
    master: str = "",
    settings: Mapping[str, str] | None = None,
    as_json: bool = False,
) -> DoneMessage:
    """Run a job to its end and show its progress. Ctrl-C cancels it.

    Raises:
        NakshaError: The job failed.
    """
    with progress_display(as_json=as_json) as watching:
        end = asyncio.run(_run(spec, master, settings or {}, watching))
    if isinstance(end, FailedMessage):
        raise end.error()
    return end


def print_report(report: Mapping[str, Any]) -> None:
    """Print the report of a job for people."""
    for field, value in report.items():
        typer.echo(f"{field.replace('_', ' ')}: {_readable(value)}")


async def _run(
    spec: Mapping[str, Any], master: str, settings: Mapping[str, str], watching: ProgressDisplay
) -> DoneMessage | FailedMessage:
    process = await JobProcess.start(spec, master=master, settings=settings)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, process.cancel)
    try:
        try:
            return await _listened(process, watching)
        except asyncio.CancelledError:
            process.cancel()
            end = await _listened(process, watching)
            if isinstance(end, DoneMessage):
                return end  # the job completed before it could be cancelled
            raise
    finally:
        await process.close()


async def _listened(process: JobProcess, watching: ProgressDisplay) -> DoneMessage | FailedMessage:
    async for line in process.lines():
        watching.show(line)
        if isinstance(line, DoneMessage | FailedMessage):
            if isinstance(line, FailedMessage) and line.code == NakshaError.code:
                sys.stderr.write("".join(f"{text}\n" for text in process.errors))
            return line
    raise AssertionError("the job process ended without a final message")


def _readable(value: Any) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
