"""One sequencer at a time among real processes; another takes over when it is killed or paused."""

from __future__ import annotations

import asyncio
import random
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from naksha.psql.connection.driver import Direct
from tests.psql.maintenance import sequencer_process
from tests.psql.support import Connect, begin, check_log, insert, published, sign, until

ELECTED = (
    "SELECT a.pid, a.application_name FROM pg_locks l JOIN pg_stat_activity a USING (pid)"
    " WHERE l.locktype = 'advisory' AND l.objsubid = 2 AND l.objid = 5 AND l.granted"
    " AND l.classid = 'naksha_tx_object_id_seq'::regclass"
)


class Sequencers:
    """Processes that each have the storage open; they know each other by their backends."""

    def __init__(self, dsn: str, watcher: Direct) -> None:
        self._dsn = dsn
        self._watcher = watcher
        self._ended: set[str] = set()
        self._running: dict[str, asyncio.subprocess.Process] = {}

    async def start(self, name: str) -> None:
        """A process whose connections carry its name."""
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            sequencer_process.__file__,
            self._dsn,
            "test",
            name,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        assert process.stdout is not None
        assert await process.stdout.readline() == b"ready\n"
        self._running[name] = process

    async def elected(self) -> list[str]:
        """The names of those that are elected."""
        return [row["application_name"] for row in await self._watcher.fetch(ELECTED)]

    async def one_is_elected(self) -> str:
        """Waits for an election; there are never two. The server may take a moment to notice that
        the one before is dead."""
        found: list[str] = []

        async def is_elected() -> bool:
            found[:] = await self.elected()
            assert len(found) <= 1
            return bool(found) and found[0] not in self._ended

        await until(is_elected)
        return found[0]

    def send(self, name: str, what: signal.Signals) -> None:
        self._running[name].send_signal(what)
        if what in (signal.SIGKILL, signal.SIGTERM):
            self._ended.add(name)

    @property
    def alive(self) -> list[str]:
        """The names of the processes that were not ended."""
        return [name for name in self._running if name not in self._ended]

    async def end(self) -> None:
        for process in self._running.values():
            if process.returncode is None:
                process.kill()
            await process.wait()


@asynccontextmanager
async def three(dsn: str, watcher: Direct) -> AsyncIterator[Sequencers]:
    sequencers = Sequencers(dsn, watcher)
    try:
        for name in ("one", "two", "three"):
            await sequencers.start(name)
        yield sequencers
    finally:
        await sequencers.end()


async def write_and_wait(writer: Direct, key: str) -> None:
    """Write with plain SQL, and wait until the transaction is published."""
    await begin(writer)
    await insert(writer, "roads", key)
    txn = await sign(writer)
    await writer.execute("COMMIT")

    async def is_published() -> bool:
        return txn in await published(writer)

    await until(is_published)


async def test_a_killed_sequencer_is_succeeded(bare: str, connect: Connect) -> None:
    writer = await connect()
    async with three(bare, writer) as sequencers:
        seen = []
        for n in range(2):
            name = await sequencers.one_is_elected()
            await write_and_wait(writer, f"before {n}")
            seen.append(name)
            sequencers.send(name, signal.SIGKILL)
            await write_and_wait(writer, f"after {n}")
        seen.append(await sequencers.one_is_elected())
        assert sorted(seen) == ["one", "three", "two"]
    await check_log(writer)


async def test_a_paused_sequencer_delays_no_writer(bare: str, connect: Connect) -> None:
    """Paused at any moment it keeps its locks; the others publish without being elected."""
    writer, dice = await connect(), random.Random(3)
    async with three(bare, writer) as sequencers:
        name = await sequencers.one_is_elected()
        for n in range(4):
            await asyncio.sleep(dice.random() * 0.02)
            sequencers.send(name, signal.SIGSTOP)
            await write_and_wait(writer, f"paused {n}")
            assert await sequencers.elected() == [name]
            sequencers.send(name, signal.SIGCONT)
            await write_and_wait(writer, f"awake {n}")
    await check_log(writer)


class Writer:
    """Write with plain SQL without a pause until `end`, and keep the committed numbers."""

    def __init__(self, connection: Direct) -> None:
        self.txns: list[int] = []
        self._connection = connection
        self._stopped = False

    async def __aenter__(self) -> Writer:
        self._task = asyncio.create_task(self._work())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._stopped = True
        await self._task

    async def _work(self) -> None:
        while not self._stopped:
            await begin(self._connection)
            await insert(self._connection, "roads", f"w{len(self.txns)}")
            txn = await sign(self._connection)
            await self._connection.execute("COMMIT")
            self.txns.append(txn)


async def disturb(sequencers: Sequencers, dice: random.Random, number: int) -> None:
    """At any moment, whatever it does, the elected one is killed or paused for a while."""
    await asyncio.sleep(dice.random() * 0.3)
    found = await sequencers.elected()
    victim = found[0] if found else dice.choice(sequencers.alive)
    if victim not in sequencers.alive:
        return  # Killed before, and the server has not noticed yet.
    what = dice.choice([signal.SIGKILL, signal.SIGTERM, signal.SIGSTOP])
    sequencers.send(victim, what)
    if what is signal.SIGSTOP:
        await asyncio.sleep(dice.random() * 0.3)
        sequencers.send(victim, signal.SIGCONT)
    else:
        await sequencers.start(f"more{number}")


@pytest.mark.parametrize("rounds", [4, pytest.param(60, marks=pytest.mark.long)])
async def test_sequencers_come_and_go_under_load(bare: str, connect: Connect, rounds: int) -> None:
    dice = random.Random(4)
    async with three(bare, await connect()) as sequencers:
        async with Writer(await connect()) as writer:
            for number in range(rounds):
                await disturb(sequencers, dice, number)
        last = await connect()
        await write_and_wait(last, "last")
    assert len(writer.txns) > rounds
    await check_log(last, writer.txns)
