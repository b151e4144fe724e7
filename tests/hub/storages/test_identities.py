"""Unique ids and numbers of a catalog's storages."""

import logging
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from naksha.hub.config.objects import Identity, Space, StorageObject
from naksha.hub.config.space_changes import create_space
from naksha.hub.hub import Hub, RealmHub
from naksha.hub.storages.changes import create_storage, replace_storage
from naksha.hub.storages.identities import identity_of
from naksha.model.errors import Conflict, NotFound
from naksha.model.identity.guid import Guid
from naksha.model.identity.uuids import Uuid
from naksha.model.query import Query
from naksha.model.state import State
from naksha.sqlite import SqliteStorage
from tests.hub.realms import ADMIN, AS_ADMIN, a_feature, a_hub, find_state, find_transaction, put
from tests.hub.test_lookup import uuid_form


@pytest.fixture
async def hub(tmp_path: Path) -> AsyncIterator[Hub]:
    async with a_hub(tmp_path, files=tmp_path) as hub:
        yield hub


@pytest.fixture
async def realm(hub: Hub) -> RealmHub:
    return await hub.realm("default")


def a_storage(id: str, location: str | None = None, **more: Any) -> StorageObject:
    return StorageObject(id=id, properties={"location": location or f"file:{id}.naksha", **more})


async def roads_in(realm: RealmHub, storage: str, space: str) -> State:
    """The state of the feature `x` in a new space, in the collection `roads` of a storage."""
    there = {"id": space, "storage": {"id": storage}, "properties": {"collection": "roads"}}
    await create_space(realm, Space.from_json(there), ADMIN)
    (state,) = (await put(realm, space, a_feature("x", n=space))).states
    return state


async def test_storages_are_called_by_their_names(hub: Hub, realm: RealmHub) -> None:
    assert (await realm.storage("default")).id == "default"
    for name, id in (("maps", "maps"), ("My.Maps", "my-maps"), ("my-maps", "my-maps-2")):
        made = await create_storage(realm, a_storage(name), ADMIN)
        storage = await realm.storage(name)
        assert storage.id == id
        assert made.identity == identity_of(storage)
        assert made.to_json()["identity"] == {"id": id, "number": storage.number, "formerIds": ()}
    other = await hub.set_up_realm("other")
    assert (await other.storage("default")).id == "other-default"
    await create_storage(other, a_storage("maps", "file:others.naksha"), ADMIN)
    assert (await other.storage("maps")).id == "other-maps"


async def test_states_of_two_storages_have_different_ids(realm: RealmHub) -> None:
    for name in ("one", "two"):
        await create_storage(realm, a_storage(name), ADMIN)
    states = {name: await roads_in(realm, name, f"in-{name}") for name in ("one", "two")}
    assert len({state.uuid for state in states.values()}) == 2
    for name, state in states.items():
        for id in (state.uuid, await uuid_form(realm, name, state.uuid, state.txn)):
            found = await find_state(realm, id, AS_ADMIN)
            assert found.feature["properties"]["n"] == f"in-{name}"
    # What was read from one can be written into the other.
    two = await realm.storage("two")
    await two.run(lambda s: s.upsert("roads", [states["one"].feature]), "app")
    (state,) = (await two.page("roads", Query(limit=10))).states
    assert (state.feature["properties"]["n"], state.xyz["version"]) == ("in-one", 2)


@pytest.mark.parametrize("check", [True, False])
async def test_a_storage_that_is_not_opened_yet_has_its_id(realm: RealmHub, check: bool) -> None:
    made = await create_storage(realm, a_storage("later"), ADMIN, is_tried=check)
    assert made.identity is not None
    assert made.identity.id == "later"
    storage = await realm.storage("later")
    assert storage.identity.key == (made.identity.id, made.identity.number)


async def test_a_client_cannot_choose_the_identity_of_another(realm: RealmHub) -> None:
    """Neither as it is shown nor by options of the backend."""
    sent = a_storage("maps").to_json() | {"identity": {"id": "mine", "number": 5}}
    assert StorageObject.from_json(sent).identity is None
    made = await create_storage(realm, a_storage("one", storageId="given", number=12), ADMIN)
    assert made.identity == Identity(id="given", number=12)
    refused: dict[str, dict[str, Any]] = {"two": {"storageId": "given"}, "three": {"number": 12}}
    for name, options in refused.items():
        with pytest.raises(Conflict, match="the storage 'one' has the same id or number"):
            await create_storage(realm, a_storage(name, **options), ADMIN)
        assert await realm.registry.find(StorageObject, name) is None


async def copied(realm: RealmHub, tmp_path: Path, name: str = "copy") -> Path:
    """A copy of the default storage, which is closed for it."""
    await realm.storage("default")
    source = await SqliteStorage.open(tmp_path / "default.naksha")
    copy = tmp_path / f"{name}.naksha"
    await source.close()
    for suffix in ("", "-wal"):
        if (path := tmp_path / f"default.naksha{suffix}").exists():
            shutil.copy(path, f"{copy}{suffix}")
    return copy


async def test_a_copy_is_not_registered_until_it_is_forked(
    hub: Hub, realm: RealmHub, tmp_path: Path
) -> None:
    copy = await copied(realm, tmp_path)
    other = await hub.set_up_realm("other")
    for where, name in ((realm, "the storage 'default'"), (other, "another realm's storage")):
        with pytest.raises(Conflict, match=rf"{name}.*naksha storage fork"):
            await create_storage(where, a_storage("copy"), ADMIN)
        assert await where.registry.find(StorageObject, "copy") is None
    await SqliteStorage.fork(copy)
    made = await create_storage(realm, a_storage("copy"), ADMIN)
    assert made.identity is not None
    assert (made.identity.id, made.identity.former_ids) == ("copy", ("default",))


async def test_existing_duplicates_are_used_with_a_warning(
    realm: RealmHub, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As the catalog of an earlier release has them: it knows no ids."""
    mine = await roads_in(realm, "default", "mine")
    await copied(realm, tmp_path)
    await realm.registry.create(a_storage("copy"), ADMIN)
    with caplog.at_level(logging.WARNING):
        await realm.storage("copy")
    assert "copy and default" in caplog.text
    assert "naksha storage fork" in caplog.text
    caplog.clear()
    await realm.storage("copy")
    assert caplog.text == ""
    kept = await realm.registry.snapshot_now()
    found = await kept.get("storage/copy", StorageObject)
    assert found is not None
    assert found.value.identity == identity_of(await realm.storage("copy"))

    assert (await find_state(realm, mine.uuid, AS_ADMIN)).uuid == mine.uuid  # only one is shown
    there = {"id": "theirs", "storage": {"id": "copy"}, "properties": {"collection": "roads"}}
    await create_space(realm, Space.from_json(there), ADMIN)
    uuid = await uuid_form(realm, "default", mine.uuid, mine.txn)
    for id in (mine.uuid, uuid):
        with pytest.raises(Conflict, match="'copy' and 'default'"):
            await find_state(realm, id, AS_ADMIN)
        assert (await find_state(realm, id, AS_ADMIN, "copy")).uuid == mine.uuid
    number = (await realm.storage("default")).number
    with pytest.raises(Conflict, match="'copy' and 'default'"):
        await find_transaction(realm, str(Uuid.of_txn(mine.txn, number)), None, AS_ADMIN)


async def test_the_original_comes_before_its_fork(
    hub: Hub, realm: RealmHub, tmp_path: Path
) -> None:
    old = await roads_in(realm, "default", "mine")
    uuid = await uuid_form(realm, "default", old.uuid, old.txn)
    await SqliteStorage.fork(await copied(realm, tmp_path))
    await create_storage(realm, a_storage("copy"), ADMIN)
    new = await roads_in(realm, "copy", "theirs")
    assert Guid.parse(new.uuid).storage_id == "copy"
    await put(realm, "mine", a_feature("x", n="changed"))
    for id in (old.uuid, uuid):
        found = await find_state(realm, id, AS_ADMIN)
        ended = (await (await realm.storage("default")).state(id)).xyz["txn_next"]
        assert found.xyz["txn_next"] == ended
        in_copy = await find_state(realm, id, AS_ADMIN, "copy")
        assert in_copy.feature["properties"]["n"] == "mine"
    txn = str(Uuid.of_txn(old.txn, (await realm.storage("default")).number))
    assert (await find_transaction(realm, txn, None, AS_ADMIN)).storage_id == "default"
    assert (await find_transaction(realm, txn, "copy", AS_ADMIN)).number == (
        (await realm.storage("default")).number
    )
    with pytest.raises(NotFound):
        await find_state(realm, new.uuid, AS_ADMIN, "default")


async def test_a_storage_that_is_moved_is_another_one(realm: RealmHub, tmp_path: Path) -> None:
    made = await create_storage(realm, a_storage("maps"), ADMIN)
    same = await replace_storage(realm, a_storage("maps", busy_s=5.0), ADMIN, is_tried=False)
    assert same.identity == made.identity
    for check in (True, False):
        place = f"file:elsewhere-{check}.naksha"
        moved = await replace_storage(realm, a_storage("maps", place), ADMIN, is_tried=check)
        assert moved.identity is not None
        assert made.identity is not None
        assert moved.identity.id != made.identity.id
        assert moved.identity.number != made.identity.number
        made = moved
    shutil.copy(tmp_path / "elsewhere-True.naksha", tmp_path / "again.naksha")
    again = await replace_storage(realm, a_storage("maps", "file:again.naksha"), ADMIN)
    assert again.identity is not None
    assert again.identity.id == "maps-2"
