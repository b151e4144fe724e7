"""Hub processes for tests, forked from a process that has already loaded the server.

Loading the server takes more than a second, longer than most tests use their hub. So one process
loads it once, and every hub starts as a fork of that process, which takes milliseconds. `fork`
returns a handle like those of `subprocess`; the nursery ends with the process that started it.

A hub's parent is a small process that waits for the hub to end and reports its exit code, because
only a parent can read it.
"""

from __future__ import annotations

import atexit
import functools
import gc
import importlib
import importlib.metadata
import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

_NUMBER: Final = struct.Struct("<i")
_ORDER_BYTES_MAX: Final = 1 << 20
_SERVER: Final = "naksha.server.process.main"
_LOADED: Final = ("naksha.server.process.worker", _SERVER)
_LOADED_GROUPS: Final = ("naksha.storages", "naksha.handlers")


class ForkedProcess:
    """The subset of `subprocess.Popen` that tests need, for a process that is not our child."""

    def __init__(self, reader: int) -> None:
        self._reader = reader
        self.returncode: int | None = None
        self.pid = self._number()

    def poll(self) -> int | None:
        """Return the exit code, or None while the process runs."""
        if self.returncode is None and select.select([self._reader], [], [], 0)[0]:
            self.returncode = self._number()
            os.close(self._reader)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the process to end and return its exit code."""
        end = None if timeout is None else time.monotonic() + timeout
        while (code := self.poll()) is None:
            left = None if end is None else max(0.0, end - time.monotonic())
            if not select.select([self._reader], [], [], left)[0]:
                raise subprocess.TimeoutExpired(["naksha.server"], timeout or 0.0)
        return code

    def send_signal(self, number: int) -> None:
        """Send a signal; do nothing if the process has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        """Ask the process to end with SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Kill the process with SIGKILL."""
        self.send_signal(signal.SIGKILL)

    def _number(self) -> int:
        said = os.read(self._reader, _NUMBER.size)
        if len(said) < _NUMBER.size:
            raise RuntimeError(
                "the supervisor of the test hub ended before it reported the hub's state"
            )
        number: int = _NUMBER.unpack(said)[0]
        return number


class Nursery:
    """The process that has loaded the server."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._mine, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with its:
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__, str(its.fileno())],
                stdin=subprocess.DEVNULL,
                pass_fds=[its.fileno()],
            )

    def fork(
        self, arguments: Sequence[str], environment: Mapping[str, str], log: Path
    ) -> ForkedProcess:
        """Run the server in its own process, with its output appended to the file `log`."""
        order = {
            "arguments": list(arguments),
            "environment": dict(environment),
            "log": str(log),
            "directory": str(Path.cwd()),
        }
        reader, writer = os.pipe()
        try:
            with self._lock:
                socket.send_fds(self._mine, [json.dumps(order).encode()], [writer])
        finally:
            os.close(writer)
        return ForkedProcess(reader)

    def close(self) -> None:
        """End the nursery; its hubs keep running."""
        self._mine.close()
        self._process.wait()


@functools.cache
def nursery() -> Nursery:
    """Return the nursery of this process, started on first use."""
    made = Nursery()
    atexit.register(made.close)
    return made


# ---- Inside the nursery --------------------------------------------------------------------------


def main() -> None:
    """Fork hubs until the test process closes its end of the socket."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C in the terminal is meant for the tests
    gc.disable()
    for name in _LOADED:
        importlib.import_module(name)
    for group in _LOADED_GROUPS:
        for found in importlib.metadata.entry_points(group=group):
            found.load()
    gc.freeze()
    orders = socket.socket(fileno=int(sys.argv[1]))
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # reaps the hubs' supervisors automatically
    while True:
        order, descriptors, _, _ = socket.recv_fds(orders, _ORDER_BYTES_MAX, 1)
        if not order:
            return
        (writer,) = descriptors
        if os.fork() == 0:
            orders.close()
            _look_after_hub(json.loads(order), writer)
            return
        os.close(writer)


def _look_after_hub(order: dict[str, Any], writer: int) -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    pid = os.fork()
    if pid == 0:
        os.close(writer)
        _be_hub(order)
    os.write(writer, _NUMBER.pack(pid))
    _, status = os.waitpid(pid, 0)
    os.write(writer, _NUMBER.pack(os.waitstatus_to_exitcode(status)))
    os._exit(0)


def _be_hub(order: dict[str, Any]) -> None:
    """Run the server in this process, as `python -m naksha.server` would."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    log = os.open(order["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    for descriptor in (1, 2):
        os.dup2(log, descriptor)
    os.close(log)
    os.chdir(order["directory"])
    os.environ.clear()
    os.environ.update(order["environment"])
    gc.enable()
    sys.exit(importlib.import_module(_SERVER).main(order["arguments"]))


if __name__ == "__main__":
    main()
