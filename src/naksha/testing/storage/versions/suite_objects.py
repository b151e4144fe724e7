"""Conformance: objects stored beside the data, pins in sessions, and guarding pins."""

from __future__ import annotations

import asyncio
import math
from typing import Any

import pytest

from naksha.model import limits
from naksha.model.errors import Conflict, Expired, InUse, InvalidArgument
from naksha.model.state import State
from naksha.spi.storage import Storage, StoredObject, WriteSession
from naksha.testing.models.json_values import same
from naksha.testing.models.strategies import NASTY_TEXTS
from naksha.testing.storage.suite_support import (
    APP,
    Handle,
    content,
    fresh_name,
    log_after,
    new_collection,
    point,
    published,
    rolled_back,
    seq,
)
from naksha.testing.storage.versions.suite_retention import aged, later

JSON_VALUES: tuple[Any, ...] = (
    None,
    True,
    0,
    -1.5,
    2**53,
    "",
    "ü \\ \" ' 👍",
    [],
    {},
    {"a": [1, {"b": None}], "": {"c": [[]]}, "ü.$": 1e-300},
)


async def keep(
    storage: Storage, kind: str, id: str, value: Any, expected: int | None = None
) -> StoredObject:
    return await storage.run(lambda s: s.store_object(kind, id, value, expected=expected), APP)


async def forget(storage: Storage, kind: str, id: str, expected: int | None = None) -> None:
    await storage.run(lambda s: s.remove_object(kind, id, expected=expected), APP)


class TestStoredObjects:
    async def test_nothing_is_there_at_first(self, storage: Storage) -> None:
        kind = fresh_name("k")
        assert await storage.stored_object(kind, "x") is None
        assert await storage.stored_objects(kind) == []

    async def test_stored_objects_are_found(self, storage: Storage) -> None:
        kind = fresh_name("k")
        made = await keep(storage, kind, "x", {"n": 1})
        assert made == StoredObject(kind, "x", {"n": 1}, 1)
        assert await storage.stored_object(kind, "x") == made
        assert await storage.stored_objects(kind) == [made]
        assert await storage.stored_object(kind, "y") is None

    async def test_every_change_is_a_revision(self, storage: Storage) -> None:
        kind = fresh_name("k")
        for revision, value in enumerate(("a", "b", "b", None), 1):
            made = await keep(storage, kind, "x", value)
            assert (made.value, made.revision) == (value, revision)
            assert await storage.stored_object(kind, "x") == made

    @pytest.mark.parametrize("value", JSON_VALUES)
    async def test_any_json_round_trips(self, storage: Storage, value: Any) -> None:
        kind = fresh_name("k")
        await keep(storage, kind, "x", value)
        found = await storage.stored_object(kind, "x")
        assert found is not None
        assert same(found.value, value)

    async def test_a_revision_that_is_expected_must_be_there(self, storage: Storage) -> None:
        kind = fresh_name("k")
        for wrong in (1, 7):
            with pytest.raises(Conflict):
                await keep(storage, kind, "x", "never", wrong)
        first = await keep(storage, kind, "x", "one", 0)
        second = await keep(storage, kind, "x", "two", first.revision)
        for wrong in (0, 1, 3):
            with pytest.raises(Conflict) as caught:
                await keep(storage, kind, "x", "never", wrong)
            assert "x" in str(caught.value)
        assert await storage.stored_object(kind, "x") == second

    async def test_forgetting(self, storage: Storage) -> None:
        kind = fresh_name("k")
        await forget(storage, kind, "x")
        await forget(storage, kind, "x", 0)
        with pytest.raises(Conflict):
            await forget(storage, kind, "x", 1)
        await keep(storage, kind, "x", 1)
        await keep(storage, kind, "x", 2)
        for wrong in (0, 1, 3):
            with pytest.raises(Conflict):
                await forget(storage, kind, "x", wrong)
        await forget(storage, kind, "x", 2)
        assert await storage.stored_object(kind, "x") is None
        assert (await keep(storage, kind, "x", 3, 0)).revision == 1
        await forget(storage, kind, "x")
        assert await storage.stored_objects(kind) == []

    async def test_kinds_are_apart(self, storage: Storage) -> None:
        one, two = fresh_name("k"), fresh_name("k")
        await keep(storage, one, "x", 1)
        await keep(storage, two, "x", 2)
        await forget(storage, one, "x")
        found = await storage.stored_object(two, "x")
        assert found == StoredObject(two, "x", 2, 1)

    async def test_ids_may_be_any_text_and_come_in_order(self, storage: Storage) -> None:
        kind = fresh_name("k")
        ids = [text for text in NASTY_TEXTS if text]

        async def work(session: WriteSession) -> None:
            for id in ids:
                await session.store_object(kind, id, id)

        await storage.run(work, APP)
        assert [(k.id, k.value) for k in await storage.stored_objects(kind)] == [
            (id, id) for id in sorted(ids)
        ]

    @pytest.mark.parametrize("prefix", ["a", "a%", "a_", "a/", "\U0010ffff", "é", "", "none"])
    async def test_ids_by_prefix(self, storage: Storage, prefix: str) -> None:
        kind = fresh_name("k")
        ids = ["A", "a", "a%b", "a/", "a/1", "a0", "a_", "ab", "b", "é", "éa", "\U0010ffffx"]

        async def work(session: WriteSession) -> None:
            for id in ids:
                await session.store_object(kind, id, None)

        await storage.run(work, APP)
        found = [k.id for k in await storage.stored_objects(kind, prefix)]
        assert found == sorted(id for id in ids if id.startswith(prefix))

    async def test_a_session_sees_its_own_and_others_do_not(self, storage: Storage) -> None:
        kind = fresh_name("k")
        async with storage.write(APP) as session:
            made = await session.store_object(kind, "x", 1)
            assert await session.stored_object(kind, "x") == made
            assert await session.stored_objects(kind) == [made]
            assert await storage.stored_object(kind, "x") is None
            await session.store_object(kind, "x", 2, expected=1)
        assert await storage.stored_object(kind, "x") == StoredObject(kind, "x", 2, 2)

    async def test_rolled_back_objects_are_not_stored(self, storage: Storage) -> None:
        kind = fresh_name("k")
        await keep(storage, kind, "there", 1)

        async def work(session: WriteSession) -> None:
            await session.store_object(kind, "new", 1)
            await session.remove_object(kind, "there")

        await rolled_back(storage, work)
        assert [k.id for k in await storage.stored_objects(kind)] == ["there"]

    async def test_it_is_one_transaction_with_the_features(self, places: Handle) -> None:
        kind = fresh_name("k")

        async def work(session: WriteSession) -> None:
            await session.create(places.name, [point("x")])
            await session.store_object(kind, "x", 1, expected=4)

        with pytest.raises(Conflict):
            await places.write(work)
        assert await places.live() == []

    async def test_it_is_not_part_of_the_log(self, storage: Storage) -> None:
        kind = fresh_name("k")
        before = await published(storage)
        async with storage.write(APP) as session:
            await session.store_object(kind, "x", 1)
            assert session.txn is None
        assert await log_after(storage, before) == []

    async def test_of_many_that_want_to_be_first_one_is(self, storage: Storage) -> None:
        kind = fresh_name("k")
        results = await asyncio.gather(
            *(keep(storage, kind, "x", n, 0) for n in range(8)), return_exceptions=True
        )
        made = [r for r in results if isinstance(r, StoredObject)]
        assert len(made) == 1
        assert sum(isinstance(r, Conflict) for r in results) == 7
        assert await storage.stored_object(kind, "x") == made[0]

    async def test_no_change_is_lost(self, storage: Storage) -> None:
        kind = fresh_name("k")
        await keep(storage, kind, "x", 0)

        async def add() -> None:
            while True:
                found = await storage.stored_object(kind, "x")
                assert found is not None
                try:
                    await keep(storage, kind, "x", found.value + 1, found.revision)
                    return
                except Conflict:
                    continue

        await asyncio.gather(*(add() for _ in range(6)))
        assert await storage.stored_object(kind, "x") == StoredObject(kind, "x", 6, 7)

    @pytest.mark.parametrize(
        ("kind", "id", "value", "field"),
        [
            ("", "x", 1, "kind"),
            ("k\0", "x", 1, "kind"),
            ("k" * 65, "x", 1, "kind"),
            ("k", "", 1, "id"),
            ("k", "\ud800", 1, "id"),
            ("k", "x" * (limits.KEPT_ID_BYTES_MAX + 1), 1, "id"),
            ("k", "x", math.nan, "value"),
            ("k", "x", {"a": "\0"}, "value"),
            ("k", "x", object(), "value"),
        ],
    )
    async def test_objects_that_cannot_be_stored_are_named(
        self, storage: Storage, kind: str, id: str, value: Any, field: str
    ) -> None:
        with pytest.raises(InvalidArgument) as caught:
            await keep(storage, kind, id, value)
        assert (caught.value.field or "").startswith(field)


class TestPinsInSessions:
    async def test_it_holds_from_the_commit_on(self, empty_storage: Storage) -> None:
        handle, versions = await aged(empty_storage)
        pinned = versions[1]
        await empty_storage.run(lambda s: s.pin("tag", pinned), APP)
        await rolled_back(empty_storage, lambda s: s.unpin("tag"))
        await empty_storage.maintain(later(versions[-1], 3))
        assert len(await handle.live(seq(pinned))) == 2
        await empty_storage.run(lambda s: s.unpin("tag"), APP)
        await empty_storage.maintain(later(versions[-1], 3))
        with pytest.raises(Expired):
            await handle.live(seq(pinned))

    async def test_a_rolled_back_pin_holds_nothing(self, empty_storage: Storage) -> None:
        handle, versions = await aged(empty_storage)
        await rolled_back(empty_storage, lambda s: s.pin("tag", versions[0]))
        await empty_storage.maintain(later(versions[-1], 3))
        with pytest.raises(Expired):
            await handle.live(seq(versions[0]))

    async def test_expired_versions_cannot_be_pinned(self, empty_storage: Storage) -> None:
        handle, versions = await aged(empty_storage)
        await empty_storage.maintain(later(versions[-1], 3))
        with pytest.raises(Expired):
            await empty_storage.run(lambda s: s.pin("late", versions[0], handle.name), APP)

    async def test_it_is_not_part_of_the_log(self, places: Handle) -> None:
        before = await places.published()
        name = fresh_name("pin")
        await places.write(lambda s: s.pin(name, before, places.name))
        await places.write(lambda s: s.unpin(name))
        await places.write(lambda s: s.unpin("never there"))
        assert await log_after(places.storage, before) == []


class TestGuards:
    async def drop(self, places: Handle) -> None:
        await places.write(lambda s: s.drop_collection(places.name))

    async def test_a_guarded_collection_is_not_dropped(self, places: Handle) -> None:
        name = fresh_name("pin")
        await places.storage.pin(name, await places.published(), places.name, guards=True)
        with pytest.raises(InUse) as caught:
            await self.drop(places)
        assert name in str(caught.value)
        assert caught.value.collection_id == places.name
        with pytest.raises(InUse):
            await places.change(delete_at=1)
        await places.create(point("x"))
        await places.storage.unpin(name)
        await self.drop(places)

    async def test_its_history_is_not_switched_off(self, places: Handle) -> None:
        name = fresh_name("pin")
        version = await places.published()
        await places.write(lambda s: s.pin(name, version, places.name, guards=True))
        with pytest.raises(InUse) as caught:
            await places.change(history_enabled=False)
        assert name in str(caught.value)
        assert (await places.storage.collection(places.name)).history_enabled
        await places.write(lambda s: s.unpin(name))
        await places.change(history_enabled=False)

    async def test_anything_else_can_be_changed(self, places: Handle) -> None:
        name = fresh_name("pin")
        await places.storage.pin(name, await places.published(), places.name, guards=True)
        info = await places.change(max_age=3, author="me", history_enabled=True)
        assert (info.max_age, info.author) == (3, "me")

    async def test_a_pin_on_all_collections_guards_each(self, empty_storage: Storage) -> None:
        handle = await new_collection(empty_storage)
        version = await handle.published()
        await empty_storage.pin("all", version, guards=True)
        with pytest.raises(InUse, match="all"):
            await self.drop(handle)
        await empty_storage.unpin("all")
        await self.drop(handle)

    async def test_a_pin_on_another_collection_does_not(self, storage: Storage) -> None:
        one, two = await new_collection(storage), await new_collection(storage)
        await storage.pin(fresh_name("pin"), await published(storage), one.name, guards=True)
        await two.change(history_enabled=False)
        await self.drop(two)

    async def test_a_plain_pin_does_not(self, places: Handle) -> None:
        name = fresh_name("pin")
        await places.storage.pin(name, await places.published(), places.name)
        await places.change(history_enabled=False)
        await self.drop(places)

    async def test_a_pin_set_again_may_stop_to_guard(self, places: Handle) -> None:
        name = fresh_name("pin")
        version = await places.published()
        await places.storage.pin(name, version, places.name, guards=True)
        await places.storage.pin(name, version, places.name)
        await self.drop(places)

    async def test_the_guard_may_go_in_the_same_transaction(self, places: Handle) -> None:
        name = fresh_name("pin")
        await places.storage.pin(name, await places.published(), places.name, guards=True)

        async def work(session: WriteSession) -> None:
            await session.unpin(name)
            await session.drop_collection(places.name)

        await places.write(work)


class TestMergedStates:
    async def state(self, places: Handle) -> State:
        await places.create(point("base"))
        return await places.get("base")

    async def test_merged_states_come_from_the_features(self, places: Handle) -> None:
        base = await self.state(places)
        await places.create(point("old", n=1))
        features = [point("old", n=2), point("new"), point("plain")]
        muuids = [base.uuid, base.uuid, None]
        outcomes = await places.write(
            lambda s: s.upsert(places.name, features, muuids=muuids, returning=True)
        )
        assert [o.action for o in outcomes] == ["UPDATED", "CREATED", "CREATED"]
        found = {s.id: s.xyz["muuid"] for s in await places.live()}
        assert found == {"base": None, "old": base.uuid, "new": base.uuid, "plain": None}

    async def test_of_a_feature_that_comes_twice_the_last_counts(self, places: Handle) -> None:
        base = await self.state(places)
        features = [point("x", n=1), point("y"), point("x", n=2)]
        for muuids in ([None, None, base.uuid], [base.uuid, None, None]):
            await places.write(
                lambda s, m=muuids: s.upsert(  # type: ignore[misc]
                    places.name, features, muuids=m
                )
            )
            state = await places.get("x")
            assert state.xyz["muuid"] == muuids[2]
            assert content(state)["properties"] == {"n": 2}
            await places.delete("x")

    async def test_equal_content_writes_no_state(self, places: Handle) -> None:
        base = await self.state(places)
        await places.create(point("x", n=1))
        (outcome,) = await places.write(
            lambda s: s.upsert(places.name, [point("x", n=1)], muuids=[base.uuid])
        )
        assert outcome.action == "RETAINED"
        assert (await places.get("x")).xyz["muuid"] is None

    async def test_the_next_state_has_its_own(self, places: Handle) -> None:
        base = await self.state(places)
        await places.write(lambda s: s.upsert(places.name, [point("x")], muuids=[base.uuid]))
        await places.update(point("x", n=2))
        assert (await places.get("x")).xyz["muuid"] is None

    async def test_one_for_each_feature_and_not_with_merge(self, places: Handle) -> None:
        for muuids, merge in (([], False), ([None, None], False), ([None], True), ([""], False)):
            with pytest.raises(InvalidArgument) as caught:
                await places.write(
                    lambda s, m=muuids, g=merge: s.upsert(  # type: ignore[misc]
                        places.name, [point("x")], muuids=m, merge=g
                    )
                )
            assert caught.value.field == "muuids"
        assert await places.live() == []
