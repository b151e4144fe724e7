"""Pipe from the parent process: it delivers the specification and extends the lease of the job.

The parent writes to the stdin of the job: first a line with the specification, then, if there is a
limit, lines with the time until which the job may run (`boot_seconds`: it is the same machine). A
parent that was suspended, or cannot reach its catalog, may have lost the job to another node. So
the job ends when that time has passed, or when the pipe is closed.
"""

from __future__ import annotations

import os
import select
import signal
import threading
from typing import Final, NoReturn

from naksha.spi.clock import boot_seconds

_STDIN: Final = 0
_BYTES: Final = 65_536


class ParentPipe:
    """Reader of the pipe from the parent process; everything else that reads stdin gets EOF."""

    def __init__(self) -> None:
        self._pipe = os.dup(_STDIN)
        os.set_inheritable(self._pipe, False)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, _STDIN)
        os.close(nothing)
        self._unread = b""

    def specification(self) -> bytes:
        """Read the specification; truncated if the parent has died in the meantime."""
        while b"\n" not in self._unread:
            data = os.read(self._pipe, _BYTES)
            if not data:
                return self._unread
            self._unread += data
        line, _, self._unread = self._unread.partition(b"\n")
        return line

    def follow(self) -> None:
        """End this process when the parent ends, or when its time limit has passed."""
        threading.Thread(target=self._follow, name="naksha-parent", daemon=True).start()

    def _follow(self) -> None:
        until: float | None = None
        while True:
            *lines, self._unread = self._unread.split(b"\n")
            if lines:
                until = float(lines[-1])
            left = None if until is None else max(until - boot_seconds(), 0)
            if select.select([self._pipe], [], [], left)[0]:
                data = os.read(self._pipe, _BYTES)
                if not data:
                    _end_at_once()
                self._unread += data
            elif left == 0:
                _end_at_once()


def _end_at_once() -> NoReturn:
    """Kill this process and all its children.

    Nothing is cleaned up: another process may have started the same job again, and leftover staged
    data is swept later.
    """
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(1)
