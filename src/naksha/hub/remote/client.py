"""Calls to remote handlers: over connections that are kept, to addresses that were looked at, with
limits on time and size. Redirects are not followed and no proxy is asked."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import socket
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from typing import Any, Final, NamedTuple

import httpcore

from naksha.hub.remote.allow_list import Target, Targets
from naksha.model import limits
from naksha.model.errors import RemoteFailed

_log: Final = logging.getLogger(__name__)
_BROKEN: Final = (httpcore.ReadError, httpcore.WriteError, httpcore.RemoteProtocolError)
_UNREACHED: Final = (httpcore.ConnectError, httpcore.ConnectTimeout)


class Unreached(RemoteFailed):
    """Nothing was sent, so it can be tried again."""


class Broken(RemoteFailed):
    """Nobody knows whether it has arrived."""


class Slow(RemoteFailed):
    """No answer in time."""


class Patience(NamedTuple):
    """How long a call may take."""

    connect_seconds: float
    total_seconds: float


class Remotes:
    """The remote handlers that a hub may call. For one event loop."""

    def __init__(self, allowed: Iterable[str] = ()) -> None:
        self.targets: Final = Targets(allowed)
        self._pools: dict[bool, httpcore.AsyncConnectionPool] = {}
        self._turns_of: dict[tuple[str, str, int], asyncio.Semaphore] = {}

    def _turns(self, target: Target) -> asyncio.Semaphore:
        """One that does not answer must not have all connections."""
        turns = self._turns_of.get(target.origin)
        if turns is None:
            turns = asyncio.Semaphore(limits.REMOTE_CONNECTIONS_PER_TARGET_MAX)
            self._turns_of[target.origin] = turns
        return turns

    async def post(
        self,
        target: Target,
        body: bytes,
        headers: Mapping[str, str],
        patience: Patience,
        *,
        is_delivery: bool = False,
        before_sending: Callable[[], None] | None = None,
    ) -> bytes:
        """What a handler answers to a body. Deliveries of subscriptions wait for nobody, and nobody
        waits for them: each has one connection, however many of them hang. `before_sending` is
        called when there is a connection, and may refuse to use it.

        Raises:
            Unreached, Broken, Slow: It does not answer.
            RemoteFailed: It does not answer as it should.
            Forbidden: Its name means an address that is not allowed.
        """
        sent = {
            "Content-Type": "application/json",
            "Accept": "application/json",
            "Accept-Encoding": "identity",
            "User-Agent": "naksha",
            **headers,
        }
        try:
            async with asyncio.timeout(patience.total_seconds):
                async with nullcontext() if is_delivery else self._turns(target):
                    pool = self._opened(is_delivery=is_delivery)
                    asked = _Asked(target.url, body, sent, before_sending)
                    return await _exchange(pool, asked, patience)
        except (TimeoutError, httpcore.ReadTimeout, httpcore.WriteTimeout) as error:
            raise Slow(f"It did not answer within {patience.total_seconds:.1f} s") from error
        except _UNREACHED as error:
            raise Unreached("It cannot be reached") from error
        except _BROKEN as error:
            raise Broken("The connection broke") from error
        except httpcore.PoolTimeout as error:
            raise Unreached("Too many calls wait for remote handlers") from error

    def _opened(self, *, is_delivery: bool) -> httpcore.AsyncConnectionPool:
        pool = self._pools.get(is_delivery)
        if pool is None:
            pool = self._pools[is_delivery] = httpcore.AsyncConnectionPool(
                ssl_context=httpcore.default_ssl_context(),
                max_connections=None if is_delivery else limits.REMOTE_CONNECTIONS_MAX,
                max_keepalive_connections=limits.REMOTE_CONNECTIONS_MAX,
                keepalive_expiry=limits.REMOTE_KEEPALIVE_SECONDS,
                network_backend=_Looking(self.targets),
            )
        return pool

    async def close(self) -> None:
        """Close all connections."""
        for pool in self._pools.values():
            await pool.aclose()


class _Asked(NamedTuple):
    """What is sent."""

    url: str
    body: bytes
    headers: Mapping[str, str]
    before_sending: Callable[[], None] | None

    async def trace(self, event: str, _: dict[str, Any]) -> None:
        """What httpcore tells of its steps."""
        if self.before_sending is not None and event.endswith("send_request_headers.started"):
            self.before_sending()


async def _exchange(pool: httpcore.AsyncConnectionPool, asked: _Asked, patience: Patience) -> bytes:
    times = {
        "connect": patience.connect_seconds,
        "read": patience.total_seconds,
        "write": patience.total_seconds,
        "pool": patience.total_seconds,
    }
    async with pool.stream(
        "POST",
        asked.url,
        headers=[*asked.headers.items()],
        content=asked.body,
        extensions={"timeout": times, "trace": asked.trace},
    ) as response:
        if not 200 <= response.status < 300:
            _log.warning("%s answered with the status %d", asked.url, response.status)
            raise RemoteFailed(f"It answered with the status {response.status}")
        headers_told = {name.lower(): value for name, value in response.headers}
        encoding = headers_told.get(b"content-encoding", b"identity")
        if encoding.lower() != b"identity":
            raise RemoteFailed("It packed its answer, although nobody asked for that")
        return await _bounded(response)


async def _bounded(response: httpcore.Response) -> bytes:
    parts: list[bytes] = []
    size = 0
    async for part in response.aiter_stream():
        parts.append(part)
        size += len(part)
        if size > limits.REMOTE_BODY_BYTES_MAX:
            raise RemoteFailed(f"It answered with more than {limits.REMOTE_BODY_BYTES_MAX} bytes")
    return b"".join(parts)


class _Looking(httpcore.AsyncNetworkBackend):
    """Connects to addresses that may be connected to. A name is looked up once, here: who looked
    first and let others look again could be told another address the second time."""

    def __init__(self, targets: Targets) -> None:
        self._targets = targets
        self._backend = httpcore.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 - as httpcore calls it
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        try:
            async with asyncio.timeout(timeout):
                found = await asyncio.get_running_loop().getaddrinfo(
                    host, port, type=socket.SOCK_STREAM
                )
                addresses = [str(each[4][0]) for each in found]
                for address in addresses:
                    self._targets.check_address(host, ipaddress.ip_address(address))
                return await self._connected(addresses, port, socket_options)
        except TimeoutError as error:
            raise httpcore.ConnectTimeout from error
        except OSError as error:
            raise httpcore.ConnectError(str(error)) from error

    async def _connected(
        self, addresses: list[str], port: int, socket_options: Iterable[Any] | None
    ) -> httpcore.AsyncNetworkStream:
        """To the first of the addresses that answers."""
        for address in addresses[:-1]:
            try:
                return await self._backend.connect_tcp(address, port, socket_options=socket_options)
            except httpcore.ConnectError:
                continue
        return await self._backend.connect_tcp(addresses[-1], port, socket_options=socket_options)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
