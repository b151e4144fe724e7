"""Worker process: opens the hub and serves until a signal.

Running requests may complete before the hub is closed.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
import socket
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from types import FrameType
from typing import Any, Final

import uvicorn
import uvloop

from naksha.model import limits
from naksha.server.app import create_app, serving
from naksha.server.metrics import keep_measuring
from naksha.server.process.heartbeat import Heartbeat, look_seconds
from naksha.server.process.http_protocol import BoundedProtocol
from naksha.server.process.settings import ServerSettings

_log: Final = logging.getLogger(__name__)
SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


class DrainingServer(uvicorn.Server):
    """uvicorn server that drains on the first signal and stops at once on the second.

    It does not raise the signal again after the shutdown, so that the process exits normally.
    """

    def __init__(self, config: uvicorn.Config, on_end: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_end = on_end

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End long-polling requests first, so that the shutdown does not wait for them."""
        self._on_end()
        await super().shutdown(sockets)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        before = {number: signal.signal(number, self.handle_exit) for number in SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if not self.should_exit:
            _log.info("Stopping; waiting for %d requests", len(self.server_state.tasks))
            self.should_exit = True
            return
        _log.warning("Stopping at once; cancelling %d requests", len(self.server_state.tasks))
        for task in list(self.server_state.tasks):
            task.cancel()


def run_worker(
    settings: ServerSettings,
    listening: socket.socket,
    on_ready: Callable[[], None] | None = None,
    heartbeat: Heartbeat | None = None,
) -> None:
    """Serve on a socket until stopped by a signal; `heartbeat` receives the heartbeats.

    Raises:
        NakshaError: The hub cannot be opened.
    """
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve_watched(settings, listening, on_ready, heartbeat))


async def _serve_watched(
    settings: ServerSettings,
    listening: socket.socket,
    on_ready: Callable[[], None] | None,
    heartbeat: Heartbeat | None,
) -> None:
    if heartbeat is None:
        await _serve(settings, listening, on_ready)
        return
    async with running(heartbeat.keep_beating(look_seconds(settings.worker_seconds) / 2)):
        await _serve(settings, listening, on_ready)


@asynccontextmanager
async def running(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run a coroutine in the background for the duration of the block."""
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def _serve(
    settings: ServerSettings, listening: socket.socket, on_ready: Callable[[], None] | None
) -> None:
    app = create_app(settings)
    config = uvicorn.Config(
        app,
        http=BoundedProtocol,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        proxy_headers=False,  # the peer address decides about anonymous access
        server_header=False,
        limit_concurrency=limits.CONNECTIONS_MAX,
        timeout_keep_alive=limits.KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=max(1, round(settings.drain_seconds)),
    )
    gc.freeze()
    gc.enable()
    async with serving(app) as state, running(keep_measuring(state.hub, state.admission)):
        if on_ready is not None:
            on_ready()
        await DrainingServer(config, state.long_polls.end).serve(sockets=[listening])
