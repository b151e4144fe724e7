"""Entry middleware: authentication, admission, request body limits and the request timeout.

Every error, raised here or in the application, becomes an error envelope. If the response has
already begun, the connection is closed, so that the client does not take it for complete.
"""

from __future__ import annotations

import asyncio
import logging
import time
from itertools import chain
from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from naksha.model import limits
from naksha.model.errors import Busy, NakshaError, OutcomeUnknown, TimedOut, Unauthorized
from naksha.server.errors import (
    envelope,
    envelope_response,
    error_response,
    log_failure,
    unexpected_response,
    unknown_path_response,
)
from naksha.server.middleware.admission import AdmissionController, AdmissionSlot
from naksha.server.middleware.auth import Authenticator
from naksha.server.middleware.disconnect import CancelOnDisconnect
from naksha.server.middleware.request_body import bounded
from naksha.server.middleware.request_record import RequestRecord, record_of
from naksha.server.process.settings import ServerSettings

_log: Final = logging.getLogger(__name__)
_PUBLIC_PATHS: Final = frozenset({"/", "/hub", "/hub/health-status", "/openapi.json"})
"""Public paths: always served, with or without a token, and outside the admission limits."""
_PUBLIC_FOLDERS: Final = ("/token-api/", "/web/")
_METRICS: Final = "/metrics"
_SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})


class Gate:
    """Middleware that authenticates, admits, limits and times out requests."""

    def __init__(
        self,
        app: ASGIApp,
        settings: ServerSettings,
        authenticator: Authenticator,
        admission: AdmissionController,
    ) -> None:
        self._app = app
        self._settings = settings
        self._authenticator = authenticator
        self._admission = admission

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        record = record_of(scope)
        _strip_last_slash(scope)
        try:
            await self._admitted(scope, receive, send, record)
        except NakshaError as error:
            await _respond(error, scope, receive, send)
        except asyncio.CancelledError:
            # The server shuts down; the client gets a 503 if its response has not begun.
            await _respond(Busy("The server is shutting down; retry later"), scope, receive, send)
        except Exception as error:  # noqa: BLE001 - the outermost error handler
            log_failure(error, record.stream_id)
            if not record.status:
                await unexpected_response(record.stream_id)(scope, receive, send)

    async def _admitted(
        self, scope: Scope, receive: Receive, send: Send, record: RequestRecord
    ) -> None:
        if _head_bytes(scope) > limits.REQUEST_HEAD_BYTES_MAX:
            message = f"Request line and headers exceed {limits.REQUEST_HEAD_BYTES_MAX:,} bytes"
            body = envelope(431, record.stream_id, message, "limit_exceeded", field="headers")
            await envelope_response(431, body)(scope, receive, send)
            return
        is_open = self._is_open(scope["path"])
        if is_open:
            self._note_actor(scope, record)
        else:
            try:
                record.actor = self._authenticator.actor(scope, record)
            except Unauthorized:
                if scope["app"].has(scope["path"]):
                    raise
                await unknown_path_response(record.stream_id)(scope, receive, send)
                return
        with CancelOnDisconnect(scope, receive) as presence:
            received = bounded(scope, presence.receive, self._settings.body_bytes)
            if is_open:
                await self._in_time(scope, received, send)
                return
            record.slot = AdmissionSlot(self._admission, admission_key(record))
            await record.slot.enter()
            try:
                record.seconds_queued = time.perf_counter() - record.began
                await self._in_time(scope, received, send)
            finally:
                record.slot.leave()

    def _is_open(self, path: str) -> bool:
        if path == _METRICS:
            return self._settings.open_metrics
        return path in _PUBLIC_PATHS or path.startswith(_PUBLIC_FOLDERS)

    def _note_actor(self, scope: Scope, record: RequestRecord) -> None:
        """Set the actor, if known: a public path may return more to an authenticated client."""
        try:
            record.actor = self._authenticator.actor(scope, record)
        except Unauthorized:
            record.actor = None

    async def _in_time(self, scope: Scope, receive: Receive, send: Send) -> None:
        seconds = self._settings.request_seconds
        loop = asyncio.get_running_loop()
        time_left = asyncio.timeout(seconds)

        def prolong() -> None:
            if not time_left.expired():  # else the request is already being cancelled
                time_left.reschedule(loop.time() + seconds)

        record_of(scope).prolong = prolong
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
            raise _timed_out(scope["method"], seconds) from None


async def _respond(error: NakshaError, scope: Scope, receive: Receive, send: Send) -> None:
    record = record_of(scope)
    if record.status:
        _log.warning(
            "The response to request %s was cut off after its status was sent: %s",
            record.stream_id,
            error,
        )
    else:
        await error_response(error, record.stream_id)(scope, receive, send)


def _timed_out(method: str, seconds: float) -> NakshaError:
    if method in _SAFE_METHODS:
        return TimedOut(
            f"Request timed out: no response within {seconds:g} seconds, so it was cancelled; "
            "request less data at once"
        )
    return OutcomeUnknown(
        f"Request timed out: no response within {seconds:g} seconds. The write may have been "
        "committed: check before you retry, and send less data at once"
    )


def admission_key(record: RequestRecord) -> tuple[str, str, str | None] | None:
    """Return the admission queue of a request: one per realm, app id and author."""
    actor = record.actor
    return None if actor is None else (actor.realm, actor.app_id, actor.author)


def _head_bytes(scope: Scope) -> int:
    fields = sum(map(len, chain.from_iterable(scope["headers"])))
    return fields + len(scope["raw_path"]) + len(scope["query_string"])


def _strip_last_slash(scope: Scope) -> None:
    """Strip one trailing slash: `/hub/spaces/` is `/hub/spaces`.

    An encoded slash is a part of a name and stays.
    """
    path: str = scope["path"]
    raw_path: bytes = scope["raw_path"]
    if raw_path.endswith(b"/") and len(raw_path) > 1:
        scope["path"], scope["raw_path"] = path[:-1], raw_path[:-1]
