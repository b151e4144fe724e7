"""HTTP protocol of uvicorn with limits on the size and the arrival time of a request head.

Without them a slow or malicious client could use unlimited memory and hold connections forever.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from naksha.model import limits

_REFUSED = (
    b"HTTP/1.1 %b\r\ncontent-type: text/plain\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
)


class BoundedProtocol(HttpToolsProtocol):
    """Connection that is closed when a request head is too large or arrives too late."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._awaits_head = True
        self._head_bytes = 0
        self._head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._wait_for_head()

    def connection_lost(self, error: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(error)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._stop_timer()
        self._awaits_head, self._head_bytes = True, 0

    def on_headers_complete(self) -> None:
        self._awaits_head = False
        self._stop_timer()
        super().on_headers_complete()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._awaits_head:  # Most heads arrive as a whole, and need no timer.
            self._wait_for_head()
            self._head_bytes += len(data)
            if self._head_bytes > limits.REQUEST_HEAD_BYTES_MAX:
                self._refuse(b"431 Request Header Fields Too Large")

    def _wait_for_head(self) -> None:
        if self._head_timer is not None:
            return
        self._head_timer = self.loop.call_later(
            limits.REQUEST_HEAD_SECONDS_MAX, self._refuse, b"408 Request Timeout"
        )

    def _stop_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _refuse(self, status: bytes) -> None:
        self._awaits_head = False
        self._stop_timer()
        if not self.transport.is_closing():
            self.transport.write(_REFUSED % status)
            self.transport.close()
