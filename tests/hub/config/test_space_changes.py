"""Spaces and their collections: creation, separation, and removal of unused collections."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from naksha.hub.config.objects import Connector, Space, StorageObject, patched, replaced
from naksha.hub.config.provenance import add_provenance
from naksha.hub.config.registry import Registry
from naksha.hub.config.space_changes import (
    change_connector,
    change_space,
    create_space,
    remove_space,
)
from naksha.hub.config.space_collections import derived_collection_id, scope_of
from naksha.hub.hub import RealmHub
from naksha.hub.pipeline.requests import ReadFeatures
from naksha.hub.render.space_contents import content_updated_at, sizes
from naksha.model import limits
from naksha.model.collection import CollectionInfo
from naksha.model.errors import CollectionNotFound, InUse, InvalidArgument, NotFound, Unavailable
from naksha.model.identity.names import check_collection_id
from naksha.versioning import Attribution, NameScope, branches, create_branch, create_tag, tags
from tests.hub.realms import ADMIN, AS_ADMIN, a_feature, a_realm, an_actor, put

SIGNED = Attribution("tests")


@pytest.fixture
async def realm(tmp_path: Path) -> AsyncIterator[RealmHub]:
    async with a_realm(tmp_path) as realm:
        yield realm


async def collection_of(realm: RealmHub, id: str) -> CollectionInfo:
    storage = await realm.storage("default")
    return await storage.collection(id, dropped=True)


async def ids_in(realm: RealmHub, space: str) -> list[str]:
    answer = await realm.send(space, ReadFeatures(), AS_ADMIN)
    return sorted(state.id for state in await answer.all())


def patching(patch: dict[str, Any]) -> Callable[[Space], Space]:
    return lambda old: patched(Space, old, patch)


# ---- Names ---------------------------------------------------------------------------------------


def test_collections_of_spaces_have_names_of_their_own() -> None:
    ids = [
        "roads",
        "Roads",
        "ROADS",
        "roads.v1",
        "roads-v1",
        "_roads",
        "roads_hst",
        "1",
        "-",
        "x" * 255,
    ]
    derived = [derived_collection_id(id) for id in ids]
    assert derived[0] == "roads"
    # Spaces that are called as the collections of others.
    again = [derived_collection_id(id) for id in derived]
    thrice = [derived_collection_id(id) for id in again]
    everything = {*derived, *again[1:], *thrice[1:]}
    own = [id for id in derived if id in ids]
    assert len(everything) == 3 * len(ids) - 2 - 2 * (len(own) - 1)
    for id in everything:
        check_collection_id(id)
    assert derived_collection_id("roads", "salt") != derived_collection_id("roads", "pepper")


async def test_a_space_that_is_called_like_the_collection_of_another_has_its_own(
    realm: RealmHub,
) -> None:
    await create_space(realm, Space(id="Roads"), ADMIN)
    twin = derived_collection_id("Roads")
    await create_space(realm, Space(id=twin), ADMIN)
    await put(realm, "Roads", a_feature("a"))
    assert await ids_in(realm, twin) == []
    await put(realm, twin, a_feature("b"))
    assert await ids_in(realm, "Roads") == ["a"]


async def test_the_collection_is_made_with_the_space(realm: RealmHub) -> None:
    made = await create_space(realm, Space(id="roads", versions_to_keep=1), ADMIN)
    assert made.collection_id == "roads"
    assert (await collection_of(realm, "roads")).history_enabled is False
    named = Space(id="b", properties={"collection": {"id": "streets", "maxAge": 7}})
    await create_space(realm, named, ADMIN)
    assert (await collection_of(realm, "streets")).max_age == 7


async def test_partitions_are_a_setting_that_only_grows(realm: RealmHub, database: str) -> None:
    place = StorageObject(id="pg", properties={"location": database})
    await realm.registry.create(place, ADMIN)
    connector = Connector(id="c", class_name="storage", properties={"storageId": "pg"})
    await realm.registry.create(connector, ADMIN)

    async def partitions(id: str) -> int:
        return (await (await realm.storage("pg")).collection(id)).partitions

    await create_space(realm, Space(id="light", event_handler_ids=("c",)), ADMIN)
    assert await partitions("light") == 1
    large = {"collection": {"id": "large", "partitions": 16}}
    made = Space(id="b", event_handler_ids=("c",), properties=large)
    await create_space(realm, made, ADMIN)
    assert await partitions("large") == 16
    await put(realm, "light", a_feature("a"))
    grown = {"properties": {"collection": {"id": "light", "partitions": 16}}}
    await change_space(realm, "light", patching(grown), ADMIN)
    assert await partitions("light") == 16
    assert await ids_in(realm, "light") == ["a"]
    fewer = {"properties": {"collection": {"id": "light", "partitions": 1, "maxAge": 9}}}
    await change_space(realm, "light", patching(fewer), ADMIN)
    assert await partitions("light") == 16
    wrong = {"properties": {"collection": {"id": "light", "partitions": 2}}}
    with pytest.raises(InvalidArgument, match="1 or 16"):
        await change_space(realm, "light", patching(wrong), ADMIN)


async def test_a_connector_may_refer_to_a_collection_that_others_manage(realm: RealmHub) -> None:
    properties = {"autoCreateCollection": False, "autoDeleteCollection": False}
    connector = Connector(id="c", class_name="storage", properties=properties)
    await realm.registry.create(connector, ADMIN)
    await create_space(realm, Space(id="a", event_handler_ids=("c",)), ADMIN)
    with pytest.raises(CollectionNotFound):
        await collection_of(realm, "a")
    await create_space(realm, Space(id="maker", properties={"collection": "a"}), ADMIN)
    await remove_space(realm, "maker", ADMIN)
    await remove_space(realm, "a", ADMIN)
    assert (await collection_of(realm, "a")).delete_at == 0


async def test_existing_collections_are_adopted_with_storage_rights_only(realm: RealmHub) -> None:
    storage = await realm.storage("default")

    async def make(id: str) -> None:
        async with storage.write("loader") as session:
            await session.create_collection(CollectionInfo(id=id))
            await session.create(id, [a_feature("secret")])

    await make("loaded")
    await make("hidden")
    await create_space(realm, Space(id="loaded"), ADMIN)
    assert await ids_in(realm, "loaded") == ["secret"]
    made = await create_space(realm, Space(id="hidden"), an_actor(manageSpaces=[{}]))
    assert made.collection_id != "hidden"
    assert await ids_in(realm, "hidden") == []
    await put(realm, "hidden", a_feature("own"))
    assert await ids_in(realm, "hidden") == ["own"]


async def test_a_client_cannot_say_which_collection_is_its_own(realm: RealmHub) -> None:
    await create_space(realm, Space(id="a"), ADMIN)
    made = await create_space(realm, Space(id="b", collection_id="a"), ADMIN)
    assert made.collection_id == "b"
    changed = await change_space(
        realm, "b", lambda old: patched(Space, old, {"collectionId": "a", "title": "T"}), ADMIN
    )
    assert (changed.collection_id, changed.title) == ("b", "T")


# ---- Removing ------------------------------------------------------------------------------------


async def test_a_collection_is_dropped_with_its_last_space(realm: RealmHub) -> None:
    await create_space(realm, Space(id="a"), ADMIN)
    await create_space(realm, Space(id="b", properties={"collection": "a"}, read_only=True), ADMIN)
    stores = Connector(id="c", class_name="storage", properties={"collection": "a"})
    await realm.registry.create(stores, ADMIN)
    await create_space(realm, Space(id="d", event_handler_ids=("c",)), ADMIN)
    storage = await realm.storage("default")
    written = (await storage.publication()).last_txn
    for id in ("a", "d"):
        await remove_space(realm, id, ADMIN)
        assert (await collection_of(realm, "a")).delete_at == 0
    assert (await storage.publication()).last_txn == written, "not even for a moment"
    before = int(time.time() * 1000)
    await remove_space(realm, "b", ADMIN)
    delete_at = (await collection_of(realm, "a")).delete_at
    grace_ms = limits.SPACE_GRACE_SECONDS * 1000
    assert before + grace_ms <= delete_at <= time.time() * 1000 + grace_ms


async def test_a_split_space_drops_unshared_collections(realm: RealmHub) -> None:
    properties = {"property": "properties.kind", "collections": {"road": "roads", "rail": "rails"}}
    splits = Connector(id="split", class_name="type-splitter", properties=properties)
    await realm.registry.create(splits, ADMIN)
    await create_space(realm, Space(id="all", event_handler_ids=("split",)), ADMIN)
    await create_space(realm, Space(id="trains", properties={"collection": "rails"}), ADMIN)
    await put(realm, "all", a_feature("a", kind="road"), a_feature("b", kind="rail"))
    assert await ids_in(realm, "trains") == ["b"]
    await remove_space(realm, "all", ADMIN)
    assert (await collection_of(realm, "roads")).delete_at > 0
    assert (await collection_of(realm, "rails")).delete_at == 0
    await remove_space(realm, "trains", ADMIN)
    assert (await collection_of(realm, "rails")).delete_at > 0


async def test_a_view_drops_nothing_and_keeps_its_spaces(realm: RealmHub) -> None:
    for id in ("top", "base"):
        await create_space(realm, Space(id=id), ADMIN)
    properties = {"spaceIds": ["top", "base"]}
    view = Connector(id="view", class_name="view", properties=properties)
    await realm.registry.create(view, ADMIN)
    await create_space(realm, Space(id="both", event_handler_ids=("view",)), ADMIN)
    with pytest.raises(InUse, match="connector 'view'"):
        await remove_space(realm, "base", ADMIN)
    await remove_space(realm, "both", ADMIN)
    assert (await collection_of(realm, "base")).delete_at == 0


async def test_a_space_of_the_same_id_begins_empty(realm: RealmHub) -> None:
    await create_space(realm, Space(id="a"), ADMIN)
    await put(realm, "a", a_feature("old"))
    await remove_space(realm, "a", ADMIN)
    made = await create_space(realm, Space(id="a"), ADMIN)
    assert made.collection_id != "a"
    assert await ids_in(realm, "a") == []


async def test_a_collection_is_restored_by_a_space_that_names_it(realm: RealmHub) -> None:
    await create_space(realm, Space(id="a"), ADMIN)
    await put(realm, "a", a_feature("old"))
    await remove_space(realm, "a", ADMIN)
    await create_space(realm, Space(id="b", properties={"collection": "a"}), ADMIN)
    assert (await collection_of(realm, "a")).delete_at == 0
    assert await ids_in(realm, "b") == ["old"]


async def test_a_collection_may_be_kept(realm: RealmHub) -> None:
    await create_space(realm, Space(id="a"), ADMIN)
    await remove_space(realm, "a", ADMIN, keeps_collection=True)
    assert (await collection_of(realm, "a")).delete_at == 0


async def test_a_collection_that_is_needed_again_meanwhile_stays(
    realm: RealmHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A space that names it is made after the commit that removes the last one, and before the
    collection is dropped."""
    await create_space(realm, Space(id="a"), ADMIN)
    await put(realm, "a", a_feature("x"))
    removing = Registry.remove_space

    async def removed_and_then(self: Registry, *given: object, **more: object) -> object:
        removed = await removing(self, *given, **more)  # type: ignore[arg-type]
        await create_space(realm, Space(id="b", properties={"collection": "a"}), ADMIN)
        return removed

    monkeypatch.setattr(Registry, "remove_space", removed_and_then)
    await remove_space(realm, "a", ADMIN)
    assert (await collection_of(realm, "a")).delete_at == 0
    assert await ids_in(realm, "b") == ["x"]


async def test_spaces_come_and_go_at_once_and_the_last_one_drops(realm: RealmHub) -> None:
    for _ in range(3):
        ids = [f"s{n}" for n in range(5)]
        named = {"collection": "shared"}
        await asyncio.gather(
            *(create_space(realm, Space(id=id, properties=named), ADMIN) for id in ids)
        )
        await asyncio.gather(*(remove_space(realm, id, ADMIN) for id in ids))
        assert (await collection_of(realm, "shared")).delete_at > 0


async def test_tags_and_branches_go_with_the_space(realm: RealmHub) -> None:
    await create_space(realm, Space(id="a"), ADMIN)
    await create_space(realm, Space(id="b", properties={"collection": "a"}), ADMIN)
    await put(realm, "a", a_feature("x"))
    storage = await realm.storage("default")
    for id in ("a", "b"):
        scope = NameScope(space=scope_of("default", id), collections=("a",))
        await create_tag(storage, "summer", SIGNED, scope=scope)
        await create_branch(storage, "fix", SIGNED, scope=scope)
        await create_branch(storage, "above", SIGNED, "fix:HEAD", scope=scope)
    await remove_space(realm, "a", ADMIN)
    gone, left = scope_of("default", "a"), scope_of("default", "b")
    assert await tags(storage, space=gone) == []
    assert await branches(storage, space=gone) == []
    assert len(await tags(storage, space=left)) == 1
    assert len(await branches(storage, space=left)) == 2
    await remove_space(realm, "b", ADMIN)
    assert (await collection_of(realm, "a")).delete_at > 0, "nothing guards it any more"


async def test_a_space_whose_storage_is_away_is_removed_only_alone(
    realm: RealmHub, tmp_path: Path
) -> None:
    gone = StorageObject(id="gone", properties={"location": f"file:{tmp_path}/no/way.naksha"})
    await realm.registry.create(gone, ADMIN)
    space = Space.from_json({"id": "a", "storage": {"id": "gone"}})
    await realm.registry.create(space, ADMIN)
    with pytest.raises(Unavailable, match="keepCollection"):
        await remove_space(realm, "a", ADMIN)
    assert await realm.registry.find(Space, "a") is not None
    await remove_space(realm, "a", ADMIN, keeps_collection=True)
    with pytest.raises(NotFound):
        await realm.registry.get(Space, "a")


# ---- Changing ------------------------------------------------------------------------------------


async def test_history_is_switched_with_the_versions_to_keep(realm: RealmHub) -> None:
    await create_space(realm, Space(id="a"), ADMIN)
    await put(realm, "a", a_feature("x"))
    for versions, is_on in [(1, False), (100, True), (None, True), (1, False)]:
        patch = {"versionsToKeep": versions}
        await change_space(realm, "a", patching(patch), ADMIN)
        assert (await collection_of(realm, "a")).history_enabled is is_on
    days = {"properties": {"collection": {"maxAge": 30}}}
    await change_space(realm, "a", patching(days), ADMIN)
    assert (await collection_of(realm, "a")).max_age == 30


async def test_a_change_that_the_storage_refuses_is_not_made(realm: RealmHub) -> None:
    await create_space(realm, Space(id="a"), ADMIN)
    await put(realm, "a", a_feature("x"))
    scope = NameScope(space=scope_of("default", "a"), collections=("a",))
    await create_tag(await realm.storage("default"), "summer", SIGNED, scope=scope)
    before = await realm.registry.get(Space, "a")
    with pytest.raises(InUse):
        await change_space(
            realm, "a", lambda old: patched(Space, old, {"versionsToKeep": 1}), ADMIN
        )
    assert await realm.registry.get(Space, "a") == before
    assert (await collection_of(realm, "a")).history_enabled is True


async def test_a_connector_change_reaches_the_collections_of_all_its_spaces(
    realm: RealmHub,
) -> None:
    def storing(**settings: Any) -> Connector:
        return Connector(id="c", class_name="storage", properties={"collection": settings})

    await realm.registry.create(storing(), ADMIN)
    for id in ("a", "b"):
        await create_space(realm, Space(id=id, event_handler_ids=("c",)), ADMIN)
    await change_connector(realm, "c", lambda _: storing(maxAge=9), ADMIN)
    assert [(await collection_of(realm, id)).max_age for id in ("a", "b")] == [9, 9]
    await change_connector(realm, "c", lambda _: storing(id="shared"), ADMIN)
    assert (await collection_of(realm, "shared")).id == "shared"
    await put(realm, "a", a_feature("x"))
    assert await ids_in(realm, "b") == ["x"]
    scope = NameScope(space=scope_of("default", "a"), collections=("shared",))
    await create_tag(await realm.storage("default"), "summer", SIGNED, scope=scope)
    off = storing(id="shared", historyEnabled=False)
    with pytest.raises(InUse):
        await change_connector(realm, "c", lambda _: off, ADMIN)
    kept = await realm.registry.get(Connector, "c")
    assert kept.properties == {"collection": {"id": "shared"}}


async def test_a_space_gets_a_collection_where_it_is_moved_to(
    realm: RealmHub, tmp_path: Path
) -> None:
    other = StorageObject(id="other", properties={"location": f"file:{tmp_path}/other.naksha"})
    await realm.registry.create(other, ADMIN)
    await create_space(realm, Space(id="a"), ADMIN)
    patch = {"storage": {"id": "other"}}
    await change_space(realm, "a", lambda old: patched(Space, old, patch), ADMIN)
    assert (await (await realm.storage("other")).collection("a")).id == "a"
    assert (await collection_of(realm, "a")).delete_at == 0


# ---- Contents ------------------------------------------------------------------------------------


async def test_it_is_known_when_the_content_was_changed(realm: RealmHub) -> None:
    made = await create_space(realm, Space(id="a"), ADMIN)
    await create_space(realm, Space(id="other"), ADMIN)
    assert await content_updated_at(realm, made) == made.created_at
    before = int(time.time() * 1000)
    await put(realm, "a", a_feature("x"))
    changed = await content_updated_at(realm, made)
    assert before <= changed <= time.time() * 1000
    await put(realm, "other", a_feature("x"))
    # A changed setting does not change the content.
    for days in range(limits.LOG_LOOKBACK_PAGE + 2):
        patch = {"properties": {"collection": {"maxAge": days}}}
        await change_space(realm, "a", patching(patch), ADMIN)
    assert await content_updated_at(realm, made) == changed
    await put(realm, "a", a_feature("x"))
    assert await content_updated_at(realm, made) == changed, "nothing was changed"
    await put(realm, "a", a_feature("x", "new"))
    assert await content_updated_at(realm, made) > changed


async def test_sizes_are_reported(realm: RealmHub) -> None:
    spaces = [
        await create_space(realm, Space(id="a"), ADMIN),
        await create_space(realm, Space(id="b", properties={"collection": "a"}), ADMIN),
        await create_space(realm, Space(id="empty"), ADMIN),
    ]
    await put(realm, "a", *(a_feature(f"f{n}") for n in range(7)))
    counts = [(size.feature_count, size.estimated) for size in await sizes(realm, spaces)]
    assert counts == [(7, False), (7, False), (0, False)]
    await (await realm.storage("default")).maintain()
    estimates = await sizes(realm, spaces)
    assert [(size.feature_count, size.estimated) for size in estimates] == [
        (7, True),
        (7, True),
        (0, True),
    ]
    assert (estimates[0].byte_size or 0) > 0


# ---- Provenance ----------------------------------------------------------------------------------


async def test_loads_are_noted_and_the_oldest_go(realm: RealmHub) -> None:
    await create_space(realm, Space(id="a"), ADMIN)
    await asyncio.gather(
        *(
            add_provenance(realm, "a", {"source": f"file {n}"}, ADMIN)
            for n in range(limits.PROVENANCE_MAX)
        )
    )
    last = await add_provenance(
        realm, "a", {"source": "last", "by": "another app", "counts": {"inserted": 3}}, ADMIN
    )
    assert (last["by"], last["counts"]) == ("tests", {"inserted": 3})
    kept = (await realm.registry.get(Space, "a")).provenance
    assert len(kept) == limits.PROVENANCE_MAX
    assert kept[-1] == last
    with pytest.raises(InvalidArgument):
        await add_provenance(realm, "a", {"tool": "x"}, ADMIN)


async def test_versions_that_were_given_up_do_not_come_back(realm: RealmHub) -> None:
    await create_space(realm, Space(id="a", min_version=3), ADMIN)
    for change in (
        lambda old: patched(Space, old, {"minVersion": 1}),
        lambda old: patched(Space, old, {"minVersion": None}),
        lambda old: replaced(Space, old, {"id": "a", "title": "A"}),
    ):
        assert (await change_space(realm, "a", change, ADMIN)).min_version == 3
    raised = await change_space(
        realm, "a", lambda old: patched(Space, old, {"minVersion": 5}), ADMIN
    )
    assert raised.min_version == 5
