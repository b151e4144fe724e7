"""Conformance: collections are created, listed, changed, dropped softly and restored."""

from __future__ import annotations

import pytest

from naksha.model.collection import MAX_AGE_DEFAULT, CollectionChange, CollectionInfo
from naksha.model.errors import CollectionExists, CollectionNotFound, Expired, InvalidArgument
from naksha.model.query import Query
from naksha.model.transaction import LogFilter
from naksha.spi.storage import Storage, WriteSession
from naksha.testing.storage.suite_support import (
    APP,
    DAY_MS,
    Handle,
    StorageMaker,
    fresh_name,
    ids_of,
    new_collection,
    point,
    published,
    rolled_back,
    seq,
)

FAR_MS = 4_102_444_800_000
"""The year 2100."""
GOOD_NAMES = ("a", "z9", "with-dash", "with_under", "with:colon", "naksha:spaces", "c" * 32)
BAD_NAMES = (
    "",
    "A",
    "9lives",
    "_a",
    ":a",
    "ümlaut",
    "a b",
    "a.b",
    "a'b",
    'a"b',
    "a;b",
    "a\n",
    "c" * 33,
)
RESERVED_NAMES = (
    "naksha_tx",
    "naksha_",
    "sqlite_roads",
    "roads_hst",
    "roads_hst_2023_01_30",
    "roads_hst_",
    "roads_del",
    "roads_meta",
    "roads_i_seq",
    "roads_p0",
    "roads_pf",
)


async def create(storage: Storage, info: CollectionInfo) -> CollectionInfo:
    return await storage.run(lambda session: session.create_collection(info), APP)


async def drop(handle: Handle, delete_at: int | None = None) -> None:
    await handle.write(lambda session: session.drop_collection(handle.name, delete_at))


async def restore(handle: Handle) -> CollectionInfo:
    return await handle.write(lambda session: session.restore_collection(handle.name))


class TestCreatingCollections:
    async def test_a_new_collection_has_the_documented_defaults(self, storage: Storage) -> None:
        name = fresh_name()
        info = await create(storage, CollectionInfo(id=name))
        assert (info.id, info.max_age, info.history_enabled) == (name, MAX_AGE_DEFAULT, True)
        assert (info.id_prefix, info.author, info.delete_at) == (None, None, 0)
        assert (info.optimal_partitioning, info.points_only) == (False, False)
        assert await storage.collection(name) == info

    async def test_settings_are_kept(self, storage: Storage) -> None:
        wanted = CollectionInfo(
            id=fresh_name(),
            max_age=30,
            history_enabled=False,
            id_prefix="urn:here::",
            author="O'Brien",
            optimal_partitioning=True,
            points_only=True,
        )
        await create(storage, wanted)
        found = await storage.collection(wanted.id)
        for name in ("max_age", "history_enabled", "id_prefix", "author", "points_only"):
            assert getattr(found, name) == getattr(wanted, name)
        assert found.optimal_partitioning

    async def test_estimates_and_number_are_ignored_on_input(self, storage: Storage) -> None:
        wanted = CollectionInfo(id=fresh_name(), number=999_999, estimated_feature_count=77)
        found = await create(storage, wanted)
        assert found.number != 999_999
        assert found.estimated_feature_count != 77

    async def test_numbers_are_unique_and_have_20_bits(self, storage: Storage) -> None:
        infos = [await create(storage, CollectionInfo(id=fresh_name())) for _ in range(2)]
        assert len({info.number for info in infos}) == 2
        assert all(0 <= info.number < 2**20 for info in infos)

    async def test_a_name_is_taken_only_once(self, places: Handle) -> None:
        with pytest.raises(CollectionExists) as caught:
            await create(places.storage, CollectionInfo(id=places.name))
        assert caught.value.collection_id == places.name

    async def test_good_names_work_with_features_and_state_ids(
        self, empty_storage: Storage
    ) -> None:
        for name in GOOD_NAMES:
            handle = await new_collection(empty_storage, id=name)
            (outcome,) = await handle.create(point("x"))
            assert outcome.uuid is not None
            assert (await empty_storage.state(outcome.uuid)).id == "x"

    @pytest.mark.parametrize("name", BAD_NAMES + RESERVED_NAMES)
    async def test_bad_and_reserved_names_are_refused(self, storage: Storage, name: str) -> None:
        before = await published(storage)
        with pytest.raises(InvalidArgument):
            await create(storage, CollectionInfo(id=name))
        assert name not in [info.id for info in await storage.collections(dropped=True)]
        assert await published(storage) == before

    async def test_a_negative_max_age_is_refused(self, storage: Storage) -> None:
        with pytest.raises(InvalidArgument):
            await create(storage, CollectionInfo(id=fresh_name(), max_age=-1))

    async def test_created_with_a_time_to_delete_it_is_usable_until_then(
        self, storage: Storage
    ) -> None:
        wanted = CollectionInfo(id=fresh_name(), delete_at=FAR_MS, dropped_at=1)
        made = await create(storage, wanted)
        assert (made.delete_at, made.dropped_at) == (FAR_MS, 0)
        assert await storage.collection(wanted.id) == made
        handle = Handle(storage, wanted.id)
        await handle.create(point("x"))
        assert ids_of(await handle.live()) == ["x"]

    async def test_a_time_to_delete_before_1970_is_refused(self, places: Handle) -> None:
        with pytest.raises(InvalidArgument) as caught:
            await create(places.storage, CollectionInfo(id=fresh_name(), delete_at=-1))
        assert caught.value.field == "deleteAt"
        with pytest.raises(InvalidArgument) as caught:
            await places.change(delete_at=-1)
        assert caught.value.field == "deleteAt"

    @pytest.mark.parametrize("partitions", [-1, 0, 4, 17])
    async def test_partitions_other_than_1_and_16_are_refused(
        self, places: Handle, partitions: int
    ) -> None:
        with pytest.raises(InvalidArgument, match="1 or 16") as caught:
            await create(places.storage, CollectionInfo(id=fresh_name(), partitions=partitions))
        assert caught.value.field == "partitions"
        with pytest.raises(InvalidArgument, match="1 or 16") as caught:
            await places.change(partitions=partitions)
        assert caught.value.field == "partitions"

    async def test_sixteen_partitions_change_nothing_that_is_read(self, storage: Storage) -> None:
        """A storage whose layout has no partitions accepts the setting and reports 1."""
        requested = await new_collection(storage, partitions=16)
        later = await new_collection(storage)
        await later.create(point("x", 1, 2))
        before = await later.published()
        changed = await later.change(partitions=16, author="me")
        made = await storage.collection(requested.name)
        assert (changed.partitions, changed.author) == (made.partitions, "me")
        assert changed.partitions in (1, 16)
        await requested.create(point("x", 1, 2))
        assert ids_of(await requested.live()) == ids_of(await later.live()) == ["x"]
        assert ids_of(await later.live(seq(before))) == ["x"]

    async def test_a_rolled_back_collection_never_was(self, storage: Storage) -> None:
        name = fresh_name()

        async def work(session: WriteSession) -> None:
            await session.create_collection(CollectionInfo(id=name))
            await session.create(name, [point("x")])

        await rolled_back(storage, work)
        with pytest.raises(CollectionNotFound):
            await storage.collection(name)

    async def test_created_and_filled_in_one_transaction(self, storage: Storage) -> None:
        name = fresh_name()
        before = await published(storage)
        async with storage.write(APP) as session:
            await session.create_collection(CollectionInfo(id=name))
            await session.create(name, [point("x")])
            assert (await session.collection(name)).id == name
        after = await published(storage)
        assert after.seq_number == before.seq_number + 1
        assert ids_of(await Handle(storage, name).live(seq(after))) == ["x"]

    async def test_before_its_creation_a_collection_is_empty(self, storage: Storage) -> None:
        before = await published(storage)
        handle = await new_collection(storage)
        await handle.create(point("x"))
        assert await handle.live(seq(before)) == []


class TestListingCollections:
    async def test_in_name_order(self, empty_storage: Storage) -> None:
        names = ["b", "a:c", "a-c", "a_c", "a"]
        for name in names:
            await create(empty_storage, CollectionInfo(id=name))
        listed = [info.id for info in await empty_storage.collections()]
        assert listed == sorted(names)

    async def test_an_empty_storage_has_none(self, empty_storage: Storage) -> None:
        assert await empty_storage.collections(dropped=True) == []

    @pytest.mark.parametrize("name", ["no_such", "naksha_tx", "A", "'; --", ""])
    async def test_missing_collections_are_not_found(self, storage: Storage, name: str) -> None:
        with pytest.raises(CollectionNotFound):
            await storage.collection(name)
        with pytest.raises(CollectionNotFound):
            await storage.page(name, Query())
        with pytest.raises(CollectionNotFound):
            await storage.count(name, Query())
        with pytest.raises(CollectionNotFound):
            [state async for state in storage.states(name, Query())]
        with pytest.raises(CollectionNotFound):
            await storage.plan(name, Query())

    @pytest.mark.parametrize("name", ["A", "'; --", "", "c" * 33])
    async def test_an_id_that_no_collection_can_have_is_not_valid(
        self, storage: Storage, name: str
    ) -> None:
        handle = Handle(storage, name)
        for call in (
            lambda: storage.collection(name),
            lambda: storage.page(name, Query()),
            lambda: storage.plan(name, Query()),
            lambda: handle.upsert(point("x")),
            lambda: handle.delete("x"),
            lambda: drop(handle),
        ):
            with pytest.raises(CollectionNotFound) as missing:
                await call()
            assert "is not a valid collection id; use a lower-case letter" in missing.value.message

    async def test_writing_into_nothing_is_not_found(self, storage: Storage) -> None:
        handle = Handle(storage, "no_such")
        for call in (
            lambda: handle.create(point("x")),
            lambda: handle.update(point("x")),
            lambda: handle.upsert(point("x")),
            lambda: handle.delete("x"),
            lambda: handle.restore("x"),
            lambda: handle.purge("x"),
            lambda: handle.change(author="me"),
            lambda: drop(handle),
            lambda: restore(handle),
        ):
            with pytest.raises(CollectionNotFound):
                await call()


class TestChangingCollections:
    async def test_settings_that_are_not_given_stay_unchanged(self, storage: Storage) -> None:
        handle = await new_collection(storage, author="first", id_prefix="p:", max_age=7)
        changed = await handle.change(author="second")
        assert (changed.author, changed.id_prefix, changed.max_age) == ("second", "p:", 7)
        assert await storage.collection(handle.name) == changed

    async def test_null_removes_author_and_prefix(self, storage: Storage) -> None:
        handle = await new_collection(storage, author="first", id_prefix="p:")
        changed = await handle.change(author=None, id_prefix=None)
        assert (changed.author, changed.id_prefix) == (None, None)

    async def test_a_change_is_seen_by_the_own_session_only_until_committed(
        self, places: Handle
    ) -> None:
        async with places.storage.write(APP) as session:
            await session.change_collection(places.name, CollectionChange(author="me"))
            assert (await session.collection(places.name)).author == "me"
            assert (await places.storage.collection(places.name)).author is None
        assert (await places.storage.collection(places.name)).author == "me"

    async def test_a_second_instance_sees_the_change(
        self, places: Handle, make_storage: StorageMaker
    ) -> None:
        second = await make_storage(beside=places.storage)
        await second.collection(places.name)
        await places.change(author="me")
        assert (await second.collection(places.name)).author == "me"
        (outcome,) = await Handle(second, places.name).create(point("x"))
        assert outcome.state is not None
        assert outcome.state.xyz["author"] == "me"


class TestDroppingCollections:
    async def test_dropped_is_gone_for_readers_and_writers(self, places: Handle) -> None:
        await places.create(point("x"))
        version = await places.published()
        await drop(places)
        for call in (
            places.live,
            lambda: places.live(seq(version)),
            lambda: places.upsert(point("x")),
            lambda: places.delete("x"),
            lambda: places.change(author="me"),
            lambda: drop(places),
            lambda: places.storage.collection(places.name),
        ):
            with pytest.raises(CollectionNotFound):
                await call()

    async def test_dropped_collections_are_listed_only_on_request(self, places: Handle) -> None:
        await drop(places)
        storage = places.storage
        assert places.name not in [info.id for info in await storage.collections()]
        assert places.name in [info.id for info in await storage.collections(dropped=True)]
        found = await storage.collection(places.name, dropped=True)
        assert found.delete_at >= found.dropped_at > 0

    async def test_the_name_stays_taken(self, places: Handle) -> None:
        await drop(places)
        with pytest.raises(CollectionExists):
            await create(places.storage, CollectionInfo(id=places.name))

    async def test_delete_at_is_kept(self, places: Handle) -> None:
        await drop(places, FAR_MS)
        found = await places.storage.collection(places.name, dropped=True)
        assert found.delete_at == FAR_MS

    async def test_a_time_to_delete_schedules_the_deletion(self, places: Handle) -> None:
        storage = places.storage
        await places.create(point("x"))
        info = await places.change(delete_at=FAR_MS)
        assert (info.delete_at, info.dropped_at) == (FAR_MS, 0)
        assert (await places.change(author="me")).delete_at == FAR_MS
        await places.update(point("x", n=2))
        await storage.maintain(FAR_MS - DAY_MS)
        assert ids_of(await places.live()) == ["x"]
        assert places.name in [info.id for info in await storage.collections()]
        assert (await places.change(delete_at=0)).delete_at == 0
        await storage.maintain(FAR_MS + 1)
        assert ids_of(await places.live()) == ["x"]
        await places.change(delete_at=FAR_MS)
        await storage.maintain(FAR_MS + 1)
        with pytest.raises(CollectionNotFound):
            await storage.collection(places.name, dropped=True)

    async def test_a_scheduled_deletion_is_in_the_log(self, places: Handle) -> None:
        await places.change(delete_at=1)
        before = await places.published()
        await places.storage.maintain()
        await places.published()
        where = LogFilter(collections=(places.name,))
        (dropped,) = await places.storage.transactions(before.seq_number, where=where)
        assert (dropped.app_id, dropped.author) == ("naksha", None)

    async def test_a_pin_keeps_a_collection_whose_deletion_is_due(self, places: Handle) -> None:
        name = fresh_name("pin")
        await places.create(point("x"))
        await places.change(delete_at=1)
        await places.storage.pin(name, await places.published(), places.name, guards=True)
        await places.storage.maintain()
        assert ids_of(await places.live()) == ["x"]
        await places.storage.unpin(name)
        await places.storage.maintain()
        with pytest.raises(CollectionNotFound):
            await places.storage.collection(places.name, dropped=True)

    async def test_dropping_marks_when(self, places: Handle) -> None:
        await places.change(delete_at=FAR_MS)
        await drop(places, FAR_MS + DAY_MS)
        found = await places.storage.collection(places.name, dropped=True)
        assert found.dropped_at > 0
        assert found.delete_at == FAR_MS + DAY_MS
        info = await restore(places)
        assert (info.dropped_at, info.delete_at) == (0, 0)

    async def test_restored_with_all_its_history(self, places: Handle) -> None:
        await places.create(point("x", n=1))
        first = await places.published()
        await places.update(point("x", n=2))
        await places.delete("x")
        states = [state.raw for state in await places.all()]
        await drop(places)
        assert (await restore(places)).delete_at == 0
        assert [state.raw for state in await places.all()] == states
        assert ids_of(await places.live(seq(first))) == ["x"]

    async def test_a_rolled_back_drop_changes_nothing(self, places: Handle) -> None:
        await rolled_back(places.storage, lambda s: s.drop_collection(places.name))
        assert await places.live() == []

    async def test_maintenance_drops_it_really_only_when_due(self, places: Handle) -> None:
        due = FAR_MS
        await drop(places, due)
        await places.published()
        await places.storage.maintain(due - DAY_MS)
        await places.storage.collection(places.name, dropped=True)
        number = (await places.storage.collection(places.name, dropped=True)).number
        await places.storage.maintain(due + 1)
        with pytest.raises(CollectionNotFound):
            await places.storage.collection(places.name, dropped=True)
        again = await create(places.storage, CollectionInfo(id=places.name))
        assert again.number != number
        assert await places.all() == []

    async def test_a_namesake_of_a_removed_collection_has_state_ids_of_its_own(
        self, places: Handle
    ) -> None:
        async def states() -> list[str]:
            await places.create(point("x", n=1))
            await places.update(point("x", n=2))
            await places.delete("x")
            return [state.uuid for state in await places.all()]

        found = await states()
        for _ in range(2):
            await drop(places, 1)
            await places.published()
            await places.storage.maintain()
            await create(places.storage, CollectionInfo(id=places.name))
            found += await states()
        assert len(set(found)) == len(found) == 9

    async def test_a_namesake_of_a_removed_collection_has_no_past(self, places: Handle) -> None:
        await places.create(point("x", n=1))
        before = await places.published()
        await drop(places, 1)
        await places.published()
        await places.storage.maintain()
        await create(places.storage, CollectionInfo(id=places.name))
        begun = await places.published()
        await places.create(point("y"))
        assert ids_of(await places.live(seq(await places.published()))) == ["y"]
        assert await places.live(seq(begun)) == []
        with pytest.raises(Expired) as caught:
            await places.live(seq(before))
        assert caught.value.oldest == begun.seq_number
