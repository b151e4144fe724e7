"""A proxy in front of a PostgreSQL server that can drop a request or its response."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path


class Proxy:
    """Passes everything on, until it is armed: then it loses the answer to the next request with
    the mark in it, or the request itself."""

    def __init__(self, socket: Path, mark: bytes) -> None:
        self._socket = socket
        self._mark = mark
        self.is_armed = False
        self.loses_request = False
        self.lost = 0
        self.port = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        from_server, to_server = await asyncio.open_unix_connection(str(self._socket))
        answers = asyncio.create_task(self._copy(from_server, writer))
        try:
            while data := await reader.read(65536):
                if self.is_armed and self._mark in data:
                    self.is_armed = False
                    self.lost += 1
                    if self.loses_request:
                        return
                    answers.cancel()
                    await asyncio.gather(answers, return_exceptions=True)
                    to_server.write(data)
                    await to_server.drain()
                    # The server has committed once it answers; the answer is dropped.
                    await from_server.read(1)
                    return
                to_server.write(data)
                await to_server.drain()
        finally:
            answers.cancel()
            for end in (writer, to_server):
                end.close()

    async def _copy(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while data := await self._answer(source):
                sink.write(data)
                await sink.drain()
        sink.close()

    async def _answer(self, source: asyncio.StreamReader) -> bytes:
        return await source.read(65536)


class SlowProxy(Proxy):
    """Passes answers on at intervals: all that has come meanwhile at once."""

    INTERVAL_S = 0.03

    async def _answer(self, source: asyncio.StreamReader) -> bytes:
        await asyncio.sleep(self.INTERVAL_S)
        return await super()._answer(source)


@asynccontextmanager
async def proxy_to(
    socket: Path, mark: bytes = b"COMMIT;", kind: type[Proxy] = Proxy
) -> AsyncIterator[Proxy]:
    """A proxy to the server behind a Unix socket."""
    proxy = kind(socket, mark)
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    proxy.port = server.sockets[0].getsockname()[1]
    try:
        yield proxy
    finally:
        server.close()
