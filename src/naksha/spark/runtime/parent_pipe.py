"""The process that has started a job: it says what is to be done and for how long, and the job ends
when it is gone or says nothing any more.

It does so by our stdin: first a line with the specification, then lines with the time until which
the job may go on, if there is a limit (`boot_seconds`: it is the same machine). Somebody who wakes
up late, or whose catalog is out of reach, may have lost the job to another one: so nothing is done
after that time.
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


class Parent:
    """Who has started this process. What it says is for nobody else: what reads stdin from now on
    reads nothing."""

    def __init__(self) -> None:
        self._told = os.dup(_STDIN)
        os.set_inheritable(self._told, False)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, _STDIN)
        os.close(nothing)
        self._unread = b""

    def specification(self) -> bytes:
        """What is to be done; as much of it as was said, if the parent has died meanwhile."""
        while b"\n" not in self._unread:
            said = os.read(self._told, _BYTES)
            if not said:
                return self._unread
            self._unread += said
        line, _, self._unread = self._unread.partition(b"\n")
        return line

    def obey(self) -> None:
        """From now on end with it, and when the time is over that it gives."""
        threading.Thread(target=self._obey, name="naksha-parent", daemon=True).start()

    def _obey(self) -> None:
        until: float | None = None
        while True:
            *lines, self._unread = self._unread.split(b"\n")
            if lines:
                until = float(lines[-1])
            left = None if until is None else max(until - boot_seconds(), 0)
            if select.select([self._told], [], [], left)[0]:
                said = os.read(self._told, _BYTES)
                if not said:
                    end_at_once()
                self._unread += said
            elif left == 0:
                end_at_once()


def end_at_once() -> NoReturn:
    """End this process and all that it has started. Nothing is cleared away: another one may have
    begun the same job anew, and what is left of staging is swept."""
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(1)
