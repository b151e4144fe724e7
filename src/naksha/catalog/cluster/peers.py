"""Cache invalidation between instances: an instance that moves a pointer notifies its peers.

Messages are fire-and-forget: nothing waits for one, and a lost one only means that a reader sees
the old state until its time limit. Every instance has one connection to each peer for its own
messages; the addresses are those in the leases of nodes.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import struct
from collections.abc import Awaitable, Callable, Mapping
from itertools import islice
from typing import Final

from naksha.catalog.cache import CatalogCache
from naksha.catalog.cluster.peer_messages import PeerMessage, PeerWire, PointerMove, RefusedLine
from naksha.catalog.pointers import Pointer
from naksha.model import limits
from naksha.model.errors import InvalidArgument, NakshaError
from naksha.spi.support.cancellation import check_cancelled

_RETRY_SECONDS_MIN: Final = 0.1

logger = logging.getLogger(__name__)

Directory = Callable[[], Awaitable[Mapping[str, str]]]
"""Returns the addresses of the other instances by their names."""


def into_cache(cache: CatalogCache) -> Callable[[PointerMove], None]:
    """Return a receiver that applies the moves of peers to a cache."""

    def receive(move: PointerMove) -> None:
        try:
            pointer = Pointer.from_row(move.row)
        except (NakshaError, struct.error):
            pointer = None  # Possibly written by a newer release.
        if pointer is None or move.is_deleted:
            cache.evict_pointer(move.realm, move.row.name)
        else:
            cache.pointer_moved(move.realm, pointer, move.sequence)

    return receive


class PeerLink:
    """Connection to one peer, with a queue of messages and a task that sends them."""

    def __init__(
        self, address: str, hello: bytes, to_line: Callable[[list[PointerMove]], bytes]
    ) -> None:
        self.address: Final = address
        self.dropped = 0
        self.sent = 0
        self._hello = hello
        self._to_line = to_line
        self._waiting: dict[tuple[str, str], PointerMove] = {}
        self._wake = asyncio.Event()
        self._task = asyncio.create_task(self._keep(), name=f"naksha-peer-{address}")

    @property
    def waiting(self) -> int:
        """Number of moves that are not sent yet."""
        return len(self._waiting)

    def offer(self, move: PointerMove) -> None:
        """Queue a move; only the last move of each pointer is kept."""
        key = (move.realm, move.row.name)
        before = self._waiting.get(key)
        if before is None and len(self._waiting) >= limits.PEER_QUEUE_MAX:
            self.dropped += 1
        elif before is None or move.supersedes(before):
            self._waiting[key] = move
            self._wake.set()

    async def close(self) -> None:
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task

    async def _keep(self) -> None:
        pause = _RETRY_SECONDS_MIN
        while True:
            sent = self.sent
            try:
                await self._connect_and_send()
            except (OSError, TimeoutError, InvalidArgument) as error:
                logger.debug("The instance at %s cannot be reached: %s", self.address, error)
            pause = _RETRY_SECONDS_MIN if self.sent > sent else pause * 2
            pause = min(pause, limits.PEER_RETRY_SECONDS_MAX)
            await asyncio.sleep(pause)

    async def _connect_and_send(self) -> None:
        host, port = parse_address(self.address)
        async with asyncio.timeout(limits.PEER_CALL_SECONDS_MAX):
            reader, writer = await asyncio.open_connection(host, port)
        # Peers never send on this connection, so the end of this read means that the peer is gone.
        gone = asyncio.create_task(reader.read(1))
        gone.add_done_callback(lambda _: self._wake.set())
        try:
            await self._write(writer, self._hello)
            while not gone.done():
                await self._send_waiting(writer)
                await self._wake.wait()
        finally:
            gone.cancel()
            # Do not use close(): it waits until the peer has read everything.
            writer.transport.abort()

    async def _send_waiting(self, writer: asyncio.StreamWriter) -> None:
        self._wake.clear()
        while self._waiting:
            keys = list(islice(self._waiting, limits.PEER_BATCH_MAX))
            moves = [self._waiting.pop(key) for key in keys]
            try:
                await self._write(writer, self._to_line(moves))
            except OSError:
                for key, move in zip(keys, moves, strict=True):
                    self._waiting.setdefault(key, move)
                raise
            self.sent += len(moves)

    @staticmethod
    async def _write(writer: asyncio.StreamWriter, line: bytes) -> None:
        writer.write(line)
        async with asyncio.timeout(limits.PEER_CALL_SECONDS_MAX):
            await writer.drain()


class Peers:
    """Notifies peers about moves, and receives theirs.

        peers = Peers(wire, into_cache(cache))
        address = await peers.listen("127.0.0.1")      # then a node is leased, with this address
        peers.start(node.instance, node.peers)

    `receive` is called for every move that a peer reports; it must not raise.
    """

    def __init__(
        self,
        wire: PeerWire,
        receive: Callable[[PointerMove], None],
        *,
        refresh_seconds: float = limits.PEER_REFRESH_SECONDS,
    ) -> None:
        self._wire = wire
        self._receive = receive
        self._refresh_seconds = refresh_seconds
        self._instance = ""
        self._address = ""
        self._is_closed = False
        self._server: asyncio.Server | None = None
        self._refresher: asyncio.Task[None] | None = None
        self._links: dict[str, PeerLink] = {}
        self._receiving: set[asyncio.Task[None]] = set()
        self.received = 0
        self.refused = 0
        """Lines that were too long or had a wrong code; each one ended its connection."""
        self.own = 0

    @property
    def links(self) -> Mapping[str, PeerLink]:
        """The connections to the other instances by their names."""
        return self._links

    async def listen(self, host: str, port: int = 0, *, advertised_host: str = "") -> str:
        """Receive messages on an address, and return the address for the lease of the node.

        If peers reach this instance under another host than `host`, give it as `advertised_host`.
        """
        self._server = await asyncio.start_server(
            self._serve, host, port, limit=limits.PEER_LINE_BYTES_MAX
        )
        port = self._server.sockets[0].getsockname()[1]
        host = advertised_host or host
        self._address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        return self._address

    def start(self, instance: str, directory: Directory) -> None:
        """Connect to the other instances and follow changes in their addresses."""
        self._instance = instance
        self._refresher = asyncio.create_task(self._refresh(directory), name="naksha-peers")

    def send(self, move: PointerMove) -> None:
        """Queue a move for all other instances. Never blocks and never raises."""
        for link in self._links.values():
            link.offer(move)

    async def close(self) -> None:
        """Stop receiving and sending; queued moves are discarded."""
        self._is_closed = True
        tasks = [*self._receiving, *([self._refresher] if self._refresher else [])]
        if self._server is not None:
            self._server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        links, self._links = self._links, {}
        await asyncio.gather(*(link.close() for link in links.values()))
        if self._server is not None:
            await self._server.wait_closed()

    async def _refresh(self, directory: Directory) -> None:
        while True:
            try:
                await self._follow(await directory())
            except NakshaError as error:
                check_cancelled()
                logger.debug("The addresses of the other instances cannot be read: %s", error)
            except Exception:
                check_cancelled()
                logger.exception("The addresses of the other instances cannot be read")
            await asyncio.sleep(self._refresh_seconds)

    async def _follow(self, addresses: Mapping[str, str]) -> None:
        gone = [name for name, link in self._links.items() if addresses.get(name) != link.address]
        await asyncio.gather(*(self._links.pop(name).close() for name in gone))
        for instance, address in addresses.items():
            self._connect(instance, address)

    def _connect(self, instance: str, address: str) -> None:
        if not self._instance or instance in self._links or instance == self._instance:
            return

        def to_line(moves: list[PointerMove]) -> bytes:
            return self._wire.to_line(PeerMessage(self._instance, self._address, tuple(moves)))

        self._links[instance] = PeerLink(address, to_line([]), to_line)

    # ---- Hearing -----------------------------------------------------------------------------

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._receiving.add(task)
        try:
            # A connection that was accepted just before closing gets here afterwards.
            if not self._is_closed and len(self._receiving) <= limits.PEER_CONNECTIONS_MAX:
                await self._read_lines(reader)
        except (asyncio.LimitOverrunError, RefusedLine) as error:
            self.refused += 1
            logger.debug("A connection from another instance was closed: %s", error)
        except (asyncio.IncompleteReadError, OSError, TimeoutError) as error:
            logger.debug("Another instance disconnected, or never identified itself: %s", error)
        except asyncio.CancelledError:
            # Cancelled by close(). If raised further, the stream's own callback would log it as an
            # error.
            logger.debug("The connection from another instance was closed on shutdown")
        finally:
            self._receiving.discard(task)
            writer.transport.abort()

    async def _read_lines(self, reader: asyncio.StreamReader) -> None:
        async with asyncio.timeout(limits.PEER_CALL_SECONDS_MAX):
            hello = self._wire.from_line(await reader.readuntil(b"\n"))
        if hello.sender != self._instance and hello.address:
            self._connect(hello.sender, hello.address)
        while True:
            batch = self._wire.from_line(await reader.readuntil(b"\n"))
            if batch.sender == self._instance:
                self.own += 1
                continue
            for move in batch.moves:
                self._receive(move)
            self.received += len(batch.moves)


def parse_address(address: str) -> tuple[str, int]:
    """Return host and port of `host:port` or `[host]:port`."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal():
        raise InvalidArgument(
            f"{address!r} is not a valid address; use host:port or [host]:port", field="address"
        )
    return host.removeprefix("[").removesuffix("]"), int(port)
