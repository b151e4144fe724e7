"""Branches: read and written like main, isolated from it."""

from __future__ import annotations

import time

import msgspec
import pytest

from naksha.model.collection import CollectionChange, CollectionInfo
from naksha.model.errors import (
    Conflict,
    Expired,
    InUse,
    LimitExceeded,
    NotFound,
    NotSupported,
)
from naksha.model.query import Bbox, Query, States
from naksha.model.version import AtSeq
from naksha.spi.storage import Storage
from naksha.versioning import (
    Attribution,
    NameScope,
    branches,
    changesets,
    create_branch,
    create_tag,
    delete_branch,
    delete_tag,
    diff,
    open_branch,
    place_of,
    range_of,
    rebase,
    rename_branch,
    rollback,
)
from tests.versioning.town import ANN, BOB, content, delete, make, place, put


async def test_a_branch_starts_as_its_base_and_goes_its_own_way(storage: Storage) -> None:
    await make(storage)
    await put(storage, place("a", n=1), place("b", n=1), place("c", n=1))
    made = await create_branch(storage, "fix", Attribution("editor", "ann", "try it"))
    assert (made.name, made.parent, made.state, made.description) == (
        "fix", "main", "OPEN", "try it",
    )  # fmt: skip
    fix = await open_branch(storage, "fix")
    assert await content(fix.storage) == await content(storage)
    await put(fix.storage, place("a", n=2), place("new", n=1))
    await delete(fix.storage, "b")
    await put(storage, place("c", n=9))
    assert await content(fix.storage) == {"a": {"n": 2}, "c": {"n": 1}, "new": {"n": 1}}
    assert await content(storage) == {"a": {"n": 1}, "b": {"n": 1}, "c": {"n": 9}}
    head = await place_of(storage, "fix")
    assert await content(head.storage, at=head.at) == await content(fix.storage)
    assert [b.name for b in await branches(storage)] == ["fix"]


async def test_time_travel_on_a_branch(storage: Storage) -> None:
    await make(storage)
    await put(storage, place("a", n=1))
    await put(storage, place("a", n=2))
    await create_branch(storage, "fix", ANN)
    fix = await open_branch(storage, "fix")
    one = await put(fix.storage, place("a", n=3))
    await put(storage, place("a", n=100))
    two = await put(fix.storage, place("a", n=4))
    for ref, expected in (
        ("fix:2", 1),
        ("fix:3", 2),
        (f"fix:{one.seq_number}", 3),
        (f"fix:{one.seq_number + 1}", 3),
        (f"fix:{two.seq_number}", 4),
        ("fix:HEAD", 4),
        (f"{two.seq_number}", 100),
    ):
        found = await place_of(storage, ref)
        assert (ref, await content(found.storage, at=found.at)) == (ref, {"a": {"n": expected}})


async def test_log_and_differences_of_a_branch(storage: Storage) -> None:
    await make(storage)
    await put(storage, place("a", n=1), place("b", n=1), place("c", n=1))
    await create_branch(storage, "fix", ANN)
    fix = await open_branch(storage, "fix")
    one = await put(fix.storage, place("a", n=2), message="on the branch")
    main = await put(storage, place("b", n=2), message="on main")
    await delete(fix.storage, "c")
    log = (await changesets(fix, newest_first=False)).changesets
    assert [each.message for each in log] == ["on the branch", None]
    line = await open_branch(storage, "main")
    texts = [each.message for each in (await changesets(line)).changesets]
    assert "on main" in texts
    assert "on the branch" not in texts
    old, new = await place_of(storage, "HEAD"), await place_of(storage, "fix")
    found = {c.id: c.action.value async for c in diff(old, new, "places")}
    assert found == {"a": "updated", "b": "updated", "c": "deleted"}
    found = {c.id: c.action.value async for c in diff(new, old, "places")}
    assert found == {"a": "updated", "b": "updated", "c": "created"}
    first, last = await range_of(storage, f"fix:{one.seq_number}..HEAD")
    assert [c.id async for c in diff(first, last, "places")] == ["c"]
    first, last = await range_of(storage, f"{main.seq_number}")
    assert [c.id async for c in diff(first, last, "places")] == ["b"]


async def test_rollback_on_a_branch_leaves_main_alone(storage: Storage) -> None:
    await make(storage)
    base = await put(storage, place("a", n=1), place("b", n=1))
    await create_branch(storage, "fix", ANN)
    fix = await open_branch(storage, "fix")
    await put(fix.storage, place("a", n=2), place("new"))
    await delete(fix.storage, "b")
    await rollback(fix, await place_of(storage, f"fix:{base.seq_number}"), BOB)
    assert await content(fix.storage) == {"a": {"n": 1}, "b": {"n": 1}}
    assert await content(storage) == {"a": {"n": 1}, "b": {"n": 1}}


async def test_a_branch_of_a_branch(storage: Storage) -> None:
    await make(storage)
    await put(storage, place("a", n=0), place("b", n=0), place("c", n=0))
    parent = "main"
    for depth, id_ in enumerate("abc", 1):
        name = f"level{depth}"
        await create_branch(storage, name, ANN, f"{parent}:HEAD")
        line = await open_branch(storage, name)
        await put(line.storage, place(id_, n=depth))
        parent = name
    line = await open_branch(storage, "level3")
    assert await content(line.storage) == {"a": {"n": 1}, "b": {"n": 2}, "c": {"n": 3}}
    await put((await open_branch(storage, "level1")).storage, place("a", n=100))
    assert (await content(line.storage))["a"] == {"n": 1}
    box = Query(spatial=Bbox(7, 49, 9, 51))
    assert sorted(await content(line.storage, query=box)) == ["a", "b", "c"]
    for depth in range(4, 9):
        await create_branch(storage, f"level{depth}", ANN, f"level{depth - 1}")
        await put((await open_branch(storage, f"level{depth}")).storage, place("d", n=depth))
    with pytest.raises(LimitExceeded):
        await create_branch(storage, "level9", ANN, "level8")


async def test_names_and_what_stands_on_a_branch(storage: Storage) -> None:
    await make(storage)
    await put(storage, place("a", n=1))
    await create_branch(storage, "fix", ANN)
    with pytest.raises(Conflict, match="already"):
        await create_branch(storage, "fix", ANN)
    fix = await open_branch(storage, "fix")
    await put(fix.storage, place("a", n=2))
    await create_branch(storage, "child", ANN, "fix")
    await rename_branch(storage, "fix", "repair", ANN)
    with pytest.raises(NotFound, match="'fix'"):
        await open_branch(storage, "fix")
    assert await content((await open_branch(storage, "repair")).storage) == {"a": {"n": 2}}
    await create_tag(storage, "old", ANN)
    for name in ("child", "old"):
        with pytest.raises(Conflict, match="already"):
            await rename_branch(storage, "repair", name, ANN)
    with pytest.raises(InUse, match="'child'"):
        await delete_branch(storage, "repair", ANN)
    await create_tag(storage, "tip", ANN, "child")
    with pytest.raises(InUse, match="'tip'"):
        await delete_branch(storage, "child", ANN)
    await delete_tag(storage, "tip", ANN)
    await delete_branch(storage, "child", ANN)
    await delete_branch(storage, "repair", ANN)
    assert await branches(storage) == []
    assert await content(storage) == {"a": {"n": 1}}
    await storage.maintain()
    await create_branch(storage, "fix", ANN)
    assert await content((await open_branch(storage, "fix")).storage) == {"a": {"n": 1}}


async def test_a_base_is_protected(storage: Storage) -> None:
    await make(storage)
    await put(storage, place("a", n=1))
    await create_branch(storage, "fix", ANN)
    with pytest.raises(InUse, match="branch"):
        await storage.run(lambda s: s.drop_collection("places"), "app")
    change = CollectionChange(history_enabled=False)
    with pytest.raises(InUse, match="branch"):
        await storage.run(lambda s: s.change_collection("places", change), "app")
    await delete_branch(storage, "fix", ANN)
    async with storage.write("app") as session:
        await session.drop_collection("places")


async def test_a_collection_without_history_cannot_be_branched(storage: Storage) -> None:
    await make(storage, "places", "roads")
    await put(storage, place("a", n=1))
    async with storage.write("app") as session:
        await session.change_collection("roads", CollectionChange(history_enabled=False))
    with pytest.raises(NotSupported, match="history"):
        await create_branch(storage, "fix", ANN)
    await create_branch(storage, "fix", ANN, scope=NameScope(None, ("places",)))


async def test_rebase_moves_the_base_and_keeps_the_past(storage: Storage) -> None:
    await make(storage)
    await put(storage, place("a", n=1, name="x"), place("b", n=1), place("c", n=1))
    await create_branch(storage, "fix", ANN)
    fix = await open_branch(storage, "fix")
    before = await put(fix.storage, place("a", n=2, name="x"), place("new", n=1))
    await put(storage, place("a", n=1, name="y"), place("b", n=5))
    await delete(storage, "c")
    done = await rebase(storage, "fix", BOB)
    assert done.txn is not None
    fix = await open_branch(storage, "fix")
    expected = {"a": {"n": 2, "name": "y"}, "b": {"n": 5}, "new": {"n": 1}}
    assert await content(fix.storage) == expected
    then = await place_of(storage, f"fix:{before.seq_number}")
    assert await content(then.storage, at=then.at) == {
        "a": {"n": 2, "name": "x"},
        "b": {"n": 1},
        "c": {"n": 1},
        "new": {"n": 1},
    }
    old, new = await range_of(storage, f"fix:{before.seq_number}..HEAD")
    assert {c.id async for c in diff(old, new, "places")} == {"a", "b", "c"}
    assert await content(storage, at=AtSeq(before.seq_number)) == {
        "a": {"n": 1, "name": "x"},
        "b": {"n": 1},
        "c": {"n": 1},
    }
    # Nothing to take along: only the base moves, from that version on.
    await create_branch(storage, "empty", ANN, "2")
    done = await rebase(storage, "empty", ANN)
    assert (done.txn is not None, done.count) == (True, 0)
    empty = await open_branch(storage, "empty")
    assert await content(empty.storage) == await content(storage)


async def unprotected(storage: Storage) -> tuple[Storage, Storage]:
    """A branch whose base may go, because its pin was removed: one that was written to, and
    one of it that was not."""
    async with storage.write("setup") as session:
        await session.create_collection(CollectionInfo(id="places", max_age=1))
    await put(storage, place("a", n=1), place("b", n=1))
    written = await create_branch(storage, "written", ANN)
    await put((await open_branch(storage, "written")).storage, place("b", n=2))
    empty = await create_branch(storage, "empty", ANN, str(written.now.below[0].txn))
    await put(storage, place("a", n=3))
    for each in (written, empty):
        await storage.unpin(f"branch:{each.number}")
    lines = [await open_branch(storage, name) for name in ("written", "empty")]
    return lines[0].storage, lines[1].storage


async def check_expired(branch: Storage) -> None:
    """Whatever is asked: an error, and no wrong answer."""
    for query in (
        Query(),
        Query(ids=("a",)),
        Query(states=States.ALL),
        Query(spatial=Bbox(7, 49, 9, 51)),
    ):
        with pytest.raises(Expired):
            await content(branch, query=query)
        with pytest.raises(Expired):
            await branch.count("places", query)
        with pytest.raises(Expired):
            await branch.page("places", msgspec.structs.replace(query, limit=1))
    with pytest.raises(Expired):
        await put(branch, place("a", n=9))
    with pytest.raises(Expired):
        await branch.plan("places", Query())


async def test_a_base_that_has_expired_by_force(storage: Storage) -> None:
    written, empty = await unprotected(storage)
    await storage.maintain(time.time_ns() // 1_000_000 + 100 * 86_400_000)
    await check_expired(written)
    await check_expired(empty)
    assert await content(storage) == {"a": {"n": 3}, "b": {"n": 1}}


async def test_a_base_whose_history_was_switched_off_by_force(storage: Storage) -> None:
    written, empty = await unprotected(storage)
    change = CollectionChange(history_enabled=False)
    await storage.run(lambda s: s.change_collection("places", change), "app")
    await storage.run(lambda s: s.upsert("places", [place("a", n=4)]), "app")
    await check_expired(written)
    await check_expired(empty)
