"""Rights across spaces (views, roles, shared spaces, locations), and errors that reveal nothing."""

from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from naksha.hub.auth.resources import features
from naksha.hub.auth.rights import Rights, parse_rights
from naksha.hub.config.change_rights import is_visible
from naksha.hub.config.objects import Role, Space, StorageObject
from naksha.hub.handlers.authorization import Authorization
from naksha.hub.pipeline.pipeline import Event, HubServices, Pipeline, Setup, Stage
from naksha.hub.pipeline.request_context import Actor, RequestContext
from naksha.hub.pipeline.requests import (
    CountFeatures,
    IfExists,
    IfNotExists,
    Modification,
    ReadFeatures,
    WriteFeatures,
)
from naksha.hub.pipeline.responses import Features
from naksha.model import limits
from naksha.model.errors import FeatureExists, Forbidden, NotFound
from naksha.model.query import Query
from naksha.model.state import State
from tests.hub.handlers.support import ACTOR, HubUnderTest, feature, open_hub


@pytest.fixture
async def hub(tmp_path: Path) -> AsyncIterator[HubUnderTest]:
    async with open_hub(f"file:{tmp_path}/{{realm}}.naksha") as opened:
        yield opened


def acting(rights: Rights | dict[str, Any], app: str = "editor") -> RequestContext:
    granted = parse_rights({"naksha": rights}) if isinstance(rights, dict) else rights
    return RequestContext(actor=Actor(app_id=app, rights=granted), stream_id="1")


async def ids(hub: HubUnderTest, space: str, context: RequestContext) -> list[str]:
    answer = await hub.realm.send(space, ReadFeatures(), context)
    return sorted(state.id for state in await answer.all())


def writing(
    *sent: dict[str, Any],
    e: IfExists = IfExists.PATCH,
    ne: IfNotExists = IfNotExists.CREATE,
    **options: Any,
) -> WriteFeatures:
    one = Modification(features=sent, if_exists=e, if_not_exists=ne)
    return WriteFeatures(modifications=(one,), **options)


# ---- Spaces --------------------------------------------------------------------------------------


async def test_missing_objects_are_404_and_hidden_ones_403(
    hub: HubUnderTest,
) -> None:
    await hub.space("roads")
    with pytest.raises(NotFound):
        await ids(hub, "places", acting({}))
    with pytest.raises(Forbidden) as hidden:
        await ids(hub, "roads", acting({"readFeatures": [{}]}))
    assert hidden.value.right == "useSpaces"
    assert await ids(hub, "roads", acting({"useSpaces": [{}], "readFeatures": [{}]})) == []


async def test_a_token_for_xyz_needs_no_right_to_use_the_space(hub: HubUnderTest) -> None:
    await hub.space("roads")
    await hub.space("places")
    rights = parse_rights({"xyz-hub": {"readFeatures": [{"space": "roads"}]}})
    assert await ids(hub, "roads", acting(rights)) == []
    with pytest.raises(Forbidden):
        await ids(hub, "places", acting(rights))


async def is_shown(hub: HubUnderTest, id: str) -> bool:
    return is_visible(await hub.realm.registry.get(Space, id), acting({}).actor)


async def test_a_shared_space_is_readable_for_all_actors_of_the_realm(hub: HubUnderTest) -> None:
    await hub.realm.registry.create(Space(id="open", shared=True), ACTOR)
    await hub.put("open", feature("a"))
    await hub.space("closed")
    shown = {space.id for space in await hub.realm.registry.list(Space)}
    assert {id for id in shown if await is_shown(hub, id)} == {"open"}
    assert await ids(hub, "open", acting({})) == ["a"]
    assert await ids(hub, "open", acting({"readFeatures": [{"tags": "none"}]})) == ["a"]
    with pytest.raises(Forbidden):
        await hub.realm.send("open", writing(feature("b")), acting({}))


async def test_rights_by_storage_and_collection(hub: HubUnderTest, tmp_path: Path) -> None:
    registry = hub.realm.registry
    other = StorageObject(
        id="other", tags=("green",), properties={"location": f"file:{tmp_path}/other.naksha"}
    )
    await registry.create(other, ACTOR)
    await hub.space("here", ("storage", {"collection": "roads"}))
    await hub.space("there", ("storage", {"storageId": "other", "collection": "roads"}))
    await hub.space("both", ("storage", {}), ("storage", {"storageId": "other"}))

    async def read_with(attributes: dict[str, Any]) -> list[str]:
        context = acting({"useSpaces": [{}], "readFeatures": [attributes]})
        allowed = []
        for space in ("here", "there", "both"):
            try:
                await ids(hub, space, context)
            except Forbidden:
                continue
            allowed.append(space)
        return allowed

    assert await read_with({"collectionId": "roads"}) == ["here", "there"]
    assert await read_with({"storageId": "other"}) == ["there"]
    assert await read_with({"storageTags": ["green"]}) == ["there"]
    assert await read_with({"storageId": "default", "collectionId": "roads"}) == ["here"]
    assert await read_with({"storageId": "*"}) == ["here", "there"]
    assert await read_with({"owner": "tests"}) == ["here", "there", "both"]


# ---- Views ---------------------------------------------------------------------------------------


@pytest.fixture
async def view(hub: HubUnderTest) -> HubUnderTest:
    await hub.space("base")
    await hub.space("edits")
    await hub.space("all", ("view", {"spaceIds": ["edits", "base"]}))
    await hub.put("base", feature("a", tags=["open"]), feature("b"))
    await hub.put("edits", feature("c", tags=["open"]), feature("d"))
    return hub


async def test_each_space_of_a_view_needs_its_own_rights(view: HubUnderTest) -> None:
    def reading(*spaces: str) -> RequestContext:
        some = [{"id": space} for space in spaces]
        return acting({"useSpaces": some, "readFeatures": [{"spaceId": space} for space in spaces]})

    assert await ids(view, "all", reading("all", "edits", "base")) == ["a", "b", "c", "d"]
    with pytest.raises(Forbidden, match="'base'"):
        await ids(view, "all", reading("all", "edits"))
    with pytest.raises(Forbidden, match="'edits'"):
        await view.realm.send("all", CountFeatures(), reading("all", "base"))
    with pytest.raises(Forbidden, match="'all'"):
        await ids(view, "all", reading("edits", "base"))


async def test_rights_to_some_features_of_a_space_count_in_its_views(view: HubUnderTest) -> None:
    some = [{"spaceId": "all"}, {"spaceId": "edits"}, {"spaceId": "base", "tags": "open"}]
    context = acting({"useSpaces": [{}], "readFeatures": some})
    assert await ids(view, "all", context) == ["a", "c", "d"]
    assert (await view.realm.send("all", CountFeatures(), context)).count == 3
    some = [{"spaceId": "all", "tags": "open"}, {"spaceId": "edits"}, {"spaceId": "base"}]
    context = acting({"useSpaces": [{}], "readFeatures": some})
    assert await ids(view, "all", context) == ["a", "c"]
    assert await ids(view, "base", context) == ["a", "b"]


@pytest.mark.parametrize("chunk", [1, 2_000])
async def test_unreadable_features_are_not_counted_in_any_layer(
    view: HubUnderTest, monkeypatch: pytest.MonkeyPatch, chunk: int
) -> None:
    """However many features lie below."""
    monkeypatch.setattr(limits, "READ_CHUNK_FEATURES", chunk)
    await view.put("base", feature("gone"), feature("secret"), feature("open"))
    await view.put("edits", feature("secret"), feature("open", tags=["open"]), feature("gone"))
    await view.delete("edits", "gone")
    some = [{"spaceId": "all"}, {"spaceId": "edits", "tags": "open"}, {"spaceId": "base"}]
    context = acting({"useSpaces": [{}], "readFeatures": some})
    assert await ids(view, "all", context) == ["a", "b", "c", "open"]
    assert (await view.realm.send("all", CountFeatures(), context)).count == 4
    assert await view.count("all") == 6


@pytest.mark.parametrize("paged", [False, True])
async def test_unreadable_features_hide_lower_features(view: HubUnderTest, *, paged: bool) -> None:
    """Of a feature that is secret by now its former state must not come to light; nor of a view
    over the view."""
    await view.space("mine")
    await view.space("my-all", ("view", {"spaceIds": ["mine", "all"]}))
    await view.space("old")
    await view.space("over-all", ("view", {"spaceIds": ["all", "old"]}))
    await view.put("base", feature("gone", tags=["open"]), feature("left", tags=["open"]))
    await view.put("old", feature("a", tags=["open"]), feature("gone", tags=["open"]))
    await view.put("all", feature("a", tags=["secret"], n=2))
    await view.delete("all", "gone")
    context = acting({"useSpaces": [{}], "readFeatures": [{"tags": "open"}]})
    for space in ("all", "my-all", "over-all"):
        answer = await view.realm.send(space, ReadFeatures(paged=paged), context)
        assert sorted(state.id for state in await answer.all()) == ["c", "left"]
        assert (await view.realm.send(space, CountFeatures(), context)).count == 2


async def test_a_request_for_ids_returns_nothing_else(view: HubUnderTest) -> None:
    context = acting({"useSpaces": [{}], "readFeatures": [{"tags": "open"}]})
    by_id = ReadFeatures(query=Query(ids=("a", "b", "x")), only_ids=True)
    found = await (await view.realm.send("base", by_id, context)).all()
    assert sorted(state.id for state in found) == ["a", "b"]
    assert all(state.feature.keys() == {"id", "type"} for state in found)
    # Nor can anybody find out more by asking for ids with certain properties.
    other = Query(ids=("a", "b"), tags=(("open",),))
    for query in (Query(), other):
        asked = ReadFeatures(query=query, only_ids=True)
        found = await (await view.realm.send("base", asked, context)).all()
        assert [state.id for state in found] == ["a"]


@pytest.mark.parametrize("e", [IfExists.PATCH, IfExists.REPLACE, IfExists.DELETE])
async def test_lower_features_are_changed_with_the_rights_on_the_view(
    view: HubUnderTest, e: IfExists
) -> None:
    writes = ("createFeatures", "updateFeatures", "deleteFeatures")
    below: dict[str, Any] = {"useSpaces": [{}], "readFeatures": [{}]}
    below |= {right: [{"spaceId": "edits"}, {"spaceId": "all", "tags": "open"}] for right in writes}
    tagged = feature("a", tags=["open"], n=1)
    await view.realm.send("all", writing(tagged, e=e), acting(below))
    shown = await view.read("all")
    assert shown.get("a") == (None if e is IfExists.DELETE else {"n": 1})
    with pytest.raises(Forbidden) as refused:
        sent = feature("b", tags=["open"], n=1)
        await view.realm.send("all", writing(sent, e=e), acting(below))
    assert refused.value.feature_id == "b"
    assert (await view.read("all"))["b"] == {}


async def test_a_feature_that_moves_to_another_collection_is_changed(hub: HubUnderTest) -> None:
    """A deletion in one collection and a creation in another are one update of the feature."""
    split = {"property": "properties.kind", "collections": {"road": "roads", "rail": "rails"}}
    await hub.space("net", ("type-splitter", split))
    await hub.put("net", feature("a", tags=["open"], kind="road"), feature("b", kind="road"))
    rights = {"useSpaces": [{}], "readFeatures": [{}], "updateFeatures": [{"tags": "open"}]}

    def moving(id: str, *tags: str) -> WriteFeatures:
        sent = feature(id, tags=tags, kind="rail")
        return writing(sent, e=IfExists.REPLACE, ne=IfNotExists.ERROR)

    await hub.realm.send("net", moving("a", "open"), acting(rights))
    assert (await hub.read("net"))["a"] == {"kind": "rail"}
    with pytest.raises(Forbidden):
        await hub.realm.send("net", moving("b", "open"), acting(rights))
    await hub.put("net", feature("a", tags=["open"], kind="road"))
    with pytest.raises(Forbidden):
        await hub.realm.send("net", moving("a", "closed"), acting(rights))
    assert await hub.read("net") == {"a": {"kind": "road"}, "b": {"kind": "road"}}


# ---- Roles ---------------------------------------------------------------------------------------


async def test_roles_are_looked_up_with_every_request(hub: HubUnderTest) -> None:
    await hub.space("roads")
    await hub.put("roads", feature("a", tags=["open"]), feature("b"))
    context = acting({"roles": ["viewer", "pilot"]})
    with pytest.raises(Forbidden):
        await ids(hub, "roads", context)
    some = {"useSpaces": [{}], "readFeatures": [{"tags": "open"}]}
    await hub.realm.registry.create(Role(id="viewer", urm={"naksha": some}), ACTOR)
    assert await ids(hub, "roads", context) == ["a"]
    first = await hub.realm.resolved(context)
    assert first.actor.rights is (await hub.realm.resolved(context)).actor.rights
    assert await hub.realm.resolved(first) is first
    every: dict[str, Any] = {"useSpaces": [{}], "readFeatures": [{}]}
    await hub.realm.registry.change(
        Role, "viewer", lambda _: Role(id="viewer", urm={"naksha": every}), ACTOR
    )
    assert await ids(hub, "roads", context) == ["a", "b"]
    await hub.realm.registry.remove(Role, "viewer", ACTOR)
    with pytest.raises(Forbidden):
        await ids(hub, "roads", context)


async def test_a_role_for_one_action_grants_no_other(hub: HubUnderTest) -> None:
    await hub.space("roads")
    urm: dict[str, Any] = {
        "naksha": {"readFeatures": [{}], "createFeatures": [{}], "useSpaces": [{}]}
    }
    await hub.realm.registry.create(Role(id="all", urm=urm), ACTOR)
    context = acting({"useSpaces": ["all"], "readFeatures": ["all"]})
    assert await ids(hub, "roads", context) == []
    with pytest.raises(Forbidden) as refused:
        await hub.realm.send("roads", writing(feature("a")), context)
    assert refused.value.right in ("createFeatures", "updateFeatures")


# ---- What is not told ----------------------------------------------------------------------------


async def test_a_conflict_has_the_head_only_for_readers(hub: HubUnderTest) -> None:
    await hub.space("roads")
    await hub.put("roads", feature("a", tags=["open"], n=1), feature("b", n=2))
    rights = {"useSpaces": [{}], "createFeatures": [{}], "readFeatures": [{"tags": "open"}]}
    context = acting(rights)
    for id, is_told in (("a", True), ("b", False)):
        with pytest.raises(FeatureExists) as exists:
            await hub.realm.send("roads", writing(feature(id), e=IfExists.ERROR), context)
        assert (exists.value.head is not None) is is_told


async def test_former_states_are_returned_only_to_readers(hub: HubUnderTest) -> None:
    await hub.space("roads")
    await hub.put("roads", feature("a", tags=["open"]), feature("b"))
    rights = {"useSpaces": [{}], "createFeatures": [{}], "readFeatures": [{"tags": "open"}]}
    request = writing(feature("a"), feature("b"), feature("c"), e=IfExists.RETAIN)
    written = await hub.realm.send("roads", request, acting(rights))
    assert written.retained == ("a", "b")
    assert written.inserted == ("c",)
    assert [state.id for state in written.states] == ["a", "c"]


class Careless:
    """A handler that answers by itself, whatever is asked."""

    def __init__(self, setup: Setup) -> None:
        pass

    async def process(self, event: Event) -> Features:
        namespace = b'{"properties":{"@ns:com:here:xyz":{"tags":["open"]}}}'
        return Features.of([State("a", namespace), State("b", b'{"type":"Feature"}')])


async def test_responses_of_handlers_are_filtered(
    hub: HubUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("naksha.hub.pipeline.configuration.handler_class", lambda _: Careless)
    await hub.space("careless", ("read-only", {}))
    every: list[dict[str, str]] = [{}]
    some = [{"tags": "open"}]
    assert await ids(hub, "careless", acting({"useSpaces": [{}], "readFeatures": every})) == [
        "a",
        "b",
    ]
    assert await ids(hub, "careless", acting({"useSpaces": [{}], "readFeatures": some})) == ["a"]


async def test_an_abandoned_response_is_closed() -> None:
    closed = []

    async def read(_: Features) -> AsyncIterator[Sequence[State]]:
        try:
            while True:
                yield [State("a", b"{}")]
        finally:
            closed.append(True)

    class Endless:
        async def process(self, event: Event) -> Features:
            return Features(read)

    space = Space(id="roads")
    authorization = Authorization(space, features(space.resource()))
    stages = [Stage("authorization", authorization), Stage("endless", Endless())]
    hub: HubServices = None  # type: ignore[assignment] # not used by this test
    context = acting({"useSpaces": [{}], "readFeatures": [{"id": "a"}]})
    answer = await Pipeline(space, stages, hub).run(ReadFeatures(), context)
    async for states in answer:
        assert [state.id for state in states] == ["a"]
        break
    await answer.aclose()
    assert closed == [True]


async def test_writes_without_author_keep_it_and_creations_use_the_app_id(
    hub: HubUnderTest,
) -> None:
    await hub.space("roads")
    by_anna = Actor(app_id="tests", author="anna", rights=ACTOR.rights)
    await hub.realm.send(
        "roads", writing(feature("a")), RequestContext(actor=by_anna, stream_id="1")
    )
    rights = {"useSpaces": [{}], "updateFeatures": [{"author": "anna"}]}
    update = writing(feature("a", n=1), ne=IfNotExists.ERROR)
    assert (await hub.realm.send("roads", update, acting(rights))).updated == ("a",)
    create = writing(feature("b"), e=IfExists.ERROR)
    with pytest.raises(Forbidden):
        rights = {"useSpaces": [{}], "createFeatures": [{"author": "anna"}]}
        await hub.realm.send("roads", create, acting(rights))
    rights = {"useSpaces": [{}], "createFeatures": [{"author": "editor"}]}
    assert (await hub.realm.send("roads", create, acting(rights))).inserted == ("b",)
