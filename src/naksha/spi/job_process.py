"""Runs a job in a process of its own, and listens to it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections import deque
from collections.abc import AsyncIterator, Mapping
from typing import Any, Final

import msgspec

from naksha.model import limits
from naksha.model.errors import NakshaError, NotSupported
from naksha.spi.jobs import MODULE, Done, Failed, JobKind, Line, Said, read_line

_DRAIN_SECONDS: Final = 1.0
"""How long is waited for the last words of processes that outlive the job's."""


class JobProcess:
    """A job that runs. It ends with this process, whatever ends that."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._killing: asyncio.TimerHandle | None = None
        self.errors: deque[str] = deque(maxlen=limits.JOB_ERROR_LINES_MAX)
        """The last lines that it wrote to stderr. There may be secrets in them."""
        self._listening = asyncio.create_task(self._listen())

    @classmethod
    async def start(
        cls, spec: Mapping[str, Any], *, master: str = "", settings: Mapping[str, str] | None = None
    ) -> JobProcess:
        """Start a job by its whole specification, which goes by a pipe: nobody else reads it."""
        arguments = ["run", "--parent", str(os.getpid())]
        if master:
            arguments += ["--master", master]
        for name, value in (settings or {}).items():
            arguments += ["--set", f"{name}={value}"]
        made = cls(await _started(arguments, stdin=asyncio.subprocess.PIPE))
        stdin = made._process.stdin
        assert stdin is not None
        with contextlib.suppress(ConnectionError):  # it has ended, and says why
            stdin.write(msgspec.json.encode(spec))
            await stdin.drain()
        stdin.close()
        return made

    @property
    def pid(self) -> int:
        """The id of the process."""
        return self._process.pid

    async def lines(self) -> AsyncIterator[Line]:
        """What it tells; the last one is `Done` or `Failed`, whatever happens to it."""
        assert self._process.stdout is not None
        end: Line | None = None
        while end is None:
            try:
                text = await self._process.stdout.readline()
            except ValueError:
                yield Said(f"A line of more than {limits.JOB_LINE_BYTES_MAX} bytes was left out")
                continue
            if not text:
                break
            line = read_line(text)
            if isinstance(line, Done | Failed):
                end = line
            elif line is not None:
                yield line
        code = await self._ended()
        yield end or Failed(NakshaError.code, _sudden(code))

    def cancel(self) -> None:
        """Ask it to end, and see to it that it does."""
        if self._process.returncode is None and self._killing is None:
            self._process.send_signal(signal.SIGTERM)
            loop = asyncio.get_running_loop()
            self._killing = loop.call_later(limits.JOB_KILL_SECONDS, self._kill)

    async def close(self) -> None:
        """It is gone when this returns, whatever it was about."""
        self._kill()
        await self._process.wait()
        if self._killing is not None:
            self._killing.cancel()
        self._listening.cancel()
        await asyncio.gather(self._listening, return_exceptions=True)

    async def _ended(self) -> int:
        """Its exit code, once it has told all and is gone."""
        try:
            code = await asyncio.wait_for(self._process.wait(), limits.JOB_KILL_SECONDS)
        except TimeoutError:
            self._kill()
            code = await self._process.wait()
        await asyncio.wait([self._listening], timeout=_DRAIN_SECONDS)
        return code

    def _kill(self) -> None:
        """It and what it has started: it leads a session of its own."""
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)

    async def _listen(self) -> None:
        assert self._process.stderr is not None
        while True:
            try:
                text = await self._process.stderr.readline()
            except ValueError:
                continue
            if not text:
                return
            self.errors.append(text.decode(errors="replace").rstrip())


async def described_jobs() -> list[JobKind]:
    """The jobs that can be run here.

    Raises:
        NotSupported: None can, and why.
    """
    process = await _started(["describe"], stdin=asyncio.subprocess.DEVNULL)
    try:
        async with asyncio.timeout(limits.JOB_DESCRIBE_SECONDS_MAX):
            said, _ = await process.communicate()
        return msgspec.json.decode(said, type=list[JobKind])
    except (TimeoutError, msgspec.DecodeError) as error:
        raise NotSupported(
            "Jobs cannot be run here; is Spark installed (pip install naksha[spark]), and Java?",
            field="job",
        ) from error
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def _started(arguments: list[str], *, stdin: int) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        MODULE,
        *arguments,
        stdin=stdin,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        limit=limits.JOB_LINE_BYTES_MAX,
        start_new_session=True,
    )


def _sudden(code: int) -> str:
    """What is told of a process that ended without a word."""
    if code >= 0:
        return f"Its process ended with exit code {code} and said nothing"
    name = signal.Signals(-code).name if -code in set(signal.Signals) else str(-code)
    hint = "; there may have been too little memory" if -code == signal.SIGKILL else ""
    return f"Its process was ended by the signal {name}{hint}"
