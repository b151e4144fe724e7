"""Publication in the background: any open storage can be the sequencer, one is at a time.

Whoever commits publishes right afterwards, so with the library nobody waits for anybody. For
writers without the library (plain SQL) one storage is elected by a session lock. While it sleeps
it holds another lock; a writer that finds it taken notifies. When the elected one dies its locks
go with it, and the next storage that looks takes over.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any, Final

from naksha.model.errors import NakshaError
from naksha.model.transaction import PublicationStatus
from naksha.psql.connection.driver import Connections, Direct, acquired
from naksha.psql.connection.errors import DRIVER_ERRORS, translated
from naksha.psql.sql import queries
from naksha.spi.support.cancellation import check_cancelled
from naksha.spi.support.version_signal import News

ELECTED: Final = 5
ASLEEP: Final = 3
"""Numbers of the advisory locks; see naksha_lock_class in the schema."""
RETRY_S: Final = 0.01
RETRY_S_MAX: Final = 0.25
"""Pause while committed transactions wait for an open one below them."""
GATHER_S: Final = 0.01
"""Pause after something was published: under load one round is for all that commit meanwhile. Who
wants to see the last commit at once asks for a round (`publish`)."""
PUBLISH_MAX: Final = 10_000
"""Transactions published at once."""
LOOK_S: Final = 1.0
"""How often a storage that is not elected looks whether it must take over, and how often who waits
for news looks whether there are some."""


class Sequencer:
    """The background task of one open storage."""

    def __init__(self, connections: Connections, connect: Callable[[], Awaitable[Direct]]) -> None:
        self._connections = connections
        self._connect = connect
        self._listener: Direct | None = None
        self._turn = asyncio.Lock()
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._running: asyncio.Task[bool] | None = None
        self._elected = False
        self.news: Final = News(LOOK_S)

    @property
    def is_elected(self) -> bool:
        """Whether this storage publishes for writers without the library."""
        return self._elected

    def start(self) -> None:
        """Begin; the first thing done is to publish what others left."""
        self._wake.set()
        self._task = asyncio.create_task(self._loop(), name="naksha-sequencer")

    async def close(self) -> None:
        """Stop; what is committed but not published is left to the next storage."""
        for task in (self._task, self._running):
            if task is not None:
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError, Exception):
                    await task
        await self._drop_listener()

    def poke(self) -> None:
        """Something was committed."""
        self._wake.set()

    async def publish(self) -> bool:
        """Publish all that can be published now; tells whether something must wait. Callers that
        come while a round is under way share the next one."""
        running = self._running
        if running is not None and not running.done():
            with contextlib.suppress(Exception):
                await asyncio.shield(running)
        if self._running is None or self._running.done():
            self._running = asyncio.create_task(self._publish_all())
        return await asyncio.shield(self._running)

    async def wait_for_news(self, seconds: float) -> None:
        """Until something is published, by anybody; no longer than the time-out."""
        coming = self.news.coming
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await coming.wait()

    async def status(self) -> PublicationStatus:
        """How far publication is, and what holds it back."""
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

    async def _publish_all(self) -> bool:
        while True:
            row = await self._published()
            assert row is not None
            self.news.tell(row["last_seq"])
            # Not until nothing is left: while others commit without pause that never ends.
            if row["published"] < PUBLISH_MAX:
                return bool(row["remaining"])

    async def _published(self) -> Any:
        """One round. It has a connection of its own, where writers that wait for one of the pool
        do not hold it up."""
        listener = self._listener
        if listener is not None and not listener.is_closed():
            try:
                async with self._turn:
                    with translated():
                        return await listener.fetchrow(queries()["publish"], PUBLISH_MAX)
            except NakshaError:
                if not listener.is_closed():
                    raise
                # Who sleeps hears nothing any more, and the driver does not tell of a connection
                # that breaks in the middle of a statement.
                self.poke()
        async with acquired(self._connections, leaves_nothing=True) as connection:
            return await connection.fetchrow(queries()["publish"], PUBLISH_MAX)

    async def _loop(self) -> None:
        pause = RETRY_S
        while True:
            try:
                self._wake.clear()
                before = self.news.last
                waiting = await self.publish()
                is_stuck = waiting and self.news.last == before
                pause = min(pause * 2, RETRY_S_MAX) if is_stuck else RETRY_S
                if self.news.last > before:
                    await self._listen()
                    await asyncio.sleep(GATHER_S)
                    if self._wake.is_set():
                        continue
                await self._rest(pause if waiting else None)
            except (*DRIVER_ERRORS, NakshaError):
                check_cancelled()
                await self._drop_listener()
                await asyncio.sleep(LOOK_S)

    async def _rest(self, pause: float | None) -> None:
        """Wait for work: a short while when something waits for publication, else asleep (when
        elected) or until it is time to look again."""
        listener = await self._listen()
        if pause is not None:
            await self._wait(pause)
        elif not self._elected:
            self._elected = await self._asked(listener, "try_lock", ELECTED)
            if not self._elected:
                await self._wait(LOOK_S)
        elif await self._asked(listener, "try_lock", ASLEEP):
            try:
                if not await self.publish():
                    await self._wait(None)
            finally:
                await self._asked(listener, "unlock", ASLEEP)
        else:
            # A writer that knows us awake has not committed yet.
            await self._wait(RETRY_S)

    async def _asked(self, listener: Direct, query: str, *values: int) -> bool:
        async with self._turn:
            return bool(await listener.fetchval(queries()[query], *values))

    async def _wait(self, seconds: float | None) -> None:
        # Not wait_for, which forgets a cancellation that comes together with the event.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._wake.wait()

    async def _listen(self) -> Direct:
        if self._listener is None or self._listener.is_closed():
            self._elected = False
            # Kept from the start, so that a close in the middle of this finds it.
            self._listener = listener = await self._connect()
            async with self._turn:
                key = str(await listener.fetchval(queries()["lock_class"]))

            def written(_: object, __: int, ___: str, payload: object) -> None:
                if payload == key:
                    self._wake.set()

            def published(_: object, __: int, ___: str, payload: object) -> None:
                whose, _, last = str(payload).partition(":")
                if whose == key and last.isdecimal():
                    self.news.tell(int(last))

            async with self._turn:
                await listener.add_listener("naksha_written", written)
                await listener.add_listener("naksha_published", published)
                listener.add_termination_listener(lambda _: self._wake.set())
                # What was published while nobody listened is told by nobody else.
                last = await listener.fetchrow(queries()["last_version"])
            self.news.correct(0 if last is None else last["seq_number"])
        return self._listener

    async def _drop_listener(self) -> None:
        listener, self._listener, self._elected = self._listener, None, False
        if listener is not None:
            with contextlib.suppress(Exception):
                await asyncio.wait_for(listener.close(), LOOK_S)


class Follower(Sequencer):
    """In place of the sequencer where nothing can be written: others publish, and it looks for
    what they have published. A hot standby has no notifications."""

    def start(self) -> None:
        """Nothing goes on in the background."""

    async def publish(self) -> bool:
        """Look for the last version."""
        async with acquired(self._connections, leaves_nothing=True) as connection:
            last = await connection.fetchrow(queries()["last_version"])
        self.news.tell(0 if last is None else last["seq_number"])
        return False
