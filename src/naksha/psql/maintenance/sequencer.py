"""Publication in the background: any open storage can be the sequencer, one at a time.

A library writer publishes right after its commit, so no caller waits for another process. For
writers without the library (plain SQL) one storage is elected by a session lock. While it sleeps it
holds a second lock; a writer that finds that lock taken sends a notification. When the elected
storage dies its locks are released, and the next storage that checks takes over.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Collection
from typing import Any, Final, NamedTuple

from naksha.model.errors import NakshaError
from naksha.model.transaction import PublicationStatus
from naksha.model.version import Version
from naksha.psql.connection.driver import Connections, Direct, acquired
from naksha.psql.connection.errors import DRIVER_ERRORS, translated
from naksha.psql.read.versions import by_txn
from naksha.psql.sql import queries
from naksha.spi.support.cancellation import check_cancelled
from naksha.spi.support.version_signal import VersionSignal

ELECTED: Final = 5
ASLEEP: Final = 3
"""Numbers of the advisory locks; see naksha_lock_class in the schema."""
RETRY_S: Final = 0.01
_RETRY_S_MAX: Final = 0.25
"""Pause while committed transactions wait for an open one with a lower number."""
_GATHER_S: Final = 0.01
"""Pause after a publication, so that under load one round covers all commits meanwhile.

A caller that needs the last commit at once requests a round (`publish`).
"""
_PUBLISH_MAX: Final = 10_000
"""Transactions published by one statement."""
LOOK_S: Final = 1.0
"""Interval at which a storage that is not elected checks whether it must take over.

Callers that wait for news check for new versions at the same interval.
"""


class PublicationRound(NamedTuple):
    """Result of a publication: whether something must wait, and the versions of transactions."""

    is_waiting: bool
    versions: dict[int, Version]


class Sequencer:
    """Background task that publishes the transactions of one open storage."""

    def __init__(self, connections: Connections, connect: Callable[[], Awaitable[Direct]]) -> None:
        self._connections = connections
        self._connect = connect
        self._listener: Direct | None = None
        self._turn = asyncio.Lock()
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._running: asyncio.Task[PublicationRound] | None = None
        self._wanted: set[int] = set()
        self._elected = False
        self.last = (0, 0)
        """Number and transaction of the last version that a round has seen."""
        self.version_signal: Final = VersionSignal(LOOK_S)

    @property
    def is_elected(self) -> bool:
        """Whether this storage publishes for writers without the library."""
        return self._elected

    def start(self) -> None:
        """Start the task, which first publishes what earlier processes left."""
        self._wake.set()
        self._task = asyncio.create_task(self._loop(), name="naksha-sequencer")

    async def close(self) -> None:
        """Stop; committed transactions that are not published are left to the next storage."""
        for task in (self._task, self._running):
            if task is not None:
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError, Exception):
                    await task
        await self._drop_listener()

    def poke(self) -> None:
        """Wake the task after a commit."""
        self._wake.set()

    async def publish(self) -> bool:
        """Publish all that can be published now; return whether something must wait."""
        return (await self._round()).is_waiting

    async def version_of(self, txn: int) -> Version | None:
        """Publish all that can be published now; return the version of a transaction, if any."""
        self._wanted.add(txn)
        return (await self._round()).versions.get(txn)

    async def _round(self) -> PublicationRound:
        """Publish; callers that arrive during a round share the next one."""
        running = self._running
        if running is not None and not running.done():
            with contextlib.suppress(Exception):
                await asyncio.shield(running)
        if self._running is None or self._running.done():
            self._running = asyncio.create_task(self._publish_all())
        return await asyncio.shield(self._running)

    async def wait_for_version(self, seconds: float) -> None:
        """Wait until any process publishes something, or until the timeout."""
        next_version = self.version_signal.next_version
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await next_version.wait()

    async def status(self) -> PublicationStatus:
        """Return how far publication is, and what holds it back."""
        async with acquired(self._connections, leaves_nothing=True) as connection:
            row = await connection.fetchrow(queries()["publication"])
        assert row is not None
        since = row["held_since"]
        waiting = row["unpublished"] > 0
        return PublicationStatus(
            last_seq_number=row["last_seq"],
            last_txn=row["last_txn"],
            unpublished=row["unpublished"],
            held_back_by=row["held_by"] if waiting else None,
            held_back_since_ms=int(since.timestamp() * 1000) if since and waiting else None,
        )

    async def _publish_all(self) -> PublicationRound:
        wanted, self._wanted = self._wanted, set()
        while True:
            row = await self._published(wanted)
            assert row is not None
            self.last = max(self.last, (row["last_seq"], row["last_txn"]))
            self.version_signal.notify(row["last_seq"])
            # Stop after an incomplete batch instead of looping until nothing is left: with
            # continuous commits that would never end.
            if row["published"] < _PUBLISH_MAX:
                columns = (row["seq_numbers"] or (), row["txns"] or (), row["times_ms"] or ())
                versions = {each[1]: Version(*each) for each in zip(*columns, strict=True)}
                return PublicationRound(bool(row["remaining"]), versions)

    async def _published(self, wanted: Collection[int]) -> Any:
        """Run one round, on the listener's connection if it is open.

        So writers that wait for a connection of the pool do not delay publication.
        """
        values = (_PUBLISH_MAX, list(wanted))
        listener = self._listener
        if listener is not None and not listener.is_closed():
            try:
                async with self._turn:
                    with translated():
                        return await listener.fetchrow(queries()["publish"], *values)
            except NakshaError:
                if not listener.is_closed():
                    raise
                # Wake the task, which would wait for notifications of a dead connection: the
                # driver does not report a connection that breaks in the middle of a statement.
                self.poke()
        async with acquired(self._connections, leaves_nothing=True) as connection:
            return await connection.fetchrow(queries()["publish"], *values)

    async def _loop(self) -> None:
        pause = RETRY_S
        while True:
            try:
                self._wake.clear()
                before = self.version_signal.last
                waiting = await self.publish()
                is_stuck = waiting and self.version_signal.last == before
                pause = min(pause * 2, _RETRY_S_MAX) if is_stuck else RETRY_S
                if self.version_signal.last > before:
                    await self._listen()
                    await asyncio.sleep(_GATHER_S)
                    if self._wake.is_set():
                        continue
                await self._wait_for_work(pause if waiting else None)
            except (*DRIVER_ERRORS, NakshaError):
                check_cancelled()
                await self._drop_listener()
                await asyncio.sleep(LOOK_S)

    async def _wait_for_work(self, pause: float | None) -> None:
        """Wait for work.

        While something waits for publication this is a short pause. Otherwise the elected storage
        sleeps until it is notified, and any other waits until it is time to check again.
        """
        listener = await self._listen()
        if pause is not None:
            await self._wait(pause)
        elif not self._elected:
            self._elected = await self._call(listener, "try_lock", ELECTED)
            if not self._elected:
                await self._wait(LOOK_S)
        elif await self._call(listener, "try_lock", ASLEEP):
            try:
                if not await self.publish():
                    await self._wait(None)
            finally:
                await self._call(listener, "unlock", ASLEEP)
        else:
            # A writer that saw this storage awake, and so will not notify it, has not committed
            # yet.
            await self._wait(RETRY_S)

    async def _call(self, listener: Direct, query: str, *values: int) -> bool:
        async with self._turn:
            return bool(await listener.fetchval(queries()[query], *values))

    async def _wait(self, seconds: float | None) -> None:
        # Not `wait_for`, which loses a cancellation that arrives together with the event.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._wake.wait()

    async def _listen(self) -> Direct:
        if self._listener is None or self._listener.is_closed():
            self._elected = False
            # Assigned before the first await, so that a concurrent close finds it.
            self._listener = listener = await self._connect()
            async with self._turn:
                key = str(await listener.fetchval(queries()["lock_class"]))

            def written(_: object, __: int, ___: str, payload: object) -> None:
                if payload == key:
                    self._wake.set()

            def published(_: object, __: int, ___: str, payload: object) -> None:
                whose, _, last = str(payload).partition(":")
                if whose == key and last.isdecimal():
                    self.version_signal.notify(int(last))

            async with self._turn:
                await listener.add_listener("naksha_written", written)
                await listener.add_listener("naksha_published", published)
                listener.add_termination_listener(lambda _: self._wake.set())
                # Versions published before LISTEN are not notified, so read the last one.
                last = await listener.fetchrow(queries()["last_version"])
            self.version_signal.reset(0 if last is None else last["seq_number"])
        return self._listener

    async def _drop_listener(self) -> None:
        listener, self._listener, self._elected = self._listener, None, False
        if listener is not None:
            with contextlib.suppress(Exception):
                await asyncio.wait_for(listener.close(), LOOK_S)


class Follower(Sequencer):
    """Replacement of the sequencer where nothing can be written.

    Other processes publish, and it polls for new versions, because a hot standby has no
    notifications.
    """

    def start(self) -> None:
        """Do nothing: there is no background task."""

    async def publish(self) -> bool:
        """Look up the last published version."""
        async with acquired(self._connections, leaves_nothing=True) as connection:
            last = await connection.fetchrow(queries()["last_version"])
        self.last = (0, 0) if last is None else (last["seq_number"], last["txn"])
        self.version_signal.notify(self.last[0])
        return False

    async def version_of(self, txn: int) -> Version | None:
        """Look up the version of a transaction."""
        await self.publish()
        async with acquired(self._connections, leaves_nothing=True) as connection:
            return await by_txn(connection, txn)
