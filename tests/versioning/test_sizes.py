"""Many and large features: parts limited by bytes, conflicts of any size."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from naksha.model import features, limits
from naksha.model.collection import CollectionChange, CollectionInfo
from naksha.model.errors import Expired, InUse, LimitExceeded, MergeConflict
from naksha.spi.storage import Storage
from naksha.versioning import (
    EditStep,
    MergePolicy,
    SnapshotStep,
    branches,
    conflict_of,
    conflicts,
    create_branch,
    delete_branch,
    give_up_conflict,
    import_history,
    line_of,
    merge,
    open_branch,
    place_of,
    rebase,
    resolve_conflict,
    rollback,
    undecided_of,
)
from naksha.versioning.records import CONFLICT, CONFLICT_PART
from tests.versioning.town import ANN, BOB, all_of, content, make, place, put

DAY_MS = 86_400_000
Feature = Mapping[str, Any]


@pytest.fixture
def small_calls(monkeypatch: pytest.MonkeyPatch) -> int:
    """Bytes of one write call, few enough for a test."""
    most = 256 * limits.KIB
    monkeypatch.setattr(limits, "WRITE_BYTES_MAX", most)
    monkeypatch.setattr(features, "WRITE_BYTES_MAX", most)
    return most


def large(count: int, size: int, **properties: Any) -> list[Feature]:
    return [place(f"p{n:04}", text="x" * size, **properties) for n in range(count)]


async def put_each(storage: Storage, many: list[Feature]) -> None:
    """Write features in one transaction, in calls of limited size."""
    async with storage.write("editor") as session:
        for each in many:
            await session.upsert("places", [each])
    await storage.wait_published(session.txn or 0, 60)


async def test_merge_rollback_and_rebase_in_parts_by_bytes(
    storage: Storage, small_calls: int
) -> None:
    await make(storage)
    old, new = large(40, 20_000, n=1), large(40, 20_000, n=2)
    assert sum(len(msgspec.json.encode(each)) for each in new) > 2 * small_calls
    with pytest.raises(LimitExceeded):
        await put(storage, *new)
    await put_each(storage, old)
    await create_branch(storage, "fix", ANN)
    fix = (await open_branch(storage, "fix")).storage
    await put_each(fix, new)
    await put(storage, place("other"))
    await rebase(storage, "fix", BOB)
    done = await merge(storage, "fix", "main", BOB)
    assert done.count == 40
    assert {each["n"] for id_, each in (await content(storage)).items() if id_ != "other"} == {2}
    back = await rollback(await line_of(storage, "main"), await place_of(storage, "2"), BOB)
    assert back.count == 41
    assert {each["n"] for each in (await content(storage)).values()} == {1}


async def test_import_in_parts_by_bytes(storage: Storage, small_calls: int) -> None:
    steps: list[SnapshotStep | EditStep] = [
        SnapshotStep(DAY_MS, large(40, 20_000, n=1)),
        EditStep(2 * DAY_MS, put=large(40, 20_000, n=2)),
    ]
    done = await import_history(storage, CollectionInfo(id="places"), steps, ANN)
    assert [(each.created, each.updated) for each in done] == [(40, 0), (0, 40)]


async def test_many_points_are_longer_stored_than_sent(storage: Storage, small_calls: int) -> None:
    """Short numbers: the geometry is five times as long as its JSON."""
    steps = [
        SnapshotStep(
            DAY_MS,
            [
                {
                    "type": "Feature",
                    "id": f"m{n}",
                    "geometry": {"type": "MultiPoint", "coordinates": [[0, 0]] * 500},
                    "properties": {},
                }
                for n in range(60)
            ],
        )
    ]
    (done,) = await import_history(storage, CollectionInfo(id="places"), steps, ANN)
    assert done.created == 60


async def disputed(storage: Storage, many: int, size: int) -> str:
    """A conflict about so many features; its id."""
    await make(storage)
    await put(storage, *large(many, size, n=1))
    await create_branch(storage, "fix", ANN)
    await put((await open_branch(storage, "fix")).storage, *large(many, size, n=2))
    await put(storage, *large(many, size, n=3))
    with pytest.raises(MergeConflict) as caught:
        await merge(storage, "fix", "main", BOB)
    assert len(caught.value.undecided) == many
    return caught.value.id or ""


async def test_a_conflict_of_large_features(storage: Storage) -> None:
    many, size = 9, 400_000
    assert 3 * many * size > limits.KEPT_JSON_BYTES_MAX
    id_ = await disputed(storage, many, size)
    assert (await conflict_of(storage, id_)).count == many
    # It tells what it was about, whatever became of that.
    await put(storage, *large(2, 10, n=4))
    found = await all_of(undecided_of(storage, id_))
    assert [each.id for each in found] == [f"p{n:04}" for n in range(many)]
    for each in found:
        sides = [each.base, each.ours, each.theirs]
        assert [side and side["properties"]["n"] for side in sides] == [1, 3, 2]
        assert [side and len(side["properties"]["text"]) for side in sides] == [size] * 3
        assert each.paths == ("/properties/n",)
    await resolve_conflict(storage, id_, {}, BOB, policy=MergePolicy.THEIRS)
    assert {each["n"] for each in (await content(storage)).values()} == {2}
    assert await conflicts(storage) == []
    assert await storage.stored_objects(CONFLICT_PART) == []


async def test_a_conflict_of_many_features(storage: Storage) -> None:
    id_ = await disputed(storage, 1_200, 10)
    assert len(await storage.stored_objects(CONFLICT_PART)) == 2
    assert len(await all_of(undecided_of(storage, id_))) == 1_200
    # A later one takes its place, with all of it.
    await put(storage, *large(900, 10, n=2))
    with pytest.raises(MergeConflict):
        await merge(storage, "fix", "main", BOB)
    assert (await conflict_of(storage, id_)).count == 300
    assert len(await storage.stored_objects(CONFLICT_PART)) == 1
    await give_up_conflict(storage, id_, BOB)
    assert await storage.stored_objects(CONFLICT_PART) == []
    with pytest.raises(MergeConflict):
        await merge(storage, "fix", "main", BOB)
    await delete_branch(storage, "fix", ANN)
    assert (
        await storage.stored_objects(CONFLICT) == await storage.stored_objects(CONFLICT_PART) == []
    )


async def test_states_of_an_open_conflict_do_not_expire(storage: Storage) -> None:
    async with storage.write("setup") as session:
        await session.create_collection(CollectionInfo(id="places", max_age=1))
    await put(storage, place("a", n=1))
    (branch,) = [await create_branch(storage, "fix", ANN)]
    await put((await open_branch(storage, "fix")).storage, place("a", n=2))
    await put(storage, place("a", n=3))
    with pytest.raises(MergeConflict) as caught:
        await merge(storage, "fix", "main", BOB)
    id_ = caught.value.id or ""
    await put(storage, place("a", n=4))
    # Only the conflict protects it now.
    await storage.unpin(f"branch:{branch.number}")
    later = time.time_ns() // 1_000_000 + 100 * DAY_MS
    await storage.maintain(later)
    (report,) = await all_of(undecided_of(storage, id_))
    sides = (report.base, report.ours, report.theirs)
    assert [side and side["properties"]["n"] for side in sides] == [1, 3, 2]
    with pytest.raises(InUse, match="conflict"):
        await storage.run(
            lambda s: s.change_collection("places", CollectionChange(history_enabled=False)), "app"
        )
    assert [each.state for each in await branches(storage)] == ["IN_CONFLICT"]
    await give_up_conflict(storage, id_, BOB)
    await storage.maintain(later)
    with pytest.raises(Expired):
        await content((await open_branch(storage, "fix")).storage)
