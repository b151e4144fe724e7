"""Targets of a write: collections that are created or restored, and branches."""

import pytest

from naksha.hub.config.objects import Connector, Space
from naksha.hub.config.space_collections import derived_collection_id
from naksha.hub.hub import Hub
from naksha.model.collection import CollectionInfo
from naksha.model.errors import (
    CollectionNotFound,
    Conflict,
    FeatureNotFound,
    InvalidArgument,
    NotFound,
)
from naksha.spi.storage import WriteSession
from naksha.versioning import create_branch, delete_branch
from naksha.versioning.records import Attribution
from tests.hub.write.support import ACTOR, Desk, feature

SIGNED = Attribution("tests", None)


async def test_requests_that_create_no_feature_create_no_collection(desk: Desk) -> None:
    await desk.write(ids=("a",), e="delete")
    await desk.write(feature("a"), ne="retain")
    await desk.delete()
    with pytest.raises(FeatureNotFound):
        await desk.write(ids=("a",), e="delete", ne="error")
    storage = await desk.storage()
    with pytest.raises(CollectionNotFound):
        await storage.collection(derived_collection_id(desk.space_id), dropped=True)


async def test_a_dropped_collection_comes_back(desk: Desk) -> None:
    await desk.write(feature("a"))
    storage = await desk.storage()
    collection = derived_collection_id(desk.space_id)

    async def drop(session: WriteSession) -> None:
        await session.drop_collection(collection, 2**53)

    await storage.run(drop, "tests")
    assert await desk.states() == {}
    written = await desk.write(feature("b"))
    assert written.inserted == ("b",)
    assert set(await desk.states()) == {"a", "b"}


async def test_a_connector_may_forbid_to_make_collections(hub: Hub, desk: Desk) -> None:
    realm = desk.realm
    properties = {"autoCreateCollection": False, "collection": f"own_{desk.space_id}"}
    name = f"{desk.space_id}-careful"
    await realm.registry.create(
        Connector(id=name, class_name="storage", properties=properties), ACTOR
    )
    await realm.registry.create(Space(id=name, event_handler_ids=(name,)), ACTOR)
    careful = Desk(realm, name)
    with pytest.raises(CollectionNotFound) as missing:
        await careful.write(feature("a"))
    assert "autoCreateCollection" in missing.value.message
    storage = await desk.storage()

    async def make(session: WriteSession) -> None:
        await session.create_collection(CollectionInfo(id=f"own_{desk.space_id}"))

    await storage.run(make, "tests")
    assert (await careful.write(feature("a"))).inserted == ("a",)


async def test_the_prefix_of_a_collection_is_cut_off(desk: Desk) -> None:
    name = f"{desk.space_id}-cut"
    collection = {"id": f"cut_{desk.space_id}", "idPrefix": "urn:"}
    await desk.realm.registry.create(Space(id=name, properties={"collection": collection}), ACTOR)
    cut = Desk(desk.realm, name)
    for e in ("replace", "patch"):
        written = await cut.write(feature("urn:a", e=e), feature("b", e=e), e=e)
        assert [state.id for state in written.states] == ["a", "b"]
    assert await cut.properties("a") == {"e": "patch"}
    twice = await cut.write(feature("urn:a", n=1), feature("a", n=2), e="replace")
    assert (twice.updated, await cut.properties("a")) == (("a",), {"n": 2})
    with pytest.raises(InvalidArgument) as refused:
        await cut.write(feature("b"), {**feature("urn:a"), "type": "Fish"}, e="replace")
    assert refused.value.position == 1
    assert (await cut.write(ids=("urn:a",), e="delete")).deleted == ("a",)


async def test_a_branch_is_written_and_main_stays(desk: Desk) -> None:
    await desk.write(feature("a", n=1), feature("b", n=1))
    storage = await desk.storage()
    await create_branch(storage, "fix", SIGNED, scope=desk.scope)
    written = await desk.write({"id": "a", "properties": {"m": 2}}, feature("c"), ref="fix")
    assert (written.inserted, written.updated) == (("c",), ("a",))
    assert written.version is not None
    await desk.write(ids=("b",), e="delete", ref="fix:HEAD")
    assert await desk.properties("a", "fix") == {"n": 1, "m": 2}
    assert set(await desk.states("fix")) == {"a", "c"}
    assert set(await desk.states()) == {"a", "b"}
    with pytest.raises(Conflict):
        await desk.write(feature("a", n=5), ref=f"fix:{written.version - 1}")
    await desk.write(feature("a", n=5), ref=f"fix:{written.version}")
    assert (await desk.properties("a", "fix"))["n"] == 5
    assert (await desk.delete(ref="fix")).count == 2
    assert set(await desk.states()) == {"a", "b"}
    await delete_branch(storage, "fix", SIGNED, scope=desk.scope)
    with pytest.raises(NotFound):
        await desk.write(feature("a"), ref="fix")


async def test_only_one_version_can_be_meant(desk: Desk) -> None:
    await desk.write(feature("a"))
    for ref in ("1..2", "*", "no such name"):
        with pytest.raises((InvalidArgument, NotFound)):
            await desk.write(feature("a"), ref=ref)
    with pytest.raises(InvalidArgument):
        await desk.delete(ref="1")
