"""Rollback to a version and revert of a changeset, as new transactions."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import pytest

from naksha.model.collection import CollectionInfo
from naksha.model.errors import InvalidArgument, MergeConflict
from naksha.model.query import Bbox, Query, States
from naksha.model.state import XYZ
from naksha.model.version import AtSeq
from naksha.spi.storage import Storage, WriteSession
from naksha.versioning import Attribution, create_branch, line_of, merge, place_of, revert, rollback
from tests.versioning.town import ANN, BOB, branch, content, delete, make, place, put, seen


async def test_later_changes_creations_and_deletions_are_rolled_back(storage: Storage) -> None:
    await make(storage)
    tagged = place("changed", 1, 2, n=1)
    tagged["properties"][XYZ] = {"tags": ["old"], "crid": "mine"}
    then = await put(storage, tagged, place("deleted", n=1), place("same", n=1))
    other = place("changed", 5, 6, n=2)
    other["properties"][XYZ] = {"tags": ["new"], "crid": None}
    await put(storage, other, place("created", n=1))
    await delete(storage, "deleted")
    before = await content(storage)
    line = await line_of(storage, "main")
    to = await place_of(storage, str(then.seq_number))
    dry = await rollback(line, to, BOB, dry_run=True)
    assert await content(storage) == before
    assert dry.txn is None
    done = await rollback(line, to, BOB)
    assert done.txn is not None
    assert (done.created, done.updated, done.deleted) == (
        {"places": ["deleted"]},
        {"places": ["changed"]},
        {"places": ["created"]},
    )
    assert (dry.created, dry.updated, dry.deleted) == (done.created, done.updated, done.deleted)
    assert await content(storage) == await content(storage, at=AtSeq(then.seq_number))
    states = {s.id: s for s in (await storage.page("places", Query())).states}
    changed = states["changed"]
    assert (changed.xyz["tags"], changed.xyz["crid"]) == (["old"], "mine")
    assert changed.feature["geometry"]["coordinates"] == [1, 2]
    assert (changed.xyz["author"], changed.xyz["version"]) == ("bob", 3)
    assert (states["deleted"].xyz["action"], states["deleted"].xyz["version"]) == ("UPDATE", 3)
    # The history is still there, and the transaction says what it was.
    assert await content(storage, at=AtSeq(then.seq_number + 2)) == before
    entry = await storage.transaction(done.txn)
    (message,) = [s.text for s in entry.signals if s.action == "MESSAGE"]
    assert message == f"Rollback to version {then.seq_number}"
    again = await rollback(line, to, BOB)
    assert (again.count, again.txn) == (0, None)


async def test_only_what_matched_a_filter_at_some_time(storage: Storage) -> None:
    await make(storage, "places", "roads")
    await put(storage, place("in", 5, 5, n=1), place("out", 0, 0, n=1))
    await put(storage, place("r", 5, 5, n=1), into="roads")
    await put(storage, place("in", 20, 20, n=2), place("out", 0, 0, n=2))
    await put(storage, place("r", 5, 5, n=2), into="roads")
    line = await line_of(storage, "main")
    to = await place_of(storage, "3")
    box = Query(spatial=Bbox(4, 4, 6, 6))
    done = await rollback(line, to, ANN, query=box, collections=["places"])
    assert done.updated == {"places": ["in"]}
    assert await content(storage) == {"in": {"n": 1}, "out": {"n": 2}}
    assert await content(storage, "roads") == {"r": {"n": 2}}
    await rollback(line, to, Attribution("editor", message="all of it"))
    assert await content(storage) == {"in": {"n": 1}, "out": {"n": 1}}
    assert await content(storage, "roads") == {"r": {"n": 1}}


async def test_to_before_everything(storage: Storage) -> None:
    await make(storage)
    await put(storage, place("a"), place("b"))
    line = await line_of(storage, "main")
    done = await rollback(line, await place_of(storage, "0"), ANN)
    assert done.deleted == {"places": ["a", "b"]}
    assert await content(storage) == {}
    assert await storage.count("places", Query(states=States.DELETED)) == 2


async def test_others_write_while_it_runs(storage: Storage) -> None:
    await make(storage)
    then = await put(storage, *(place(f"p{n}", n=0) for n in range(50)))
    await put(storage, *(place(f"p{n}", n=1) for n in range(50)))
    line = await line_of(storage, "main")
    to = await place_of(storage, str(then.seq_number))

    async def disturb(number: int) -> None:
        for k in range(5):
            moved = [place(f"p{number}", n=100 + k)]
            await storage.run(partial(_upsert, features=moved), "other")

    done, *_ = await asyncio.gather(rollback(line, to, BOB), *(disturb(n) for n in range(3)))
    assert done is not None
    assert done.txn is not None
    # One transaction: at its version everything is as it was, or newer than the rollback.
    version = await storage.wait_published(done.txn, 60)
    assert version is not None
    written = await storage.page(
        "places",
        Query(states=States.ALL, txn_from=done.txn, txn_to=done.txn + 1),
        AtSeq(version.seq_number),
    )
    assert {s.feature["properties"]["n"] for s in written.states} == {0}
    assert len(written.states) >= 47


async def _upsert(session: WriteSession, features: list[dict[str, Any]]) -> None:
    await session.upsert("places", features)


async def test_revert_keeps_later_work_elsewhere(storage: Storage) -> None:
    await make(storage)
    await put(storage, place("a", n=1, name="x"), place("gone", n=1))
    async with storage.write("editor", "ann") as session:
        await session.update("places", [place("a", n=2, name="x")])
        await session.delete("places", ["gone"])
        await session.create("places", [place("new")])
    bad = await storage.wait_published(session.txn or 0, 60)
    assert bad is not None
    await put(storage, place("a", n=2, name="better"))
    line = await line_of(storage, "main")
    done = await revert(line, await place_of(storage, str(bad.seq_number)), BOB)
    assert (done.created, done.updated, done.deleted) == (
        {"places": ["gone"]},
        {"places": ["a"]},
        {"places": ["new"]},
    )
    assert await content(storage) == {"a": {"n": 1, "name": "better"}, "gone": {"n": 1}}


async def test_revert_reports_where_later_work_touched_the_same(storage: Storage) -> None:
    await make(storage)
    await put(storage, place("a", n=1), place("b", n=1), place("c", n=1))
    bad = await put(storage, place("a", n=2), place("b", n=2), place("c", n=2))
    await put(storage, place("a", n=3))
    await delete(storage, "b")
    before = await content(storage)
    line = await line_of(storage, "main")
    changeset = await place_of(storage, str(bad.seq_number))
    dry = await revert(line, changeset, BOB, dry_run=True)
    assert [(c.id, c.paths) for c in dry.conflicts] == [("a", ("/properties/n",)), ("b", ("",))]
    assert dry.updated == {"places": ["c"]}
    with pytest.raises(MergeConflict) as caught:
        await revert(line, changeset, BOB)
    reports = {each["id"]: each for each in caught.value.undecided}
    assert reports["a"]["base"]["properties"]["n"] == 2
    assert reports["a"]["ours"]["properties"]["n"] == 3
    assert reports["a"]["theirs"]["properties"]["n"] == 1
    assert reports["b"]["ours"] is None
    assert await content(storage) == before


async def test_revert_of_what_was_taken_back_already_does_nothing(storage: Storage) -> None:
    await make(storage)
    await put(storage, place("a", n=1))
    bad = await put(storage, place("a", n=2), place("b"))
    await put(storage, place("a", n=1))
    await delete(storage, "b")
    line = await line_of(storage, "main")
    done = await revert(line, await place_of(storage, str(bad.seq_number)), BOB)
    assert (done.txn, done.count) == (None, 0)


async def test_a_version_without_a_changeset_is_not_reverted(storage: Storage) -> None:
    await make(storage)
    await put(storage, place("a", n=1))
    await create_branch(storage, "fix", ANN)
    fix = await line_of(storage, "fix")
    there = await put(fix.storage, place("a", n=2))
    here = await put(storage, place("a", n=3))
    main = await line_of(storage, "main")
    for line, ref, reason in (
        (main, "0", "Version 0 is the empty storage"),
        (main, str(there.seq_number), "another branch"),
        (fix, f"fix:{here.seq_number}", "another branch"),
        (main, "1", "collections .places. and no features"),
    ):
        with pytest.raises(InvalidArgument, match=reason) as caught:
            await revert(line, await place_of(storage, ref), BOB)
        assert caught.value.field == "changeset"
    # What was done before the branch was made is in it, and can be taken back there.
    done = await revert(fix, await place_of(storage, "fix:2"), BOB, dry_run=True)
    assert [each.id for each in done.conflicts] == ["a"]


async def test_revert_of_what_matches_a_filter(storage: Storage) -> None:
    await make(storage)
    await put(storage, place("in", 5, 5, n=1), place("out", 0, 0, n=1), place("gone", 5, 5, n=1))
    async with storage.write("editor") as session:
        await session.update("places", [place("in", 20, 20, n=2), place("out", 0, 0, n=2)])
        await session.delete("places", ["gone"])
        await session.create("places", [place("new", 5, 5), place("far", 0, 0)])
    bad = await seen(storage, session.txn)
    # A conflict outside of the filter does not matter.
    await put(storage, place("out", 0, 0, n=3))
    line = await line_of(storage, "main")
    changeset = await place_of(storage, str(bad.seq_number))
    box = Query(spatial=Bbox(4, 4, 6, 6))
    dry = await revert(line, changeset, BOB, query=box, dry_run=True)
    assert (await content(storage))["in"] == {"n": 2}
    done = await revert(line, changeset, BOB, query=box)
    assert (dry.created, dry.updated, dry.deleted) == (done.created, done.updated, done.deleted)
    assert (done.created, done.updated, done.deleted) == (
        {"places": ["gone"]},
        {"places": ["in"]},
        {"places": ["new"]},
    )
    assert await content(storage) == {
        "far": {},
        "gone": {"n": 1},
        "in": {"n": 1},
        "out": {"n": 3},
    }


async def test_ids_that_begin_like_the_prefix_of_the_collection(storage: Storage) -> None:
    """A feature is written back under the id that it has, not under what is left of it."""
    async with storage.write("setup") as session:
        await session.create_collection(CollectionInfo(id="places", id_prefix="p-"))
    # Stored as `p-x`, `x`, `p-dead` and `y`.
    names = ("p-p-x", "x", "p-p-dead", "p-y")
    then = await put(storage, *(place(id_, n=1) for id_ in names))
    before = await content(storage)
    assert sorted(before) == ["p-dead", "p-x", "x", "y"]
    await put(storage, *(place(id_, n=2) for id_ in (*names, "p-p-new")))
    await delete(storage, "p-p-dead")
    line = await line_of(storage, "main")
    await rollback(line, await place_of(storage, str(then.seq_number)), BOB)
    assert await content(storage) == before
    fix = await branch(storage)
    await put(fix, *(place(id_, n=3) for id_ in names[:2]), place("p-p-new"))
    await delete(fix, "p-p-dead")
    await merge(storage, "fix", "main", BOB)
    assert await content(storage) == await content(fix)
    assert sorted(await content(fix)) == ["p-new", "p-x", "x", "y"]
