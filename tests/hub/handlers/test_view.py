"""Views: layers that hide each other, unions, composite spaces, pages, counts and versions."""

import asyncio
from collections import deque
from pathlib import Path
from typing import Any

import pytest

from naksha.hub.config.objects import Connector
from naksha.hub.handlers.views.layers import SpaceLayer
from naksha.hub.pipeline.pipeline import Event
from naksha.hub.pipeline.requests import (
    DeleteFeatures,
    GetVersion,
    IfExists,
    IfNotExists,
    ReadFeatures,
    WriteFeatures,
)
from naksha.model import limits
from naksha.model.errors import (
    Conflict,
    FeatureExists,
    InvalidArgument,
    NotSupported,
)
from naksha.model.query import Op, Query, States
from naksha.model.query import Test as PropertyTest
from tests.hub.handlers.support import ACTOR, CONTEXT, HubUnderTest, feature


def at_least(number: int) -> Query:
    return Query(where=PropertyTest(("properties", "n"), Op.GTE, number))


async def two_layers(hub: HubUnderTest) -> None:
    await hub.space("base")
    await hub.space("edits")
    await hub.space("map", ("view", {"spaceIds": ["edits", "base"]}))


class TestLayered:
    async def test_the_upper_one_is_seen(self, any_hub: HubUnderTest) -> None:
        hub = any_hub
        await two_layers(hub)
        await hub.put("base", feature("a", n=1), feature("b", n=1))
        await hub.put("edits", feature("b", n=2), feature("c", n=2))
        assert await hub.read("map") == {"a": {"n": 1}, "b": {"n": 2}, "c": {"n": 2}}
        assert await hub.count("map") == 3

    async def test_filtered_upper_features_still_hide_lower_ones(
        self, any_hub: HubUnderTest
    ) -> None:
        hub = any_hub
        await two_layers(hub)
        await hub.put("base", feature("a", n=5), feature("b", n=5))
        await hub.put("edits", feature("b", n=1))
        assert await hub.read("map", at_least(3)) == {"a": {"n": 5}}
        assert await hub.count("map", at_least(3)) == 1
        assert await hub.pages("map", Query(where=at_least(3).where, limit=1)) == [["a"]]

    async def test_deletions_in_upper_layers_hide_lower_features(
        self, any_hub: HubUnderTest
    ) -> None:
        hub = any_hub
        await two_layers(hub)
        await hub.put("base", feature("a", n=1), feature("b", n=1))
        await hub.put("edits", feature("b", n=2))
        await hub.delete("map", "b")
        assert await hub.read("map") == {"a": {"n": 1}}
        assert await hub.read("base") == {"a": {"n": 1}, "b": {"n": 1}}
        assert [s.id for s in await hub.states("map", Query(states=States.DELETED))] == ["b"]

    async def test_lower_features_can_be_deleted(self, any_hub: HubUnderTest) -> None:
        hub = any_hub
        await two_layers(hub)
        await hub.put("base", feature("a", n=1), feature("b", n=1))
        written = await hub.delete("map", "a", "nothing")
        assert (written.inserted, written.updated, written.deleted) == ((), (), ("a",))
        assert await hub.read("map") == {"b": {"n": 1}}
        assert await hub.count("map") == 1
        assert await hub.read("base") == {"a": {"n": 1}, "b": {"n": 1}}

    async def test_the_deletion_is_one_transaction_that_shows_nothing_else(
        self, any_hub: HubUnderTest
    ) -> None:
        hub = any_hub
        await two_layers(hub)
        first = await hub.put("base", feature("a", n=1))
        written = await hub.delete("map", "a")
        assert written.version == (first.version or 0) + 1
        every = await hub.states("edits", Query(states=States.ALL))
        assert [state.xyz["action"] for state in every] == ["DELETE"]

    async def test_a_deleted_feature_can_be_created_again(self, hub: HubUnderTest) -> None:
        await two_layers(hub)
        await hub.put("base", feature("a", n=1, old=True))
        await hub.delete("map", "a")
        written = await hub.write("map", feature("a", n=2))
        assert written.inserted == ("a",)
        assert await hub.read("map") == {"a": {"n": 2}}

    async def test_a_patched_lower_feature_is_complete_in_the_top_layer(
        self, any_hub: HubUnderTest
    ) -> None:
        hub = any_hub
        await two_layers(hub)
        await hub.put("base", feature("a", n=1, name="Anna"))
        written = await hub.write("map", {"type": "Feature", "id": "a", "properties": {"n": 2}})
        assert (written.inserted, written.updated) == ((), ("a",))
        assert [state.feature["properties"]["n"] for state in written.states] == [2]
        assert await hub.read("edits") == {"a": {"n": 2, "name": "Anna"}}
        (state,) = await hub.states("map")
        assert state.feature["geometry"]["coordinates"][:2] == [8.6, 50.1]
        assert state.xyz["space"] == "map"

    async def test_lower_features_exist_for_existence_rules(self, hub: HubUnderTest) -> None:
        await two_layers(hub)
        await hub.put("base", feature("a", n=1))
        with pytest.raises(FeatureExists):
            await hub.write("map", feature("a", n=2), e=IfExists.ERROR)
        assert (await hub.write("map", feature("a", n=2), e=IfExists.RETAIN)).retained == ("a",)
        assert await hub.read("edits") == {}
        patched = await hub.write("map", feature("a", n=3), e=IfExists.PATCH, ne=IfNotExists.RETAIN)
        assert patched.updated == ("a",)
        assert await hub.read("map") == {"a": {"n": 3}}

    async def test_a_replacement_keeps_nothing_of_the_lower_feature(
        self, hub: HubUnderTest
    ) -> None:
        await two_layers(hub)
        await hub.put("base", feature("a", n=1, name="Anna"))
        written = await hub.put("map", feature("a", n=2), ne=IfNotExists.ERROR)
        assert (written.inserted, written.updated) == ((), ("a",))
        assert await hub.read("map") == {"a": {"n": 2}}

    async def test_a_stale_lower_state_is_a_conflict(self, hub: HubUnderTest) -> None:
        await two_layers(hub)
        await hub.put("base", feature("a", n=1))
        (state,) = await hub.states("map")
        await hub.put("base", feature("a", n=2))
        with pytest.raises(Conflict) as conflict:
            await hub.put("map", state.feature, conflict_detection=True)
        assert conflict.value.head is not None
        (state,) = await hub.states("map")
        changed = {**state.feature, "properties": {**state.feature["properties"], "n": 3}}
        await hub.put("map", changed, conflict_detection=True)
        assert await hub.read("map") == {"a": {"n": 3}}

    async def test_conflicts_are_found_in_all_layers_at_once(self, hub: HubUnderTest) -> None:
        await two_layers(hub)
        await hub.put("base", feature("a", n=1), feature("b", n=1))
        await hub.put("edits", feature("c", n=1))
        read = {state.id: state.feature for state in await hub.states("map")}
        await hub.write("map", *read.values(), conflict_detection=True, add_tags=("seen",))
        assert {tuple(s.xyz["tags"]) for s in await hub.states("map")} == {("seen",)}
        for id in "abc":
            with pytest.raises(Conflict) as conflict:
                await hub.put("map", read[id], conflict_detection=True)
            assert conflict.value.feature_id == id
        await hub.put("base", feature("d", n=1))
        written = await hub.write(
            "map",
            feature("c", n=2),
            feature("d", n=2),
            feature("e", n=2),
            conflict_detection=True,
            transactional=False,
        )
        assert [(failure.id, failure.position) for failure in written.failed] == [
            ("c", 0),
            ("d", 1),
        ]
        assert written.inserted == ("e",)

    async def test_deletion_by_query(self, any_hub: HubUnderTest) -> None:
        hub = any_hub
        await two_layers(hub)
        await hub.put("base", *(feature(id, n=n) for n, id in enumerate("abcd")))
        await hub.put("edits", feature("c", n=0), feature("e", n=9))
        request = DeleteFeatures(query=at_least(1))
        deleted = await hub.realm.send("map", request, CONTEXT)
        assert (deleted.count, sorted(deleted.ids)) == (3, ["b", "d", "e"])
        assert await hub.read("map") == {"a": {"n": 0}, "c": {"n": 0}}

    async def test_ids_with_a_prefix_are_looked_up_with_it(self, hub: HubUnderTest) -> None:
        await two_layers(hub)
        await hub.put("base", feature("x:a", n=1, name="Anna"))
        written = await hub.write("map", feature("a", n=2), feature(None, n=3), prefix_id="x:")
        assert written.updated == ("x:a",)
        assert all(id.startswith("x:") for id in written.inserted)
        assert (await hub.read("map"))["x:a"] == {"n": 2, "name": "Anna"}

    async def test_a_view_of_a_view(self, any_hub: HubUnderTest) -> None:
        hub = any_hub
        await two_layers(hub)
        await hub.space("mine")
        await hub.space("my-map", ("view", {"spaceIds": ["mine", "map"]}))
        await hub.put("base", *(feature(id, n=1) for id in "abcd"))
        await hub.delete("map", "a")
        await hub.put("map", feature("b", n=2))
        await hub.delete("my-map", "c")
        assert await hub.read("my-map") == {"b": {"n": 2}, "d": {"n": 1}}
        assert await hub.read("map") == {"b": {"n": 2}, "c": {"n": 1}, "d": {"n": 1}}
        assert await hub.pages("my-map", Query(limit=1)) == [["b"], ["d"]]
        assert await hub.count("my-map") == 2

    async def test_layers_of_several_storages(self, hub: HubUnderTest, tmp_path: Path) -> None:
        await hub.storage("other", f"file:{tmp_path}/other.naksha")
        await hub.space("base", storage="other")
        await hub.space("edits")
        await hub.space("map", ("view", {"spaceIds": ["edits", "base"]}))
        await hub.put("base", feature("a", n=1), feature("b", n=1))
        await hub.delete("map", "a")
        await hub.write("map", feature("b", m=2))
        assert await hub.read("map") == {"b": {"n": 1, "m": 2}}
        with pytest.raises(NotSupported, match="several storages"):
            await hub.read("map", ref="1")
        assert await hub.read("map", ref="HEAD") == await hub.read("map", ref="main:HEAD")

    @pytest.mark.parametrize("storage", [None, "other"])
    async def test_features_brought_up_during_a_read_appear_once(
        self, any_hub: HubUnderTest, tmp_path: Path, storage: str | None
    ) -> None:
        """Between the top, of which the first features are there, and what lies below."""
        hub = any_hub
        await hub.storage("other", f"file:{tmp_path}/other.naksha")
        await hub.space("base", storage=storage)
        await hub.space("edits")
        await hub.space("map", ("view", {"spaceIds": ["edits", "base"]}))
        await hub.put("base", *(feature(id, n=1) for id in "bcde"))
        await hub.put("edits", feature("a", n=1))
        answer = await hub.realm.send("map", ReadFeatures(), CONTEXT)
        await hub.put("map", feature("c", n=2))
        await hub.delete("map", "d")
        assert sorted(state.id for state in await answer.all()) == [*"abcde"]
        assert await hub.read("map") == {
            **{id: {"n": 1} for id in "abe"},
            "c": {"n": 2},
        }

    @pytest.mark.parametrize("asked_before", [1, 2, 3, 4])
    async def test_features_brought_up_during_a_read_by_id_appear_once(
        self, hub: HubUnderTest, monkeypatch: pytest.MonkeyPatch, asked_before: int
    ) -> None:
        """Whichever question to a layer it happens after."""
        await two_layers(hub)
        await hub.put("base", feature("a", n=1))
        ask, left = SpaceLayer.send, iter(range(1, 99))

        async def asked(self: SpaceLayer, event: Event, request: Any) -> Any:
            answer = await ask(self, event, request)
            if next(left) == asked_before:
                await hub.put("edits", feature("a", n=2))
            return answer

        monkeypatch.setattr(SpaceLayer, "send", asked)
        assert [state.id for state in await hub.states("map", Query(ids=("a",)))] == ["a"]

    @pytest.mark.parametrize(
        ("e", "ne"),
        [
            (IfExists.PATCH, IfNotExists.RETAIN),
            (IfExists.PATCH, IfNotExists.CREATE),
            (IfExists.REPLACE, IfNotExists.RETAIN),
            (IfExists.DELETE, IfNotExists.RETAIN),
        ],
    )
    async def test_features_deleted_while_brought_up_stay_deleted(
        self,
        any_hub: HubUnderTest,
        monkeypatch: pytest.MonkeyPatch,
        e: IfExists,
        ne: IfNotExists,
    ) -> None:
        hub = any_hub
        await two_layers(hub)
        await hub.put("base", feature("a", n=1, m=1), feature("b", n=1))
        ask, meanwhile = SpaceLayer.send, iter(["a"])

        async def asked(self: SpaceLayer, event: Event, request: Any) -> Any:
            if isinstance(request, WriteFeatures):
                for id in meanwhile:
                    await hub.delete("map", id)
            return await ask(self, event, request)

        monkeypatch.setattr(SpaceLayer, "send", asked)
        patch = {"type": "Feature", "id": "a", "properties": {"n": 2}}
        features = () if e is IfExists.DELETE else (patch, {**patch, "id": "b"})
        ids = ("a", "b") if e is IfExists.DELETE else ()
        written = await hub.write("map", *features, ids=ids, e=e, ne=ne)
        found = await hub.read("map")
        # Who creates what is not there creates what was sent, nothing of what was deleted.
        assert found.get("a") == ({"n": 2} if ne is IfNotExists.CREATE else None)
        assert written.inserted == (("a",) if ne is IfNotExists.CREATE else ())
        assert found.get("b") == (None if e is IfExists.DELETE else {"n": 2})
        assert (written.deleted or written.updated) == ("b",)

    async def test_a_layer_without_history_is_read_as_it_is(self, any_hub: HubUnderTest) -> None:
        hub = any_hub
        collection = {"id": "edits", "historyEnabled": False}
        await hub.space("edits", ("storage", {"collection": collection}))
        await hub.space("base")
        await hub.space("map", ("view", {"spaceIds": ["edits", "base"]}))
        await hub.put("base", *(feature(id, n=1) for id in "bcd"))
        await hub.put("edits", feature("a", n=1))
        answer = await hub.realm.send("map", ReadFeatures(), CONTEXT)
        await hub.put("edits", feature("a", n=2))
        assert sorted(state.id for state in await answer.all()) == [*"abcd"]

    async def test_a_view_cannot_contain_itself(self, hub: HubUnderTest) -> None:
        await hub.space("a")
        await hub.space("b", ("view", {"spaceIds": ["a"]}))
        await hub.space("c", ("view", {"spaceIds": ["b"]}))

        def circle(old: Connector) -> Connector:
            return Connector(id=old.id, class_name="view", properties={"spaceIds": ["c"]})

        with pytest.raises(InvalidArgument, match="reference itself"):
            await hub.realm.registry.change(Connector, "b-0-view", circle, ACTOR)


class TestPages:
    @pytest.mark.parametrize("size", [1, 2, 3, 7, 100])
    async def test_pages_are_in_the_order_of_the_ids(self, hub: HubUnderTest, size: int) -> None:
        await two_layers(hub)
        ids = [f"{n:02}" for n in range(20)]
        await hub.put("base", *(feature(id, n=1) for id in ids if int(id) % 2))
        await hub.put("edits", *(feature(id, n=2) for id in ids if int(id) % 3 == 0))
        await hub.delete("map", "09", "11")
        left = [id for id in ids if int(id) % 2 or int(id) % 3 == 0]
        left = [id for id in left if id not in ("09", "11")]
        pages = await hub.pages("map", Query(limit=size))
        assert [id for page in pages for id in page] == left
        assert all(len(page) == size for page in pages[:-1])

    async def test_many_chunks(self, hub: HubUnderTest, monkeypatch: pytest.MonkeyPatch) -> None:
        """A result larger than a chunk is read, masked and counted chunk by chunk."""
        monkeypatch.setattr(limits, "READ_CHUNK_FEATURES", 4)
        monkeypatch.setattr("naksha.hub.handlers.views.layers.READ_CHUNK_FEATURES", 4)
        await two_layers(hub)
        ids = [f"{n:03}" for n in range(40)]
        await hub.put("base", *(feature(id, n=1) for id in ids))
        await hub.put("edits", *(feature(id, n=2) for id in ids[::3]))
        await hub.delete("map", *ids[1::7])
        wanted = [id for id in ids if id not in ids[1::7]]
        assert sorted(await hub.read("map")) == wanted
        assert await hub.count("map") == len(wanted)
        assert await hub.count("map", Query(ids=tuple(ids[:9]))) == 9 - 2
        assert [i for page in await hub.pages("map", Query(limit=30)) for i in page] == wanted
        assert len(await hub.states("map", Query(limit=5))) == 5

    async def test_later_pages_are_of_the_version_of_the_first(self, any_hub: HubUnderTest) -> None:
        hub = any_hub
        await two_layers(hub)
        await hub.put("base", *(feature(id, n=1) for id in "abcdef"))
        await hub.put("edits", *(feature(id, n=2) for id in "bdf"))
        request = ReadFeatures(query=Query(limit=2), paged=True)
        answer = await hub.realm.send("map", request, CONTEXT)
        assert [state.id for state in await answer.all()] == ["a", "b"]
        await hub.put("base", feature("c", n=9), feature("ca", n=9))
        rest = ReadFeatures(query=Query(limit=9, cursor=answer.cursor), paged=True)
        answer = await hub.realm.send("map", rest, CONTEXT)
        found = {state.id: state.feature["properties"]["n"] for state in await answer.all()}
        assert found == {"c": 1, "d": 2, "e": 1, "f": 2}
        assert answer.cursor is None

    async def test_features_brought_up_between_pages_appear_once(
        self, any_hub: HubUnderTest
    ) -> None:
        hub = any_hub
        await two_layers(hub)
        await hub.space("mine")
        await hub.space("my-map", ("view", {"spaceIds": ["mine", "map"]}))
        await hub.put("base", *(feature(id, n=1) for id in "abcdef"))
        for view in ("map", "my-map"):
            request = ReadFeatures(query=Query(limit=2), paged=True)
            answer = await hub.realm.send(view, request, CONTEXT)
            first = [state.id for state in await answer.all()]
            await hub.put(view, feature("d", n=2))
            await hub.delete(view, "e")
            rest = ReadFeatures(query=Query(limit=9, cursor=answer.cursor), paged=True)
            answer = await hub.realm.send(view, rest, CONTEXT)
            found = [state.id for state in await answer.all()]
            assert first + found == [*"abcdef"]
            await hub.put(view, feature("e", n=1))

    async def test_layers_without_history_are_paged_too(self, any_hub: HubUnderTest) -> None:
        hub = any_hub
        await hub.space("edits")
        collection = {"id": "base", "historyEnabled": False}
        await hub.space("base", ("storage", {"collection": collection}))
        await hub.space("map", ("view", {"spaceIds": ["edits", "base"]}))
        await hub.put("base", *(feature(id, n=1) for id in "abc"))
        await hub.put("base", feature("b", n=2))
        await hub.put("edits", feature("c", n=2))
        assert await hub.pages("map", Query(limit=2)) == [["a", "b"], ["c"]]

    async def test_a_foreign_cursor_is_refused(self, hub: HubUnderTest) -> None:
        await two_layers(hub)
        for cursor in ("", "v.", "v.bm9uZQ==", "WzEsImEiLDFd"):
            with pytest.raises(InvalidArgument):
                await hub.pages("map", Query(limit=2, cursor=cursor))


class TestVersionsOfSeveralStorages:
    async def test_layers_are_read_at_one_moment(
        self, hub: HubUnderTest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A feature goes from below to the top, and is then deleted below, while the view looks
        for the versions that it reads: after each of its questions in turn."""
        await hub.storage("other", f"file:{tmp_path}/other.naksha")
        await hub.space("top")
        await hub.space("middle", storage="other")
        await hub.space("base")
        await hub.space("wide", ("view", {"spaceIds": ["top", "middle", "base"]}))
        ask, moves = SpaceLayer.send, deque[str]()

        async def asked(self: SpaceLayer, event: Event, request: Any) -> Any:
            answer = await ask(self, event, request)
            if isinstance(request, GetVersion) and moves and (id := moves.popleft()):
                await hub.put("top", feature(id))
                await hub.delete("middle", id)
            return answer

        monkeypatch.setattr(SpaceLayer, "send", asked)
        for paged in (False, True):
            for questions in range(4):
                id = f"f{questions}-{paged}"
                await hub.put("middle", feature(id))
                moves.extend([*[""] * questions, id])
                found = [state.id for state in await hub.states("wide", paged=paged)]
                assert found.count(id) == 1
                assert not moves

    async def test_layers_of_one_storage_have_one(
        self, hub: HubUnderTest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        await hub.storage("other", f"file:{tmp_path}/other.naksha")
        await hub.space("top")
        await hub.space("middle", storage="other")
        await hub.space("base")
        await hub.space("wide", ("view", {"spaceIds": ["top", "middle", "base"]}))
        await hub.put("top", feature("a"))
        await hub.put("middle", feature("b"))
        asked_for: list[str] = []
        ask = SpaceLayer.send

        async def asked(self: SpaceLayer, event: Event, request: Any) -> Any:
            if isinstance(request, GetVersion):
                asked_for.append(self.space_id)
            return await ask(self, event, request)

        monkeypatch.setattr(SpaceLayer, "send", asked)
        assert sorted(await hub.read("wide")) == ["a", "b"]
        assert asked_for == ["top", "middle"] * 2


class TestVersions:
    async def test_a_version_is_passed_on_within_one_storage(self, any_hub: HubUnderTest) -> None:
        hub = any_hub
        await two_layers(hub)
        one = await hub.put("base", feature("a", n=1), feature("b", n=1))
        two = await hub.delete("map", "a")
        three = await hub.put("map", feature("a", n=3), feature("b", n=3))
        assert await hub.read("map", ref=str(one.version)) == {"a": {"n": 1}, "b": {"n": 1}}
        assert await hub.read("map", ref=str(two.version)) == {"b": {"n": 1}}
        assert await hub.read("map", ref=str(three.version)) == {"a": {"n": 3}, "b": {"n": 3}}
        assert await hub.count("map", ref=str(two.version)) == 1
        assert await hub.pages("map", Query(limit=1), ref=str(one.version)) == [["a"], ["b"]]

    async def test_names_of_one_space_and_histories_are_refused(self, hub: HubUnderTest) -> None:
        await two_layers(hub)
        await hub.put("base", feature("a", n=1))
        for ref in ("summer", "fix:HEAD"):
            with pytest.raises(NotSupported, match="tags and branches"):
                await hub.read("map", ref=ref)
            with pytest.raises(NotSupported, match="no branches"):
                await hub.put("map", feature("a"), ref=ref)
        with pytest.raises(InvalidArgument, match="range"):
            await hub.read("map", ref="0..1")
        with pytest.raises(NotSupported, match="history"):
            await hub.read("map", Query(states=States.ALL))


class TestUnion:
    async def test_features_of_all_spaces_are_returned(self, any_hub: HubUnderTest) -> None:
        hub = any_hub
        await hub.space("roads")
        await hub.space("rails")
        await hub.space("ways", ("view", {"spaceIds": ["roads", "rails"], "viewType": "UNION"}))
        await hub.put("roads", feature("a", n=1), feature("b", n=1))
        await hub.put("rails", feature("b", n=2), feature("c", n=2))
        found = [(s.id, s.xyz["space"]) for s in await hub.states("ways")]
        assert sorted(found) == [("a", "roads"), ("b", "rails"), ("b", "roads"), ("c", "rails")]
        assert await hub.count("ways") == 4
        for size in (1, 2, 3, 4):
            pages = await hub.pages("ways", Query(limit=size))
            assert [id for page in pages for id in page] == ["a", "b", "b", "c"]

    async def test_writes_go_to_the_top_and_nothing_is_hidden(self, hub: HubUnderTest) -> None:
        await hub.space("roads")
        await hub.space("rails")
        await hub.space("ways", ("view", {"spaceIds": ["roads", "rails"], "viewType": "UNION"}))
        await hub.put("rails", feature("a", n=2))
        assert (await hub.write("ways", feature("a", n=1))).inserted == ("a",)
        await hub.delete("ways", "a")
        assert await hub.read("ways") == {"a": {"n": 2}}


class TestConfiguration:
    @pytest.mark.parametrize(
        "properties",
        [
            {},
            {"spaceIds": []},
            {"spaceIds": "a"},
            {"spaceIds": ["a", "a"]},
            {"spaceIds": [1]},
            {"spaceIds": ["a"], "viewType": "SIDEWAYS"},
        ],
    )
    async def test_invalid_views_are_rejected(
        self, hub: HubUnderTest, properties: dict[str, object]
    ) -> None:
        await hub.space("a")
        with pytest.raises(InvalidArgument) as refused:
            await hub.space("map", ("view", properties))
        assert (refused.value.field or "").startswith("properties.")


async def test_valid_features_are_written_despite_failures(hub: HubUnderTest) -> None:
    await two_layers(hub)
    await hub.put("base", feature("a", n=1), feature("p", n=1))
    nowhere = {"type": "Point", "coordinates": []}
    wrong = {**feature("b"), "geometry": nowhere}
    kept = await hub.write("map", feature("a"), wrong, e=IfExists.RETAIN, transactional=False)
    assert (kept.retained, [one.id for one in kept.failed]) == (("a",), ["b"])
    with pytest.raises(FeatureExists) as refused:
        await hub.write("map", feature("a"), wrong, e=IfExists.ERROR, transactional=False)
    assert [one.id for one in refused.value.failures] == ["a", "b"]
    patch = {**feature("p", n=2), "geometry": nowhere}
    done = await hub.write("map", patch, feature("c"), transactional=False)
    assert (done.inserted, done.updated) == (("c",), ())
    assert [one.id for one in done.failed] == ["p"]
    assert (await hub.read("map"))["p"] == {"n": 1}


async def test_readers_of_a_view_do_not_wait_for_each_other(any_hub: HubUnderTest) -> None:
    """Each streams the base, and asks what is hidden of it meanwhile; there are more of them than
    the storage has connections."""
    hub = any_hub
    await two_layers(hub)
    await hub.put("base", *(feature(f"f{number:04}") for number in range(2_500)))
    await hub.put("map", feature("f0001", n=2))
    async with asyncio.timeout(25):
        found = await asyncio.gather(*(hub.states("map") for _ in range(24)))
    assert {len(states) for states in found} == {2_500}
