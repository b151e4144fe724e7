"""Notifications between instances about moved pointers, over real sockets."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from naksha.catalog.cache import CatalogCache
from naksha.catalog.cluster.clock import MonotonicClock
from naksha.catalog.cluster.nodes import Node
from naksha.catalog.cluster.peer_messages import (
    PeerMessage,
    PeerWire,
    PointerMove,
    RefusedLine,
    load_secret,
)
from naksha.catalog.cluster.peers import Peers, into_cache, parse_address
from naksha.catalog.cluster.snowflake import load_spec
from naksha.catalog.objects import ObjectRef
from naksha.catalog.pointers import Pointer
from naksha.memory import MemoryCatalog
from naksha.model import limits
from naksha.model.errors import InvalidArgument
from naksha.spi.catalog import CatalogBackend
from tests.catalog.cluster.manual_clock import until

SECRET = b"s" * 32
CLOCK = MonotonicClock()


def state(n: int, name: str = "main", created: int = 1) -> Pointer:
    return Pointer(name, ObjectRef("commit", 1_000 + n), created, 0, tuple(range(n)))


def move(n: int, name: str = "main", created: int = 1, *, is_deleted: bool = False) -> PointerMove:
    return PointerMove("r", state(n, name, created).to_row(), n, is_deleted)


class Instance:
    """Peers with a list of what they heard; they find the others in a dictionary."""

    def __init__(self, name: str, directory: dict[str, str], secret: bytes = SECRET) -> None:
        self.name = name
        self.heard: list[PointerMove] = []
        self.peers = Peers(PeerWire(secret), self.heard.append, refresh_seconds=0.05)
        self._directory = directory
        self.address = ""

    async def start(self, port: int = 0) -> None:
        self.address = await self.peers.listen("127.0.0.1", port)
        self._directory[self.name] = self.address
        self.peers.start(self.name, self._others)

    async def _others(self) -> dict[str, str]:
        return {name: each for name, each in self._directory.items() if name != self.name}

    def knows(self, *others: str) -> Callable[[], bool]:
        return lambda: set(self.peers.links) >= set(others)


@asynccontextmanager
async def instances(*names: str) -> AsyncIterator[list[Instance]]:
    """Instances that know each other."""
    directory: dict[str, str] = {}
    made = [Instance(name, directory) for name in names]
    try:
        for each in made:
            await each.start()
        for each in made:
            await until(each.knows(*(name for name in names if name != each.name)))
        yield made
    finally:
        for each in made:
            await each.peers.close()


async def say(address: str, *lines: bytes) -> None:
    """Send lines and wait until the other side closes or the lines are read."""
    reader, writer = await asyncio.open_connection(*parse_address(address))
    with contextlib.suppress(OSError, TimeoutError):
        for line in lines:
            writer.write(line)
            await writer.drain()
        writer.write_eof()
        async with asyncio.timeout(5):
            await reader.read()
    writer.close()


# ---- Lines -----------------------------------------------------------------------------------


def test_a_line_says_what_was_written() -> None:
    batch = PeerMessage("a", "host:1", (move(3, "käse\n\0"), move(4, is_deleted=True)))
    line = PeerWire(SECRET).to_line(batch)
    assert line.count(b"\n") == 1
    assert PeerWire(SECRET).from_line(line) == batch


def test_the_longest_batch_fits_a_line() -> None:
    name = "\x01" * limits.POINTER_NAME_BYTES_MAX
    target = ObjectRef("t" * limits.OBJECT_TYPE_BYTES_MAX, 2**63 - 1, 2**31)
    previous = (2**63 - 1,) * limits.PREVIOUS_POINTERS_MAX
    row = Pointer(name, target, 2**63 - 1, 2**63 - 1, previous).to_row()
    longest = PointerMove("r" * limits.REALM_ID_LENGTH_MAX, row, 2**63 - 1, is_deleted=True)
    batch = PeerMessage("s" * 32, "h" * 255 + ":65535", (longest,) * limits.PEER_BATCH_MAX)
    assert len(PeerWire(SECRET).to_line(batch)) < limits.PEER_LINE_BYTES_MAX


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"\n",
        b"GET / HTTP/1.1\r\n",
        PeerWire(b"another secret").to_line(PeerMessage("a", "")),
        PeerWire(SECRET).to_line(PeerMessage("a", "")).replace(b'"a"', b'"b"'),
        b"\xc3\xa4" * 32 + b" []\n",
    ],
)
def test_a_line_without_the_right_code_is_refused(line: bytes) -> None:
    with pytest.raises(RefusedLine, match="code"):
        PeerWire(SECRET).from_line(line)


def test_a_line_with_the_right_code_that_means_nothing_is_refused() -> None:
    wire = PeerWire(SECRET)
    text = b'{"not": "a batch"}'
    with pytest.raises(RefusedLine, match="cannot be decoded"):
        wire.from_line(wire._code(text) + b" " + text + b"\n")


async def test_all_instances_of_a_catalog_have_one_secret() -> None:
    backend = await MemoryCatalog.open()
    found = await asyncio.gather(*(load_secret(backend, CLOCK) for _ in range(5)))
    assert len(set(found)) == 1
    assert len(found[0]) == 32
    assert await load_secret(await MemoryCatalog.open(), CLOCK) != found[0]


def test_addresses_are_read() -> None:
    assert parse_address("127.0.0.1:80") == ("127.0.0.1", 80)
    assert parse_address("[::1]:80") == ("::1", 80)
    for wrong in ("", "host", "host:", ":80", "host:x"):
        with pytest.raises(InvalidArgument, match="address"):
            parse_address(wrong)


# ---- Telling and hearing ---------------------------------------------------------------------


async def test_all_other_instances_receive_a_move() -> None:
    async with instances("a", "b", "c") as (a, b, c):
        a.peers.send(move(1))
        await until(lambda: len(b.heard) == len(c.heard) == 1)
        assert b.heard == c.heard == [move(1)]
        assert not a.heard


async def test_a_new_instance_is_known_to_the_others_before_they_look_it_up() -> None:
    directory: dict[str, str] = {}
    a, b = Instance("a", directory), Instance("b", directory)
    await a.start()
    a.peers._refresh_seconds = 1_000
    await asyncio.sleep(0.1)  # it has looked up for the last time
    await b.start()
    await until(a.knows("b"))
    a.peers.send(move(1))
    await until(lambda: b.heard == [move(1)])
    await a.peers.close()
    await b.peers.close()


async def test_many_moves_come_in_batches_and_only_the_last_one_of_a_pointer() -> None:
    async with instances("a", "b") as (a, b):
        for n in range(50):
            for pointer in range(100):
                a.peers.send(move(n, f"p{pointer}"))
        await until(lambda: {m.row.name for m in b.heard if m.sequence == 49} >= set(names(100)))
        assert len(b.heard) == 100  # nothing was sent before all were told
        assert a.peers.links["b"].sent == 100


def names(count: int) -> list[str]:
    return [f"p{n}" for n in range(count)]


@pytest.mark.parametrize(
    ("moves", "sent"),
    [
        ([move(5), move(4)], move(5)),
        ([move(5), move(5, is_deleted=True)], move(5, is_deleted=True)),
        ([move(5, is_deleted=True), move(6)], move(5, is_deleted=True)),
        ([move(5, is_deleted=True), move(1, created=2)], move(1, created=2)),
    ],
)
async def test_of_two_moves_that_wait_the_later_state_is_sent(
    moves: list[PointerMove], sent: PointerMove
) -> None:
    async with instances("a", "b") as (a, b):
        for each in moves:
            a.peers.send(each)
        await until(lambda: bool(b.heard))
        assert b.heard == [sent]


async def test_messages_to_an_absent_instance_are_bounded_and_sent_on_its_return(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "PEER_QUEUE_MAX", 10)
    async with instances("a", "b") as (a, b):
        port = parse_address(b.address)[1]
        await b.peers.close()
        link = a.peers.links["b"]
        await asyncio.sleep(0.05)  # a sees the end of the connection
        for n in range(15):
            a.peers.send(move(1, f"p{n}"))
        a.peers.send(move(2, "p0"))  # one that waits already
        assert link.dropped == 5
        again = Instance("b", b._directory)
        await again.start(port)
        with contextlib.suppress(AssertionError):
            await until(lambda: len(again.heard) >= 10)
        await again.peers.close()
        expected = dict.fromkeys(names(10), 1) | {"p0": 2}
        assert {m.row.name: m.sequence for m in again.heard} == expected


async def test_a_connection_that_was_accepted_before_the_end_is_not_heard_after_it() -> None:
    line = PeerWire(SECRET).to_line(PeerMessage("x", "", (move(1),)))
    async with instances("b") as (b,):
        await b.peers.close()
        async with await asyncio.start_server(b.peers._serve, "127.0.0.1", 0) as accepting:
            port = accepting.sockets[0].getsockname()[1]
            await say(f"127.0.0.1:{port}", line, line)
        assert not b.heard


async def test_a_vanished_instance_is_not_retried_for_ever() -> None:
    async with instances("a", "b") as (a, b):
        del b._directory["b"]
        await until(lambda: not a.peers.links)


async def test_an_instance_that_does_not_read_blocks_no_other() -> None:
    with socket.create_server(("127.0.0.1", 0)) as deaf:  # accepts connections, but never reads
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        async with instances("a", "b") as (a, b):
            a._directory["deaf"] = f"127.0.0.1:{deaf.getsockname()[1]}"
            await until(a.knows("deaf"))
            stuck = 0
            for n in range(100):
                b.heard.clear()
                for pointer in range(500):
                    a.peers.send(move(n, f"{pointer}" + "x" * 400))
                await until(lambda: len(b.heard) == 500)
                await asyncio.sleep(0.01)
                stuck += a.peers.links["deaf"].waiting > 0
                if stuck == 3:
                    break
            assert stuck == 3


# ---- What others may send --------------------------------------------------------------------


async def test_invalid_lines_are_counted_and_ignored() -> None:
    wire = PeerWire(SECRET)
    hello = wire.to_line(PeerMessage("x", ""))
    forged = PeerWire(b"guessed").to_line(PeerMessage("x", "", (move(1),)))
    async with instances("a", "b") as (a, b):
        await say(b.address, b"GET / HTTP/1.1\r\n\r\n")
        await say(b.address, b"\0\xff" * 500 + b"\n")
        await say(b.address, hello, forged)
        assert b.peers.refused == 3
        await say(b.address, hello, b"x" * (2 * limits.PEER_LINE_BYTES_MAX))
        assert b.peers.refused == 4
        await say(b.address, hello, hello[:-5])  # ends in the middle
        await say(b.address)
        assert b.peers.refused == 4
        assert not b.heard
        a.peers.send(move(2))
        await until(lambda: b.heard == [move(2)])


async def test_messages_after_a_forged_line_are_ignored() -> None:
    wire = PeerWire(SECRET)
    true = wire.to_line(PeerMessage("x", "", (move(1),)))
    async with instances("b") as (b,):
        await say(b.address, wire.to_line(PeerMessage("x", "")), b"forged\n", true)
        assert not b.heard
        await say(b.address, wire.to_line(PeerMessage("x", "")), true, true)
        assert b.heard == [move(1), move(1)]


async def test_own_messages_are_ignored() -> None:
    line = PeerWire(SECRET).to_line(PeerMessage("b", "127.0.0.1:1", (move(1),)))
    async with instances("b") as (b,):
        await say(b.address, line, line)
        assert not b.heard
        assert not b.peers.links
        assert b.peers.own == 1


async def test_a_connection_without_identification_is_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "PEER_CALL_SECONDS_MAX", 0.05)
    async with instances("b") as (b,):
        reader, writer = await asyncio.open_connection(*parse_address(b.address))
        async with asyncio.timeout(5):
            assert await reader.read() == b""
        writer.close()


async def test_connections_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "PEER_CONNECTIONS_MAX", 2)
    async with instances("b") as (b,):
        opened = [await asyncio.open_connection(*parse_address(b.address)) for _ in range(3)]
        async with asyncio.timeout(5):
            assert await opened[2][0].read() == b""
        assert not opened[0][0].at_eof()
        for _, writer in opened:
            writer.close()


# ---- Caches of two instances -----------------------------------------------------------------


class Reader:
    """Client that reads a pointer through the cache of an instance."""

    def __init__(self, backend: CatalogBackend, seconds: float) -> None:
        self._backend = backend
        self.cache = CatalogCache(CLOCK, pointer_seconds=seconds)
        self.reads = 0

    async def number(self) -> int:
        found = self.cache.pointer("r", "main")
        if found is None:
            self.reads += 1
            stamp = self.cache.stamp("r", "main")
            rows = await self._backend.fetch_pointers("r", ["main"])
            found = Pointer.from_row(rows["main"])
            self.cache.put_pointer("r", "main", found, stamp)
        assert isinstance(found, Pointer)
        assert found.target is not None
        return found.target.id - 1_000


async def staleness(
    backend: CatalogBackend, reader: Reader, send: Callable[[PointerMove], None], moves: int
) -> list[float]:
    """How long the reader saw the old state, for each of some moves."""
    before, seconds = state(0).to_row(), []
    await backend.create_pointer("r", before)
    assert await reader.number() == 0
    for n in range(1, moves + 1):
        row = state(n).to_row()
        assert await backend.swap_pointer("r", before, row)
        begun = time.monotonic()
        send(PointerMove("r", row, n))
        while await reader.number() != n:
            assert time.monotonic() < begun + 10
            await asyncio.sleep(0.001)
        seconds.append(time.monotonic() - begun)
        before = row
    return seconds


async def test_with_messages_a_reader_is_stale_for_milliseconds_only() -> None:
    backend = await MemoryCatalog.open()
    reader = Reader(backend, seconds=1_000)
    async with instances("a", "b") as (a, b):
        b.peers._receive = into_cache(reader.cache)
        await staleness(backend, reader, a.peers.send, 20)
    assert reader.reads == 21


async def test_with_all_messages_dropped_a_reader_is_stale_for_the_time_limit_at_most() -> None:
    backend = await MemoryCatalog.open()
    limit = 0.5
    reader = Reader(backend, seconds=limit)
    seconds = await staleness(backend, reader, lambda _: None, 3)
    assert max(seconds) >= limit / 2  # else nothing was cached
    assert max(seconds) < 10 * limit


async def test_a_deleted_pointer_is_forgotten_by_the_others() -> None:
    cache = CatalogCache(CLOCK)
    async with instances("a", "b") as (a, b):
        b.peers._receive = into_cache(cache)
        cache.put_pointer("r", "main", state(1), cache.stamp("r", "main"), 1)
        a.peers.send(move(1, is_deleted=True))
        await until(lambda: cache.pointer("r", "main") is None)


async def test_a_move_of_a_newer_program_evicts() -> None:
    cache = CatalogCache(CLOCK)
    cache.put_pointer("r", "main", state(1), cache.stamp("r", "main"), 1)
    row = state(2).to_row()
    for target, previous in ((b"\xff\xff", b""), (row.target, b"odd")):
        strange = type(row)(row.name, target, row.created, row.epoch, previous)
        into_cache(cache)(PointerMove("r", strange, 2))
        assert cache.pointer("r", "main") is None


def in_a_loop_of_its_own(work: Callable[[], Awaitable[None]]) -> threading.Thread:
    async def run() -> None:
        await work()

    thread = threading.Thread(target=lambda: asyncio.run(run()))
    thread.start()
    return thread


async def test_two_instances_of_a_catalog_find_each_other_by_their_leases() -> None:
    """Each in a loop of its own, as two processes would be."""
    location = "memory:test-peers"
    backend = await MemoryCatalog.open(location)
    heard: list[PointerMove] = []
    reported = threading.Event()

    async def instance(
        receive: Callable[[PointerMove], None], rest: Callable[[Peers], Awaitable[None]]
    ) -> None:
        backend = await MemoryCatalog.open(location)
        spec = await load_spec(backend, CLOCK)
        peers = Peers(PeerWire(await load_secret(backend, CLOCK)), receive)
        address = await peers.listen("127.0.0.1")
        node = await Node(backend, spec, CLOCK, address=address).start()
        peers.start(node.instance, node.peers)
        try:
            await rest(peers)
        finally:
            await peers.close()
            await node.close()

    async def send(peers: Peers) -> None:
        await until(lambda: len(peers.links) == 1)
        peers.send(move(1))
        await until(reported.is_set)

    async def hear(peers: Peers) -> None:
        await until(lambda: heard == [move(1)])
        reported.set()

    thread = in_a_loop_of_its_own(lambda: instance(lambda _: None, send))
    await instance(heard.append, hear)
    await asyncio.to_thread(thread.join, 10)
    assert heard == [move(1)]
    await backend.close()
