"""Runner of a job in a process of its own."""

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
from naksha.model.errors import Cancelled, NakshaError, NotSupported
from naksha.spi.jobs.messages import (
    MODULE,
    DoneMessage,
    FailedMessage,
    JobKind,
    JobMessage,
    LogMessage,
    UncancellableMessage,
    read_message,
)

_DRAIN_SECONDS: Final = 1.0
"""Timeout for the last output of processes that outlive the job's process."""
_LOOK_SECONDS: Final = 0.02
"""Polling interval for the exit of a process."""


class JobProcess:
    """Running job.

    The job ends with this process, however that ends: it reads from a pipe, through which it also
    gets its deadline.
    """

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._killing: asyncio.TimerHandle | None = None
        self._end: DoneMessage | FailedMessage | None = None
        self._is_killed = False
        self._is_late = False
        self.errors: deque[str] = deque(maxlen=limits.JOB_ERROR_LINES_MAX)
        """The last lines of its stderr; they may contain secrets."""
        self._listening = asyncio.create_task(self._listen())

    @classmethod
    async def start(
        cls,
        spec: Mapping[str, Any],
        *,
        master: str = "",
        settings: Mapping[str, str] | None = None,
        until: float | None = None,
    ) -> JobProcess:
        """Start a job with its full specification.

        The specification is passed through a pipe, so that no other process can read it. With
        `until` (`boot_seconds`) the job ends at that time, unless it is prolonged.
        """
        arguments = ["run", "--attached"]
        if master:
            arguments += ["--master", master]
        for name, value in (settings or {}).items():
            arguments += ["--set", f"{name}={value}"]
        made = cls(await _started(arguments, stdin=asyncio.subprocess.PIPE))
        made._send_line(msgspec.json.encode(spec))
        if until is not None:
            made.prolong(until)
        return made

    @property
    def pid(self) -> int:
        """Id of the process."""
        return self._process.pid

    async def lines(self) -> AsyncIterator[JobMessage]:
        """Yield the messages of the job; the last is a `DoneMessage` or a `FailedMessage`.

        After an interruption another call continues.
        """
        assert self._process.stdout is not None
        while self._end is None:
            try:
                text = await self._process.stdout.readline()
            except ValueError:
                yield LogMessage(
                    f"A line of the job's output has more than {limits.JOB_LINE_BYTES_MAX} bytes "
                    "and was omitted"
                )
                continue
            if not text:
                break
            line = read_message(text)
            if isinstance(line, DoneMessage | FailedMessage):
                self._end = line
            elif isinstance(line, UncancellableMessage):
                self._let_it_end()
            elif line is not None:
                yield line
        code = await self._gone(limits.JOB_KILL_SECONDS)
        await asyncio.wait([self._listening], timeout=_DRAIN_SECONDS)
        if self._end is None:
            cancelled = FailedMessage.of(Cancelled("The job was cancelled"))
            self._end = cancelled if self._killing is not None else _sudden(code)
        yield self._end

    def prolong(self, until: float) -> None:
        """Extend the deadline of the job; a parent that cannot do so may have lost its lease."""
        self._send_line(b"%.3f" % until)

    def cancel(self) -> None:
        """Ask the job to end, and kill it after a while, unless it can no longer be cancelled."""
        if self._process.returncode is None and self._killing is None and not self._is_late:
            self._process.send_signal(signal.SIGTERM)
            loop = asyncio.get_running_loop()
            self._killing = loop.call_later(limits.JOB_KILL_SECONDS, self._kill)

    def _let_it_end(self) -> None:
        """Withdraw a pending kill: the job passed the point where it can be cancelled."""
        self._is_late = True
        if self._killing is not None:
            self._killing.cancel()
            self._killing = None

    async def stop(self, seconds: float) -> None:
        """Cancel the job and wait until its process is gone; after `seconds` it is killed."""
        self.cancel()
        await self._gone(seconds)
        await self.close()

    async def close(self) -> None:
        """Kill the process, if it still runs, and release all resources."""
        await self._gone(0)
        if self._killing is not None:
            self._killing.cancel()
        self._listening.cancel()
        await asyncio.gather(self._listening, return_exceptions=True)
        # An open pipe would outlive the loop and raise a warning.
        self._process._transport.close()  # type: ignore[attr-defined]

    def _send_line(self, line: bytes) -> None:
        stdin = self._process.stdin
        assert stdin is not None
        if self._process.returncode is None and not stdin.is_closing():
            stdin.write(line + b"\n")

    async def _gone(self, seconds: float) -> int:
        """Wait for the end of the process and return its exit code.

        A process that does not end in time is killed. Its remaining children are killed at once: it
        leads a session of its own.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                # Before Python 3.12 `wait` also waits for the pipes, which children may hold open.
                while self._process.returncode is None:  # noqa: ASYNC110 - see above
                    await asyncio.sleep(_LOOK_SECONDS)
        self._kill()
        return await self._process.wait()

    def _kill(self) -> None:
        if not self._is_killed:
            self._is_killed = True  # once: later the id may have been reused
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
    """Return the jobs that can be run here.

    Raises:
        NotSupported: Jobs cannot be run here; the message has the reason.
    """
    process = await _started(["describe"], stdin=asyncio.subprocess.DEVNULL)
    try:
        async with asyncio.timeout(limits.JOB_DESCRIBE_SECONDS_MAX):
            said, _ = await process.communicate()
        return msgspec.json.decode(said, type=list[JobKind])
    except (TimeoutError, msgspec.DecodeError) as error:
        raise NotSupported(
            "Jobs cannot be run here: the job process could not be started; install Spark "
            "(pip install 'naksha[spark]') and Java",
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


def _sudden(code: int) -> FailedMessage:
    """Build the message for a process that ended without a final message."""
    said = f"The process of the job ended with exit code {code} without a result"
    if code < 0:
        name = signal.Signals(-code).name if -code in set(signal.Signals) else str(-code)
        hint = "; it may have run out of memory" if -code == signal.SIGKILL else ""
        said = f"The process of the job was killed by the signal {name}{hint}"
    return FailedMessage(NakshaError.code, said)
