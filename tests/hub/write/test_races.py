"""Concurrent writes: none is lost, and no writer waits for ever."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from naksha.hub.write.deletes import _Delete
from naksha.hub.write.modifications import ModificationWriter
from naksha.hub.write.writes import _Write
from naksha.model import limits
from naksha.model.errors import Conflict, FeatureExists
from naksha.model.query import Query
from naksha.versioning import create_branch, rebase
from naksha.versioning.records import Attribution
from tests.hub.write.support import Desk, feature, properties_of


def once_before(
    monkeypatch: pytest.MonkeyPatch, kind: type[Any], name: str, other: Callable[[], Awaitable[Any]]
) -> None:
    """Run another write before the first call of a method, as a concurrent client would."""
    method = getattr(kind, name)
    came: list[bool] = []

    async def late(*arguments: Any) -> Any:
        if not came:
            came.append(True)
            await asyncio.create_task(_now(other))
        return await method(*arguments)

    monkeypatch.setattr(kind, name, late)


async def _now(other: Callable[[], Awaitable[Any]]) -> None:
    await other()


async def test_a_patch_is_repeated_on_what_another_one_wrote(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    await desk.put(feature("a", n=1))
    once_before(
        monkeypatch, ModificationWriter, "_write", lambda: desk.put(feature("a", n=2, other=1))
    )
    written = await desk.write({"id": "a", "properties": {"mine": 1}})
    assert written.updated == ("a",)
    assert await desk.properties("a") == {"n": 2, "other": 1, "mine": 1}


async def test_a_concurrently_created_feature_is_patched_or_an_error(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    await desk.put(feature("first"))
    with monkeypatch.context() as patch:
        once_before(patch, ModificationWriter, "_write", lambda: desk.put(feature("a", other=1)))
        written = await desk.write(feature("a", mine=1))
    assert written.updated == ("a",)
    assert await desk.properties("a") == {"other": 1, "mine": 1}
    with monkeypatch.context() as patch:
        once_before(patch, ModificationWriter, "_write", lambda: desk.put(feature("b")))
        with pytest.raises(FeatureExists):
            await desk.write(feature("b", mine=1), e="error")


async def test_a_concurrently_deleted_feature_is_created_or_skipped(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    await desk.put(feature("a", old=1), feature("b"))

    async def delete(id: str) -> None:
        await desk.write(ids=(id,), e="delete")

    with monkeypatch.context() as patch:
        once_before(patch, ModificationWriter, "_write", lambda: delete("a"))
        assert (await desk.write(feature("a", mine=1))).inserted == ("a",)
    assert await desk.properties("a") == {"mine": 1}
    with monkeypatch.context() as patch:
        once_before(patch, ModificationWriter, "_write", lambda: delete("b"))
        assert (await desk.write(feature("b"), e="delete")).inserted == ("b",)


async def test_a_lock_that_was_right_when_it_was_looked_at_is_a_conflict_afterwards(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = (await desk.put(feature("a", n=1))).states[0].uuid
    once_before(monkeypatch, ModificationWriter, "_write", lambda: desk.put(feature("a", n=2)))
    with pytest.raises(Conflict) as refused:
        await desk.write(feature("a", {"uuid": read}, n=3))
    assert refused.value.head is not None
    assert refused.value.head["properties"]["n"] == 2


async def test_features_that_no_longer_match_are_not_deleted(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    await desk.put(feature("a", {"tags": ["old"]}), feature("b", {"tags": ["old"]}))
    saved = feature("a", {"tags": ["saved"]})
    once_before(monkeypatch, _Delete, "_delete", lambda: desk.put(saved))
    deleted = await desk.delete(Query(tags=(("old",),)))
    assert deleted.ids == ("b",)
    assert set(await desk.states()) == {"a"}


async def test_patches_at_the_same_time_lose_nothing(desk: Desk) -> None:
    writers, features = 12, ("a", "b", "c")
    await desk.put(*map(feature, features))

    async def patch(number: int) -> None:
        for turn in range(3):
            body = {f"w{number}t{turn}": turn}
            await desk.write(*[{"id": id, "properties": body} for id in features])

    await asyncio.gather(*map(patch, range(writers)))
    expected = {f"w{number}t{turn}": turn for number in range(writers) for turn in range(3)}
    for state in (await desk.states()).values():
        assert properties_of(state) == expected
        assert state.xyz["version"] == 1 + writers * 3


async def test_the_first_writes_at_the_same_time_all_arrive(desk: Desk) -> None:
    await asyncio.gather(*[desk.write(feature(f"f{n}"), feature("all")) for n in range(8)])
    assert len(await desk.states()) == 9


async def test_repeated_conflicts_end_with_the_write_gate(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the end others have to wait for him."""
    await desk.put(feature("a"))
    write = ModificationWriter._write
    others: list[asyncio.Task[Any]] = []

    async def late(*arguments: Any) -> Any:
        if asyncio.current_task() is me:
            others.append(asyncio.create_task(desk.write(feature("a", **{f"o{len(others)}": 1}))))
            await asyncio.wait(others, timeout=0.5)
        return await write(*arguments)

    monkeypatch.setattr(ModificationWriter, "_write", late)
    me = asyncio.create_task(desk.write(feature("a", mine=1)))
    assert (await me).updated == ("a",)
    await asyncio.gather(*others)
    assert 2 <= len(others) < limits.RETRY_COUNT_MAX
    expected = {"mine": 1} | {f"o{n}": 1 for n in range(len(others))}
    assert await desk.properties("a") == expected


async def test_a_rebased_branch_is_reopened(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    await desk.put(feature("a"))
    storage, signed = await desk.storage(), Attribution("tests", None)
    scope = desk.scope
    await create_branch(storage, "fix", signed, scope=scope)
    await desk.write(feature("b"), ref="fix")
    await desk.put(feature("c"))
    once_before(monkeypatch, _Write, "run", lambda: rebase(storage, "fix", signed, scope=scope))
    await desk.write(feature("d"), ref="fix")
    assert set(await desk.states("fix")) == {"a", "b", "c", "d"}
