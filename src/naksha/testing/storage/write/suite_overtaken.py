"""Conformance: a session overtaken by a later transaction fails with a retryable error.

A session draws its number with its first write. If a transaction with a greater number changes a
feature meanwhile, the session must not write onto it: the states' order would differ from that of
their numbers, and a version would not be the content at its time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from naksha.model.collection import CollectionChange
from naksha.model.errors import Retryable
from naksha.spi.storage import Storage, WriteSession
from naksha.testing.storage.suite_support import APP, Handle, ids_of, new_collection, point
from naksha.testing.storage.write.suite_concurrency import check_history, check_log

STEP_SECONDS_MAX = 60.0

Step = Callable[[Handle], Awaitable[object]]
Work = Callable[[WriteSession, str], Awaitable[object]]


async def gone_again(handle: Handle, key: str) -> None:
    """Create and delete a feature."""
    await handle.upsert(point(key, n="short life"))
    await handle.delete(key)


CASES: dict[str, tuple[Step, Work]] = {
    "update over an update": (
        lambda h: h.update(point("x", n=2)),
        lambda s, name: s.update(name, [point("x", n=3)]),
    ),
    "upsert over an update": (
        lambda h: h.update(point("x", n=2)),
        lambda s, name: s.upsert(name, [point("new"), point("x", n=3)]),
    ),
    "delete over an update": (
        lambda h: h.update(point("x", n=2)),
        lambda s, name: s.delete(name, ["x"]),
    ),
    "update over a create": (
        lambda h: h.create(point("young")),
        lambda s, name: s.upsert(name, [point("young", n=3)]),
    ),
    "create over a delete": (
        lambda h: h.delete("x"),
        lambda s, name: s.create(name, [point("x", n=3)]),
    ),
    "create over a short life": (
        lambda h: gone_again(h, "young"),
        lambda s, name: s.create(name, [point("young", n=3)]),
    ),
    "restore after a delete": (
        lambda h: h.delete("x"),
        lambda s, name: s.restore(name, ["x"]),
    ),
    "update over a restore": (
        lambda h: h.restore("dead"),
        lambda s, name: s.upsert(name, [point("dead", n=3)]),
    ),
    "write after a change of the collection": (
        lambda h: h.change(author="owner"),
        lambda s, name: s.create(name, [point("new")]),
    ),
    "delete after history was switched off": (
        lambda h: h.change(history_enabled=False),
        lambda s, name: s.delete(name, ["x"]),
    ),
}

COLLECTION_CASES: dict[str, tuple[Step, Work]] = {
    "change of the collection after a write": (
        lambda h: h.create(point("young")),
        lambda s, name: s.change_collection(name, CollectionChange(history_enabled=False)),
    ),
    "drop of the collection after a write": (
        lambda h: h.create(point("young")),
        lambda s, name: s.drop_collection(name),
    ),
}


async def overtake(step: Awaitable[object]) -> None:
    """Commit another transaction while a session is open, which must not block it."""
    async with asyncio.timeout(STEP_SECONDS_MAX):
        await step


async def prepared(storage: Storage) -> tuple[Handle, Handle]:
    """Return a collection with content, and another one to draw a number with."""
    handle, other = await new_collection(storage), await new_collection(storage)
    await handle.create(point("x", n=1), point("dead"))
    await handle.delete("dead")
    return handle, other


async def check_told_to_repeat(storage: Storage, step: Step, work: Work) -> None:
    """Check a session that draws its number before the step and works after it."""
    handle, other = await prepared(storage)
    with pytest.raises(Retryable):
        async with storage.write(APP) as session:
            await session.create(other.name, [point("number")])
            await overtake(step(handle))
            before = [state.raw for state in await handle.all()]
            await work(session, handle.name)
    assert [state.raw for state in await handle.all()] == before
    assert await other.live() == []
    await check_history(handle)
    await check_log(storage)


async def check_repeated(storage: Storage, step: Step, work: Work) -> Handle:
    """Check the same within `run`, which repeats it once."""
    handle, other = await prepared(storage)
    attempts: list[int | None] = []

    async def overtaken_once(session: WriteSession) -> None:
        await session.create(other.name, [point("number")])
        attempts.append(session.txn)
        if len(attempts) == 1:
            await overtake(step(handle))
        await work(session, handle.name)

    await storage.run(overtaken_once, APP)
    assert len(attempts) == 2
    assert ids_of(await other.live()) == ["number"]
    await check_log(storage)
    return handle


class TestOvertakenSessions:
    @pytest.mark.parametrize("case", CASES)
    async def test_a_session_raises_retryable(self, empty_storage: Storage, case: str) -> None:
        await check_told_to_repeat(empty_storage, *CASES[case])

    @pytest.mark.parametrize("case", CASES)
    async def test_run_repeats_by_itself(self, empty_storage: Storage, case: str) -> None:
        await check_history(await check_repeated(empty_storage, *CASES[case]))

    async def test_untouched_features_can_be_written(self, empty_storage: Storage) -> None:
        handle, other = await prepared(empty_storage)
        async with empty_storage.write(APP) as session:
            await session.create(other.name, [point("number")])
            await overtake(handle.create(point("young")))
            await session.update(handle.name, [point("x", n=3)])
        assert ids_of(await handle.live()) == ["x", "young"]
        await check_history(handle)
        await check_log(empty_storage)


class TestOvertakenCollections:
    @pytest.mark.parametrize("case", COLLECTION_CASES)
    async def test_a_session_raises_retryable(self, empty_storage: Storage, case: str) -> None:
        await check_told_to_repeat(empty_storage, *COLLECTION_CASES[case])

    @pytest.mark.parametrize("case", COLLECTION_CASES)
    async def test_run_repeats_by_itself(self, empty_storage: Storage, case: str) -> None:
        handle = await check_repeated(empty_storage, *COLLECTION_CASES[case])
        if not case.startswith("drop"):
            await check_history(handle)
