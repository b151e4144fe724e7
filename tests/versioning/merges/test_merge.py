"""Merges: three-way, by property, all or nothing; conflicts stay until they are resolved."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from naksha.model.collection import CollectionChange, CollectionInfo
from naksha.model.errors import (
    Conflict,
    InUse,
    InvalidArgument,
    NakshaError,
    NotSupported,
    Retryable,
)
from naksha.model.query import Bbox, Query
from naksha.spi.storage import Storage, WriteSession
from naksha.versioning import (
    MergePolicy,
    NameScope,
    branches,
    create_branch,
    delete_branch,
    merge,
    open_branch,
    rebase,
    rename_branch,
)
from tests.versioning.town import ANN, BOB, branch, content, delete, make, place, put

After = Callable[[Any, Callable[[], Awaitable[object]]], None]
merges_module = importlib.import_module("naksha.versioning.merges.merge")
rebase_module = importlib.import_module("naksha.versioning.merges.rebase")


async def test_changes_of_only_one_side_are_merged(storage: Storage) -> None:
    await make(storage)
    await put(storage, *(place(id_, n=1, name="x") for id_ in "abcd"))
    fix = await branch(storage)
    await put(fix, place("a", n=2, name="x"), place("new"), place("b", 1, 1, n=1, name="x"))
    await delete(fix, "d")
    await put(storage, place("a", n=1, name="y"), place("c", n=3, name="x"))
    dry = await merge(storage, "fix", "main", BOB, dry_run=True)
    done = await merge(storage, "fix", "main", BOB)
    assert done.txn is not None
    assert (done.created, done.updated, done.deleted) == (
        {"places": ["new"]},
        {"places": ["a", "b"]},
        {"places": ["d"]},
    )
    assert (dry.created, dry.updated, dry.deleted) == (done.created, done.updated, done.deleted)
    assert await content(storage) == {
        "a": {"n": 2, "name": "y"},
        "b": {"n": 1, "name": "x"},
        "c": {"n": 3, "name": "x"},
        "new": {},
    }
    theirs = {s.id: s for s in (await fix.page("places", Query())).states}
    for state in (await storage.page("places", Query(ids=("a", "b", "new")))).states:
        assert state.xyz["muuid"] == theirs[state.id].uuid
        assert (state.txn, state.xyz["author"]) == (done.txn, "bob")
    entry = await storage.transaction(done.txn)
    assert "Merge of 'fix'" in [s.text for s in entry.signals]


async def test_merging_again_merges_only_what_is_new(storage: Storage) -> None:
    await make(storage)
    await put(storage, place("a", n=1), place("b", n=1))
    fix = await branch(storage)
    await put(fix, place("a", n=2))
    await merge(storage, "fix", "main", BOB)
    # Main goes on from there; the branch does something else.
    await put(storage, place("a", n=3))
    await put(fix, place("b", n=2))
    done = await merge(storage, "fix", "main", BOB)
    assert done.updated == {"places": ["b"]}
    assert await content(storage) == {"a": {"n": 3}, "b": {"n": 2}}
    again = await merge(storage, "fix", "main", BOB)
    assert (again.txn, again.count) == (None, 0)


async def test_main_into_the_branch_and_back(storage: Storage) -> None:
    await make(storage)
    await put(storage, place("a", n=1, m=1))
    fix = await branch(storage)
    await put(fix, place("a", n=2, m=1))
    await put(storage, place("a", n=1, m=2), place("b"))
    done = await merge(storage, "main", "fix", BOB)
    assert (done.created, done.updated) == ({"places": ["b"]}, {"places": ["a"]})
    assert await content(fix) == {"a": {"n": 2, "m": 2}, "b": {}}
    done = await merge(storage, "fix", "main", BOB)
    assert done.updated == {"places": ["a"]}
    assert await content(storage) == {"a": {"n": 2, "m": 2}, "b": {}}
    assert (await merge(storage, "main", "fix", BOB)).count == 0


async def test_equal_changes_on_both_sides_leave_nothing_to_merge(storage: Storage) -> None:
    await make(storage)
    await put(storage, place("a", n=1), place("b", n=1))
    fix = await branch(storage)
    for side in (fix, storage):
        await put(side, place("a", n=2), place("new", n=1))
        await delete(side, "b")
    assert (await merge(storage, "fix", "main", BOB)).count == 0


async def test_a_geometry_is_one_value(storage: Storage) -> None:
    await make(storage)
    await put(storage, place("both", 1, 1), place("mine", 1, 1, n=1), place("theirs", 1, 1, n=1))
    fix = await branch(storage)
    await put(fix, place("both", 2, 1), place("mine", 1, 1, n=2), place("theirs", 3, 3, n=1))
    await put(storage, place("both", 1, 2), place("mine", 2, 2, n=1), place("theirs", 1, 1, n=3))
    dry = await merge(storage, "fix", "main", BOB, dry_run=True)
    assert [(each.id, each.paths) for each in dry.conflicts] == [("both", ("/geometry",))]
    assert dry.updated == {"places": ["mine", "theirs"]}
    await merge(storage, "fix", "main", BOB, policy=MergePolicy.THEIRS)
    found = {s.id: s.feature for s in (await storage.page("places", Query())).states}
    assert {id_: f["geometry"]["coordinates"] for id_, f in found.items()} == {
        "both": [2, 1],
        "mine": [2, 2],
        "theirs": [3, 3],
    }
    assert [found[id_]["properties"]["n"] for id_ in ("mine", "theirs")] == [2, 3]


async def test_the_last_merge_point_is_protected(storage: Storage) -> None:
    async with storage.write("setup") as session:
        await session.create_collection(CollectionInfo(id="places", max_age=1))
    await put(storage, place("a", n=1), place("b", n=1))
    made = await create_branch(storage, "fix", ANN)
    fix = (await open_branch(storage, "fix")).storage
    await put(fix, place("a", n=2))
    await merge(storage, "fix", "main", BOB)
    await put(fix, place("a", n=3))
    await storage.unpin(f"branch:{made.number}")
    last = await put(storage, place("b", n=2))
    await storage.maintain(last.published_ms + 100 * 86_400_000)
    change = CollectionChange(history_enabled=False)
    with pytest.raises(InUse, match="merged"):
        await storage.run(lambda s: s.change_collection("places", change), "app")
    with pytest.raises(InUse, match="merged"):
        await storage.run(lambda s: s.drop_collection("places"), "app")


async def test_a_branch_of_some_collections_merges_these_only(storage: Storage) -> None:
    await make(storage, "places", "roads")
    await put(storage, place("a", n=1))
    await put(storage, place("r", n=1), into="roads")
    scope = NameScope("my-space", ("places",))
    await create_branch(storage, "fix", ANN, scope=scope)
    fix = (await open_branch(storage, "fix", scope=scope)).storage
    await put(fix, place("a", n=2))
    with pytest.raises(
        NotSupported, match="'roads' is not in the scope of this branch, which is places"
    ) as caught:
        await put(fix, place("r", n=2), into="roads")
    assert caught.value.collection_id == "roads"
    with pytest.raises(NotSupported, match="scope"):
        await delete(fix, "r", from_="roads")
    assert await content(fix, "roads") == {"r": {"n": 1}}
    await put(storage, place("r", n=2), into="roads")
    done = await merge(storage, "fix", "main", BOB, scope=scope)
    assert done.updated == {"places": ["a"]}
    assert await content(storage, "roads") == {"r": {"n": 2}}
    # Put on another base it is still about these only.
    await put(storage, place("b"))
    await rebase(storage, "fix", BOB, scope=scope)
    fix = (await open_branch(storage, "fix", scope=scope)).storage
    with pytest.raises(NotSupported, match="scope"):
        await put(fix, place("r", n=3), into="roads")


async def test_between_branches(storage: Storage) -> None:
    await make(storage)
    await put(storage, *(place(id_, n=1) for id_ in "abc"))
    one = await branch(storage, "one")
    await put(one, place("a", n=2))
    two = await branch(storage, "two", "one")
    await put(two, place("b", n=2))
    await put(one, place("c", n=2))
    other = await branch(storage, "other")
    await put(other, place("x"))
    assert (await merge(storage, "two", "one", BOB)).updated == {"places": ["b"]}
    assert await content(one) == {"a": {"n": 2}, "b": {"n": 2}, "c": {"n": 2}}
    done = await merge(storage, "one", "other", BOB)
    assert done.updated == {"places": ["a", "b", "c"]}
    done = await merge(storage, "two", "main", BOB)
    assert done.updated == {"places": ["a", "b"]}
    with pytest.raises(InvalidArgument, match="different branches"):
        await merge(storage, "one", "one", BOB)


async def test_a_collection_that_is_younger_than_the_branch(storage: Storage) -> None:
    await make(storage)
    await put(storage, place("a", n=1))
    fix = await branch(storage)
    await put(fix, place("a", n=2))
    await make(storage, "roads")
    await put(storage, place("r"), into="roads")
    assert (await merge(storage, "fix", "main", BOB)).updated == {"places": ["a"]}
    await put(storage, place("b"))
    assert (await merge(storage, "main", "fix", BOB)).created == {"places": ["b"]}
    assert (await merge(storage, "fix", "main", BOB)).count == 0
    assert await content(storage, "roads") == {"r": {}}
    await rebase(storage, "fix", BOB)
    fix = (await open_branch(storage, "fix")).storage
    assert await content(fix, "roads") == {"r": {}}


async def test_the_scope_of_a_call_does_not_cut_a_merge(storage: Storage) -> None:
    """Else the point that is remembered would be wrong for the rest."""
    await make(storage, "places", "roads")
    await put(storage, place("x", n=1))
    await put(storage, place("y", n=1), into="roads")
    fix = await branch(storage)
    await put(fix, place("x", n=2))
    await put(fix, place("y", n=2), into="roads")
    done = await merge(storage, "fix", "main", BOB, scope=NameScope(None, ("places",)))
    assert done.updated == {"places": ["x"], "roads": ["y"]}


@pytest.fixture
def after(monkeypatch: pytest.MonkeyPatch) -> After:
    """Does something once, right after a merge was planned."""

    def patch(module: Any, disturb: Callable[[], Awaitable[object]]) -> None:
        plan, left = module.plan_merge, [disturb]

        async def planned(*arguments: Any) -> Any:
            found = await plan(*arguments)
            while left:
                await left.pop()()
            return found

        monkeypatch.setattr(module, "plan_merge", planned)

    return patch


async def test_a_write_to_the_branch_while_it_is_rebased(storage: Storage, after: After) -> None:
    await make(storage)
    await put(storage, place("a", n=1))
    fix = await branch(storage)
    await put(fix, place("b"))
    await put(storage, place("a", n=2))
    after(rebase_module, lambda: put(fix, place("meanwhile")))
    await rebase(storage, "fix", BOB)
    fix = (await open_branch(storage, "fix")).storage
    assert await content(fix) == {"a": {"n": 2}, "b": {}, "meanwhile": {}}


async def test_a_rebase_of_the_target_while_it_is_merged_into(
    storage: Storage, after: After
) -> None:
    await make(storage)
    await put(storage, place("a", n=1))
    await branch(storage)
    middle = await put(storage, place("m"))
    await put(storage, place("a", n=5))
    after(merges_module, lambda: rebase(storage, "fix", ANN, onto=str(middle.seq_number)))
    await merge(storage, "main", "fix", BOB)
    fix = (await open_branch(storage, "fix")).storage
    assert await content(fix) == {"a": {"n": 5}, "m": {}}
    assert (await merge(storage, "fix", "main", BOB)).count == 0
    assert await content(storage) == {"a": {"n": 5}, "m": {}}


async def test_two_merges_at_once_remember_the_later_one(storage: Storage, after: After) -> None:
    await make(storage)
    await put(storage, place("a", n=1))
    fix = await branch(storage)

    async def other() -> None:
        await put(fix, place("a", n=2))
        await merge(storage, "fix", "main", ANN)
        await put(storage, place("a", n=1))

    after(merges_module, other)
    await merge(storage, "fix", "main", BOB)
    assert (await merge(storage, "fix", "main", BOB)).count == 0
    assert await content(storage) == {"a": {"n": 1}}


async def test_a_merge_that_is_not_published_yet_counts(storage: Storage) -> None:
    await make(storage, "places", "roads")
    await put(storage, place("a", n=1))
    fix = await branch(storage)
    await put(fix, place("a", n=2))
    async with storage.write("slow") as slow:
        await slow.create("roads", [place("r")])
        async with asyncio.timeout(60):
            await merge(storage, "fix", "main", BOB)
        await storage.run(lambda s: s.update("places", [place("a", n=1)]), "app")
        assert (await merge(storage, "fix", "main", BOB)).count == 0
    assert await content(storage) == {"a": {"n": 1}}


async def test_a_parent_is_known_whatever_its_name(storage: Storage) -> None:
    await make(storage)
    await put(storage, place("a", n=1))
    fix = await branch(storage)
    await put(fix, place("a", n=2))
    child = await branch(storage, "child", "fix")
    await put(child, place("c"))
    await put(fix, place("b"))
    await rename_branch(storage, "fix", "repair", ANN)
    await branch(storage)
    await rebase(storage, "child", BOB)
    child = (await open_branch(storage, "child")).storage
    assert await content(child) == {"a": {"n": 2}, "b": {}, "c": {}}


async def test_a_branch_is_not_deleted_while_another_one_is_made_from_it(
    storage: Storage,
) -> None:
    await make(storage)
    await put(storage, place("a", n=1))
    for round_ in range(5):
        fix = await branch(storage, f"fix{round_}")
        await put(fix, place("a", n=2))
        results = await asyncio.gather(
            delete_branch(storage, f"fix{round_}", ANN),
            create_branch(storage, f"child{round_}", ANN, f"fix{round_}"),
            return_exceptions=True,
        )
        failed = [each for each in results if isinstance(each, BaseException)]
        assert all(isinstance(each, NakshaError) for each in failed)
        for each in await branches(storage):
            line = await open_branch(storage, each.name)
            assert await content(line.storage) == {"a": {"n": 2}}


async def test_a_child_does_not_bring_again_what_its_parent_brought(storage: Storage) -> None:
    await make(storage)
    await put(storage, place("a", n=1))
    fix = await branch(storage)
    await put(fix, place("a", n=2))
    child = await branch(storage, "child", "fix")
    await put(child, place("c"))
    await merge(storage, "fix", "main", BOB)
    await put(storage, place("a", n=1))
    assert (await merge(storage, "child", "main", BOB)).created == {"places": ["c"]}
    assert await content(storage) == {"a": {"n": 1}, "c": {}}


async def test_changes_merged_over_another_branch_are_recognised(storage: Storage) -> None:
    await make(storage)
    await put(storage, place("a", n=1))
    one = await branch(storage, "one")
    two = await branch(storage, "two")
    await put(one, place("a", n=2))
    await merge(storage, "one", "two", BOB)
    assert await content(two) == {"a": {"n": 2}}
    await merge(storage, "two", "main", BOB)
    await put(storage, place("a", n=3))
    assert (await merge(storage, "one", "main", BOB)).count == 0
    assert await content(storage) == {"a": {"n": 3}}


async def test_a_rebased_branch_knows_what_was_merged_before(storage: Storage) -> None:
    await make(storage)
    await put(storage, place("a", n=1))
    one = await branch(storage, "one")
    two = await branch(storage, "two")
    await put(one, place("a", n=2))
    await merge(storage, "one", "two", BOB)
    await put(two, place("a", n=1))
    await put(storage, place("b"))
    await rebase(storage, "two", BOB)
    assert (await merge(storage, "one", "two", BOB)).count == 0


async def test_a_child_of_a_branch_that_is_rebased(storage: Storage) -> None:
    await make(storage)
    await put(storage, place("a", n=1))
    fix = await branch(storage)
    await put(fix, place("a", n=2))
    child = await branch(storage, "child", "fix")
    await put(child, place("c"))
    await put(storage, place("b"))
    await rebase(storage, "fix", BOB)
    fix = (await open_branch(storage, "fix")).storage
    await put(fix, place("a", n=1))
    await rebase(storage, "child", BOB)
    child = (await open_branch(storage, "child")).storage
    assert await content(child) == {"a": {"n": 1}, "b": {}, "c": {}}
    assert (await merge(storage, "child", "fix", BOB)).created == {"places": ["c"]}


async def test_a_branch_opened_before_its_rebase_must_be_opened_again(storage: Storage) -> None:
    await make(storage)
    await put(storage, place("a", n=1))
    fix = await branch(storage)
    await put(fix, place("a", n=2))
    await put(storage, place("b"))
    await rebase(storage, "fix", BOB)
    with pytest.raises(Conflict, match="open it again"):
        await put(fix, place("lost"))
    await put((await open_branch(storage, "fix")).storage, place("kept"))


async def test_a_session_on_the_branch_that_is_open_during_a_rebase(storage: Storage) -> None:
    """Either it is in the branch, or it fails; it is never gone."""
    await make(storage)
    await put(storage, place("a", n=1))
    fix = await branch(storage)
    await put(fix, place("a", n=2))
    await put(storage, place("b"))
    written, begin = True, asyncio.Event()

    async def rebase_then() -> None:
        await begin.wait()
        await rebase(storage, "fix", BOB)

    task = asyncio.create_task(rebase_then())
    try:
        async with asyncio.timeout(60):
            async with fix.write("slow") as session:
                await session.create("places", [place("slow")])
                begin.set()
                await asyncio.sleep(0.5)
                await session.create("places", [place("more")])
    except (Conflict, Retryable):
        written = False
    await task
    fix = (await open_branch(storage, "fix")).storage
    expected = {"a": {"n": 2}, "b": {}} | ({"slow": {}, "more": {}} if written else {})
    assert await content(fix) == expected


async def test_a_merge_of_nothing_is_not_later_than_a_rebase(storage: Storage) -> None:
    """The branch was merged before it had anything, then put onto the new head of main: that is
    what both have, although the former overlay was merged up to the same transaction."""
    await make(storage)
    await put(storage, place("b"), place("c"))
    await create_branch(storage, "fix", ANN)
    await delete(storage, "c")
    await merge(storage, "fix", "main", ANN)
    await rebase(storage, "fix", ANN)
    await put((await open_branch(storage, "fix")).storage, place("c"))
    done = await merge(storage, "fix", "main", ANN)
    assert done.created == {"places": ["c"]}


async def test_equal_changes_of_the_target_count_from_their_transaction(storage: Storage) -> None:
    """Main has the same as the branch, but only since something that is not published yet. What is
    made from the last published version has it not."""
    await make(storage, "places", "roads")
    await put(storage, place("a", n=1), place("dead"))
    fix = await branch(storage)
    await put(fix, place("a", n=2), place("new"))
    await delete(fix, "dead")
    async with storage.write("slow") as slow:
        await slow.create("roads", [place("r")])

        async def same(session: WriteSession) -> None:
            await session.upsert("places", [place("a", n=2), place("new")])
            await session.delete("places", ["dead"])

        await storage.run(same, "app")
        async with asyncio.timeout(60):
            assert (await merge(storage, "fix", "main", BOB)).count == 0
            child = await branch(storage, "child")
            done = await merge(storage, "fix", "child", BOB, dry_run=True)
    assert (done.created, done.updated, done.deleted) == (
        {"places": ["new"]},
        {"places": ["a"]},
        {"places": ["dead"]},
    )
    assert (await merge(storage, "fix", "child", BOB)).count == 3
    assert await content(child) == {"a": {"n": 2}, "new": {}}
    assert (await merge(storage, "fix", "main", BOB)).count == 0


async def test_both_ways_at_once(storage: Storage) -> None:
    """Each needs both branches as they are; one of them waits, and both end."""
    await make(storage)
    await put(storage, place("a", n=1), place("b", n=1))
    one, two = await branch(storage, "one"), await branch(storage, "two")
    expected: dict[str, Any] = {}
    for round_ in range(4):
        await put(one, place("a", n=f"one-{round_}"))
        await put(two, place("b", n=f"two-{round_}"))
        async with asyncio.timeout(60):
            await asyncio.gather(
                merge(storage, "one", "two", BOB),
                merge(storage, "two", "one", ANN),
                merge(storage, "one", "main", BOB),
            )
        expected = {"a": {"n": f"one-{round_}"}, "b": {"n": f"two-{round_}"}}
        assert await content(one) == await content(two) == expected
    await merge(storage, "two", "main", BOB)
    assert await content(storage) == expected


async def test_a_feature_that_moves_on_both_sides(storage: Storage) -> None:
    """A geometry is one value, whatever else is changed with it."""
    await make(storage)
    await put(storage, place("a", 1, 1, n=1), place("b", 1, 1, n=1), place("c", 1, 1, n=1))
    fix = await branch(storage)
    await put(fix, place("a", 2, 2, n=1), place("b", 2, 2, n=2))
    await delete(fix, "c")
    await put(fix, place("c", 3, 3, n=1))
    await put(storage, place("a", 1, 1, n=5), place("b", 2, 2, n=1, m=1), place("c", 1, 1, n=5))
    await merge(storage, "fix", "main", BOB)
    box = {"a": 2, "b": 2, "c": 3}
    for id_, at in box.items():
        area = Query(spatial=Bbox(at - 0.5, at - 0.5, at + 0.5, at + 0.5))
        assert id_ in await content(storage, query=area)
    assert await content(storage, query=Query(spatial=Bbox(0.5, 0.5, 1.5, 1.5))) == {}
    assert await content(storage) == {"a": {"n": 5}, "b": {"n": 2, "m": 1}, "c": {"n": 5}}
