"""A hub as a real process, for tests: started on a free port, stopped or killed by its id.

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

from naksha.testing._private_server import free_port

START_SECONDS_MAX: Final = 60.0
STOP_SECONDS_MAX: Final = 30.0


class HubServer:
    """A process of `python -m naksha.server` with files in a directory of its own."""

    def __init__(
        self,
        directory: Path,
        *,
        storage: str | None = None,
        catalog: str | None = None,
        arguments: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.directory = directory
        self.port = free_port()
        self.log_path = directory / "server.log"
        self._storage = storage or f"file:{directory}/{{realm}}.naksha"
        self._catalog = catalog or f"file:{directory}/hub.catalog"
        self._arguments = list(arguments)
        self._environment = dict(environment or {})
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Where it is, without a path."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def process(self) -> subprocess.Popen[bytes]:
        """The process, which must have been started."""
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
        """Start it, and wait until it answers."""
        command = [
            *(sys.executable, "-m", "naksha.server", "--port", str(self.port)),
            *("--catalog", self._catalog, "--storage", self._storage),
            *self._arguments,
        ]
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, **self._environment},
            )
        deadline = time.monotonic() + START_SECONDS_MAX
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                raise RuntimeError(f"the hub did not start:\n{self.log()}")
            time.sleep(0.05)

    def stop(self) -> int:
        """Ask it to end, and wait for that; gives its exit code."""
        self.process.terminate()
        return self.process.wait(STOP_SECONDS_MAX)

    def kill(self) -> None:
        """End it at once."""
        self.process.kill()
        self.process.wait()

    def log(self) -> str:
        """What it has said."""
        return self.log_path.read_text(errors="replace")

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/hub/health-status", timeout=5) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False
