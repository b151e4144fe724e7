"""Supervisor of several workers on one socket.

It replaces workers that die or hang, and forwards signals to all of them.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from types import FrameType
from typing import Final, NamedTuple

from naksha.model import limits
from naksha.model.errors import NakshaError, Unavailable
from naksha.model.status_codes import status_codes_of
from naksha.server.metrics import forget_worker
from naksha.server.process.heartbeat import Heartbeat, WorkerWatch, look_seconds
from naksha.server.process.logs import set_up_logs
from naksha.server.process.settings import ServerSettings
from naksha.server.process.worker import SIGNALS, run_worker

_log: Final = logging.getLogger(__name__)
_STEADY_SECONDS: Final = 10.0
"""A worker that lived longer than this is restarted without delay when it dies."""


class _Worker(NamedTuple):
    """Start time and heartbeat of a worker."""

    started: float
    watch: WorkerWatch


class Supervisor:
    """Keeps the configured number of workers running."""

    def __init__(self, settings: ServerSettings, listening: socket.socket) -> None:
        self._settings = settings
        self._listening = listening
        self._processes = multiprocessing.get_context("spawn")
        self._workers: dict[SpawnProcess, _Worker] = {}
        self._check_seconds = look_seconds(settings.worker_seconds)
        self._checked_at = time.monotonic()
        self._restarts: list[float] = []
        """Times at which further workers are to be started."""
        self._pause = 0.0
        self._signals = 0

    def run(self, on_ready: Callable[[], None]) -> None:
        """Serve until stopped by a signal and all workers have ended.

        Raises:
            Unavailable: The first worker does not start.
        """
        reader, writer = os.pipe()
        os.set_blocking(writer, False)
        before = {number: signal.signal(number, self._on_signal) for number in SIGNALS}
        old_wakeup = signal.set_wakeup_fd(writer)
        try:
            # The first worker creates missing schemas and files, so that workers do not race.
            self._start_and_wait()
            for _ in range(self._settings.workers - 1):
                self._start()
            on_ready()
            while self._workers or not self._signals:
                self._look(reader)
        finally:
            signal.set_wakeup_fd(old_wakeup)
            for number, handler in before.items():
                signal.signal(number, handler)
            os.close(reader)
            os.close(writer)
            for worker in self._workers:
                worker.kill()

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        """Forward the signal; workers interpret a second one as "stop at once"."""
        self._signals += 1
        for worker in self._workers:
            worker.terminate()

    def _start(self, ready: Connection | None = None) -> SpawnProcess:
        heartbeat = Heartbeat(self._processes)
        worker = self._processes.Process(
            target=work,
            args=(self._settings, self._listening, ready, heartbeat),
            name="naksha-worker",
        )
        worker.start()
        watch = WorkerWatch(heartbeat, self._settings.worker_seconds)
        self._workers[worker] = _Worker(time.monotonic(), watch)
        if self._signals:  # received while the worker was being started
            worker.terminate()
        return worker

    def _start_and_wait(self) -> None:
        mine, its = self._processes.Pipe(duplex=False)
        worker = self._start(its)
        its.close()
        if not mine.poll(limits.WORKER_START_SECONDS_MAX):
            raise Unavailable(
                f"The first worker did not start within {limits.WORKER_START_SECONDS_MAX} s; see "
                "the log of the server"
            )
        try:
            failure = mine.recv()
        except EOFError:
            failure = "the process ended; see the log"
        if failure is not None:
            worker.join()
            del self._workers[worker]
            raise Unavailable(f"The first worker did not start: {failure}")

    def _look(self, reader: int) -> None:
        """Wait for an event or a timeout, and handle it."""
        now = time.monotonic()
        due = [at for at in self._restarts if at <= now]
        self._restarts = [at for at in self._restarts if at > now]
        if not self._signals:
            for _ in due:
                self._start()
        timeout = min([self._check_seconds, *(at - now for at in self._restarts)])
        found = wait([reader, *(worker.sentinel for worker in self._workers)], timeout)
        if reader in found:
            os.read(reader, 1024)
        for worker in [one for one in self._workers if not one.is_alive()]:
            self._bury(worker)
        self._end_hung()

    def _end_hung(self) -> None:
        """Kill workers that hang, also during shutdown, which would wait for them."""
        now = time.monotonic()
        if now - self._checked_at < self._check_seconds:
            return
        for worker, known in self._workers.items():
            if known.watch.look(now - self._checked_at):
                _log.error(
                    "Worker %s has sent no heartbeat for %g seconds; the supervisor kills it "
                    "and, unless the server is stopping, starts another one",
                    worker.pid,
                    self._settings.worker_seconds,
                )
                worker.kill()  # a worker that hangs would not handle SIGTERM
        self._checked_at = now

    def _bury(self, worker: SpawnProcess) -> None:
        lived = time.monotonic() - self._workers.pop(worker).started
        worker.join()
        assert worker.pid is not None
        forget_worker(worker.pid)
        if self._signals:
            return
        self._pause = (
            0.0
            if lived > _STEADY_SECONDS
            else min(max(0.25, self._pause * 2), limits.WORKER_RESTART_SECONDS_MAX)
        )
        _log.error(
            "Worker %d ended with exit code %s; starting another one in %.2f seconds",
            worker.pid,
            worker.exitcode,
            self._pause,
        )
        self._restarts.append(time.monotonic() + self._pause)


def work(
    settings: ServerSettings,
    listening: socket.socket,
    ready: Connection | None,
    heartbeat: Heartbeat,
) -> None:
    """Run a worker process; `ready` receives None once it serves, or the reason of a failure."""
    set_up_logs(settings)
    threading.Thread(target=_end_with_parent, daemon=True).start()

    def on_ready() -> None:
        if ready is not None:
            ready.send(None)
            ready.close()

    try:
        run_worker(settings, listening, on_ready, heartbeat)
    except NakshaError as error:
        _log.error("Worker cannot serve: %s", error)
        if ready is not None and not ready.closed:
            ready.send(str(error))
        sys.exit(status_codes_of(error).exit_code)


def _end_with_parent() -> None:
    """Stop this worker when its supervisor dies; otherwise it would hold the port for ever."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os.kill(os.getpid(), signal.SIGTERM)
