"""Tests of a catalog whose server dies, stalls or comes back.

A module with the fixtures `private_server` and `connect` binds them to each server.
"""

import asyncio
import math
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import TypeAlias

import pytest

from naksha.model.errors import OutcomeUnknown, Unavailable
from naksha.spi.catalog import CatalogBackend, PointerRow
from naksha.spi.support import server_calls
from naksha.testing.catalog.suite_support import (
    fresh_realm,
    get,
    get_pointer,
    moved,
    pointer,
    thing,
)
from naksha.testing.servers._private_server import PrivateServer
from tests.catalog.cluster.manual_clock import until

CALL_SECONDS_MAX = 1.5
WRITERS = 4

Connect: TypeAlias = Callable[[float], Awaitable[CatalogBackend]]
"""Opens the catalog of the private server, with the time that a call may take."""


class Writer:
    """Publishes one object after another, and knows what became of each."""

    def __init__(self, backend: CatalogBackend, realm: str, name: str) -> None:
        self._backend = backend
        self._realm = realm
        self.head = pointer(name)
        self.done: list[int] = []
        self.doubtful: PointerRow | None = None

    async def run(self, start: int) -> None:
        """Until the server is gone."""
        assert await self._backend.create_pointer(self._realm, self.head)
        id = start
        while True:
            id += 1
            after = moved(self.head, b"%d" % id)
            try:
                assert await self._backend.publish(self._realm, [thing(id)], self.head, after)
            except OutcomeUnknown:
                self.doubtful = after
                return
            except Unavailable:
                return
            self.head = after
            self.done.append(id)

    async def check(self, backend: CatalogBackend) -> None:
        """Everything acknowledged is there; what is in doubt is there whole or not at all."""
        found = await get_pointer(backend, self._realm, self.head.name)
        assert found in (self.head, self.doubtful)
        for id in self.done:
            assert await get(backend, self._realm, id) is not None
        if found == self.doubtful and found is not None:
            assert await get(backend, self._realm, int(found.target)) is not None


def have_written(writers: list[Writer]) -> bool:
    """Whether they have published more objects than there are writers."""
    return sum(len(writer.done) for writer in writers) > WRITERS


@pytest.fixture
async def lively(private_server: PrivateServer, connect: Connect) -> AsyncIterator[CatalogBackend]:
    """A backend on a server of which a test may do anything."""
    private_server.start()
    backend = await connect(CALL_SECONDS_MAX)
    yield backend
    await backend.close()
    private_server.resume()
    private_server.start()


class TestLostServer:
    async def test_nothing_acknowledged_is_lost_with_a_killed_server(
        self, lively: CatalogBackend, private_server: PrivateServer, connect: Connect
    ) -> None:
        for turn in range(3):
            realm = fresh_realm()
            writers = [Writer(lively, realm, f"p{n}") for n in range(WRITERS)]
            async with asyncio.TaskGroup() as group:
                for n, writer in enumerate(writers):
                    group.create_task(writer.run(n * 1_000_000))
                await until(partial(have_written, writers))
                await asyncio.sleep(0.05 * turn)
                private_server.kill()
            private_server.start()
            for writer in writers:
                await writer.check(lively)

    async def test_a_server_that_stalls_leaves_a_swap_in_doubt(
        self,
        lively: CatalogBackend,
        private_server: PrivateServer,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        # However slow this process is, the stalled server is met by the swap, not by a check of
        # the idle session before it.
        monkeypatch.setattr(server_calls, "IDLE_SECONDS_MAX", math.inf)
        realm, row = fresh_realm(), pointer("main")
        assert await lively.create_pointer(realm, row)
        # Once before, so that nothing has to be prepared.
        row, before = moved(row, b"here"), row
        assert await lively.swap_pointer(realm, before, row)
        after = moved(row, b"there")
        private_server.pause()
        start = time.monotonic()
        with pytest.raises(OutcomeUnknown):
            await lively.swap_pointer(realm, row, after)
        assert time.monotonic() - start < 4 * CALL_SECONDS_MAX
        private_server.resume()
        assert await get_pointer(lively, realm, "main") in (row, after)

    async def test_a_server_that_stalls_keeps_a_publication_whole(
        self, lively: CatalogBackend, private_server: PrivateServer
    ) -> None:
        realm, row = fresh_realm(), pointer("main")
        assert await lively.create_pointer(realm, row)
        after = moved(row, b"there")
        private_server.pause()
        with pytest.raises((OutcomeUnknown, Unavailable)) as caught:
            await lively.publish(realm, [thing(1)], row, after)
        private_server.resume()
        await asyncio.sleep(0.1)
        found = await get_pointer(lively, realm, "main")
        assert found == row or (found == after and caught.type is OutcomeUnknown)
        assert (await get(lively, realm, 1) is not None) is (found == after)

    async def test_a_read_from_a_server_that_stalls_is_unavailable(
        self, lively: CatalogBackend, private_server: PrivateServer
    ) -> None:
        realm, row = fresh_realm(), pointer("main")
        assert await lively.create_pointer(realm, row)
        private_server.pause()
        with pytest.raises(Unavailable):
            await lively.fetch_pointers(realm, ["main"])
        with pytest.raises(Unavailable):
            await lively.list_pointers(realm, "", "", 10)
        private_server.resume()
        assert await get_pointer(lively, realm, "main") == row

    async def test_a_request_that_was_never_sent_is_unavailable(
        self, lively: CatalogBackend, private_server: PrivateServer
    ) -> None:
        realm, row = fresh_realm(), pointer("main")
        private_server.kill()
        await asyncio.sleep(0.1)
        with pytest.raises(Unavailable):
            await lively.create_pointer(realm, row)
        private_server.start()
        assert await get_pointer(lively, realm, "main") is None
        assert await lively.create_pointer(realm, row)

    async def test_a_server_that_was_restarted_is_found_again(
        self, lively: CatalogBackend, private_server: PrivateServer
    ) -> None:
        realm, row = fresh_realm(), pointer("main")
        assert await lively.create_pointer(realm, row)
        # All sessions are in the pool, and none of them lives.
        await asyncio.gather(*(lively.fetch_pointers(realm, ["main"]) for _ in range(20)))
        private_server.restart()
        await asyncio.sleep(0.1)
        assert await lively.swap_pointer(realm, row, moved(row, b"there"))
        assert await get_pointer(lively, realm, "main") == moved(row, b"there")

    async def test_an_absent_server_cannot_be_opened(
        self, lively: CatalogBackend, private_server: PrivateServer, connect: Connect
    ) -> None:
        private_server.kill()
        with pytest.raises(Unavailable):
            await connect(CALL_SECONDS_MAX)


class TestCancelledCalls:
    async def test_no_call_gets_the_answer_to_another(
        self, lively: CatalogBackend, connect: Connect
    ) -> None:
        realm = fresh_realm()
        names = [f"n{n}" for n in range(20)]
        await lively.create_pointers(realm, [pointer(name, name.encode()) for name in names])
        draw = random.Random(7)

        async def read(name: str) -> None:
            found = await get_pointer(lively, realm, name)
            assert found is not None
            assert found.target == name.encode()

        for _ in range(30):
            tasks = [asyncio.create_task(read(draw.choice(names))) for _ in range(20)]
            for _ in range(draw.randrange(4)):
                await asyncio.sleep(0)
            await asyncio.sleep(draw.random() / 500)
            doomed = draw.sample(tasks, 10)
            for task in doomed:
                task.cancel()
            results = await asyncio.gather(*tasks, return_exceptions=True)
            for task, result in zip(tasks, results, strict=True):
                assert result is None or (
                    task in doomed and isinstance(result, asyncio.CancelledError)
                )

    async def test_a_cancelled_change_is_whole_or_not_at_all(self, lively: CatalogBackend) -> None:
        realm, row = fresh_realm(), pointer("main")
        assert await lively.create_pointer(realm, row)
        draw = random.Random(8)
        for id in range(1, 60):
            after = moved(row, b"%d" % id)
            task = asyncio.create_task(lively.publish(realm, [thing(id)], row, after))
            await asyncio.sleep(draw.random() / 500)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            # The server may still be at it.
            await asyncio.sleep(0.01)
            found = await get_pointer(lively, realm, "main")
            assert found in (row, after)
            if found == after:
                assert await get(lively, realm, id) is not None
                row = after

    async def test_calls_beyond_the_sessions_wait_for_a_session(
        self, lively: CatalogBackend
    ) -> None:
        realm = fresh_realm()
        rows = [pointer(f"p{n}") for n in range(100)]
        made = await asyncio.gather(*(lively.create_pointer(realm, row) for row in rows))
        assert all(made)
