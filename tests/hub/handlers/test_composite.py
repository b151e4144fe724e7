"""Composite spaces: contexts, versions across layers, and deletions that show the base again."""

import asyncio
from collections.abc import Collection
from typing import Any

import pytest

from naksha.hub.handlers.views.layers import LayerStack, ViewLayer
from naksha.hub.pipeline.requests import DeleteFeatures, IfExists
from naksha.model.errors import Conflict, Forbidden, InvalidArgument
from naksha.model.query import Query
from naksha.model.state import XYZ
from tests.hub.handlers.support import CONTEXT, HubUnderTest, content, feature


class TestCompositeSpaces:
    async def composite(self, hub: HubUnderTest) -> None:
        await hub.space("base")
        await hub.space("mine", extends="base")
        await hub.put("base", feature("a", n=1), feature("b", n=1))
        await hub.write("mine", feature("b", m=2), feature("c", n=2))

    async def test_contexts(self, any_hub: HubUnderTest) -> None:
        hub = any_hub
        await self.composite(hub)
        below = {"a": {"n": 1}, "b": {"n": 1}}
        own = {"b": {"n": 1, "m": 2}, "c": {"n": 2}}
        assert await hub.read("mine") == {**below, **own}
        assert await hub.read("mine", context="extension") == own
        assert await hub.read("mine", context="super") == below == await hub.read("base")
        assert [await hub.count("mine", context=c) for c in ("default", "extension", "super")] == [
            *(3, 2, 2)
        ]
        with pytest.raises(InvalidArgument):
            await hub.read("mine", context="infra")

    async def test_deleting(self, any_hub: HubUnderTest) -> None:
        hub = any_hub
        await self.composite(hub)
        assert (await hub.delete("mine", "a", "b")).deleted == ("a", "b")
        assert await hub.read("mine") == {"c": {"n": 2}}
        assert await hub.read("base") == {"a": {"n": 1}, "b": {"n": 1}}

    async def test_the_base_space_is_not_written_through_the_composite(
        self, hub: HubUnderTest
    ) -> None:
        await self.composite(hub)
        with pytest.raises(Forbidden, match="E318431"):
            await hub.put("mine", feature("a", n=9), context="super")
        assert (await hub.read("base"))["a"] == {"n": 1}

    async def test_the_extension_alone_does_not_look_below(self, hub: HubUnderTest) -> None:
        await self.composite(hub)
        written = await hub.write("mine", feature("a", m=9), context="extension")
        assert written.inserted == ("a",)
        assert (await hub.read("mine"))["a"] == {"m": 9}

    @pytest.mark.parametrize("e", [IfExists.REPLACE, IfExists.PATCH, IfExists.MERGE])
    async def test_a_version_of_the_base_is_overwritten_once(
        self, any_hub: HubUnderTest, e: IfExists
    ) -> None:
        hub = any_hub
        await self.composite(hub)
        (base,) = await hub.states("mine", Query(ids=("a",)))
        mine, yours = (_at_version(feature("a", n=n), base.xyz["version"]) for n in (2, 3))
        written = await hub.write("mine", mine, e=e, conflict_detection=True)
        assert written.updated == ("a",)
        with pytest.raises(Conflict):
            await hub.put("mine", yours, conflict_detection=True)
        (head,) = await hub.states("mine", Query(ids=("a",)))
        assert (content(head)["n"], head.xyz["version"]) == (2, base.xyz["version"] + 1)
        current = _at_version(feature("a", n=4), head.xyz["version"])
        assert (await hub.put("mine", current, conflict_detection=True)).updated == ("a",)

    async def test_concurrent_writers_of_a_base_feature_get_a_conflict(
        self, any_hub: HubUnderTest
    ) -> None:
        hub = any_hub
        await self.composite(hub)
        sent = [_at_version(feature("a", n=n), 1) for n in range(8)]
        writes = [hub.put("mine", each, conflict_detection=True) for each in sent]
        results = await asyncio.gather(*writes, return_exceptions=True)
        assert sorted(type(result).__name__ for result in results) == [
            *(["Conflict"] * 7),
            "Written",
        ]

    async def test_a_feature_that_appears_between_two_reads_is_a_conflict(
        self, any_hub: HubUnderTest, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        hub = any_hub
        await self.composite(hub)
        hidden_by = LayerStack.hidden_by
        overtaking: list[dict[str, Any]] = [_at_version(feature("a", n=2), 1)]

        async def overtaken(stack: LayerStack, layer: ViewLayer, ids: Collection[str]) -> set[str]:
            while overtaking:
                await hub.put("mine", overtaking.pop(), conflict_detection=True)
            return await hidden_by(stack, layer, ids)

        monkeypatch.setattr(LayerStack, "hidden_by", overtaken)
        with pytest.raises(Conflict):
            await hub.put("mine", _at_version(feature("a", n=3), 1), conflict_detection=True)
        assert (await hub.read("mine"))["a"] == {"n": 2}

    async def test_a_write_to_the_extension_continues_the_version_of_the_base(
        self, any_hub: HubUnderTest
    ) -> None:
        hub = any_hub
        await self.composite(hub)
        await hub.put("mine", feature("a", n=2), context="extension")
        with pytest.raises(Conflict):
            await hub.put("mine", _at_version(feature("a", n=3), 1), conflict_detection=True)

    @pytest.mark.parametrize("id", ["a", "b"])
    async def test_deleting_from_the_extension_restores_the_base_feature(
        self, any_hub: HubUnderTest, id: str
    ) -> None:
        hub = any_hub
        await self.composite(hub)
        await hub.put("mine", feature(id, n=2))
        assert (await hub.delete("mine", id, context="extension")).deleted == (id,)
        assert (await hub.read("mine"))[id] == {"n": 1}
        assert await hub.count("mine") == 3
        assert id not in await hub.read("mine", context="extension")
        assert (await hub.delete("mine", id, context="extension")).retained == (id,)
        await hub.write("base", feature(id, n=5))
        assert (await hub.read("mine"))[id] == {"n": 5}
        await hub.write("mine", feature(id, m=6))
        assert (await hub.read("mine"))[id] == {"n": 5, "m": 6}
        await hub.delete("mine", id)
        assert id not in await hub.read("mine")

    async def test_a_deletion_in_the_extension_is_shown_and_can_be_withdrawn(
        self, any_hub: HubUnderTest
    ) -> None:
        hub = any_hub
        await self.composite(hub)
        await hub.delete("mine", "a", "b", "c")
        for query in (Query(), Query(ids=("a", "b", "c"))):
            shown = await hub.states("mine", query, context="extension")
            # "c" was in the extension only: its deletion hides nothing.
            assert sorted((s.id, s.xyz["deleted"]) for s in shown) == [("a", True), ("b", True)]
            assert [content(state) for state in shown] == [{}, {}]
        assert await hub.pages("mine", Query(limit=1), context="extension") == [["a"], ["b"]]
        assert await hub.count("mine", context="extension") == 0
        assert (await hub.delete("mine", "a", "c", context="extension")).deleted == ("a",)
        assert await hub.read("mine") == {"a": {"n": 1}}
        assert [*(await hub.read("mine", context="extension"))] == ["b"]

    async def test_a_version_applies_the_masks_of_its_time(self, any_hub: HubUnderTest) -> None:
        hub = any_hub
        await self.composite(hub)
        hidden = (await hub.delete("mine", "a")).version
        shown = (await hub.delete("mine", "a", context="extension")).version
        assert "a" not in await hub.read("mine", ref=str(hidden))
        assert "a" in await hub.read("mine", ref=str(shown))

    async def test_erasing_the_extension_restores_the_base(self, any_hub: HubUnderTest) -> None:
        hub = any_hub
        await self.composite(hub)
        await hub.delete("mine", "a")
        erased = await hub.realm.send("mine", DeleteFeatures(context="extension"), CONTEXT)
        assert erased.count == 3
        assert await hub.read("mine") == await hub.read("base")


def _at_version(sent: dict[str, Any], version: int) -> dict[str, Any]:
    return {**sent, "properties": {**sent["properties"], XYZ: {"version": version}}}
