"""Small HTTP client for load tests; its own cost is low and constant."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field


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


@dataclass(frozen=True)
class RequestSource:
    """Server, and the n-th request to it as bytes."""

    port: int
    request: Callable[[int], bytes]


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


async def load(
    target: RequestSource, seconds: float, connections: int, first: int = 0
) -> LoadResult:
    """Send requests for a time on several connections, each waiting for its responses."""
    found = LoadResult()
    numbers = iter(range(first, 10**9))
    start = time.perf_counter()

    async def ask() -> None:
        async with connected(target.port) as (reader, writer):
            while time.perf_counter() < start + seconds:
                sent_at = time.perf_counter()
                writer.write(target.request(next(numbers)))
                body = await read_response(reader)
                found.received += len(body)
                found.milliseconds.append((time.perf_counter() - sent_at) * 1000)

    await asyncio.gather(*(ask() for _ in range(connections)))
    found.seconds = time.perf_counter() - start
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


async def _chunks(reader: asyncio.StreamReader) -> bytes:
    parts = []
    while size := int(await reader.readuntil(b"\r\n"), 16):
        parts.append(await reader.readexactly(size))
        await reader.readexactly(2)
    await reader.readexactly(2)
    return b"".join(parts)
