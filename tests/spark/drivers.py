"""Handles of drivers that tests command and kill; see `tests.spark.cluster_driver`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.docs.blocks import ROOT

STOP_SECONDS_MAX = 60


class Driver:
    """A driver in a process group of its own."""

    def __init__(self, master: str, log: Path, python: Path | None = None) -> None:
        """`python` is what executors run; without it, what we run."""
        self._log = log
        environment = {name: text for name, text in os.environ.items() if name != "PYTHONPATH"}
        if python is not None:
            environment["PYSPARK_PYTHON"] = str(python)
        with log.open("wb") as said:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.spark.cluster_driver", master],
                cwd=ROOT,
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=said,
                start_new_session=True,
            )

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def ask(self, do: str, **arguments: Any) -> dict[str, Any]:
        """Tell it to do something, and wait for its answer."""
        self.tell(do, **arguments)
        return self.answer()

    def tell(self, do: str, **arguments: Any) -> None:
        """Tell it to do something."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"do": do, **arguments}).encode() + b"\n")
        self._process.stdin.flush()

    def answer(self) -> dict[str, Any]:
        """Read the result of the last command."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, f"The driver is gone:\n{self.said()}"
        found: dict[str, Any] = json.loads(line)
        return found

    def said(self) -> str:
        """The end of its log."""
        return self._log.read_text(errors="replace")[-8000:]

    def kill(self) -> None:
        """End it at once, with its JVM."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.communicate()

    def close(self) -> None:
        """Let it end, or end it."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()


class Drivers:
    """One driver after the other: a cluster has cores for one, and a new one takes its time."""

    def __init__(self, master: str, folder: Path) -> None:
        self._master = master
        self._folder = folder
        self._count = 0
        self._driver: Driver | None = None

    def one(self) -> Driver:
        """The driver that is there, else a new one."""
        if self._driver is None or not self._driver.is_alive:
            self._count += 1
            self._driver = Driver(self._master, self._folder / f"driver-{self._count}.log")
        return self._driver

    def close(self) -> None:
        """Let the driver end; another one may have the cluster then."""
        if self._driver is not None and self._driver.is_alive:
            self._driver.close()
