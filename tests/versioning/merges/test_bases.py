"""Merge bases: two lines can have several common versions, none of which contains the others."""

from __future__ import annotations

import asyncio
import importlib
from typing import Any

import pytest

from naksha.model.errors import MergeConflict
from naksha.spi.storage import Storage
from naksha.versioning import MergePolicy, conflicts, create_branch, merge, rebase
from naksha.versioning.merges.conflicts import undecided_of
from tests.versioning.town import ANN, BOB, branch, content, delete, make, place, put

merges_module = importlib.import_module("naksha.versioning.merges.merge")


async def crossed(storage: Storage) -> tuple[Storage, Storage]:
    """Two lines, `dev` and `release`, that both got branch `one` and branch `two`."""
    await make(storage)
    await put(storage, *(place(id_, n=1, m=1) for id_ in "abc"))
    one, two = await branch(storage, "one"), await branch(storage, "two")
    dev, release = await branch(storage, "dev"), await branch(storage, "release")
    await put(one, place("a", n=2, m=1), place("c", n=2, m=1))
    await put(two, place("b", n=2, m=1), place("c", n=1, m=2))
    for source in ("one", "two"):
        for target in ("dev", "release"):
            await merge(storage, source, target, BOB)
    return dev, release


async def test_a_change_on_top_of_either_base_is_merged(storage: Storage) -> None:
    dev, release = await crossed(storage)
    await put(dev, place("a", n=3, m=1), place("b", n=3, m=1), place("c", n=3, m=3))
    done = await merge(storage, "dev", "release", ANN)
    assert done.updated == {"places": ["a", "b", "c"]}
    assert await content(release) == await content(dev)


async def test_a_change_that_is_taken_back_on_one_line_is_taken_back(storage: Storage) -> None:
    dev, release = await crossed(storage)
    await put(dev, *(place(id_, n=1, m=1) for id_ in "abc"))
    await merge(storage, "dev", "release", ANN)
    assert await content(release) == {id_: {"n": 1, "m": 1} for id_ in "abc"}


async def test_a_deletion_of_what_either_base_changed(storage: Storage) -> None:
    dev, release = await crossed(storage)
    await delete(dev, "a", "b", "c")
    await merge(storage, "dev", "release", ANN)
    assert await content(release) == {}


async def test_a_real_conflict_between_crossed_lines_is_reported_whole(storage: Storage) -> None:
    dev, release = await crossed(storage)
    await put(dev, place("a", n=3, m=1), place("b", n=3, m=1), place("c", n=3, m=2))
    await put(release, place("b", n=4, m=1), place("c", n=4, m=2))
    with pytest.raises(MergeConflict):
        await merge(storage, "dev", "release", ANN)
    [stored] = await conflicts(storage)
    open_ = {each.id: each async for each in undecided_of(storage, stored.id)}
    assert {id_: each.paths for id_, each in open_.items()} == {
        "b": ("/properties/n",),
        "c": ("/properties/n",),
    }
    assert open_["b"].base is not None
    assert open_["b"].base["properties"]["n"] == 2


@pytest.mark.parametrize("policy", [MergePolicy.OURS, MergePolicy.THEIRS])
async def test_contradicting_bases_are_not_used(storage: Storage, policy: MergePolicy) -> None:
    """Each line has decided for another side: neither of them is a change of the other."""
    await make(storage)
    await put(storage, place("a", n=1), place("b", n=1), place("c", n=1))
    one, two = await branch(storage, "one"), await branch(storage, "two")
    dev, release = await branch(storage, "dev"), await branch(storage, "release")
    await put(one, place("a", n=2), place("b", n=2))
    await put(two, place("a", n=3), place("c", n=3))
    await delete(one, "c")
    await delete(two, "b")
    for target, chosen in (("dev", MergePolicy.OURS), ("release", MergePolicy.THEIRS)):
        await merge(storage, "one", target, BOB)
        await merge(storage, "two", target, BOB, policy=chosen)
    ours, theirs = {"a": {"n": 3}, "c": {"n": 3}}, {"a": {"n": 2}, "b": {"n": 2}}
    assert (await content(release), await content(dev)) == (ours, theirs)
    with pytest.raises(MergeConflict):
        await merge(storage, "dev", "release", ANN)
    [stored] = await conflicts(storage)
    open_ = [each async for each in undecided_of(storage, stored.id)]
    assert [(each.id, each.base, each.paths) for each in open_] == [
        ("a", None, ("/properties/n",)),
        ("b", None, ("",)),
        ("c", None, ("",)),
    ]
    await merge(storage, "dev", "release", ANN, policy=policy)
    assert await content(release) == (ours if policy is MergePolicy.OURS else theirs)


async def test_a_rebase_onto_a_crossed_line(storage: Storage) -> None:
    dev, _ = await crossed(storage)
    await put(dev, place("a", n=3, m=1), place("b", n=3, m=1))
    await rebase(storage, "dev", BOB, "release:HEAD")
    assert (await content(dev))["a"] == {"n": 3, "m": 1}


async def test_lines_that_are_crossed_again_and_again(storage: Storage) -> None:
    """The bases themselves have several bases."""
    dev, release = await crossed(storage)
    for round_ in range(3, 6):
        await put(dev, place("a", n=round_, m=1))
        await put(release, place("b", n=round_, m=1))
        left = (await create_branch(storage, f"left-{round_}", ANN, "dev:HEAD")).name
        right = (await create_branch(storage, f"right-{round_}", ANN, "release:HEAD")).name
        await merge(storage, left, "release", ANN)
        await merge(storage, right, "dev", ANN)
        assert await content(dev) == await content(release)
    assert (await content(dev))["a"] == {"n": 5, "m": 1}


async def test_a_merge_whose_other_way_is_not_published_yet(storage: Storage) -> None:
    """Neither merge has the other one in it while an earlier transaction is still open."""
    await make(storage, "places", "roads")
    await put(storage, place("a", n=1), place("b", n=1))
    one, two = await branch(storage, "one"), await branch(storage, "two")
    for round_ in range(2, 5):
        await put(one, place("a", n=round_))
        await put(two, place("b", n=round_))
        async with asyncio.timeout(60), storage.write("slow") as slow:
            await slow.create("roads", [place(f"r{round_}")])
            await merge(storage, "one", "two", BOB)
            await merge(storage, "two", "one", ANN)
        expected = {"a": {"n": round_}, "b": {"n": round_}}
        assert await content(one) == await content(two) == expected


async def test_a_merge_between_reading_the_base_and_the_heads(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An earlier version of the same branch arrives meanwhile: the base is a later one then."""
    await make(storage)
    await put(storage, place("a", n=1))
    fix = await branch(storage, "fix")
    await put(fix, place("a", n=2))
    await create_branch(storage, "early", ANN, "fix:HEAD")
    await put(fix, place("a", n=3))
    plan, left = merges_module.plan_merge, [1]

    async def planned(*arguments: Any) -> Any:
        while left:
            left.pop()
            await merge(storage, "early", "main", BOB)
        return await plan(*arguments)

    monkeypatch.setattr(merges_module, "plan_merge", planned)
    done = await merge(storage, "fix", "main", BOB)
    assert done.updated == {"places": ["a"]}
    assert await content(storage) == {"a": {"n": 3}}
    assert await conflicts(storage) == []
