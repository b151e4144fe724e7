"""Conformance: waiting for the next version."""

from __future__ import annotations

import asyncio

from naksha.model.transaction import MAIN
from naksha.spi.storage import BranchLayer, Storage
from naksha.testing.storage.suite_support import (
    APP,
    Handle,
    StorageMaker,
    new_collection,
    point,
    published,
    rolled_back,
)

PATIENCE_S = 60.0
"""Far longer than any notification takes."""


class TestWaitingForVersions:
    async def test_a_published_version_is_returned_at_once(self, places: Handle) -> None:
        last = (await places.published()).seq_number
        assert await places.storage.wait_beyond(last - 1, PATIENCE_S) >= last
        assert await places.storage.wait_beyond(-1, 0) >= last

    async def test_a_timeout_returns_the_last_version(self, empty_storage: Storage) -> None:
        assert await empty_storage.wait_beyond(0, 0) == 0
        assert await empty_storage.wait_beyond(0, 0.05) == 0
        handle = await new_collection(empty_storage)
        await rolled_back(empty_storage, lambda s: s.create(handle.name, [point("x")]))
        assert await empty_storage.wait_beyond(1, 0.05) == 1
        assert await empty_storage.wait_beyond(100, 0.05) == 1

    async def test_committed_transactions_are_published_before_waiting(
        self, empty_storage: Storage
    ) -> None:
        handle = await new_collection(empty_storage)
        for n in range(5):
            await handle.create(point(f"x{n}"))
            assert await empty_storage.wait_beyond(n + 1, 0) == n + 2

    async def test_every_waiter_gets_every_version(
        self, empty_storage: Storage, make_storage: StorageMaker
    ) -> None:
        """Waiters on two instances each continue from the version that they received last."""
        second = await make_storage(beside=empty_storage)
        handle, rounds = await new_collection(empty_storage), 12

        async def follow(storage: Storage) -> list[int]:
            seen = [1]
            while seen[-1] <= rounds:
                seen.append(await storage.wait_beyond(seen[-1], PATIENCE_S))
            return seen

        waiting = [asyncio.create_task(follow(s)) for s in [empty_storage, second] * 10]
        for n in range(rounds):
            await Handle((empty_storage, second)[n % 2], handle.name).create(point(f"x{n}"))
        for seen in await asyncio.gather(*waiting):
            assert seen == sorted(set(seen))
            assert seen[-1] == rounds + 1

    async def test_a_version_between_two_calls_is_not_missed(self, empty_storage: Storage) -> None:
        handle = await new_collection(empty_storage)
        for n in range(20):
            waiting = asyncio.create_task(empty_storage.wait_beyond(n + 1, PATIENCE_S))
            for _ in range(n % 7):
                await asyncio.sleep(0)
            await handle.create(point(f"x{n}"))
            assert await waiting == n + 2

    async def test_a_held_back_version_is_returned_when_the_transaction_ends(
        self, storage: Storage
    ) -> None:
        one, two = await new_collection(storage), await new_collection(storage)
        before = (await published(storage)).seq_number
        async with storage.write(APP) as session:
            await session.create(one.name, [point("x")])
            held = session.txn or 0
            await two.create(point("y"))
            is_held = (await two.get("y")).txn > held
            waiting = asyncio.create_task(storage.wait_beyond(before + 1, PATIENCE_S))
            if is_held:
                assert await storage.wait_beyond(before, 0.05) == before
        assert await waiting == before + 2

    async def test_a_branch_returns_the_versions_of_the_storage(self, storage: Storage) -> None:
        handle = await new_collection(storage)
        version = await handle.published()
        overlay = await storage.run(lambda session: session.new_overlay(), APP)
        branch = storage.on_branch((BranchLayer(overlay, None), BranchLayer(MAIN, version.txn)))
        last = await branch.wait_beyond(-1, 0)
        waiting = asyncio.create_task(branch.wait_beyond(last, PATIENCE_S))
        await branch.run(lambda session: session.create(handle.name, [point("x")]), APP)
        assert await waiting == last + 1
        assert await storage.wait_beyond(last, 0) == last + 1

    async def test_a_cancelled_waiter_does_not_disturb_others(self, empty_storage: Storage) -> None:
        handle = await new_collection(empty_storage)
        waiting = [asyncio.create_task(empty_storage.wait_beyond(1, PATIENCE_S)) for _ in range(10)]
        await asyncio.sleep(0.01)
        for task in waiting[::2]:
            task.cancel()
        await handle.create(point("x"))
        assert await asyncio.gather(*waiting[1::2]) == [2] * 5
        assert all(task.cancelled() for task in waiting[::2])
