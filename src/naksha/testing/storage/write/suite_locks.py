"""Conformance: `uuid` as a lock, and the optional three-way merge in its place."""

from __future__ import annotations

from typing import Any

import pytest

from naksha.model.errors import Conflict, FeatureNotFound
from naksha.model.identity.guid import Guid
from naksha.model.state import State
from naksha.spi.storage import WriteSession
from naksha.testing.models.json_values import same
from naksha.testing.storage.suite_support import (
    Handle,
    content,
    feature,
    ids_of,
    new_collection,
    point,
    with_xyz,
)
from naksha.testing.storage.write.suite_namespace import uuid_form


async def two_states(places: Handle) -> tuple[State, State]:
    """Create and update a feature; return its first state and its head."""
    await places.create(point("x", n=1))
    first = await places.get("x")
    await places.update(point("x", n=2))
    return first, await places.get("x")


class TestLocks:
    @pytest.mark.parametrize("call", ["update", "upsert"])
    async def test_heads_uuid_passes_in_either_form(self, places: Handle, call: str) -> None:
        await two_states(places)
        for n in (3, 4):
            head = await places.get("x")
            lock = head.uuid if n == 3 else await uuid_form(places.storage, head)
            (outcome,) = await getattr(places, call)(with_xyz(point("x", n=n), uuid=lock))
            assert outcome.action == "UPDATED"

    @pytest.mark.parametrize("call", ["update", "upsert"])
    async def test_an_old_uuid_is_a_conflict_with_the_head_state(
        self, places: Handle, call: str
    ) -> None:
        first, head = await two_states(places)
        await places.create(point("y"))
        for lock in (first.uuid, await uuid_form(places.storage, first)):
            with pytest.raises(Conflict) as caught:
                await getattr(places, call)(point("y", n=3), with_xyz(point("x", n=3), uuid=lock))
            assert caught.value.feature_id == "x"
            assert caught.value.head == head.feature
        assert (await places.get("x")).raw == head.raw
        assert (await places.get("y")).xyz["version"] == 1

    async def test_an_old_uuid_with_equal_content_is_a_conflict_too(self, places: Handle) -> None:
        """The lock is the state the client believes current; equal content does not excuse it."""
        first, _ = await two_states(places)
        with pytest.raises(Conflict):
            await places.update(with_xyz(point("x", n=2), uuid=first.uuid))

    async def test_a_uuid_that_never_was_is_a_conflict(self, places: Handle) -> None:
        _, head = await two_states(places)
        guid = Guid.parse(head.uuid)
        never = str(Guid.of(places.storage.id, places.name, head.txn, guid.i + 1_000_000))
        with pytest.raises(Conflict):
            await places.update(with_xyz(point("x", n=3), uuid=never))

    async def test_another_features_uuid_is_a_conflict(self, places: Handle) -> None:
        await places.create(point("x"), point("y"))
        other = await places.get("y")
        with pytest.raises(Conflict):
            await places.update(with_xyz(point("x", n=3), uuid=other.uuid))

    async def test_uuids_of_elsewhere_are_ignored(self, places: Handle) -> None:
        other = await new_collection(places.storage)
        await other.create(point("x"))
        elsewhere = await other.get("x")
        guid = Guid.parse(elsewhere.uuid)
        foreign = (
            elsewhere.uuid,
            await uuid_form(places.storage, elsewhere),
            str(Guid.of("elsewhere", places.name, elsewhere.txn, guid.i)),
            "0d1f6b2e-7f0c-11ee-b962-0242ac120002",
            "whatever another system calls a state",
        )
        for n, lock in enumerate(foreign):
            (outcome,) = await places.upsert(with_xyz(point("x", n=n), uuid=lock))
            assert outcome.action == ("UPDATED" if n else "CREATED")

    async def test_null_and_empty_are_not_a_lock(self, places: Handle) -> None:
        await places.create(point("x", n=1))
        await places.update(with_xyz(point("x", n=2), uuid=None))
        assert (await places.get("x")).xyz["version"] == 2

    async def test_a_lock_on_a_deleted_feature(self, places: Handle) -> None:
        """The client wanted to change a deleted feature: it must not be re-created silently."""
        await places.create(point("x"))
        head = await places.get("x")
        await places.delete("x")
        locked = with_xyz(point("x", n=2), uuid=head.uuid)
        with pytest.raises((Conflict, FeatureNotFound)):
            await places.update(locked)
        with pytest.raises(Conflict):
            await places.upsert(locked)
        assert await places.live() == []

    @pytest.mark.parametrize("call", ["update", "upsert"])
    async def test_without_the_lock_an_old_uuid_is_ignored(self, places: Handle, call: str) -> None:
        first, head = await two_states(places)
        for n, lock in enumerate((first.uuid, await uuid_form(places.storage, first)), 3):
            stale = with_xyz(point("x", n=n), uuid=lock)

            async def work(session: WriteSession, stale: Any = stale) -> Any:
                return await getattr(session, call)(places.name, [stale], lock=False)

            (outcome,) = await places.write(work)
            assert outcome.action == "UPDATED"
        assert (await places.get("x")).xyz["version"] == head.xyz["version"] + 2

    @pytest.mark.parametrize("call", ["create", "upsert"])
    async def test_without_the_lock_a_deleted_or_copied_feature_is_created(
        self, places: Handle, call: str
    ) -> None:
        first, _ = await two_states(places)
        await places.delete("x")
        back, copy = (with_xyz(point(id, n=9), uuid=first.uuid) for id in ("x", "y"))
        for made in (back, copy):
            with pytest.raises(Conflict):
                await getattr(places, call)(made)
        outcomes = await places.write(
            lambda session: getattr(session, call)(places.name, [back, copy], lock=False)
        )
        assert [outcome.action for outcome in outcomes] == ["CREATED", "CREATED"]

    async def test_a_merge_reads_its_base_from_the_uuid_without_the_lock_too(
        self, places: Handle
    ) -> None:
        first, head = await two_states(places)
        sent = with_xyz(point("x", n=1, more="theirs"), uuid=first.uuid)
        await places.write(
            lambda session: session.update(places.name, [sent], merge=True, lock=False)
        )
        merged = await places.get("x")
        assert content(merged)["properties"] == {"n": 2, "more": "theirs"}
        assert merged.xyz["puuid"] == head.uuid

    async def test_a_lock_inside_the_own_transaction(self, places: Handle) -> None:
        await places.create(point("x", n=1))

        async def work(session: WriteSession) -> None:
            (outcome,) = await session.update(places.name, [point("x", n=2)])
            locked = with_xyz(point("x", n=3), uuid=outcome.uuid)
            await session.update(places.name, [locked])

        await places.write(work)
        assert content(await places.get("x"))["properties"] == {"n": 3}

    async def test_deletes_are_locked_one_by_one(self, places: Handle) -> None:
        first, head = await two_states(places)
        await places.create(point("y"))
        with pytest.raises(Conflict) as caught:
            await places.delete("y", "x", uuids=[None, first.uuid])
        assert (caught.value.feature_id, caught.value.head) == ("x", head.feature)
        assert ids_of(await places.live()) == ["x", "y"]
        lock = await uuid_form(places.storage, head)
        outcomes = await places.delete("x", "y", uuids=[lock, None])
        assert [outcome.action for outcome in outcomes] == ["DELETED", "DELETED"]

    async def test_a_repeated_id_does_not_shift_the_locks(self, places: Handle) -> None:
        first, _ = await two_states(places)
        await places.create(point("y"))
        with pytest.raises(Conflict) as caught:
            await places.delete("y", "y", "x", uuids=[None, None, first.uuid])
        assert caught.value.feature_id == "x"
        assert ids_of(await places.live()) == ["x", "y"]


class TestMerge:
    async def case(
        self, places: Handle, base: dict[str, Any], head: dict[str, Any], mine: dict[str, Any]
    ) -> tuple[State, State, dict[str, Any]]:
        """Return a base state, the head over it, and the client's change of the base."""
        await places.create(base)
        base_state = await places.get("x")
        await places.update(head)
        return base_state, await places.get("x"), with_xyz(mine, uuid=base_state.uuid)

    async def test_changes_of_different_properties_come_together(self, places: Handle) -> None:
        base, head, mine = await self.case(
            places,
            point("x", a=1, b=1, gone=1, deep={"p": 1, "q": 1}),
            point("x", a=2, b=1, deep={"p": 2, "q": 1}),
            point("x", 1.0, 2.0, a=1, b=2, gone=1, new=1, deep={"p": 1, "q": 2}),
        )
        (outcome,) = await places.update(mine, merge=True)
        assert outcome.action == "UPDATED"
        merged = await places.get("x")
        wanted = point("x", 1.0, 2.0, a=2, b=2, new=1, deep={"p": 2, "q": 2})
        assert same(content(merged), wanted)
        assert merged.xyz["puuid"] == head.uuid
        assert merged.xyz["muuid"] == base.uuid
        assert merged.xyz["version"] == 3

    async def test_objects_that_both_sides_added_are_merged_by_member(self, places: Handle) -> None:
        _, _, mine = await self.case(
            places, point("x"), point("x", o={"p": 1, "r": 1}), point("x", o={"q": 2, "r": 1})
        )
        await places.update(mine, merge=True)
        assert content(await places.get("x"))["properties"] == {"o": {"p": 1, "q": 2, "r": 1}}

    async def test_upsert_merges_too(self, places: Handle) -> None:
        _, _, mine = await self.case(
            places, point("x", a=1, b=1), point("x", a=2, b=1), point("x", a=1, b=2)
        )
        await places.upsert(mine, merge=True)
        assert content(await places.get("x"))["properties"] == {"a": 2, "b": 2}

    @pytest.mark.parametrize(
        ("head", "mine"),
        [
            (point("x", a=2), point("x", a=3)),
            (point("x"), point("x", a=3)),
            (point("x", a=2), point("x")),
            (point("x", a=1, b=1), point("x", a=1, b=2)),
            (point("x", 1.0, 2.0, a=1), point("x", 3.0, 4.0, a=1)),
            (point("x", a=[1]), point("x", a={"k": 1})),
        ],
    )
    async def test_changes_of_the_same_property_are_a_conflict(
        self, places: Handle, head: dict[str, Any], mine: dict[str, Any]
    ) -> None:
        _, state, mine = await self.case(places, point("x", a=1), head, mine)
        with pytest.raises(Conflict) as caught:
            await places.update(mine, merge=True)
        assert (caught.value.feature_id, caught.value.head) == ("x", state.feature)
        assert (await places.get("x")).raw == state.raw

    async def test_the_same_change_on_both_sides_is_none(self, places: Handle) -> None:
        _, head, mine = await self.case(places, point("x", a=1), point("x", a=2), point("x", a=2))
        (outcome,) = await places.update(mine, merge=True)
        assert (outcome.action, outcome.uuid) == ("RETAINED", head.uuid)

    async def test_an_unchanged_client_takes_nothing_back(self, places: Handle) -> None:
        _, head, mine = await self.case(
            places, point("x", a=1), point("x", a=2, b=2), point("x", a=1)
        )
        (outcome,) = await places.update(mine, merge=True)
        assert (outcome.action, outcome.uuid) == ("RETAINED", head.uuid)

    async def test_with_heads_uuid_it_is_a_plain_update(self, places: Handle) -> None:
        await places.create(point("x", a=1))
        head = await places.get("x")
        await places.update(with_xyz(point("x", b=1), uuid=head.uuid), merge=True)
        state = await places.get("x")
        assert content(state)["properties"] == {"b": 1}
        assert state.xyz["muuid"] is None

    async def test_without_uuid_it_is_a_plain_update(self, places: Handle) -> None:
        await places.create(point("x", a=1))
        await places.update(point("x", b=1), merge=True)
        assert content(await places.get("x"))["properties"] == {"b": 1}

    async def test_the_base_may_be_given_in_the_other_form(self, places: Handle) -> None:
        base, _, mine = await self.case(
            places, point("x", a=1, b=1), point("x", a=2, b=1), point("x", a=1, b=2)
        )
        lock = await uuid_form(places.storage, base)
        await places.update(with_xyz(mine, uuid=lock), merge=True)
        state = await places.get("x")
        assert content(state)["properties"] == {"a": 2, "b": 2}
        assert state.xyz["muuid"] == base.uuid

    async def test_tags_of_the_head_stay_unless_the_client_gives_its_own(
        self, places: Handle
    ) -> None:
        _, _, mine = await self.case(
            places,
            with_xyz(point("x", a=1, b=1), tags=["old"]),
            with_xyz(point("x", a=2, b=1), tags=["head"]),
            point("x", a=1, b=2),
        )
        await places.update(mine, merge=True)
        assert (await places.get("x")).xyz["tags"] == ["head"]

    async def test_a_crid_that_the_client_takes_away_is_gone(self, places: Handle) -> None:
        _, _, mine = await self.case(
            places,
            with_xyz(point("x", a=1, b=1), crid="c"),
            point("x", a=2, b=1),
            with_xyz(point("x", a=1, b=2), crid=None),
        )
        await places.update(mine, merge=True)
        assert (await places.get("x")).xyz["crid"] is None

    async def test_several_features_each_with_its_own_base(self, places: Handle) -> None:
        await places.create(*(feature(key, a=1, b=1) for key in "xyz"))
        bases = {s.id: s.uuid for s in await places.live()}
        await places.update(feature("x", a=2, b=1), feature("y", a=2, b=1))
        mine = [with_xyz(feature(key, a=1, b=2), uuid=bases[key]) for key in "xyz"]
        await places.update(*mine, merge=True)
        found = {s.id: content(s)["properties"] for s in await places.live()}
        assert found == {"x": {"a": 2, "b": 2}, "y": {"a": 2, "b": 2}, "z": {"a": 1, "b": 2}}
        merged = {s.id: s.xyz["muuid"] for s in await places.live()}
        assert merged == {"x": bases["x"], "y": bases["y"], "z": None}
