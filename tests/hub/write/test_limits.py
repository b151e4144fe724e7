"""The limit of a token on the number of features in a space."""

import asyncio

import msgspec
import pytest

from naksha.hub.config.objects import Connector, Space
from naksha.hub.pipeline.request_context import UsageLimits
from naksha.hub.pipeline.requests import Modification, WriteFeatures
from naksha.hub.pipeline.responses import Written
from naksha.model.errors import Forbidden
from tests.hub.write.support import ACTOR, CONTEXT, Desk, feature, modification

FEW = msgspec.structs.replace(
    CONTEXT,
    actor=msgspec.structs.replace(CONTEXT.actor, limits=UsageLimits(max_features_per_space=3)),
)


async def write(desk: Desk, *todo: Modification, transactional: bool = True) -> Written:
    request = WriteFeatures(modifications=todo, transactional=transactional)
    return await desk.realm.send(desk.space_id, request, FEW)


@pytest.mark.parametrize("transactional", [True, False])
async def test_no_more_features_are_created_than_the_token_allows(
    desk: Desk, transactional: bool
) -> None:
    first = modification(*(feature(id) for id in "abc"), e="replace")
    assert (await write(desk, first)).inserted == ("a", "b", "c")
    for how in ("replace", "patch", "error"):
        more = modification(feature("d"), e=how)
        with pytest.raises(Forbidden, match="4 features, but the token allows at most 3"):
            await write(desk, more, transactional=transactional)
    again = await write(desk, modification(feature("a", name="A")), transactional=transactional)
    assert again.updated == ("a",)
    gone = modification(ids=("a",), e="delete", ne="retain")
    swapped = await write(desk, gone, modification(feature("d")), transactional=transactional)
    assert (swapped.inserted, swapped.deleted) == (("d",), ("a",))


async def test_the_limit_holds_with_concurrent_writers(desk: Desk) -> None:
    first = modification(feature("first"))
    await write(desk, first)
    tried = await asyncio.gather(
        *(write(desk, modification(feature(f"f{n}"))) for n in range(8)), return_exceptions=True
    )
    refused = [one for one in tried if isinstance(one, Forbidden)]
    assert [type(one) for one in tried if one not in refused] == [Written, Written]
    assert len(refused) == 6


async def test_the_limit_holds_for_the_first_writers_of_a_collection(desk: Desk) -> None:
    tried = await asyncio.gather(
        *(write(desk, modification(feature(f"f{n}"))) for n in range(6)), return_exceptions=True
    )
    assert sum(isinstance(one, Written) for one in tried) == 3
    assert sum(isinstance(one, Forbidden) for one in tried) == 3


async def test_all_collections_of_a_space_count(desk: Desk) -> None:
    split = {
        "property": "properties.kind",
        "storageId": "default",
        "collections": {"road": f"roads-{desk.space_id}", "rail": f"rails-{desk.space_id}"},
    }
    name = f"split-{desk.space_id}"
    registry = desk.realm.registry
    await registry.create(Connector(id=name, class_name="type-splitter", properties=split), ACTOR)
    await registry.create(Space(id=name, event_handler_ids=(name,)), ACTOR)

    async def put(id: str, kind: str) -> Written:
        one = modification(feature(id, kind=kind), e="replace")
        return await desk.realm.send(name, WriteFeatures(modifications=(one,)), FEW)

    for id, kind in (("a", "road"), ("b", "rail"), ("c", "rail")):
        assert (await put(id, kind)).inserted == (id,)
    for kind in ("road", "rail"):
        with pytest.raises(Forbidden, match="4 features, but the token allows at most 3"):
            await put("d", kind)
    assert (await put("c", "road")).updated == ("c",), "it only moves"


async def test_actors_without_a_limit_may_create_and_others_may_update(desk: Desk) -> None:
    await desk.write(*(feature(id) for id in "abcde"))
    assert (await write(desk, modification(feature("a", name="A")))).updated == ("a",)
    with pytest.raises(Forbidden):
        await write(desk, modification(feature("f")))
