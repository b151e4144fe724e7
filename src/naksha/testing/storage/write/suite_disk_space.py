"""Conformance: states returned with the name of a space in their namespace."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from naksha.model import query as q
from naksha.model.errors import InvalidArgument
from naksha.model.query import Query, States
from naksha.model.state import XYZ, State
from naksha.model.version import HEAD, VersionSelector
from naksha.testing.models.strategies import NASTY_TEXTS
from naksha.testing.storage.read.suite_query import Zoo
from naksha.testing.storage.suite_support import Handle, feature, ids_of, point, seq


async def check(handle: Handle, query: Query, space: str, at: VersionSelector = HEAD) -> None:
    """Check that states with the space equal those without it in all other members."""
    wanted = await handle.states(query, at)
    requested = msgspec.structs.replace(query, space=space)
    for found in (
        await handle.states(requested, at),
        (await handle.storage.page(handle.name, requested, at)).states,
    ):
        found = found if query.limit is not None else sorted(found, key=lambda s: (s.id, s.txn))
        assert ids_of(found) == ids_of(wanted)
        for state, plain in zip(found, wanted, strict=True):
            assert state.xyz["space"] == space
            assert without_space(state) == plain.feature
    assert await handle.storage.count(handle.name, requested, at) == len(
        await handle.states(msgspec.structs.replace(query, limit=None), at)
    )


def without_space(state: State) -> dict[str, Any]:
    """Return the feature without the space, with the other numbers as in the text."""
    properties = state.feature["properties"]
    xyz = {key: value for key, value in properties[XYZ].items() if key != "space"}
    return state.feature | {"properties": properties | {XYZ: xyz}}


class TestSpace:
    @pytest.mark.parametrize("kind", States)
    async def test_at_head_and_at_versions(self, zoo: Zoo, kind: States) -> None:
        for at in zoo.versions:
            for query in (Query(states=kind), Query(states=kind, limit=5)):
                await check(zoo, query, "roads", at)

    @pytest.mark.parametrize("text", [*NASTY_TEXTS, "", "{{table}}", "$1", "\\1", "?1"])
    async def test_any_text_is_just_text(self, zoo: Zoo, text: str) -> None:
        await check(zoo, Query(limit=3), text)

    async def test_it_is_not_a_filter(self, zoo: Zoo) -> None:
        for query in (
            Query(ids=("f01", "f02")),
            Query(spatial=q.Bbox(-90, -45, 90, 45)),
            Query(tags=(("a",), ("b",))),
            Query(where=q.Test(("properties", XYZ, "space"), q.Op.EXISTS)),
        ):
            await check(zoo, query, "f01")

    async def test_content_may_hold_namespaces_too(self, places: Handle) -> None:
        """Properties may hold copies of other features; the space must not be added to those."""
        await places.create(point("x"))
        other = (await places.get("x")).feature
        inner = {XYZ: other["properties"][XYZ], "properties": {XYZ: {}}}
        await places.create(
            feature("before", a=other, b={XYZ: {}}) | {"a": {"properties": {XYZ: {}}}},
            feature("after", zzzzzzzzzzzzzzzzzzzzzzzz=other, list=[other, inner]),
            feature("text", a=f'"properties":{{"{XYZ}":{{', b=f'"{XYZ}": {{') | {"z": inner},
            feature("brace", a="{", b="}") | {"{": "{", XYZ: {"space": "mine"}, "a": '\\"{'},
            {"first": {"properties": {XYZ: {"x": 1}}}} | feature("first"),
            {"first": [{"properties": {XYZ: {}}}], "brace": "{"} | feature("list"),
            feature("empty"),
        )
        await check(places, Query(), "the space")

    async def test_pages_go_on(self, zoo: Zoo) -> None:
        query = Query(space="roads", limit=7)
        found: list[State] = []
        while True:
            page = await zoo.storage.page(zoo.name, query)
            found += page.states
            if page.cursor is None:
                break
            query = msgspec.structs.replace(query, cursor=page.cursor)
        assert [without_space(state) for state in found] == [s.feature for s in await zoo.live()]

    async def test_replaced_states_have_it_too(self, places: Handle) -> None:
        await places.create(point("x", n=1), point("y"))
        before = await places.published()
        await places.update(point("x", n=2))
        await check(places, Query(replaced_since=before.txn), "roads")
        await check(places, Query(), "roads", seq(before))

    async def test_inside_a_session(self, places: Handle) -> None:
        async with places.storage.write("app") as session:
            await session.create(places.name, [point("x")])
            page = await session.page(places.name, Query(space="roads"))
            assert [state.xyz["space"] for state in page.states] == ["roads"]

    async def test_storages_keep_none(self, places: Handle) -> None:
        await places.create(feature("x", xyz={"space": "mine"}))
        (state,) = await places.states(Query(space="roads"))
        assert state.xyz["space"] == "roads"
        await places.upsert(state.feature)
        assert "space" not in (await places.get("x")).xyz

    async def test_a_text_that_no_storage_can_hold_is_refused(self, zoo: Zoo) -> None:
        for text in ("\0", "\ud800"):
            with pytest.raises(InvalidArgument):
                await zoo.states(Query(space=text))

    async def test_it_is_not_read_in_bulk(self, zoo: Zoo) -> None:
        with pytest.raises(InvalidArgument):
            await zoo.storage.plan(zoo.name, Query(space="roads"))
