"""Conformance: the namespace `@ns:com:here:xyz`, authorship, and the two forms of state ids."""

from __future__ import annotations

import asyncio
import re
import time
from typing import Any

import pytest

from naksha.model.errors import InvalidArgument, NakshaError, NotFound
from naksha.model.identity.guid import Guid
from naksha.model.identity.txn import date_of
from naksha.model.identity.uuids import Uuid
from naksha.model.state import State
from naksha.model.tags import normalise_tags
from naksha.spi.storage import Storage, WriteSession
from naksha.testing.models.brute_force import quad_key
from naksha.testing.storage.suite_support import (
    APP,
    Handle,
    feature,
    ids_of,
    new_collection,
    point,
    published,
    seq,
    with_xyz,
)

DECIMAL = re.compile(r"[1-9][0-9]{18}")


async def uuid_form(storage: Storage, state: State) -> str:
    """Return the 128-bit form of a state's id."""
    guid = Guid.parse(state.uuid)
    number = (await storage.collection(guid.collection_id)).number
    return str(Uuid.of_state(state.txn, number, guid.i, storage.number))


class TestNamespace:
    async def test_a_new_feature(self, places: Handle) -> None:
        started = time.time_ns() // 1_000_000
        await places.create(point("x"), app="my-app", author="me")
        xyz = (await places.get("x")).xyz
        assert (xyz["action"], xyz["version"]) == ("CREATE", 1)
        assert (xyz["appId"], xyz["author"]) == ("my-app", "me")
        assert (xyz["puuid"], xyz["muuid"]) == (None, None)
        assert xyz["createdAt"] == xyz["updatedAt"]
        assert xyz["rtcts"] == xyz["rtuts"]
        assert abs(xyz["createdAt"] - started) < 60_000
        assert xyz["createdAt"] <= xyz["rtcts"] + 1
        assert "space" not in xyz

    async def test_an_updated_feature(self, places: Handle) -> None:
        await places.create(point("x", n=1), app="one")
        first = await places.get("x")
        await places.update(point("x", n=2), app="two")
        xyz = (await places.get("x")).xyz
        assert (xyz["action"], xyz["version"]) == ("UPDATE", 2)
        assert (xyz["appId"], xyz["puuid"], xyz["muuid"]) == ("two", first.uuid, None)
        assert (xyz["createdAt"], xyz["rtcts"]) == (first.xyz["createdAt"], first.xyz["rtcts"])
        assert xyz["updatedAt"] >= first.xyz["updatedAt"]
        assert xyz["rtuts"] >= first.xyz["rtuts"]

    async def test_a_tombstone(self, places: Handle) -> None:
        await places.create(with_xyz(point("x"), tags=["t"], crid="c"), app="one")
        first = await places.get("x")
        await places.delete("x", app="two")
        (tombstone,) = await places.deleted()
        xyz = tombstone.xyz
        assert (xyz["action"], xyz["version"]) == ("DELETE", 2)
        assert (xyz["appId"], xyz["puuid"]) == ("two", first.uuid)
        assert xyz["createdAt"] == first.xyz["createdAt"]
        assert (xyz["tags"], xyz["crid"], xyz["mrid"]) == (["t"], "c", "c")
        assert xyz["txn_next"] == "0"

    async def test_txn_and_txn_next_are_decimal_strings(self, places: Handle) -> None:
        await places.create(point("x", n=1))
        await places.update(point("x", n=2))
        old, new = await places.all()
        assert DECIMAL.fullmatch(old.xyz["txn"])
        assert DECIMAL.fullmatch(new.xyz["txn"])
        assert old.xyz["txn_next"] == new.xyz["txn"] > old.xyz["txn"]
        assert new.xyz["txn_next"] == "0"

    async def test_updated_at_is_the_start_of_the_transaction(self, places: Handle) -> None:
        async def work(session: WriteSession) -> None:
            await session.create(places.name, [point("x")])
            await session.create(places.name, [point("y")])

        before = await places.published()
        await places.write(work)
        (transaction,) = (await places.storage.transactions(before.seq_number)) or [
            await places.storage.transaction((await places.get("x")).txn)
        ]
        times = {s.xyz["updatedAt"] for s in await places.live()}
        times |= {s.xyz["createdAt"] for s in await places.live()}
        assert times == {transaction.started_ms}

    async def test_real_time_goes_on_inside_a_transaction(self, places: Handle) -> None:
        async def work(session: WriteSession) -> None:
            await session.create(places.name, [point("x")])
            await asyncio.sleep(0.05)
            await session.create(places.name, [point("y")])

        await places.write(work)
        x, y = [state.xyz for state in await places.live()]
        assert x["updatedAt"] == y["updatedAt"]
        assert x["rtuts"] + 40 <= y["rtuts"]

    async def test_members_of_the_namespace_sent_by_a_client_are_ignored(
        self, places: Handle
    ) -> None:
        sent: dict[str, Any] = {
            "action": "DELETE",
            "author": "mallory",
            "appId": "evil",
            "app_id": "evil",
            "puuid": "p",
            "muuid": "m",
            "txn": "1",
            "txn_next": "2",
            "createdAt": 1,
            "updatedAt": 2,
            "rtcts": 3,
            "rtuts": 4,
            "qrid": "0000",
            "mrid": "0000",
            "space": "s",
            "unknown": True,
        }
        await places.create(with_xyz(point("x"), **sent))
        xyz = (await places.get("x")).xyz
        for key, value in sent.items():
            assert xyz.get(key) != value, key
        assert "space" not in xyz
        assert "unknown" not in xyz

    async def test_the_namespace_may_be_null(self, places: Handle) -> None:
        made = point("x")
        made["properties"]["@ns:com:here:xyz"] = None
        await places.create(made)
        assert (await places.get("x")).xyz["version"] == 1

    async def test_tags_and_crid_are_the_clients_own(self, places: Handle) -> None:
        tags = ["b", "a", "o'brien", "@Ü", "with space"]
        await places.create(with_xyz(point("x"), tags=tags, crid="my id"))
        xyz = (await places.get("x")).xyz
        assert (sorted(xyz["tags"]), xyz["crid"]) == (sorted(tags), "my id")
        await places.update(with_xyz(point("x"), tags=["c"], crid="other"))
        xyz = (await places.get("x")).xyz
        assert (xyz["tags"], xyz["crid"], xyz["mrid"]) == (["c"], "other", "other")
        await places.update(with_xyz(point("x"), tags=[]))
        xyz = (await places.get("x")).xyz
        assert (xyz.get("tags") or [], xyz["crid"]) == ([], "other")

    async def test_null_takes_the_crid_away_and_leaves_the_tags(self, places: Handle) -> None:
        await places.create(with_xyz(point("x"), tags=["t"], crid="c"))
        for write in (places.update, places.upsert):
            (outcome,) = await write(with_xyz(point("x"), tags=None))
            assert outcome.action == "RETAINED"
        (outcome,) = await places.update(with_xyz(point("x"), tags=None, crid=None))
        assert outcome.action == "UPDATED"
        xyz = (await places.get("x")).xyz
        assert (xyz["tags"], xyz["crid"], xyz["mrid"]) == (["t"], None, xyz["qrid"])
        (outcome,) = await places.upsert(with_xyz(point("x"), crid=None))
        assert outcome.action == "RETAINED"
        await places.update(with_xyz(point("x"), crid="d"))
        await places.upsert(with_xyz(point("x"), crid=None), with_xyz(point("y"), crid=None))
        assert ids_of(await places.live()) == ["x", "y"]
        for state in await places.live():
            assert (state.xyz["crid"], state.xyz["mrid"]) == (None, xyz["qrid"])

    async def test_tags_are_normalised(self, places: Handle) -> None:
        given = ["Red", "a,b", "red", "", "Ünter", "#Keep", "@Ä"]
        await places.create(with_xyz(point("x"), tags=given))
        assert sorted((await places.get("x")).xyz["tags"]) == sorted(normalise_tags(given))
        (outcome,) = await places.update(with_xyz(point("x"), tags=given))
        assert outcome.action == "RETAINED"

    async def test_ref_ids(self, places: Handle) -> None:
        await places.create(
            point("plain", 13.37, 52.52),
            with_xyz(point("own", 13.37, 52.52), crid="mine"),
            feature("nowhere"),
            with_xyz(feature("named"), crid="mine"),
        )
        found = {s.id: (s.xyz.get("qrid"), s.xyz.get("mrid")) for s in await places.live()}
        key = quad_key(13.37, 52.52)
        assert found == {
            "plain": (key, key),
            "own": (key, "mine"),
            "nowhere": (None, None),
            "named": (None, "mine"),
        }

    @pytest.mark.parametrize(
        ("lon", "lat"),
        [(-180.0, 90.0), (180.0, -90.0), (180.0, 90.0), (-180.0, -90.0), (0.0, 0.0)],
    )
    async def test_quad_keys_at_the_edges_of_the_world(
        self, places: Handle, lon: float, lat: float
    ) -> None:
        await places.create(point("x", lon, lat))
        assert (await places.get("x")).xyz["qrid"] == quad_key(lon, lat)

    async def test_the_quad_key_is_that_of_the_centre_of_the_box(self, places: Handle) -> None:
        line = {"type": "LineString", "coordinates": [[0, 0, 99], [0, 10, 5], [30, 0, -3]]}
        await places.create(feature("x", line))
        assert (await places.get("x")).xyz["qrid"] == quad_key(15.0, 5.0)


class TestAuthors:
    async def test_a_new_feature_belongs_to_the_author(self, storage: Storage) -> None:
        handle = await new_collection(storage, author="owner")
        await handle.create(point("x"), author="me")
        assert (await handle.get("x")).xyz["author"] == "me"

    async def test_without_author_to_the_collections_author(self, storage: Storage) -> None:
        handle = await new_collection(storage, author="owner")
        await handle.create(point("x"))
        await handle.upsert(point("y"))
        assert {s.xyz["author"] for s in await handle.live()} == {"owner"}

    async def test_without_both_to_the_application(self, places: Handle) -> None:
        await places.create(point("x"), app="my-app")
        assert (await places.get("x")).xyz["author"] == "my-app"

    async def test_update_and_delete_without_author_keep_the_old_one(
        self, storage: Storage
    ) -> None:
        handle = await new_collection(storage, author="owner")
        await handle.create(point("x", n=1), author="me")
        await handle.update(point("x", n=2), app="other")
        assert (await handle.get("x")).xyz["author"] == "me"
        await handle.delete("x", app="other")
        (tombstone,) = await handle.deleted()
        assert (tombstone.xyz["author"], tombstone.xyz["appId"]) == ("me", "other")

    async def test_update_and_delete_with_author_take_it(self, places: Handle) -> None:
        await places.create(point("x", n=1), author="me")
        await places.update(point("x", n=2), author="you")
        assert (await places.get("x")).xyz["author"] == "you"
        await places.delete("x", author="them")
        assert (await places.deleted())[0].xyz["author"] == "them"

    @pytest.mark.parametrize("app_id", ["", None, "\0", "x" * 300])
    async def test_a_transaction_needs_an_app_id(self, places: Handle, app_id: Any) -> None:
        before = await places.published()
        with pytest.raises(InvalidArgument):
            await places.create(point("x"), app=app_id)
        with pytest.raises(InvalidArgument):
            async with places.storage.write(app_id) as session:
                await session.create(places.name, [point("x")])
        assert await places.live() == []
        assert await places.published() == before

    async def test_an_app_id_does_not_outlive_its_transaction(self, places: Handle) -> None:
        """Connections are reused; the next transaction must not inherit app id or author."""
        for n in range(20):
            await places.upsert(point("x", n=n), app="one", author="me")
            await places.upsert(point(f"y{n}"), app="two")
        authors = {s.xyz["author"] for s in await places.live() if s.id.startswith("y")}
        assert authors == {"two"}


class TestStateIds:
    async def test_the_guid_is_unpadded_and_of_the_day_of_the_txn(self, places: Handle) -> None:
        await places.create(point("x"))
        state = await places.get("x")
        guid = Guid.parse(state.uuid)
        assert str(guid) == state.uuid
        assert (guid.storage_id, guid.collection_id) == (places.storage.id, places.name)
        assert guid.date == date_of(state.txn)

    async def test_every_state_has_its_own(self, places: Handle) -> None:
        await places.create(point("x", n=1), point("y", n=1))
        await places.update(point("x", n=2))
        await places.delete("x")
        await places.create(point("x", n=3))
        uuids = [state.uuid for state in await places.all()]
        assert len(set(uuids)) == len(uuids) == 5

    async def test_found_in_either_form_wherever_it_is(self, places: Handle) -> None:
        await places.create(point("x", n=1), point("dead"))
        await places.update(point("x", n=2))
        await places.delete("dead")
        states = await places.all()
        assert len(states) == 4
        for state in states:
            for form in (state.uuid, await uuid_form(places.storage, state)):
                found = await places.storage.state(form)
                assert (found.id, found.uuid, found.xyz["version"]) == (
                    state.id,
                    state.uuid,
                    state.xyz["version"],
                )

    async def test_padded_input_is_accepted(self, places: Handle) -> None:
        await places.create(point("x"))
        uuid = (await places.get("x")).uuid
        guid = Guid.parse(uuid)
        padded = (
            f"{guid.storage_id}:{guid.collection_id}"
            f":{guid.year:04}:{guid.month:02}:{guid.day:02}:{guid.i}"
        )
        assert (await places.storage.state(padded)).uuid == uuid

    async def test_a_session_finds_its_own_states(self, places: Handle) -> None:
        async with places.storage.write(APP) as session:
            (outcome,) = await session.create(places.name, [point("x")])
            assert outcome.uuid is not None
            assert (await session.state(outcome.uuid)).id == "x"

    async def test_a_purged_tombstone_is_still_found(self, places: Handle) -> None:
        await places.create(point("x"))
        (deleted,) = await places.delete("x")
        await places.purge("x")
        assert deleted.uuid is not None
        assert (await places.storage.state(deleted.uuid)).xyz["action"] == "DELETE"

    async def test_unknown_ids_are_not_found(self, places: Handle) -> None:
        await places.create(point("x"))
        state = await places.get("x")
        guid = Guid.parse(state.uuid)
        number = (await places.storage.collection(places.name)).number
        unknown = (
            str(Guid.of(places.storage.id, places.name, state.txn, guid.i + 1_000_000)),
            str(Guid.of(places.storage.id, "no_such", state.txn, guid.i)),
            str(Guid.of("elsewhere", places.name, state.txn, guid.i)),
            str(Uuid.of_state(state.txn, number, guid.i + 1_000_000, places.storage.number)),
            str(Uuid.of_state(state.txn, 2**20 - 1, guid.i, places.storage.number)),
        )
        for wrong in unknown:
            with pytest.raises(NotFound):
                await places.storage.state(wrong)

    @pytest.mark.parametrize("text", ["", "x", "a:b:c", "a:b:2023:13:1:5", "'; --", "\0"])
    async def test_an_invalid_state_id_is_an_error(self, storage: Storage, text: str) -> None:
        with pytest.raises(NakshaError) as caught:
            await storage.state(text)
        assert isinstance(caught.value, InvalidArgument | NotFound)

    async def test_transactions_are_found_in_either_form(self, places: Handle) -> None:
        await places.create(point("x"))
        version = await published(places.storage)
        uuid = str(Uuid.of_txn(version.txn, places.storage.number))
        by_number = await places.storage.transaction(version.txn)
        assert by_number == await places.storage.transaction(uuid)
        assert by_number == await places.storage.transaction(str(version.txn))
        assert by_number.seq_number == version.seq_number
        assert seq(version).seq_number == by_number.seq_number
