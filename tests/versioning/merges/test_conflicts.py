"""Conflicts: kept until they are resolved, by a policy or feature by feature."""

from __future__ import annotations

import importlib
from typing import Any

import pytest

from naksha.model.errors import (
    InvalidArgument,
    MergeConflict,
    NotFound,
)
from naksha.model.query import Query
from naksha.model.state import XYZ
from naksha.spi.storage import Storage
from naksha.versioning import (
    Choices,
    MergePolicy,
    branches,
    conflict_of,
    conflicts,
    delete_branch,
    give_up_conflict,
    merge,
    merge_resolution,
    open_branch,
    rebase,
    rename_branch,
    resolve_conflict,
    undecided_of,
)
from tests.versioning.town import ANN, BOB, branch, content, delete, make, place, put

merges_module = importlib.import_module("naksha.versioning.merges.merge")


async def in_conflict(storage: Storage) -> Storage:
    await make(storage)
    await put(storage, place("both", n=1, m=1), place("dead", n=1), place("fine", n=1))
    fix = await branch(storage)
    await put(fix, place("both", n=2, m=2), place("dead", n=2), place("fine", n=2))
    await put(storage, place("both", n=3, k=3, m=1), place("new", n=1))
    await put(fix, place("new", n=2))
    await delete(storage, "dead")
    return fix


async def test_a_failed_merge_changes_nothing_but_the_stored_conflict(storage: Storage) -> None:
    await in_conflict(storage)
    before, log = await content(storage), await storage.transactions()
    with pytest.raises(MergeConflict) as caught:
        await merge(storage, "fix", "main", BOB)
    assert await content(storage) == before
    assert await storage.transactions() == log
    (stored,) = await conflicts(storage)
    assert stored == await conflict_of(storage, caught.value.id or "")
    (fix,) = await branches(storage)
    assert (stored.source, stored.target, stored.author) == (fix.number, 0, "bob")
    assert stored.count == 3
    reports = {each.id: each async for each in undecided_of(storage, stored.id)}
    assert list(reports) == [each["id"] for each in caught.value.undecided]
    assert {id_: each.paths for id_, each in reports.items()} == {
        "both": ("/properties/n",),
        "dead": ("",),
        "new": ("/properties/n",),
    }
    sides = [reports["both"].base, reports["both"].ours, reports["both"].theirs]
    assert [side and side["properties"]["n"] for side in sides] == [1, 3, 2]
    assert (reports["dead"].ours, reports["new"].base) == (None, None)
    assert [b.state for b in await branches(storage)] == ["IN_CONFLICT"]
    # Again: the same conflict, not another one.
    with pytest.raises(MergeConflict):
        await merge(storage, "fix", "main", BOB)
    assert [each.id for each in await conflicts(storage)] == [stored.id]
    await give_up_conflict(storage, stored.id, BOB)
    assert await conflicts(storage) == []
    assert [b.state for b in await branches(storage)] == ["OPEN"]


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        (MergePolicy.OURS, {"both": {"n": 3, "k": 3, "m": 2}, "fine": {"n": 2}, "new": {"n": 1}}),
        (
            MergePolicy.THEIRS,
            {
                "both": {"n": 2, "k": 3, "m": 2},
                "dead": {"n": 2},
                "fine": {"n": 2},
                "new": {"n": 2},
            },
        ),
    ],
)
async def test_policies(storage: Storage, policy: MergePolicy, expected: dict[str, Any]) -> None:
    await in_conflict(storage)
    await merge(storage, "fix", "main", BOB, policy=policy)
    assert await content(storage) == expected
    assert await conflicts(storage) == []


async def test_a_decision_for_what_is_there_writes_nothing(storage: Storage) -> None:
    await make(storage)
    await put(storage, place("a", n=1), place("b", n=1))
    fix = await branch(storage)
    await put(fix, place("a", n=2), place("b", n=2))
    await put(storage, place("a", n=3), place("b", n=3))
    log = await storage.transactions()
    choices: Choices = {("places", "b"): place("b", n=3)}
    for _ in range(2):
        done = await merge(storage, "fix", "main", BOB, policy=MergePolicy.OURS, choices=choices)
        assert (done.txn, done.count) == (None, 0)
    assert await storage.transactions() == log
    assert (await merge(storage, "fix", "main", BOB)).count == 0


async def test_a_choice_for_each_feature_ends_the_conflict(storage: Storage) -> None:
    await in_conflict(storage)
    with pytest.raises(MergeConflict) as caught:
        await merge(storage, "fix", "main", BOB)
    id_ = caught.value.id or ""
    some: Choices = {("places", "both"): place("both", n=7)}
    with pytest.raises(MergeConflict) as caught:
        await resolve_conflict(storage, id_, some, BOB)
    assert caught.value.id == id_
    assert [each["id"] for each in caught.value.undecided] == ["dead", "new"]
    wrong: Choices = {("places", "both"): place("another", n=7)}
    with pytest.raises(InvalidArgument, match="use the same id"):
        await resolve_conflict(storage, id_, wrong, BOB)
    choices: Choices = {
        **some,
        ("places", "dead"): MergePolicy.OURS,
        ("places", "new"): MergePolicy.THEIRS,
    }
    done = await resolve_conflict(storage, id_, choices, BOB)
    assert done.txn is not None
    assert await content(storage) == {"both": {"n": 7}, "fine": {"n": 2}, "new": {"n": 2}}
    assert await conflicts(storage) == []
    assert [b.state for b in await branches(storage)] == ["OPEN"]
    with pytest.raises(NotFound):
        await resolve_conflict(storage, id_, choices, BOB)


async def test_a_chosen_feature_is_whole(storage: Storage) -> None:
    """A missing member of a chosen feature is rejected; a null member is deleted."""
    await make(storage)
    tagged = place("a", n=1)
    tagged["properties"][XYZ] = {"tags": ["old"], "crid": "mine"}
    await put(storage, tagged)
    fix = await branch(storage)
    await put(fix, place("a", n=2))
    tagged["properties"]["n"] = 3
    await put(storage, tagged)
    with pytest.raises(MergeConflict) as caught:
        await merge(storage, "fix", "main", BOB)
    id_ = caught.value.id or ""
    for missing in ("geometry", "properties"):
        part = place("a", n=7)
        del part[missing]
        with pytest.raises(InvalidArgument, match=missing) as refused:
            await resolve_conflict(storage, id_, {("places", "a"): part}, BOB)
        assert (refused.value.field, refused.value.feature_id) == (missing, "a")
        assert await content(storage) == {"a": {"n": 3}}
    nowhere = {**place("a", n=7), "geometry": None}
    await resolve_conflict(storage, id_, {("places", "a"): nowhere}, BOB)
    (state,) = (await storage.page("places", Query())).states
    assert state.feature["geometry"] is None
    assert state.feature["properties"]["n"] == 7
    assert (state.xyz["tags"], state.xyz["crid"]) == (["old"], "mine")


async def test_a_rebase_in_conflict_is_decided_likewise(storage: Storage) -> None:
    fix = await in_conflict(storage)
    before = await content(fix)
    with pytest.raises(MergeConflict) as caught:
        await rebase(storage, "fix", BOB)
    assert await content(fix) == before
    choices = {
        ("places", "both"): MergePolicy.THEIRS,
        ("places", "dead"): MergePolicy.THEIRS,
        ("places", "new"): MergePolicy.OURS,
    }
    await resolve_conflict(storage, caught.value.id or "", choices, BOB)
    fix = (await open_branch(storage, "fix")).storage
    assert await content(fix) == {
        "both": {"n": 2, "m": 2, "k": 3},
        "dead": {"n": 2},
        "fine": {"n": 2},
        "new": {"n": 1},
    }
    assert await conflicts(storage) == []


async def test_conflicts_of_several_targets_and_new_names(storage: Storage) -> None:
    await make(storage)
    await put(storage, place("a", n=1))
    fix = await branch(storage)
    other = await branch(storage, "other")
    await put(fix, place("a", n=2))
    await put(other, place("a", n=3))
    await put(storage, place("a", n=4))
    ids = []
    for target in ("main", "other"):
        with pytest.raises(MergeConflict) as caught:
            await merge(storage, "fix", target, BOB)
        ids.append(caught.value.id or "")
    assert sorted(each.id for each in await conflicts(storage)) == sorted(ids)
    await rename_branch(storage, "fix", "repair", ANN)
    await merge(storage, "repair", "other", BOB, policy=MergePolicy.THEIRS)
    # The other one still waits.
    assert [each.id for each in await conflicts(storage)] == ids[:1]
    assert [b.state for b in await branches(storage) if b.name == "repair"] == ["IN_CONFLICT"]
    await resolve_conflict(storage, ids[0], {("places", "a"): MergePolicy.THEIRS}, BOB)
    assert await content(storage) == {"a": {"n": 2}}
    assert await conflicts(storage) == []


async def test_conflicts_go_with_their_branch(storage: Storage) -> None:
    await in_conflict(storage)
    with pytest.raises(MergeConflict):
        await merge(storage, "fix", "main", BOB)
    await delete_branch(storage, "fix", ANN)
    assert await conflicts(storage) == []


async def test_a_branch_is_open_again_when_the_other_one_is_gone(storage: Storage) -> None:
    await make(storage)
    await put(storage, place("a", n=1))
    one, two = await branch(storage, "one"), await branch(storage, "two")
    await put(one, place("a", n=2))
    await put(two, place("a", n=3))
    await put(storage, place("a", n=4))
    for target in ("two", "main"):
        with pytest.raises(MergeConflict):
            await merge(storage, "one", target, BOB)
    await delete_branch(storage, "two", ANN)
    (left,) = await conflicts(storage)
    (known,) = await branches(storage)
    assert known.conflicts == (left.id,)
    await give_up_conflict(storage, left.id, BOB)
    assert [each.state for each in await branches(storage)] == ["OPEN"]


async def test_a_rebase_is_resumed_onto_the_requested_version(storage: Storage) -> None:
    await make(storage)
    await put(storage, place("a", n=1))
    fix = await branch(storage)
    await put(fix, place("a", n=2))
    onto = await put(storage, place("a", n=3))
    await put(storage, place("b"))
    with pytest.raises(MergeConflict) as caught:
        await rebase(storage, "fix", BOB, onto=str(onto.seq_number))
    choices: Choices = {("places", "a"): MergePolicy.THEIRS}
    await resolve_conflict(storage, caught.value.id or "", choices, BOB)
    fix = (await open_branch(storage, "fix")).storage
    assert await content(fix) == {"a": {"n": 2}}


async def test_a_branch_for_solving_has_the_name_of_its_branch(storage: Storage) -> None:
    await in_conflict(storage)
    with pytest.raises(MergeConflict) as caught:
        await merge(storage, "fix", "main", BOB, solving=True)
    assert [each.name for each in await branches(storage)] == ["!fix", "fix"]
    await rename_branch(storage, "fix", "repair", ANN)
    assert [each.name for each in await branches(storage)] == ["!repair", "repair"]
    # The former name is free, for a branch with conflicts of its own too.
    fix = await branch(storage)
    await put(fix, place("fine", n=8))
    await put(storage, place("fine", n=9))
    with pytest.raises(MergeConflict):
        await merge(storage, "fix", "main", BOB, solving=True)
    names = ["!fix", "!repair", "fix", "repair"]
    assert [each.name for each in await branches(storage)] == names
    solved = (await open_branch(storage, "!repair")).storage
    await put(solved, place("both", n=7), place("new", n=7), place("fine", n=7))
    await delete(solved, "dead")
    await merge_resolution(storage, "!repair", "main", BOB, policy=MergePolicy.THEIRS)
    assert await content(storage) == {id_: {"n": 7} for id_ in ("both", "fine", "new")}
    assert [each.name for each in await branches(storage)] == ["!fix", "fix", "repair"]
    assert caught.value.id not in [each.id for each in await conflicts(storage)]


async def test_a_conflict_is_not_kept_when_the_target_is_gone(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    await make(storage)
    await put(storage, place("a", n=1))
    one, two = await branch(storage, "one"), await branch(storage, "two")
    await put(one, place("a", n=2))
    await put(two, place("a", n=3))
    store = merges_module.store_conflict

    async def stored(*arguments: Any, **options: Any) -> Any:
        await delete_branch(storage, "two", ANN)
        return await store(*arguments, **options)

    monkeypatch.setattr(merges_module, "store_conflict", stored)
    with pytest.raises(NotFound, match="'two'"):
        await merge(storage, "one", "two", BOB, solving=True)
    assert await conflicts(storage) == []
    assert [(b.name, b.state) for b in await branches(storage)] == [("one", "OPEN")]
