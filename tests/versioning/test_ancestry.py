"""Common ancestors of two lines: over several merges, other branches, and dropped ones."""

from __future__ import annotations

import msgspec
import pytest

from naksha.model import limits
from naksha.spi.storage import Storage
from naksha.versioning import NameScope, create_branch, delete_branch, merge, open_branch, rebase
from naksha.versioning.records import MergePoint, deleted_branches
from tests.versioning.town import ANN, BOB, branch, content, delete, make, place, put


async def test_a_merge_of_some_collections_does_not_count_for_others(storage: Storage) -> None:
    await make(storage, "places", "roads")
    await put(storage, place("a", n=1))
    await put(storage, place("r", n=1), into="roads")
    await create_branch(storage, "narrow", ANN, scope=NameScope(None, ("places",)))
    wide = await branch(storage, "wide")
    await put(wide, place("a", n=2))
    await put(wide, place("r", n=2), into="roads")
    assert (await merge(storage, "wide", "narrow", BOB)).updated == {"places": ["a"]}
    await merge(storage, "narrow", "main", BOB)
    await put(storage, place("a", n=1))
    assert (await merge(storage, "wide", "main", BOB)).updated == {"roads": ["r"]}
    assert await content(storage) == {"a": {"n": 1}}


async def test_a_branch_without_a_younger_collection_does_not_bring_it(storage: Storage) -> None:
    await make(storage)
    await put(storage, place("a", n=1))
    await create_branch(storage, "old", ANN)
    await make(storage, "roads")
    await put(storage, place("r", n=1), into="roads")
    new = await branch(storage, "new")
    await put(new, place("a", n=2))
    await put(new, place("r", n=2), into="roads")
    assert (await merge(storage, "new", "old", BOB)).updated == {"places": ["a"]}
    await merge(storage, "old", "main", BOB)
    assert (await merge(storage, "new", "main", BOB)).updated == {"roads": ["r"]}


async def test_into_a_branch_that_is_older_than_what_the_other_is_about(storage: Storage) -> None:
    await make(storage)
    await put(storage, place("a", n=1))
    await create_branch(storage, "old", ANN)
    await make(storage, "roads")
    scope = NameScope(None, ("places", "roads"))
    await create_branch(storage, "new", ANN, scope=scope)
    await put((await open_branch(storage, "new")).storage, place("a", n=2))
    assert (await merge(storage, "new", "old", BOB)).updated == {"places": ["a"]}


async def test_a_branch_created_between_two_merges_has_the_first_one(storage: Storage) -> None:
    await make(storage)
    await put(storage, place("a", n=1))
    one = await branch(storage, "one")
    await put(one, place("a", n=2))
    await merge(storage, "one", "main", BOB)
    two = await branch(storage, "two")
    await put(two, place("a", n=1))
    await put(one, place("b"))
    await merge(storage, "one", "main", BOB)
    done = await merge(storage, "one", "two", BOB)
    assert (done.created, done.updated) == ({"places": ["b"]}, {})


async def test_a_branch_that_merged_main_between_two_merges_has_the_first_one(
    storage: Storage,
) -> None:
    await make(storage)
    await put(storage, place("a", n=1))
    one, two = await branch(storage, "one"), await branch(storage, "two")
    await put(one, place("x"))
    await merge(storage, "one", "main", BOB)
    await merge(storage, "main", "two", BOB)
    await delete(two, "x")
    await put(one, place("b"))
    await merge(storage, "one", "main", BOB)
    assert (await merge(storage, "one", "two", BOB)).created == {"places": ["b"]}
    assert await content(two) == {"a": {"n": 1}, "b": {}}


@pytest.mark.parametrize("base", ["main", "one"])
async def test_changes_merged_over_a_removed_branch_are_recognised(
    storage: Storage, base: str
) -> None:
    await make(storage)
    await put(storage, place("a", n=1))
    one = await branch(storage, "one")
    await put(one, place("x"))
    await create_branch(storage, "two", ANN, base)
    await merge(storage, "one", "two", BOB)
    await merge(storage, "two", "main", BOB)
    await delete_branch(storage, "two", ANN)
    await delete(storage, "x")
    await put(one, place("y"))
    done = await merge(storage, "one", "main", BOB, dry_run=True)
    assert done.created == {"places": ["y"]}
    await rebase(storage, "one", BOB)
    assert (await merge(storage, "one", "main", BOB)).created == {"places": ["y"]}
    assert await content(storage) == {"a": {"n": 1}, "y": {}}
    assert len(await deleted_branches(storage)) == 1
    await delete_branch(storage, "one", ANN)
    assert await deleted_branches(storage) == []


async def test_a_branch_that_merged_only_itself_leaves_no_record(storage: Storage) -> None:
    await make(storage)
    fix = await branch(storage)
    await put(fix, place("a"))
    await merge(storage, "fix", "main", BOB)
    await delete_branch(storage, "fix", ANN)
    assert await deleted_branches(storage) == []


def test_points_are_kept_in_order_and_not_for_ever() -> None:
    point: MergePoint | None = None
    for number in range(1, limits.MERGE_POINTS_MAX + 10):
        point = MergePoint(number, number + 1).after(point)
    assert point is not None
    assert (point.ours, len(point.all)) == (limits.MERGE_POINTS_MAX + 9, limits.MERGE_POINTS_MAX)
    late = MergePoint(point.ours - 1, 1).after(point)
    assert (late.ours, late.all[1:3]) == (point.ours, (point.all[1], (point.ours - 1, 1)))
    # As it was kept before there were several.
    assert msgspec.convert({"ours": 1, "theirs": 2}, MergePoint) == MergePoint(1, 2)
