"""HTTP client for remote handlers: persistent connections, checked addresses, time and size limits.

It does not follow redirects and uses no proxy.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import socket
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from typing import Any, Final, NamedTuple

import httpcore

from naksha.hub.remote.allow_list import AllowedAddress, AllowList
from naksha.model import limits
from naksha.model.errors import RemoteFailed

_log: Final = logging.getLogger(__name__)
_BROKEN: Final = (httpcore.ReadError, httpcore.WriteError, httpcore.RemoteProtocolError)
_UNREACHED: Final = (httpcore.ConnectError, httpcore.ConnectTimeout)


class ConnectFailed(RemoteFailed):
    """No request was sent, so the call can be retried."""


class ConnectionBroken(RemoteFailed):
    """The connection broke; whether the request arrived is unknown."""


class ResponseTimeout(RemoteFailed):
    """The response did not arrive within the timeout."""


class CallTimeouts(NamedTuple):
    """Timeouts of a call."""

    connect_seconds: float
    total_seconds: float


class RemoteClient:
    """Client for the remote handlers that a hub may call. Bound to one event loop."""

    def __init__(self, allowed: Iterable[str] = ()) -> None:
        self.targets: Final = AllowList(allowed)
        self._pools: dict[bool, httpcore.AsyncConnectionPool] = {}
        self._slots_of: dict[tuple[str, str, int], asyncio.Semaphore] = {}

    def _slots(self, target: AllowedAddress) -> asyncio.Semaphore:
        """Return the target's semaphore: a server that hangs must not occupy all connections."""
        slots = self._slots_of.get(target.origin)
        if slots is None:
            slots = asyncio.Semaphore(limits.REMOTE_CONNECTIONS_PER_TARGET_MAX)
            self._slots_of[target.origin] = slots
        return slots

    async def post(
        self,
        target: AllowedAddress,
        body: bytes,
        headers: Mapping[str, str],
        timeouts: CallTimeouts,
        *,
        is_delivery: bool = False,
        before_sending: Callable[[], None] | None = None,
    ) -> bytes:
        """Send a body to a handler and return the response body.

        Deliveries of subscriptions have connections without a limit, so that they and requests
        do not wait for each other, however many deliveries hang. `before_sending` is called when a
        connection is established, and may raise to cancel the call.

        Raises:
            Unreached, Broken, Slow: The handler does not respond.
            RemoteFailed: The response is invalid.
            Forbidden: The host name resolves to an address that is not allowed.
        """
        sent = {
            "Content-Type": "application/json",
            "Accept": "application/json",
            "Accept-Encoding": "identity",
            "User-Agent": "naksha",
            **headers,
        }
        try:
            async with asyncio.timeout(timeouts.total_seconds):
                async with nullcontext() if is_delivery else self._slots(target):
                    pool = self._opened(is_delivery=is_delivery)
                    call = _CallRequest(target.url, body, sent, before_sending)
                    return await _exchange(pool, call, timeouts)
        except (TimeoutError, httpcore.ReadTimeout, httpcore.WriteTimeout) as error:
            raise ResponseTimeout(f"No response within {timeouts.total_seconds:.1f} s") from error
        except _UNREACHED as error:
            raise ConnectFailed("The server cannot be reached; retry later") from error
        except _BROKEN as error:
            raise ConnectionBroken(
                "The connection broke before the response was complete; its server may have crashed"
            ) from error
        except httpcore.PoolTimeout as error:
            raise ConnectFailed(
                "Too many calls are waiting for remote handlers; retry later"
            ) from error

    def _opened(self, *, is_delivery: bool) -> httpcore.AsyncConnectionPool:
        pool = self._pools.get(is_delivery)
        if pool is None:
            pool = self._pools[is_delivery] = httpcore.AsyncConnectionPool(
                ssl_context=httpcore.default_ssl_context(),
                max_connections=None if is_delivery else limits.REMOTE_CONNECTIONS_MAX,
                max_keepalive_connections=limits.REMOTE_CONNECTIONS_MAX,
                keepalive_expiry=limits.REMOTE_KEEPALIVE_SECONDS,
                network_backend=_AllowedNetwork(self.targets),
            )
        return pool

    async def close(self) -> None:
        """Close all connections."""
        for pool in self._pools.values():
            await pool.aclose()


class _CallRequest(NamedTuple):
    """The request of one call."""

    url: str
    body: bytes
    headers: Mapping[str, str]
    before_sending: Callable[[], None] | None

    async def trace(self, event: str, _: dict[str, Any]) -> None:
        """Trace callback of httpcore; calls `before_sending` just before the request is sent."""
        if self.before_sending is not None and event.endswith("send_request_headers.started"):
            self.before_sending()


async def _exchange(
    pool: httpcore.AsyncConnectionPool, call: _CallRequest, timeouts: CallTimeouts
) -> bytes:
    times = {
        "connect": timeouts.connect_seconds,
        "read": timeouts.total_seconds,
        "write": timeouts.total_seconds,
        "pool": timeouts.total_seconds,
    }
    async with pool.stream(
        "POST",
        call.url,
        headers=[*call.headers.items()],
        content=call.body,
        extensions={"timeout": times, "trace": call.trace},
    ) as response:
        if not 200 <= response.status < 300:
            _log.warning(
                "The remote handler %s responded with status %d", call.url, response.status
            )
            raise RemoteFailed(
                f"The server responded with status {response.status}; its log has the reason"
            )
        headers_told = {name.lower(): value for name, value in response.headers}
        encoding = headers_told.get(b"content-encoding", b"identity")
        if encoding.lower() != b"identity":
            raise RemoteFailed(
                "The server of the remote handler sent a compressed response, which the hub does "
                "not accept; its operator has to turn off compression"
            )
        return await _bounded(response)


async def _bounded(response: httpcore.Response) -> bytes:
    parts: list[bytes] = []
    size = 0
    async for part in response.aiter_stream():
        parts.append(part)
        size += len(part)
        if size > limits.REMOTE_BODY_BYTES_MAX:
            raise RemoteFailed(
                f"The response of the server exceeds {limits.REMOTE_BODY_BYTES_MAX} bytes; "
                "request fewer features"
            )
    return b"".join(parts)


class _AllowedNetwork(httpcore.AsyncNetworkBackend):
    """Network backend that connects to allowed addresses only.

    It resolves a name once, checks the addresses and connects to one of them: a second look-up
    could return a different address (DNS rebinding).
    """

    def __init__(self, targets: AllowList) -> None:
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
        """Connect to the first address that accepts."""
        for address in addresses[:-1]:
            try:
                return await self._backend.connect_tcp(address, port, socket_options=socket_options)
            except httpcore.ConnectError:
                continue
        return await self._backend.connect_tcp(addresses[-1], port, socket_options=socket_options)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
