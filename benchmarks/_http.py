"""Small HTTP client for load tests; its own cost is low and constant."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol

ROUNDS: Final = 4


@dataclass
class LoadResult:
    """Result of a load test of a server."""

    seconds: float = 0.0
    milliseconds: list[float] = field(default_factory=list)
    received: int = 0

    @property
    def per_second(self) -> float:
        return len(self.milliseconds) / self.seconds

    @property
    def p99_ms(self) -> float:
        ordered = sorted(self.milliseconds)
        return ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))]

    def add(self, other: LoadResult) -> None:
        """Add the result of another load test."""
        self.seconds += other.seconds
        self.milliseconds += other.milliseconds
        self.received += other.received


SendRequest = Callable[[int], Awaitable[int]]
"""Sends the n-th request and waits for its response; returns the size of the response."""


class Client(Protocol):
    """Client of a load test, which several workers use at once."""

    def worker(self) -> AbstractAsyncContextManager[SendRequest]: ...


@dataclass(frozen=True)
class RequestSource:
    """Server, and the n-th request to it as bytes; each worker has its own connection."""

    port: int
    request: Callable[[int], bytes]

    @asynccontextmanager
    async def worker(self) -> AsyncIterator[SendRequest]:
        async with connected(self.port) as (reader, writer):

            async def send_request(number: int) -> int:
                writer.write(self.request(number))
                return len(await read_response(reader))

            yield send_request


def get(port: int, path: str, accept: str = "*/*") -> bytes:
    """Build a GET request for a persistent connection."""
    return f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAccept: {accept}\r\n\r\n".encode()


def send(port: int, method: str, path: str, body: bytes) -> bytes:
    """Build a request with a JSON body."""
    head = (
        f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n"
        f"Content-Type: application/geo+json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


async def load(client: Client, seconds: float, workers: int, first: int = 0) -> LoadResult:
    """Send requests for a time with several workers, each waiting for its responses."""
    found = LoadResult()
    numbers = iter(range(first, 10**9))

    async def work(send_request: SendRequest) -> None:
        while time.perf_counter() < start + seconds:
            sent_at = time.perf_counter()
            size = await send_request(next(numbers))
            found.received += size
            found.milliseconds.append((time.perf_counter() - sent_at) * 1000)

    async with AsyncExitStack() as stack:
        senders = [await stack.enter_async_context(client.worker()) for _ in range(workers)]
        start = time.perf_counter()
        await asyncio.gather(*(work(each) for each in senders))
        found.seconds = time.perf_counter() - start
    return found


async def load_alternately(
    clients: Sequence[Client], seconds: float, workers: int
) -> list[LoadResult]:
    """Load servers in turns, with requests of the same numbers; the first round is a warm-up."""
    found = [LoadResult() for _ in clients]
    for turn in range(ROUNDS + 1):
        for client, total in zip(clients, found, strict=True):
            gc.collect()
            part = await load(client, seconds, workers, first=turn * 1_000_000)
            if turn > 0:
                total.add(part)
    return found


async def once(port: int, request: bytes) -> bytes:
    """Send one request on its own connection and return the response."""
    async with connected(port) as (reader, writer):
        writer.write(request)
        return await read_response(reader)


@asynccontextmanager
async def connected(
    port: int,
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """Open a connection for a block."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 20)
    try:
        yield reader, writer
    finally:
        writer.close()


async def read_response(reader: asyncio.StreamReader) -> bytes:
    """Read a response and return its body.

    Raises:
        RuntimeError: The status is not one of success.
    """
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    status = int(head[9:12])
    if b"transfer-encoding: chunked" in head:
        body = await _chunks(reader)
    else:
        length = head.partition(b"content-length:")[2].partition(b"\r\n")[0]
        body = await reader.readexactly(int(length or 0))
    if status >= 300:
        raise RuntimeError(f"{status}: {body[:300]!r}")
    return body


class ResponseHead(NamedTuple):
    """Status and headers of a response; the names of headers are in lower case."""

    status: int
    headers: dict[str, str]


async def read_head(reader: asyncio.StreamReader) -> ResponseHead:
    """Read the head of a response, whatever its status."""
    first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    pairs = (line.partition(":") for line in lines if line)
    headers = {name.lower(): value.strip() for name, _, value in pairs}
    return ResponseHead(int(first.split()[1]), headers)


async def _chunks(reader: asyncio.StreamReader) -> bytes:
    parts = []
    while size := int(await reader.readuntil(b"\r\n"), 16):
        parts.append(await reader.readexactly(size))
        await reader.readexactly(2)
    await reader.readexactly(2)
    return b"".join(parts)
