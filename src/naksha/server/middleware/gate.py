"""The way into the application: who asks, whether it is his turn, and how long he may stay.

Whatever is refused or breaks here, and whatever the application lets through, becomes an envelope;
if an answer has begun already, the connection is cut, so that nobody takes it for the whole.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from naksha.model import limits
from naksha.model.errors import Busy, NakshaError, OutcomeUnknown, TimedOut, Unauthorized
from naksha.server.errors import (
    envelope,
    envelope_response,
    error_response,
    is_known_path,
    log_failure,
    unexpected_response,
    unknown_path_response,
)
from naksha.server.middleware.admission import Turn, Turns
from naksha.server.middleware.auth import Doorkeeper
from naksha.server.middleware.disconnect import Presence
from naksha.server.middleware.request_body import bounded
from naksha.server.middleware.request_context import Visit, visit_of
from naksha.server.process.settings import Settings

_log: Final = logging.getLogger(__name__)
OPEN: Final = frozenset({"/hub", "/hub/health-status", "/openapi.json"})
"""Paths that say nothing about anybody; they are always answered, whoever asks."""
TOKEN_API: Final = "/token-api/"  # noqa: S105 - a path
METRICS: Final = "/metrics"
READING: Final = frozenset({"GET", "HEAD", "OPTIONS"})


class Gate:
    """Middleware."""

    def __init__(
        self, app: ASGIApp, settings: Settings, doorkeeper: Doorkeeper, turns: Turns
    ) -> None:
        self._app = app
        self._settings = settings
        self._doorkeeper = doorkeeper
        self._turns = turns

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        visit = visit_of(scope)
        _without_last_slash(scope)
        try:
            await self._admitted(scope, receive, send, visit)
        except NakshaError as error:
            await _answer(error, scope, receive, send)
        except asyncio.CancelledError:
            # The server ends; whoever waits is told so, as far as he can be.
            await _answer(Busy("The server is being stopped"), scope, receive, send)
        except Exception as error:  # noqa: BLE001 - the last one who can answer
            log_failure(error, visit.stream_id)
            if not visit.status:
                await unexpected_response(visit.stream_id)(scope, receive, send)

    async def _admitted(self, scope: Scope, receive: Receive, send: Send, visit: Visit) -> None:
        if _head_bytes(scope) > limits.REQUEST_HEAD_BYTES_MAX:
            message = f"Line and fields have more than {limits.REQUEST_HEAD_BYTES_MAX:,} bytes"
            body = envelope(431, visit.stream_id, message, "limit_exceeded", field="headers")
            await envelope_response(431, body)(scope, receive, send)
            return
        is_open = self._is_open(scope["path"])
        if is_open:
            self._note_actor(scope, visit)
        else:
            try:
                visit.actor = self._doorkeeper.actor(scope, visit)
            except Unauthorized:
                if is_known_path(scope):
                    raise
                await unknown_path_response(visit.stream_id)(scope, receive, send)
                return
        with Presence(scope, receive) as presence:
            received = bounded(scope, presence.receive, self._settings.body_bytes)
            if is_open:
                await self._in_time(scope, received, send)
                return
            visit.turn = Turn(self._turns, line_of(visit))
            await visit.turn.enter()
            try:
                visit.seconds_queued = time.perf_counter() - visit.began
                await self._in_time(scope, received, send)
            finally:
                visit.turn.leave()

    def _is_open(self, path: str) -> bool:
        if path == METRICS:
            return self._settings.open_metrics
        return path in OPEN or path.startswith(TOKEN_API)

    def _note_actor(self, scope: Scope, visit: Visit) -> None:
        """Open paths are for everybody, but may tell those more who are known."""
        try:
            visit.actor = self._doorkeeper.actor(scope, visit)
        except Unauthorized:
            visit.actor = None

    async def _in_time(self, scope: Scope, receive: Receive, send: Send) -> None:
        seconds = self._settings.request_seconds
        loop = asyncio.get_running_loop()
        time_left = asyncio.timeout(seconds)

        def prolong() -> None:
            if not time_left.expired():  # else it is being given up
                time_left.reschedule(loop.time() + seconds)

        visit_of(scope).prolong = prolong
        try:
            async with time_left:

                async def sending(message: Message) -> None:
                    await send(message)
                    if message.get("more_body"):
                        prolong()

                await self._app(scope, receive, sending)
        except TimeoutError:
            if not time_left.expired():
                raise
            raise _too_slow(scope["method"], seconds) from None


async def _answer(error: NakshaError, scope: Scope, receive: Receive, send: Send) -> None:
    visit = visit_of(scope)
    if visit.status:
        _log.warning("The answer to %s was cut short: %s", visit.stream_id, error)
    else:
        await error_response(error, visit.stream_id)(scope, receive, send)


def _too_slow(method: str, seconds: float) -> NakshaError:
    if method in READING:
        return TimedOut(
            f"There was no answer within {seconds:g} seconds, so the work was given up; "
            "ask for less at once"
        )
    return OutcomeUnknown(
        f"There was no answer within {seconds:g} seconds; look whether it was done before you "
        "repeat it, and send less at once"
    )


def line_of(visit: Visit) -> tuple[str, str, str | None] | None:
    """Who waits in the same line."""
    actor = visit.actor
    return None if actor is None else (actor.realm, actor.app_id, actor.author)


def _head_bytes(scope: Scope) -> int:
    fields = sum(len(name) + len(value) for name, value in scope["headers"])
    return fields + len(scope["raw_path"]) + len(scope["query_string"])


def _without_last_slash(scope: Scope) -> None:
    """`/hub/spaces/` is `/hub/spaces`; an encoded slash is a part of a name."""
    path: str = scope["path"]
    raw_path: bytes = scope["raw_path"]
    if raw_path.endswith(b"/") and len(raw_path) > 1:
        scope["path"], scope["raw_path"] = path[:-1], raw_path[:-1]
