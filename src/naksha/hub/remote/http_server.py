"""Minimal HTTP server for POST requests with JSON bodies and responses.

h11 implements the protocol; this module adds sockets, limits and timeouts.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import Final, NamedTuple

import h11
import msgspec

from naksha.model import limits

_log: Final = logging.getLogger(__name__)
_READ_BYTES: Final = 64 * 1024
_DRAIN_SECONDS: Final = 1.0
"""How long to drain a request after an error response, so that the client reads the response."""


class HttpRequest(NamedTuple):
    """A complete request."""

    method: str
    headers: Mapping[str, str]
    body: bytes


class HttpResponse(NamedTuple):
    """A complete response."""

    status: int
    body: bytes


Respond = Callable[[HttpRequest], Awaitable[HttpResponse]]


class RequestRejected(Exception):
    """Rejects the request with an error status and closes the connection."""

    def __init__(self, status: HTTPStatus) -> None:
        super().__init__(status.phrase)
        self.status = status


class HttpHost:
    """HTTP server that accepts connections until it is closed."""

    def __init__(self, respond: Respond) -> None:
        self._respond = respond
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._busy: set[asyncio.Task[None]] = set()

    async def start(self, host: str, port: int) -> int:
        """Listen and return the port, a free one if `port` is 0."""
        self._server = await asyncio.start_server(self._connected, host, port)
        address: tuple[str, int] = self._server.sockets[0].getsockname()[:2]
        return address[1]

    async def close(self) -> None:
        """Stop accepting requests, wait a limited time for those in progress, then cancel them."""
        assert self._server is not None
        self._server.close()
        for task in self._tasks - self._busy:
            task.cancel()
        if self._busy:
            await asyncio.wait(self._busy, timeout=limits.HOST_DRAIN_SECONDS)
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(list(self._tasks))

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            connection = _Connection(reader, writer)
            if len(self._tasks) > limits.HOST_CONNECTIONS_MAX:
                await connection.refuse(HTTPStatus.SERVICE_UNAVAILABLE)
                return
            await self._serve(connection, task)
        except (OSError, TimeoutError, h11.LocalProtocolError) as error:
            _log.debug(
                "The client disconnected, timed out or violated the protocol: %r",
                error,
            )
        except asyncio.CancelledError:
            _log.debug("Connection closed: the host is shutting down")
        finally:
            self._tasks.discard(task)
            self._busy.discard(task)
            writer.close()

    async def _serve(self, connection: _Connection, task: asyncio.Task[None]) -> None:
        while True:
            try:
                received = await connection.receive(lambda: self._busy.add(task))
            except RequestRejected as refused:
                await connection.refuse(refused.status)
                return
            if received is None:
                return
            response = await self._respond(received)
            await connection.answer(response)
            self._busy.discard(task)
            if not connection.is_kept():
                return


class _Connection:
    """A connection with its protocol state."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._http = h11.Connection(
            h11.SERVER, max_incomplete_event_size=limits.REMOTE_HEAD_BYTES_MAX
        )

    async def receive(self, has_begun: Callable[[], None]) -> HttpRequest | None:
        """Return the next request, or None if the client has disconnected."""
        head = await self._event(limits.HOST_IDLE_SECONDS)
        if not isinstance(head, h11.Request):
            return None
        has_begun()
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in head.headers}
        length = headers.get("content-length", "0")
        if int(length) > limits.REMOTE_BODY_BYTES_MAX:
            raise RequestRejected(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
        if self._http.they_are_waiting_for_100_continue:
            await self._send(h11.InformationalResponse(status_code=100, headers=[]))
        async with asyncio.timeout(limits.HOST_READ_SECONDS):
            body = await self._body()
        return HttpRequest(head.method.decode("latin-1"), headers, body)

    async def _body(self) -> bytes:
        parts: list[bytes] = []
        size = 0
        seconds = limits.HOST_READ_SECONDS
        while not isinstance(event := await self._event(seconds), h11.EndOfMessage):
            if not isinstance(event, h11.Data):
                raise ConnectionResetError("the client disconnected")
            parts.append(bytes(event.data))
            size += len(event.data)
            if size > limits.REMOTE_BODY_BYTES_MAX:
                raise RequestRejected(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
        return b"".join(parts)

    async def _event(self, seconds: float) -> object:
        while True:
            try:
                event = self._http.next_event()
            except h11.RemoteProtocolError as error:
                raise RequestRejected(HTTPStatus(error.error_status_hint)) from error
            if event is not h11.NEED_DATA:
                return event
            async with asyncio.timeout(seconds):
                data = await self._reader.read(_READ_BYTES)
            self._http.receive_data(data)

    async def answer(self, answer: HttpResponse) -> None:
        """Send a response."""
        headers = [
            ("Content-Type", "application/json"),
            ("Content-Length", str(len(answer.body))),
        ]
        await self._send(h11.Response(status_code=answer.status, headers=headers))
        await self._send(h11.Data(data=answer.body))
        await self._send(h11.EndOfMessage())

    async def refuse(self, status: HTTPStatus) -> None:
        """Send an error response; drain the request so that the client can read the response."""
        if self._http.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            return
        body = msgspec.json.encode({"error": {"code": "naksha", "message": status.phrase}})
        headers = [("Connection", "close"), ("Content-Length", str(len(body)))]
        await self._send(h11.Response(status_code=status, headers=headers))
        await self._send(h11.Data(data=body))
        await self._send(h11.EndOfMessage())
        if self._writer.can_write_eof():
            self._writer.write_eof()
        async with asyncio.timeout(_DRAIN_SECONDS):
            while await self._reader.read(_READ_BYTES):
                pass

    async def _send(self, event: h11.Event) -> None:
        data = self._http.send(event)
        if data:
            self._writer.write(data)
            async with asyncio.timeout(limits.HOST_READ_SECONDS):
                await self._writer.drain()

    def is_kept(self) -> bool:
        """Return whether the connection can serve another request."""
        if self._http.our_state is not h11.DONE or self._http.their_state is not h11.DONE:
            return False
        self._http.start_next_cycle()
        return True
