"""The configuration of a realm: references, objects still in use, and rights to change it."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from naksha.hub.auth.rights import all_rights, parse_rights
from naksha.hub.config.objects import (
    Connector,
    Extends,
    HubObject,
    Role,
    Space,
    StorageChoice,
    StorageObject,
    patched,
)
from naksha.hub.hub import RealmHub
from naksha.hub.pipeline.request_context import Actor, UsageLimits
from naksha.model.errors import (
    Conflict,
    Forbidden,
    InUse,
    InvalidArgument,
    LimitExceeded,
    NotFound,
    PreconditionFailed,
)
from tests.hub.realms import ADMIN, a_realm, an_actor


@pytest.fixture
async def realm(tmp_path: Path) -> AsyncIterator[RealmHub]:
    async with a_realm(tmp_path) as realm:
        yield realm


def a_connector(id: str = "c", class_name: str = "storage", **properties: Any) -> Connector:
    return Connector(id=id, class_name=class_name, properties=properties)


def becoming(now: Connector) -> Callable[[Connector], Connector]:
    return lambda _: now


# ---- Objects -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "value", "field"),
    [
        (Space, {"id": "a/b"}, "id"),
        (Space, {"id": ""}, "id"),
        (Space, {"id": "x" * 256}, "id"),
        (Space, {"id": 7}, "id"),
        (Space, {"id": "a", "title": 7}, "title"),
        (Space, {"id": "a", "storage": {}}, "storage.id"),
        (Space, {"id": "a", "storage": {"id": 7}}, "storage.id"),
        (Space, {"id": "a", "versionsToKeep": 0}, "versionsToKeep"),
        (Space, {"id": "a", "minVersion": -1}, "minVersion"),
        (Space, {"id": "a", "tags": ["a", ""]}, "tags[1]"),
        (Space, {"id": "a", "tags": ["x"] * 101}, "tags"),
        (Space, {"id": "a", "eventHandlerIds": ["x"] * 33}, "eventHandlerIds"),
        (Space, {"id": "a", "provenance": [{"tool": "x"}]}, "provenance[0].source"),
        (Space, {"id": "a", "provenance": [{"source": "x"}] * 101}, "provenance"),
        (Connector, {"id": "a"}, "className"),
        (Connector, {"id": "a", "className": "storage", "properties": []}, "properties"),
        (Role, {"id": "a", "urm": {"naksha": {"readFeatures": 7}}}, "urm.naksha.readFeatures"),
        (Role, {"id": "a", "urm": {"naksha": {"roles": ["b"]}}}, "urm"),
    ],
)
def test_errors_name_the_invalid_member(
    kind: type[HubObject], value: dict[str, Any], field: str
) -> None:
    with pytest.raises(InvalidArgument) as refused:
        kind.from_json(value)
    assert refused.value.field == field


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ({"title": 7}, "Expected `string`, got `integer`"),
        ({"tags": {}}, "Expected `array`, got `object`"),
        ({"readOnly": "int"}, "Expected `boolean`, got `string`"),
    ],
)
def test_errors_name_the_types_of_json(members: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        Space.from_json({"id": "a", **members})
    assert message in refused.value.message


def test_an_object_is_not_too_large() -> None:
    with pytest.raises(LimitExceeded):
        Space.from_json({"id": "a", "note": "x" * 300_000})
    with pytest.raises(LimitExceeded):
        Space.from_json({"id": "a", "provenance": [{"source": "x" * 3_000}]})


def test_unknown_members_are_kept_and_computed_ones_dropped() -> None:
    given = {"id": "a", "cid": "x", "nested": {"b": [1]}, "contentUpdatedAt": 5, "rights": []}
    shown = Space.from_json(given).to_json()
    assert (shown["cid"], shown["nested"]) == ("x", {"b": [1]})
    assert "contentUpdatedAt" not in shown
    assert "rights" not in shown
    assert Space.from_json(shown).to_json() == shown


def test_a_merge_patch_takes_away_with_null() -> None:
    space = Space.from_json(
        {"id": "a", "title": "T", "storage": {"id": "s"}, "x": {"b": 1, "c": 2}}
    )
    now = patched(Space, space, {"storage": None, "x": {"b": None}, "readOnly": True})
    assert (now.storage, now.extra, now.read_only, now.title) == (None, {"x": {"c": 2}}, True, "T")
    with pytest.raises(InvalidArgument):
        patched(Space, space, {"id": "b"})


# ---- Names ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("thing", "field"),
    [
        (Space(id="a", event_handler_ids=("none",)), "eventHandlerIds[0]"),
        (Space(id="a", storage=StorageChoice("none")), "storage.id"),
        (Space(id="a", extends=Extends("none")), "extends.spaceId"),
        (a_connector(storageId="none"), "properties.storageId"),
        (
            a_connector(class_name="read-only", deep=[{"spaceId": "x"}]),
            "properties.deep[0].spaceId",
        ),
        (a_connector(class_name="read-only", spaceIds=["x"]), "properties.spaceIds[0]"),
    ],
)
async def test_references_must_exist(realm: RealmHub, thing: HubObject, field: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        await realm.registry.create(thing, ADMIN)
    assert refused.value.field == field
    assert await realm.registry.find(type(thing), thing.id) is None


async def test_a_space_cannot_be_below_itself(realm: RealmHub) -> None:
    await realm.registry.create(Space(id="a"), ADMIN)
    with pytest.raises(InvalidArgument):
        await realm.registry.change(
            Space, "a", lambda _: Space(id="a", extends=Extends("a")), ADMIN
        )


async def test_views_cannot_be_made_of_each_other(realm: RealmHub) -> None:
    """Neither directly nor by way of others, nor by a connector that is changed later."""
    registry = realm.registry
    await registry.create(Space(id="base"), ADMIN)
    await registry.create(a_connector("v1", "view", spaceIds=["base"]), ADMIN)
    await registry.create(Space(id="one", event_handler_ids=("v1",)), ADMIN)
    await registry.create(a_connector("v2", "view", spaceIds=["one"]), ADMIN)
    await registry.create(Space(id="two", event_handler_ids=("v2",)), ADMIN)
    await registry.create(Space(id="three", extends=Extends("two")), ADMIN)
    for id in ("one", "two", "three"):
        round_about = a_connector("v1", "view", spaceIds=["base", id])
        with pytest.raises(InvalidArgument) as refused:
            await registry.change(Connector, "v1", becoming(round_about), ADMIN)
        assert refused.value.field == "properties.spaceIds[1]"
    with pytest.raises(InvalidArgument) as refused:
        await registry.change(
            Space, "base", lambda _: Space(id="base", extends=Extends("three")), ADMIN
        )
    assert refused.value.field == "extends.spaceId"


async def test_referenced_objects_cannot_be_removed(realm: RealmHub, tmp_path: Path) -> None:
    location = {"location": f"file:{tmp_path}/other.naksha"}
    await realm.registry.create(StorageObject(id="s", properties=location), ADMIN)
    await realm.registry.create(Space(id="below"), ADMIN)
    await realm.registry.create(a_connector("stores", storageId="s"), ADMIN)
    await realm.registry.create(a_connector("names", "read-only", spaceId="below"), ADMIN)
    await realm.registry.create(Space(id="top", event_handler_ids=("names", "stores")), ADMIN)
    needed: list[tuple[type[HubObject], str, str]] = [
        (StorageObject, "s", "connector 'stores'"),
        (StorageObject, "default", "space 'below'"),
        (Connector, "stores", "space 'top'"),
        (Space, "below", "connector 'names'"),
    ]
    for kind, id, user in needed:
        with pytest.raises(InUse, match=user):
            await realm.registry.remove(kind, id, ADMIN)
    free: list[tuple[type[HubObject], str]] = [
        (Space, "top"),
        (Connector, "names"),
        (Connector, "stores"),
        (StorageObject, "s"),
        (Space, "below"),
    ]
    for kind, id in free:
        await realm.registry.remove(kind, id, ADMIN)


async def test_one_of_a_creation_and_a_removal_wins(realm: RealmHub) -> None:
    """In either order, no reference to a missing object remains."""
    for number in range(20):
        await realm.registry.create(a_connector(f"c{number}"), ADMIN)
        space = Space(id=f"s{number}", event_handler_ids=(f"c{number}",))
        made, removed = await asyncio.gather(
            realm.registry.create(space, ADMIN),
            realm.registry.remove(Connector, f"c{number}", ADMIN),
            return_exceptions=True,
        )
        assert isinstance(made, InvalidArgument) or isinstance(removed, InUse)
        assert isinstance(made, Space) or isinstance(removed, Connector)


async def test_two_changes_at_once_are_both_done(realm: RealmHub) -> None:
    await realm.registry.create(Space(id="a"), ADMIN)

    async def tag(name: str) -> None:
        await realm.registry.change(
            Space, "a", lambda old: patched(Space, old, {"tags": [*old.tags, name]}), ADMIN
        )

    await asyncio.gather(*(tag(f"t{n}") for n in range(10)))
    space = await realm.registry.get(Space, "a")
    assert sorted(space.tags) == sorted(f"t{n}" for n in range(10))
    assert space.updated_at > space.created_at


async def test_a_change_of_nothing_changes_nothing(realm: RealmHub) -> None:
    made = await realm.registry.create(Space(id="a", title="T"), ADMIN)
    again = await realm.registry.change(Space, "a", lambda _: Space(id="a", title="T"), ADMIN)
    assert again == made


async def test_a_stale_etag_is_rejected(realm: RealmHub) -> None:
    made = await realm.registry.create(Space(id="a"), ADMIN)
    seen = [made.etag()]
    now = Space(id="a", title="T")
    changed = await realm.registry.change(Space, "a", lambda _: now, ADMIN, if_match=seen)
    with pytest.raises(PreconditionFailed):
        await realm.registry.change(Space, "a", lambda _: now, ADMIN, if_match=seen)
    with pytest.raises(PreconditionFailed):
        await realm.registry.remove(Space, "a", ADMIN, if_match=seen)
    await realm.registry.remove(Space, "a", ADMIN, if_match=[changed.etag()])
    with pytest.raises(NotFound):
        await realm.registry.remove(Space, "a", ADMIN)


async def test_an_id_is_taken_once(realm: RealmHub) -> None:
    results = await asyncio.gather(
        *(realm.registry.create(Space(id="a"), ADMIN) for _ in range(5)), return_exceptions=True
    )
    assert sorted(type(result).__name__ for result in results) == ["Conflict"] * 4 + ["Space"]
    assert any(isinstance(result, Conflict) for result in results)


# ---- Trying out ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("connector", "field"),
    [
        (a_connector(class_name="os.system"), "className"),
        (a_connector(class_name="naksha.hub.handlers.stored.storage:StorageHandler"), "className"),
        (a_connector(collection=7), "properties.collection"),
        (a_connector(collection="No!"), "properties.collection.id"),
        (a_connector(collection={"id": "a", "maxAge": "x"}), "properties.collection.maxAge"),
        (a_connector(collection={"historyEnabled": 1}), "properties.collection.historyEnabled"),
        (a_connector(storageId=7), "properties.storageId"),
    ],
)
async def test_a_connector_that_cannot_work_is_refused(
    realm: RealmHub, connector: Connector, field: str
) -> None:
    with pytest.raises(InvalidArgument) as refused:
        await realm.registry.create(connector, ADMIN)
    assert refused.value.field == field


async def test_a_connector_is_tried_out_with_the_spaces_that_have_it(realm: RealmHub) -> None:
    await realm.registry.create(a_connector("c", "read-only"), ADMIN)
    broken = Space(id="a", event_handler_ids=("c",), properties={"collection": "No!"})
    await realm.registry.create(broken, ADMIN)
    with pytest.raises(InvalidArgument) as refused:
        await realm.registry.change(Connector, "c", lambda _: a_connector("c"), ADMIN)
    assert (refused.value.field, refused.value.handler) == ("properties.collection.id", "c")


# ---- Rights --------------------------------------------------------------------------------------


async def test_creating_spaces_requires_the_right(realm: RealmHub) -> None:
    nobody = an_actor()
    with pytest.raises(Forbidden):
        await realm.registry.create(Space(id="a"), nobody)
    mine = an_actor("me", manageSpaces=[{"owner": "me"}])
    await realm.registry.create(Space(id="a"), ADMIN)
    await realm.registry.create(Space(id="b"), mine)
    for act in (
        realm.registry.change(Space, "a", lambda _: Space(id="a", title="Mine"), mine),
        realm.registry.remove(Space, "a", mine),
    ):
        with pytest.raises(Forbidden):
            await act
    await realm.registry.change(Space, "b", lambda _: Space(id="b", title="Mine"), mine)
    await realm.registry.remove(Space, "b", mine)


async def test_an_owner_is_changed_by_administrators_only(realm: RealmHub) -> None:
    plain = Actor(app_id="me", rights=parse_rights({"xyz-hub": {"manageSpaces": [{}]}}))
    with pytest.raises(Forbidden):
        await realm.registry.create(Space(id="a", owner="you"), plain)
    await realm.registry.create(Space(id="a"), plain)
    with pytest.raises(Forbidden):
        await realm.registry.change(Space, "a", lambda _: Space(id="a", owner="you"), plain)
    given = await realm.registry.change(Space, "a", lambda _: Space(id="a", owner="you"), ADMIN)
    assert (given.owner, given.app_id) == ("you", "me")


@pytest.mark.parametrize(
    "space",
    [
        Space(id="b", event_handler_ids=("c",)),
        Space(id="b", storage=StorageChoice("default")),
        Space(id="b", extends=Extends("a")),
        Space(id="b", properties={"collection": "a"}),
        Space(id="b", storage=StorageChoice("default", {"collection": "a"})),
    ],
)
async def test_references_require_rights(realm: RealmHub, space: Space) -> None:
    """A space must not give access to another owner's connector, storage, space or collection."""
    await realm.registry.create(Space(id="a"), ADMIN)
    await realm.registry.create(a_connector("c"), ADMIN)
    with pytest.raises(Forbidden):
        await realm.registry.create(space, an_actor(manageSpaces=[{"id": "b"}]))
    await realm.registry.create(Space(id="b"), ADMIN)
    thief = an_actor(manageSpaces=[{"id": "b"}])
    with pytest.raises(Forbidden):
        await realm.registry.change(Space, "b", lambda _: space, thief)
    await realm.registry.change(Space, "b", lambda _: space, ADMIN)


async def test_a_connector_needs_the_right_to_its_storage(realm: RealmHub) -> None:
    plain = an_actor(manageConnectors=[{}])
    with pytest.raises(Forbidden) as refused:
        await realm.registry.create(a_connector(storageId="default"), plain)
    assert refused.value.field == "properties.storageId"
    trusted = an_actor(manageConnectors=[{}], useStorages=[{"id": "default"}])
    await realm.registry.create(a_connector(storageId="default"), trusted)


async def test_a_connector_without_a_collection_gives_no_access_to_others(realm: RealmHub) -> None:
    """The default storage is implied, and the collection belongs to another owner."""
    plain = an_actor(manageConnectors=[{}])
    with pytest.raises(Forbidden):
        await realm.registry.create(a_connector(collection="secret"), plain)


async def test_a_collection_is_not_changed_without_the_right_to_its_storage(
    realm: RealmHub,
) -> None:
    """Neither in a connector nor in a space that named a storage before."""
    await realm.registry.create(a_connector(storageId="default", collection="open"), ADMIN)
    await realm.registry.create(Space(id="a", storage=StorageChoice("default")), ADMIN)
    thief = an_actor(manageConnectors=[{}], manageSpaces=[{}])
    secret = a_connector(storageId="default", collection="secret")
    with pytest.raises(Forbidden):
        await realm.registry.change(Connector, "c", lambda _: secret, thief)
    reaching = Space(id="a", storage=StorageChoice("default", {"collection": "secret"}))
    with pytest.raises(Forbidden):
        await realm.registry.change(Space, "a", lambda _: reaching, thief)
    titled = a_connector(storageId="default", collection="open", note="harmless")
    await realm.registry.change(Connector, "c", lambda _: titled, thief)


async def test_a_token_may_limit_how_many_spaces_there_are(realm: RealmHub) -> None:
    rights = parse_rights({"naksha": {"manageSpaces": [{}]}})
    few = Actor(app_id="few", rights=rights, limits=UsageLimits(max_spaces=2))
    await realm.registry.create(Space(id="a"), few)
    await realm.registry.create(Space(id="b"), few)
    with pytest.raises(Forbidden):
        await realm.registry.create(Space(id="c"), few)
    await realm.registry.remove(Space, "b", few)
    await realm.registry.create(Space(id="c"), few)


async def test_the_limit_is_kept_however_many_come_at_once(realm: RealmHub) -> None:
    few = Actor(app_id="few", rights=all_rights(), limits=UsageLimits(max_spaces=2))
    tried = await asyncio.gather(
        *(realm.registry.create(Space(id=f"s{n}"), few) for n in range(8)), return_exceptions=True
    )
    assert sum(isinstance(one, Space) for one in tried) == 2
    assert sum(isinstance(one, Forbidden) for one in tried) == 6
    await realm.registry.create(Space(id="theirs", owner="others"), ADMIN)
    with pytest.raises(Forbidden):  # who takes one over has it as well
        await realm.registry.change(
            Space, "theirs", lambda old: msgspec.structs.replace(old, owner="few"), few
        )
