"""A private, throw-away standalone Spark cluster: master and workers as separate processes.

It runs the distribution that comes with PySpark.

    with SparkCluster() as cluster:
        spark = naksha.spark.session(cluster.master)

Executors get only the environment set here: they import what is installed.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import pyspark

START_SECONDS_MAX: Final = 120.0
HOST: Final = "127.0.0.1"
JAVA_OPTIONS: Final = (
    "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m"
    " -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
)
"""Options for short-lived JVMs.

Optimizing compilation and verification of Spark's classes would take longer than all else. With
fewer compilation tiers the JVM also reserves a smaller code cache by default; without the explicit
size it would flush compiled code and compile it again.
"""
_MASTER: Final = "org.apache.spark.deploy.master.Master"
_WORKER: Final = "org.apache.spark.deploy.worker.Worker"
_READY: Final = re.compile(r"Starting Spark master at (spark://\S+)")
_JOINED: Final = re.compile(r"Successfully registered with master")


class SparkCluster:
    """A master and several workers, each with the same number of cores.

    Attributes:
        master: The address to pass to a session.
        workers: The processes of the workers; a test may kill one.
    """

    def __init__(self, workers: int = 2, *, cores: int = 1, memory: str = "1g") -> None:
        self.master = ""
        self.workers: list[subprocess.Popen[bytes]] = []
        self._count = workers
        self._size = ("--cores", str(cores), "--memory", memory)
        self._processes: list[subprocess.Popen[bytes]] = []
        self._home = Path(pyspark.__file__).parent
        self._directory = Path()

    def __enter__(self) -> Self:
        self._directory = Path(tempfile.mkdtemp(prefix="naksha-spark-"))
        try:
            self._start("master", _MASTER, "--host", HOST, "--port", "0")
            self.master = self._said("master", _READY)
            for number in range(self._count):
                self.workers.append(self._start_worker(number))
            for number in range(self._count):
                self._said(f"worker-{number}", _JOINED)
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """End all processes, including executors, and remove their files."""
        for process in reversed(self._processes):
            process.terminate()
        for process in self._processes:
            try:
                process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._processes.clear()
        shutil.rmtree(self._directory, ignore_errors=True)

    def executors(self) -> list[int]:
        """Return the process ids of the running executors."""
        return _children({worker.pid for worker in self.workers})

    def python_workers(self) -> list[int]:
        """Return the process ids of the executors' Python processes, which run tasks."""
        daemons = _children(set(self.executors()))
        return _children(set(daemons))

    def kill_executor_of(self, task: int) -> int:
        """Kill the executor above a task's Python process; return the executor's process id.

        Other executors may be running: those of an application that has just ended stop a little
        later.
        """
        pid = task
        workers = {worker.pid for worker in self.workers}
        while (parent := _parent_of(pid)) not in workers:
            if parent is None:
                raise LookupError(
                    f"process {task} is not a descendant of a worker of this Spark cluster"
                )
            pid = parent
        os.kill(pid, signal.SIGKILL)
        return pid

    def _start_worker(self, number: int) -> subprocess.Popen[bytes]:
        work = self._directory / f"work-{number}"
        place = ("--host", HOST, "--port", "0", "--work-dir", str(work))
        return self._start(f"worker-{number}", _WORKER, *place, *self._size, self.master)

    def _start(self, name: str, program: str, *arguments: str) -> subprocess.Popen[bytes]:
        environment = {
            "HOME": str(self._directory),
            "PATH": os.defpath,
            "SPARK_HOME": str(self._home),
            "SPARK_LOCAL_DIRS": str(self._directory / "local"),
            "SPARK_LOCAL_IP": HOST,
            # Master and workers have little to do; a small heap makes them start sooner.
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": JAVA_OPTIONS,
        }
        environment |= {name: os.environ[name] for name in ("JAVA_HOME",) if name in os.environ}
        command = [str(self._home / "bin" / "spark-class"), program, "--webui-port", "0"]
        with (self._directory / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(
                [*command, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
                cwd=self._directory,
            )
        self._processes.append(process)
        return process

    def _said(self, name: str, pattern: re.Pattern[str]) -> str:
        """Wait until a process's log matches; return the last group, or the whole match."""
        deadline = time.monotonic() + START_SECONDS_MAX
        log = self._directory / f"{name}.log"
        while time.monotonic() < deadline:
            found = pattern.search(log.read_text(errors="replace"))
            if found is not None:
                return found[found.lastindex or 0]
            if self._processes[-1].poll() is not None:
                break
            time.sleep(0.05)
        raise RuntimeError(
            f"Spark's {name} did not start; its log is:\n{log.read_text(errors='replace')}"
        )


def _children(parents: set[int]) -> list[int]:
    pids = [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]
    return [pid for pid in pids if _parent_of(pid) in parents]


def _parent_of(pid: int) -> int | None:
    """Return the parent of a process, or None if the process has ended.

    Zombies count as ended: Spark's scripts leave some behind, and Java, which replaced the script
    by exec, never reaps them.
    """
    try:
        state, parent = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[:2]
    except OSError:
        return None
    return None if state == "Z" else int(parent)
