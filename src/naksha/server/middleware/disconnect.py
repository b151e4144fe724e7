"""Cancel the work for a request when its client disconnects, so that its resources are released."""

from __future__ import annotations

import asyncio
from typing import Final, Self

from starlette.requests import ClientDisconnect
from starlette.types import Message, Receive, Scope

from naksha.model import limits
from naksha.server.middleware.request_record import has_body, record_of

_GONE: Final = "the client disconnected"
_NO_BODY: Final = {"type": "http.request", "body": b"", "more_body": False}


class CancelOnDisconnect:
    """Context manager that cancels its block when the client disconnects.

    Once the body is read the application receives nothing more, so this object then waits for the
    disconnect itself, and only for a response that takes a while.
    """

    def __init__(self, scope: Scope, receive: Receive) -> None:
        self._receive = receive
        self._comes = has_body(record_of(scope))
        """Whether a part of the request body has not been received yet."""
        self._is_read = False
        self._is_gone = False
        self._timer: asyncio.TimerHandle | None = None
        self._watcher: asyncio.Task[None] | None = None
        # Responses that follow ASGI 2.3 watch for a disconnect themselves; 2.4 turns that off.
        scope["asgi"]["spec_version"] = "2.4"

    def __enter__(self) -> Self:
        self._task = asyncio.current_task()
        if not self._comes:
            self._watch_soon()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> bool:
        if self._timer is not None:
            self._timer.cancel()
        if self._watcher is not None:
            self._watcher.cancel()
        if not self._is_gone:
            return False
        if self._task is not None and self._watcher is not None:
            self._task.uncancel()
        return kind is not None and issubclass(kind, asyncio.CancelledError | ClientDisconnect)

    async def receive(self) -> Message:
        """Receive the next message for the application."""
        if self._comes:
            message = await self._receive()
            self._is_gone = message["type"] == "http.disconnect"
            self._comes = not self._is_gone and message.get("more_body", False)
            self._is_read = not self._comes
            if self._is_read and not self._is_gone:
                self._watch_soon()
            return message
        if not self._is_read:
            self._is_read = True
            return dict(_NO_BODY)
        await asyncio.Event().wait()  # blocks until cancelled
        raise AssertionError("unreachable: this event is never set")

    def _watch_soon(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(
            limits.DISCONNECT_LOOK_SECONDS, self._watch
        )

    def _watch(self) -> None:
        self._watcher = asyncio.create_task(self._wait_until_gone())

    async def _wait_until_gone(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._is_gone = True
        if self._task is not None:
            self._task.cancel(_GONE)
