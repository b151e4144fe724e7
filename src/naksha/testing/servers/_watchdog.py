"""Watchdog that removes a throw-away server when its owning process has ended in any way.

It runs as a separate program, by file name and with the standard library only. Its standard
input is a pipe whose other end only the owner holds: end of file means that the owner has ended
or has closed the server. See `naksha.testing.servers.postgres` and `_private_server`.
"""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

STOP_SECONDS_MAX = 10.0
PID_FILE = "server.pid"
"""Pid file written by the owner; PostgreSQL writes its own."""


def watch(directory: Path) -> subprocess.Popen[bytes]:
    """Start the watchdog of a server's directory; closing its standard input ends both."""
    return subprocess.Popen(
        [sys.executable, "-I", "-S", __file__, str(directory)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        cwd="/",
        start_new_session=True,
    )


def server_of(data: Path) -> int | None:
    """Return the process id of the server that runs in `data`, or None.

    The pid file may be stale and its number reused by another process. A server's working directory
    is always its own data directory, so that is compared.
    """
    for name in ("postmaster.pid", PID_FILE):
        try:
            pid = int((data / name).read_text().split("\n", 1)[0])
            if Path(f"/proc/{pid}/cwd").resolve() == data.resolve():
                return pid
        except (OSError, ValueError):
            continue
    return None


def wait_until(condition: Callable[[], bool], seconds: float) -> bool:
    """Poll a condition every few milliseconds; return False after `seconds`."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.005)
    return True


def end_server(data: Path) -> None:
    """End the server of `data` at once, if one runs."""
    is_postgres = (data / "postmaster.pid").exists()
    # PostgreSQL releases its shared memory on SIGQUIT; the other servers have nothing to release.
    for number in (signal.SIGQUIT, signal.SIGKILL) if is_postgres else (signal.SIGKILL,):
        pid = server_of(data)
        if pid is None:
            return
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            return
        if wait_until(lambda: server_of(data) is None, STOP_SECONDS_MAX):
            return


def main(directory: Path) -> None:
    """Wait for the end of the owner, then end the server and remove `directory`."""
    sys.stdin.buffer.read()
    end_server(directory / "data")
    shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
