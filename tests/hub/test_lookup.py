"""Lookup of states and transactions in any storage, limited by the reader's rights."""

from collections.abc import AsyncIterator
from operator import methodcaller
from pathlib import Path

import pytest

from naksha.hub.config.objects import Connector, Space, StorageObject
from naksha.hub.config.space_changes import create_space
from naksha.hub.hub import RealmHub
from naksha.hub.lookup import transaction_json
from naksha.model.errors import InvalidArgument, NotFound, Unavailable
from naksha.model.identity.guid import Guid
from naksha.model.identity.uuids import Uuid
from tests.hub.realms import (
    ADMIN,
    AS_ADMIN,
    a_feature,
    a_realm,
    acting,
    an_actor,
    find_state,
    find_transaction,
    put,
)


@pytest.fixture
async def realm(tmp_path: Path) -> AsyncIterator[RealmHub]:
    async with a_realm(tmp_path) as realm:
        location = {"location": f"file:{tmp_path}/other.naksha"}
        await realm.registry.create(StorageObject(id="other", properties=location), ADMIN)
        await create_space(realm, Space(id="a"), ADMIN)
        there = Space.from_json({"id": "b", "storage": {"id": "other"}})
        await create_space(realm, there, ADMIN)
        yield realm


async def uuid_form(realm: RealmHub, storage_id: str, guid: str, txn: int) -> str:
    storage = await realm.storage(storage_id)
    parsed = Guid.parse(guid)
    number = (await storage.collection(parsed.collection_id)).number
    return str(Uuid.of_state(txn, number, parsed.i, storage.number))


async def test_a_state_is_found_by_either_id(realm: RealmHub) -> None:
    """Both storages call themselves by the same name, so both are asked."""
    for space, storage_id in (("a", "default"), ("b", "other")):
        written = await put(realm, space, a_feature("x", n=space))
        (state,) = written.states
        assert written.txn is not None
        for id in (state.uuid, await uuid_form(realm, storage_id, state.uuid, written.txn)):
            found = await find_state(realm, id, AS_ADMIN)
            assert found.feature["properties"]["n"] == space


async def test_a_state_is_found_after_it_was_replaced(realm: RealmHub) -> None:
    (old,) = (await put(realm, "a", a_feature("x", n=1))).states
    await put(realm, "a", a_feature("x", n=2))
    assert (await find_state(realm, old.uuid, AS_ADMIN)).feature["properties"]["n"] == 1


async def test_states_are_found_only_with_the_right_to_read_the_space(realm: RealmHub) -> None:
    (state,) = (await put(realm, "a", a_feature("x"))).states
    reader = acting(an_actor(useSpaces=[{}], readFeatures=[{"spaceId": "a"}]))
    assert (await find_state(realm, state.uuid, reader)).uuid == state.uuid
    others = (
        an_actor(useSpaces=[{}], readFeatures=[{"spaceId": "b"}]),
        an_actor(readFeatures=[{"spaceId": "a"}]),
        an_actor(manageSpaces=[{}]),
    )
    for other in others:
        with pytest.raises(NotFound) as refused:
            await find_state(realm, state.uuid, acting(other))
        with pytest.raises(NotFound) as missing:
            await find_state(realm, f"{state.uuid}99", acting(other))
        assert refused.value.message.replace(state.uuid, "") == missing.value.message.replace(
            f"{state.uuid}99", ""
        )


async def test_a_second_space_is_enough_to_see_a_state(realm: RealmHub) -> None:
    (state,) = (await put(realm, "a", a_feature("x"))).states
    shown = Space(id="shown", properties={"collection": "a"}, read_only=True)
    await create_space(realm, shown, ADMIN)
    reader = acting(an_actor(useSpaces=[{}], readFeatures=[{"spaceId": "shown"}]))
    assert (await find_state(realm, state.uuid, reader)).id == "x"
    inactive = Space(id="shown", properties={"collection": "a"}, active=False)
    await realm.registry.change(Space, "shown", lambda _: inactive, ADMIN)
    with pytest.raises(NotFound):
        await find_state(realm, state.uuid, reader)


async def test_a_space_that_hides_features_hides_their_states(realm: RealmHub) -> None:
    (secret,) = (await put(realm, "a", a_feature("x", "secret"))).states
    (public,) = (await put(realm, "a", a_feature("y", "public"))).states
    await realm.registry.create(
        Connector(id="filter", class_name="tag-filter", properties={"contains": ["public"]}), ADMIN
    )
    await realm.registry.create(
        Connector(id="store", class_name="storage", properties={"collection": "a"}), ADMIN
    )
    await create_space(realm, Space(id="some", event_handler_ids=("filter", "store")), ADMIN)
    reader = acting(an_actor(useSpaces=[{}], readFeatures=[{"spaceId": "some"}]))
    assert (await find_state(realm, public.uuid, reader)).id == "y"
    with pytest.raises(NotFound):
        await find_state(realm, secret.uuid, reader)


async def test_a_space_that_shows_features_otherwise_shows_their_states_so(
    realm: RealmHub,
) -> None:
    (state,) = (await put(realm, "a", a_feature("x", name="Main", secret="s3cret"))).states
    hides = {"onRead": [{"op": "remove", "path": "properties.secret"}]}
    await realm.registry.create(
        Connector(id="hides", class_name="transform", properties=hides), ADMIN
    )
    await realm.registry.create(
        Connector(id="store", class_name="storage", properties={"collection": "a"}), ADMIN
    )
    await create_space(realm, Space(id="public", event_handler_ids=("hides", "store")), ADMIN)
    reader = acting(an_actor(useSpaces=[{}], readFeatures=[{"spaceId": "public"}]))
    found = await find_state(realm, state.uuid, reader)
    assert found.feature["properties"]["name"] == "Main"
    assert b"s3cret" not in found.raw


async def test_rights_are_those_that_the_space_asks_for(realm: RealmHub) -> None:
    """Also by storage and collection, and to some features."""
    (opened,) = (await put(realm, "a", a_feature("x", "open"))).states
    (closed,) = (await put(realm, "a", a_feature("y"))).states
    for right in ({"storageId": "default"}, {"collectionId": "a"}):
        reader = acting(an_actor(useSpaces=[{}], readFeatures=[right]))
        assert (await find_state(realm, closed.uuid, reader)).id == "y"
        assert await find_transaction(realm, str(closed.txn), "default", reader)
    elsewhere = acting(an_actor(useSpaces=[{}], readFeatures=[{"storageId": "other"}]))
    with pytest.raises(NotFound):
        await find_state(realm, closed.uuid, elsewhere)
    some = acting(an_actor(useSpaces=[{}], readFeatures=[{"tags": "open"}]))
    assert (await find_state(realm, opened.uuid, some)).id == "x"
    with pytest.raises(NotFound):
        await find_state(realm, closed.uuid, some)
    with pytest.raises(NotFound):
        await find_transaction(realm, str(opened.txn), "default", some)


async def test_versions_that_were_given_up_are_given_up(realm: RealmHub) -> None:
    (old,) = (await put(realm, "a", a_feature("x", n=1))).states
    (new,) = (await put(realm, "a", a_feature("x", n=2))).states
    last = (await put(realm, "a", a_feature("x", n=3))).version
    assert last is not None
    for oldest, is_there in ((last - 1, True), (last, False)):
        giving_up = methodcaller("without_versions_before", oldest)
        await realm.registry.change(Space, "a", giving_up, ADMIN)
        with pytest.raises(NotFound):
            await find_state(realm, old.uuid, AS_ADMIN)
        if is_there:
            assert (await find_state(realm, new.uuid, AS_ADMIN)).uuid == new.uuid
    with pytest.raises(NotFound):
        await find_state(realm, new.uuid, AS_ADMIN)


async def test_a_space_that_is_split_shows_its_states(realm: RealmHub) -> None:
    properties = {"property": "properties.kind", "collections": {"road": "roads", "rail": "rails"}}
    splits = Connector(id="split", class_name="type-splitter", properties=properties)
    await realm.registry.create(splits, ADMIN)
    await create_space(realm, Space(id="all", event_handler_ids=("split",)), ADMIN)
    (state,) = (await put(realm, "all", a_feature("x", kind="rail"))).states
    reader = acting(an_actor(useSpaces=[{}], readFeatures=[{"spaceId": "all"}]))
    assert (await find_state(realm, state.uuid, reader)).id == "x"


@pytest.mark.parametrize("id", ["", "x", "a:b", "00000000-0000-0000-0000-000000000000", "a" * 500])
async def test_invalid_ids_are_refused(realm: RealmHub, id: str) -> None:
    with pytest.raises(InvalidArgument):
        await find_state(realm, id, AS_ADMIN)
    with pytest.raises(InvalidArgument):
        await find_transaction(realm, id, None, AS_ADMIN)


async def test_a_transaction_is_found_by_number_and_by_uuid(realm: RealmHub) -> None:
    txn = (await put(realm, "a", a_feature("x"), a_feature("y"))).txn
    assert txn is not None
    uuid = str(Uuid.of_txn(txn, (await realm.storage("default")).number))
    for id, storage in ((str(txn), "default"), (uuid, None)):
        found = transaction_json(await find_transaction(realm, id, storage, AS_ADMIN))
        assert (found["txn"], found["uuid"], found["storageId"]) == (str(txn), uuid, "default")
        (changed,) = found["collections"]
        assert (changed["id"], changed["spaces"], changed["created"]) == ("a", ["a"], 2)
    with pytest.raises(NotFound):
        await find_transaction(realm, str(txn), "other", AS_ADMIN)


async def test_a_number_that_two_storages_use_is_not_guessed(realm: RealmHub) -> None:
    first, second = (await put(realm, "a", a_feature("x"))).txn, 0
    while second != first:
        assert first is not None
        second = (await put(realm, "b", a_feature(f"x{second}"))).txn or 0
        if second > first:
            first = (await put(realm, "a", a_feature(f"x{second}"))).txn
    with pytest.raises(InvalidArgument, match="default, other"):
        await find_transaction(realm, str(first), None, AS_ADMIN)
    only_b = acting(an_actor(useSpaces=[{}], readFeatures=[{"spaceId": "b"}]))
    assert (await find_transaction(realm, str(first), None, only_b)).storage_id == "other"


async def test_of_a_transaction_only_what_may_be_read_is_shown(realm: RealmHub) -> None:
    await create_space(realm, Space(id="c"), ADMIN)
    storage = await realm.storage("default")
    async with storage.write("tests") as session:
        await session.create("a", [a_feature("x")])
        await session.create("c", [a_feature("x")])
        await session.message("why", "because")
    id = str(session.txn)
    all_of_it = transaction_json(await find_transaction(realm, id, "default", AS_ADMIN))
    assert [one["id"] for one in all_of_it["collections"]] == ["a", "c"]
    assert [one["text"] for one in all_of_it["messages"]] == ["because"]
    reader = acting(an_actor(useSpaces=[{}], readFeatures=[{"spaceId": "c"}]))
    some = transaction_json(await find_transaction(realm, id, "default", reader))
    assert [one["id"] for one in some["collections"]] == ["c"]
    with pytest.raises(NotFound):
        await find_transaction(
            realm, id, None, acting(an_actor(useSpaces=[{}], readFeatures=[{"spaceId": "b"}]))
        )


async def test_a_storage_that_is_away_makes_it_unknown(realm: RealmHub, tmp_path: Path) -> None:
    (state,) = (await put(realm, "a", a_feature("x"))).states
    away = StorageObject(id="away", properties={"location": f"file:{tmp_path}/no/way.naksha"})
    await realm.registry.create(away, ADMIN)
    assert (await find_state(realm, state.uuid, AS_ADMIN)).id == "x"
    with pytest.raises(Unavailable):
        await find_state(realm, f"{state.uuid}99", AS_ADMIN)
