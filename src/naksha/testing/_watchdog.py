"""Removes a PostgreSQL cluster when the process that owns it is gone, however it died.

Run as a program of its own, by file name and with nothing but the standard library. Its standard
input is a pipe whose other end only the owner holds: end of file means that the owner is gone, or
that it has closed the cluster. See `naksha.testing.postgres`.
"""

import os
import shutil
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

STOP_SECONDS_MAX = 10.0


def postmaster_of(data: Path) -> int | None:
    """The process id of the server that runs in `data`, or None.

    The pid file may be stale and its number may belong to somebody else by now; a server's working
    directory is always its own data directory, so that is what tells.
    """
    try:
        pid = int((data / "postmaster.pid").read_text().split("\n", 1)[0])
        return pid if Path(f"/proc/{pid}/cwd").resolve() == data.resolve() else None
    except (OSError, ValueError):
        return None


def wait_until(condition: Callable[[], bool], seconds: float) -> bool:
    """Look every few milliseconds; False when the time is over."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.005)
    return True


def end_server(data: Path) -> None:
    """End the server of `data` at once, if there is one."""
    for number in (signal.SIGQUIT, signal.SIGKILL):
        pid = postmaster_of(data)
        if pid is None:
            return
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            return
        if wait_until(lambda: postmaster_of(data) is None, STOP_SECONDS_MAX):
            return


def main(directory: Path) -> None:
    """Wait for the end of the owner, then end the server and remove `directory`."""
    sys.stdin.buffer.read()
    end_server(directory / "data")
    shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
