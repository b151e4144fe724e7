"""Conformance: bulk loads of a new or empty collection."""

from __future__ import annotations

import asyncio

import pytest

from naksha.model.collection import CollectionInfo
from naksha.model.errors import (
    CollectionExists,
    CollectionNotFound,
    Conflict,
    InvalidArgument,
    Retryable,
)
from naksha.model.query import Bbox, Query
from naksha.model.state import XYZ
from naksha.model.version import HEAD
from naksha.spi.storage import Storage
from naksha.testing.models.json_values import same
from naksha.testing.storage.bulk.suite_bulk import (
    COUNT,
    ODD,
    WAIT_S,
    comparable,
    load,
    name,
    oddity,
    some_feature,
)
from naksha.testing.storage.suite_support import (
    APP,
    Handle,
    feature,
    fresh_name,
    ids_of,
    new_collection,
    one_transaction,
    point,
    published,
    seq,
)


@pytest.mark.parametrize("exclusive", [False, True], ids=["staged", "exclusive"])
class TestBulkWriter:
    async def test_a_load_is_like_an_insert(self, storage: Storage, exclusive: bool) -> None:
        features = [some_feature(n) for n in range(COUNT)]
        normal = await new_collection(storage)
        await normal.create(*features, app="loader", author="me")
        before = await published(storage)
        info = CollectionInfo(id=fresh_name("bulk"), max_age=99)
        txn = await load(storage, info, features, exclusive)
        version = await storage.wait_published(txn)
        assert version is not None
        loaded = Handle(storage, info.id)
        for at in (HEAD, seq(version)):
            found = [comparable(state) for state in await loaded.live(at)]
            assert same(found, [comparable(state) for state in await normal.live()])
        assert {s.txn for s in await loaded.live()} == {txn}
        assert len({s.uuid for s in await loaded.live()}) == COUNT
        assert await loaded.live(seq(before)) == []
        assert (await storage.collection(info.id)).max_age == 99

    async def test_the_log_has_an_entry(self, storage: Storage, exclusive: bool) -> None:
        before = await published(storage)
        info = CollectionInfo(id=fresh_name("bulk"))
        features = [point(name(n), n, -n) for n in range(COUNT)]
        txn = await load(storage, info, features, exclusive)
        transaction = await one_transaction(storage, before)
        assert (transaction.txn, transaction.app_id, transaction.author) == (txn, "loader", "me")
        signals = {signal.action: signal for signal in transaction.signals}
        assert signals["MODIFY_FEATURES"].created == COUNT
        assert signals["MODIFY_FEATURES"].bbox == (0.0, 1.0 - COUNT, COUNT - 1.0, 0.0)
        assert signals["MESSAGE"].text == "the first load"
        assert signals["MODIFY_COLLECTION"].id == info.id

    async def test_the_collection_is_usable_afterwards(
        self, storage: Storage, exclusive: bool
    ) -> None:
        info = CollectionInfo(id=fresh_name("bulk"))
        await load(storage, info, [some_feature(n) for n in range(COUNT)], exclusive)
        loaded = Handle(storage, info.id)
        version = await loaded.published()
        old = await loaded.get(name(1))
        await loaded.update(some_feature(1, "new"))
        new = await loaded.get(name(1))
        assert (new.xyz["version"], new.xyz["puuid"]) == (2, old.uuid)
        await loaded.delete(name(2))
        await loaded.create(point("added"))
        assert len(await loaded.live()) == COUNT
        assert len(await loaded.live(seq(version))) == COUNT
        assert (await storage.state(old.uuid)).id == name(1)
        found = await loaded.states(Query(spatial=Bbox(-180, -90, 180, 90)))
        assert len(found) == sum(s.feature["geometry"] is not None for s in await loaded.live())

    async def test_an_empty_collection_can_be_filled(
        self, storage: Storage, exclusive: bool
    ) -> None:
        handle = await new_collection(storage, author="owner", id_prefix="p:")
        info = await storage.collection(handle.name)
        await load(storage, info, [point(f"p:{n}") for n in range(9)], exclusive)
        assert ids_of(await handle.live()) == [str(n) for n in range(9)]
        assert (await storage.collection(handle.name)).number == info.number

    async def test_a_collection_with_features_is_refused(
        self, places: Handle, exclusive: bool
    ) -> None:
        await places.create(point("x"))
        info = await places.storage.collection(places.name)
        with pytest.raises((Conflict, InvalidArgument)):
            await load(places.storage, info, [point("y")], exclusive)
        assert ids_of(await places.live()) == ["x"]
        await places.published()

    async def test_aborted_never_was(self, storage: Storage, exclusive: bool) -> None:
        before = await published(storage)
        info = CollectionInfo(id=fresh_name("bulk"))
        writer = await storage.bulk_writer(info, "loader", exclusive=exclusive)
        await writer.add([point("x")])
        await writer.abort()
        with pytest.raises(CollectionNotFound):
            await storage.collection(info.id)
        assert await published(storage) == before
        await load(storage, info, [point("y")], exclusive)

    async def test_nothing_is_seen_before_the_commit(
        self, storage: Storage, exclusive: bool
    ) -> None:
        info = CollectionInfo(id=fresh_name("bulk"))
        writer = await storage.bulk_writer(info, "loader", exclusive=exclusive)
        await writer.add([point("x")])
        with pytest.raises(CollectionNotFound):
            await storage.collection(info.id)
        await writer.commit()
        assert ids_of(await Handle(storage, info.id).live()) == ["x"]

    async def test_bad_features_are_refused_by_name(
        self, storage: Storage, exclusive: bool
    ) -> None:
        info = CollectionInfo(id=fresh_name("bulk"))
        writer = await storage.bulk_writer(info, "loader", exclusive=exclusive)
        with pytest.raises(InvalidArgument) as caught:
            await writer.add([point("good"), point("bad", 999.0)])
        assert caught.value.feature_id == "bad"
        await writer.abort()
        await published(storage)

    async def test_the_last_feature_with_an_id_counts(
        self, storage: Storage, exclusive: bool
    ) -> None:
        info = CollectionInfo(id=fresh_name("bulk"))
        writer = await storage.bulk_writer(info, "loader", exclusive=exclusive)
        await writer.add([point("x", 1, 1, n=1), point("y", n=1), point("z", n=1)])
        await writer.add([point("x", 2, 2, n=2), point("y", n=2), point("x", 3, 3, n=3)])
        txn = await writer.commit()
        live = {state.id: state for state in await Handle(storage, info.id).live()}
        assert {id_: s.feature["properties"]["n"] for id_, s in live.items()} == {
            "x": 3,
            "y": 2,
            "z": 1,
        }
        assert live["x"].feature["geometry"]["coordinates"] == [3, 3]
        assert all(state.xyz["version"] == 1 for state in live.values())
        (signal,) = [s for s in (await storage.transaction(txn)).signals if s.created]
        assert signal.created == 3

    async def test_a_failed_add_leaves_only_abort(self, storage: Storage, exclusive: bool) -> None:
        info = CollectionInfo(id=fresh_name("bulk"))
        writer = await storage.bulk_writer(info, "loader", exclusive=exclusive)
        await writer.add([point("good")])
        with pytest.raises(InvalidArgument):
            await writer.add([point("x"), point("bad", 999.0)])
        for call in (writer.commit, lambda: writer.add([])):
            with pytest.raises(InvalidArgument, match="abort"):
                await call()
        await writer.abort()
        with pytest.raises(CollectionNotFound):
            await storage.collection(info.id)

    async def test_after_the_end_it_takes_nothing_more(
        self, storage: Storage, exclusive: bool
    ) -> None:
        for end in ("commit", "abort"):
            info = CollectionInfo(id=fresh_name("bulk"))
            writer = await storage.bulk_writer(info, "loader", exclusive=exclusive)
            await getattr(writer, end)()
            for call in (writer.commit, lambda writer=writer: writer.add([point("x")])):
                with pytest.raises(InvalidArgument, match="already committed or aborted"):
                    await call()
            await writer.abort()

    async def test_only_points_where_only_points_are_taken(
        self, storage: Storage, exclusive: bool
    ) -> None:
        line = {"type": "LineString", "coordinates": [[1, 2], [3, 4]]}
        info = CollectionInfo(id=fresh_name("bulk"), points_only=True)
        writer = await storage.bulk_writer(info, "loader", exclusive=exclusive)
        with pytest.raises(InvalidArgument, match="points only"):
            await writer.add([feature("x", line)])
        await writer.abort()

    async def test_a_feature_that_was_read_before_is_a_conflict(
        self, places: Handle, exclusive: bool
    ) -> None:
        await places.create(point("x"))
        old = await places.get("x")
        await places.delete("x")
        await places.purge("x")
        info = await places.storage.collection(places.name)
        writer = await places.storage.bulk_writer(info, "loader", exclusive=exclusive)
        with pytest.raises(Conflict) as caught:
            await writer.add([point("y"), old.feature])
        assert (caught.value.field, caught.value.feature_id) == ("uuid", "x")
        await writer.abort()
        # The uuid of another collection's state names the origin of the feature; it is not a lock.
        elsewhere = CollectionInfo(id=fresh_name("bulk"))
        await load(places.storage, elsewhere, [old.feature], exclusive)
        assert ids_of(await Handle(places.storage, elsewhere.id).live()) == ["x"]

    async def test_a_dropped_collection_is_refused(self, places: Handle, exclusive: bool) -> None:
        info = await places.storage.collection(places.name)
        await places.storage.run(lambda s: s.drop_collection(places.name), APP)
        with pytest.raises(CollectionExists):
            await places.storage.bulk_writer(info, "loader", exclusive=exclusive)

    async def test_odd_features_come_out_as_after_a_normal_insert(
        self, storage: Storage, exclusive: bool
    ) -> None:
        normal = await new_collection(storage)
        await normal.create(*ODD, app="loader", author="me")
        info = CollectionInfo(id=fresh_name("bulk"))
        await load(storage, info, ODD, exclusive)
        wanted = sorted(map(oddity, await normal.live()), key=str)
        assert sorted(map(oddity, await Handle(storage, info.id).live()), key=str) == wanted

    async def test_missing_ids_are_generated(self, storage: Storage, exclusive: bool) -> None:
        info = CollectionInfo(id=fresh_name("bulk"))
        await load(storage, info, [feature(None, n=n) for n in range(9)], exclusive)
        live = await Handle(storage, info.id).live()
        assert sorted(s.feature["properties"]["n"] for s in live) == list(range(9))
        assert all(s.feature["properties"][XYZ]["version"] == 1 for s in live)

    async def test_an_empty_load(self, storage: Storage, exclusive: bool) -> None:
        info = CollectionInfo(id=fresh_name("bulk"))
        await load(storage, info, [], exclusive)
        assert await Handle(storage, info.id).live() == []

    async def test_bad_names_and_missing_app_ids(self, storage: Storage, exclusive: bool) -> None:
        with pytest.raises(InvalidArgument):
            await storage.bulk_writer(CollectionInfo(id="roads_hst"), "a", exclusive=exclusive)
        with pytest.raises(InvalidArgument):
            await storage.bulk_writer(CollectionInfo(id=fresh_name()), "", exclusive=exclusive)


class TestStagedWriter:
    async def test_staging_does_not_hold_publication_back(self, places: Handle) -> None:
        storage = places.storage
        writer = await storage.bulk_writer(CollectionInfo(id=fresh_name("bulk")), "loader")
        await writer.add([point(name(n)) for n in range(COUNT)])
        await places.create(point("x"))
        version = await storage.wait_published((await places.get("x")).txn)
        assert version is not None
        txn = await writer.commit()
        assert txn > version.txn

    async def test_a_write_during_staging_wins(self, places: Handle) -> None:
        storage = places.storage
        writer = await storage.bulk_writer(CollectionInfo(id=places.name), "loader")
        await writer.add([point("x")])
        await places.create(point("y"))
        with pytest.raises(Conflict):
            await writer.commit()
        assert ids_of(await places.live()) == ["y"]
        await writer.abort()

    async def test_a_collection_changed_while_we_stage_is_to_be_loaded_again(
        self, places: Handle
    ) -> None:
        storage = places.storage
        writer = await storage.bulk_writer(CollectionInfo(id=places.name), "loader")
        await writer.add([point("p:x")])
        await places.change(id_prefix="p:")
        with pytest.raises(Retryable):
            await writer.commit()
        assert await places.live() == []
        await load(storage, CollectionInfo(id=places.name), [point("p:x")], exclusive=False)
        assert ids_of(await places.live()) == ["x"]


class TestExclusiveWriter:
    async def test_it_holds_publication_back_but_no_writer(self, places: Handle) -> None:
        storage = places.storage
        info = CollectionInfo(id=fresh_name("bulk"))
        writer = await storage.bulk_writer(info, "loader", exclusive=True)
        before = await storage.publication()
        async with asyncio.timeout(WAIT_S):
            await places.create(point("x"))
        status = await storage.publication()
        assert status.unpublished == before.unpublished + 1
        assert status.held_back_by is not None
        await writer.add([point("y")])
        txn = await writer.commit()
        assert (await published(storage)).txn > txn
