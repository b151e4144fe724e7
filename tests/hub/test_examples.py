"""Spaces and collections in an n:m relation, with the examples of the concept."""

import pytest

from naksha.model.errors import NotImplementedHere, ReadOnly
from tests.hub.handlers.support import HubUnderTest, content, feature


async def test_a_space_without_a_storage_transforms_and_answers(hub: HubUnderTest) -> None:
    """n:0: "posting features to the space may only perform a transformation and then just return
    the modified features"."""
    steps = [
        {"op": "rename", "from": "properties.maxSpeed", "to": "properties.speed"},
        {"op": "convert", "path": "properties.speed", "to": "number"},
        {"op": "template", "path": "properties.label", "template": "{properties.name} ({id})"},
    ]
    await hub.space("mill", ("transform", {"onWrite": steps}))
    written = await hub.write("mill", feature("a", name="Main", maxSpeed="50"))
    assert [content(state) for state in written.states] == [
        {"name": "Main", "speed": 50, "label": "Main (a)"}
    ]
    assert (written.inserted, written.txn) == ((), None)
    with pytest.raises(NotImplementedHere):
        await hub.read("mill")


async def test_a_collection_readable_for_all_and_writable_for_some(any_hub: HubUnderTest) -> None:
    """n:1: "a space can be created to enable read-only access to a collection, while another space
    allows read-write access to the same collection"."""
    hub = any_hub
    storage = ("storage", {"collection": "roads"})
    await hub.space("roads-editing", storage)
    await hub.space("roads-public", ("read-only", {}), storage)
    await hub.put("roads-editing", feature("a", n=1))
    with pytest.raises(ReadOnly):
        await hub.put("roads-public", feature("b", n=1))
    with pytest.raises(ReadOnly):
        await hub.delete("roads-public", "a")
    assert await hub.read("roads-public") == {"a": {"n": 1}} == await hub.read("roads-editing")
    (state,) = await hub.states("roads-public")
    assert state.xyz["space"] == "roads-public"


async def test_one_space_over_many_collections(any_hub: HubUnderTest) -> None:
    """n:m: "a view combines multiple spaces into one logical space"."""
    hub = any_hub
    for name in ("base", "corrections", "mine"):
        await hub.space(name)
    await hub.space("map", ("view", {"spaceIds": ["mine", "corrections", "base"]}))
    await hub.space("other-map", ("view", {"spaceIds": ["corrections", "base"]}))
    await hub.put("base", *(feature(id, n=1) for id in "abc"))
    await hub.put("corrections", feature("b", n=2))
    await hub.delete("map", "c")
    assert await hub.read("map") == {"a": {"n": 1}, "b": {"n": 2}}
    assert await hub.read("other-map") == {"a": {"n": 1}, "b": {"n": 2}, "c": {"n": 1}}


async def test_one_space_that_splits_by_type(any_hub: HubUnderTest) -> None:
    """1:n: "a connector that internally splits features by type into different collections"."""
    hub = any_hub
    split = {"property": "properties.kind", "collections": {"road": "roads", "rail": "rails"}}
    await hub.space("ways", ("type-splitter", split))
    await hub.space("roads", ("storage", {"collection": "roads"}))
    written = await hub.put("ways", feature("a", kind="road"), feature("b", kind="rail"))
    assert written.version == 1
    assert sorted(await hub.read("ways")) == ["a", "b"]
    assert sorted(await hub.read("roads")) == ["a"]
