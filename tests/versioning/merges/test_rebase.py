"""Failed rebases, which leave nothing behind."""

from __future__ import annotations

import asyncio
import importlib
from typing import Any

import pytest

from naksha.model.errors import (
    InvalidArgument,
    MergeConflict,
    NakshaError,
    NotFound,
    Retryable,
)
from naksha.model.query import Query
from naksha.model.transaction import MAIN
from naksha.model.version import HEAD
from naksha.spi.storage import BranchLayer, Storage
from naksha.versioning import (
    NameScope,
    WriteReport,
    branches,
    create_branch,
    delete_branch,
    open_branch,
    place_of,
    rebase,
    rename_branch,
)
from tests.versioning.town import ANN, BOB, branch, content, make, place, put

rebase_module = importlib.import_module("naksha.versioning.merges.rebase")
NUMBERS = range(1, 30)


async def overlays(storage: Storage) -> list[int]:
    """The overlays there are: one that is not there cannot be read."""
    base = await storage.resolve(HEAD)
    found = []
    for number in NUMBERS:
        view = storage.on_branch((BranchLayer(number, None), BranchLayer(MAIN, base.txn)))
        try:
            await view.count("places", Query())
        except NotFound:
            continue
        found.append(number)
    return found


async def own_overlays(storage: Storage) -> list[int]:
    """Return the overlays that a branch is based on, now or formerly."""
    return sorted(epoch.overlay for each in await branches(storage) for epoch in each.epochs)


async def prepared(storage: Storage) -> Storage:
    await make(storage)
    await put(storage, place("a", n=1))
    await create_branch(storage, "fix", ANN)
    fix = (await open_branch(storage, "fix")).storage
    await put(fix, place("b"))
    await put(storage, place("a", n=2))
    return fix


async def test_attempts_that_come_too_late(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    fix = await prepared(storage)
    plan, left = rebase_module.plan_merge, [1, 2]

    async def planned(*arguments: Any) -> Any:
        found = await plan(*arguments)
        if left:
            await put(fix, place(f"meanwhile{left.pop()}"))
        return found

    monkeypatch.setattr(rebase_module, "plan_merge", planned)
    await rebase(storage, "fix", BOB)
    assert await overlays(storage) == await own_overlays(storage)
    found = await content((await open_branch(storage, "fix")).storage)
    assert found == {"a": {"n": 2}, "b": {}, "meanwhile1": {}, "meanwhile2": {}}


async def test_a_rebase_that_fails_permanently(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    fix = await prepared(storage)
    write = rebase_module.write_plan

    async def written(*arguments: Any) -> None:
        await write(*arguments)
        raise Retryable("always")

    monkeypatch.setattr(rebase_module, "write_plan", written)
    with pytest.raises(Retryable, match="always"):
        await rebase(storage, "fix", BOB)
    await check_untouched(storage, fix)


async def test_a_cancelled_rebase(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    fix = await prepared(storage)
    write, is_there = rebase_module.write_plan, asyncio.Event()

    async def written(*arguments: Any) -> None:
        await write(*arguments)
        is_there.set()
        await asyncio.sleep(60)

    monkeypatch.setattr(rebase_module, "write_plan", written)
    task = asyncio.create_task(rebase(storage, "fix", BOB))
    async with asyncio.timeout(60):
        await is_there.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    await check_untouched(storage, fix)


async def test_one_in_conflict(storage: Storage) -> None:
    fix = await prepared(storage)
    await put(fix, place("a", n=3))
    with pytest.raises(MergeConflict):
        await rebase(storage, "fix", BOB)
    assert await overlays(storage) == await own_overlays(storage)


async def test_a_branch_from_before_its_parents_own_versions_goes_onto_the_parent(
    storage: Storage,
) -> None:
    """The branch is then based on main, although it was made from the other branch."""
    await make(storage)
    await put(storage, place("a"))
    base = (await place_of(storage, "HEAD")).version.seq_number
    await create_branch(storage, "parent", BOB)
    await put((await open_branch(storage, "parent")).storage, place("b"))
    await create_branch(storage, "child", BOB, f"parent:{base}")
    await rename_branch(storage, "parent", "other", BOB)
    await rebase(storage, "child", BOB)
    assert await content((await open_branch(storage, "child")).storage) == {"a": {}, "b": {}}


async def check_untouched(storage: Storage, fix: Storage) -> None:
    """The branch is where it was, and can be written to."""
    assert await overlays(storage) == await own_overlays(storage)
    await put(fix, place("c"))
    assert await content(fix) == {"a": {"n": 1}, "b": {}, "c": {}}


async def test_the_new_base_may_be_about_less(storage: Storage) -> None:
    await make(storage, "places", "roads")
    await put(storage, place("a", n=1))
    narrow = NameScope(None, ("places",))
    await create_branch(storage, "narrow", ANN, scope=narrow)
    base = (await open_branch(storage, "narrow")).storage
    await put(base, place("b"))
    wide = await branch(storage, "wide", "narrow")
    await put(wide, place("r"), into="roads")
    await put(base, place("c"))
    done = await rebase(storage, "wide", BOB)
    assert done.created == {"roads": ["r"]}
    wide = (await open_branch(storage, "wide")).storage
    assert await content(wide, "roads") == {"r": {}}
    assert await content(wide) == {"a": {"n": 1}, "b": {}, "c": {}}


async def test_the_new_base_is_deleted_meanwhile(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Either the base stays, or the rebase fails; no branch is based on a dropped overlay."""
    await prepared(storage)
    other = await branch(storage, "other")
    await put(other, place("c"))
    write, tasks = rebase_module.write_plan, []

    async def written(*arguments: Any) -> None:
        await write(*arguments)
        tasks.append(asyncio.create_task(delete_branch(storage, "other", ANN)))
        await asyncio.sleep(0.3)

    monkeypatch.setattr(rebase_module, "write_plan", written)
    async with asyncio.timeout(60):
        moved = await asyncio.gather(
            rebase(storage, "fix", BOB, onto="other"), return_exceptions=True
        )
        ended = await asyncio.gather(*tasks, return_exceptions=True)
    assert all(isinstance(e, NakshaError | WriteReport) for e in moved)
    assert all(e is None or isinstance(e, NakshaError) for e in ended)
    names = [each.name for each in await branches(storage)]
    is_moved = isinstance(moved[0], WriteReport)
    assert names == (["fix", "other"] if is_moved else ["fix"])
    expected = {"a": {"n": 2}, "b": {}, "c": {}} if is_moved else {"a": {"n": 1}, "b": {}}
    assert await content((await open_branch(storage, "fix")).storage) == expected


async def test_a_base_that_is_older_than_a_collection(storage: Storage) -> None:
    await make(storage)
    first = await put(storage, place("a", n=1))
    await branch(storage, "old")
    await make(storage, "roads", "empty")
    fix = await branch(storage)
    await put(fix, place("a", n=2))
    # What has nothing in it can be left behind.
    await rebase(storage, "fix", BOB, onto="old", dry_run=True)
    await put(fix, place("r"), into="roads")
    for onto in ("old", str(first.seq_number)):
        for dry_run in (True, False):
            with pytest.raises(InvalidArgument, match="does not exist at the new base") as caught:
                await rebase(storage, "fix", BOB, onto=onto, dry_run=dry_run)
            assert (caught.value.field, caught.value.collection_id) == ("onto", "roads")
    assert await content(fix, "roads") == {"r": {}}
    assert await content(fix) == {"a": {"n": 2}}
