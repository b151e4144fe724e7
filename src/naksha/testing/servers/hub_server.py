"""A hub as a real process for tests: started on a free port, stopped or killed by process id.

with HubServer(directory, storage="postgresql:///maps") as hub:
    httpx.get(f"{hub.url}/hub/spaces")
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from naksha.testing.servers._hub_nursery import ForkedProcess, nursery
from naksha.testing.servers._private_server import free_port

START_SECONDS_MAX: Final = 60.0
STOP_SECONDS_MAX: Final = 30.0


Process = subprocess.Popen[bytes] | ForkedProcess


class HubServer:
    """A process of `python -m naksha.server` with its files in its own directory.

    It is forked from a process that has already loaded the server, unless `forked` is false or it
    has workers or an environment of its own, which take effect while the server is loaded.
    """

    def __init__(
        self,
        directory: Path,
        *,
        storage: str | None = None,
        catalog: str | None = None,
        arguments: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        forked: bool = True,
    ) -> None:
        self.directory = directory
        self.port = free_port()
        self.log_path = directory / "server.log"
        self._storage = storage or f"file:{directory}/{{realm}}.naksha"
        self._catalog = catalog or f"file:{directory}/hub.catalog"
        self._arguments = list(arguments)
        self._environment = dict(environment or {})
        self._forked = forked and not environment and "--workers" not in arguments
        self._process: Process | None = None

    @property
    def storage(self) -> str:
        """The location of a realm's default storage."""
        return self._storage

    @property
    def url(self) -> str:
        """The base URL, without a path."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def process(self) -> Process:
        """The process; the server must have been started."""
        assert self._process is not None
        return self._process

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Start the hub and wait until it responds."""
        self._process = self._started()
        deadline = time.monotonic() + START_SECONDS_MAX
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                raise RuntimeError(f"the test hub did not start; its log is:\n{self.log()}")
            time.sleep(0.02)

    def stop(self) -> int:
        """Ask the hub to end, wait for it, and return its exit code."""
        self.process.terminate()
        return self.process.wait(STOP_SECONDS_MAX)

    def kill(self) -> None:
        """Kill the hub with SIGKILL."""
        self.process.kill()
        self.process.wait()

    def log(self) -> str:
        """Return the log of the hub."""
        return self.log_path.read_text(errors="replace")

    def _started(self) -> Process:
        arguments = [
            *("--port", str(self.port), "--catalog", self._catalog),
            *("--realm-storage", self._storage, "--tile-files", str(self.directory / "tiles")),
            *self._arguments,
        ]
        environment = {**os.environ, **self._environment}
        if self._forked:
            return nursery().fork(arguments, environment, self.log_path)
        with self.log_path.open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "naksha.server", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
            )

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/hub/health-status", timeout=5) as response:
                return bool(response.status == 200)
        except (urllib.error.URLError, OSError):
            return False
