"""Layered views compared with a model of plain dictionaries.

After any writes to layers and through views, they show what the model shows, for any filter and
page size.
"""

import asyncio
import itertools
from collections.abc import Iterator
from contextlib import AsyncExitStack
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from naksha.hub.pipeline.requests import IfExists
from naksha.model.query import And, Not, Op, Or, Predicate, Query, States
from naksha.model.query import Test as PropertyTest
from naksha.testing.models.brute_force import holds
from tests.hub.handlers.support import HubUnderTest, feature, open_hub

IDS = tuple("abcdefg")
LAYERS = ("top", "middle", "bottom")
VIEWS = ("flat", "nested")
CHUNK = 3
"""So small that everything takes several."""


class Edit(NamedTuple):
    """Features that are put, patched or deleted, in a layer or through a view."""

    what: str
    where: str
    ids: tuple[str, ...]
    properties: dict[str, int]


PROPERTIES = st.dictionaries(st.sampled_from("nm"), st.integers(0, 3), max_size=2)
EDITS = st.builds(
    Edit,
    st.sampled_from(["put", "patch", "delete", "delete"]),
    st.sampled_from([*LAYERS, *VIEWS]),
    st.lists(st.sampled_from(IDS), min_size=1, max_size=4, unique=True).map(tuple),
    PROPERTIES,
)
TESTS: st.SearchStrategy[Predicate] = st.builds(
    lambda name, op, value: PropertyTest(("properties", name), op, value),
    st.sampled_from("nm"),
    st.sampled_from([Op.EQ, Op.NE, Op.GTE, Op.EXISTS]),
    st.integers(0, 3),
)
FILTERS = st.none() | st.recursive(
    TESTS,
    lambda inner: (
        st.builds(Not, inner)
        | st.lists(inner, max_size=2).map(tuple).map(And)
        | st.lists(inner, max_size=2).map(tuple).map(Or)
    ),
    max_leaves=3,
)
SOME_IDS = st.none() | st.lists(st.sampled_from(IDS), max_size=4).map(tuple)


class Model:
    """For each layer its features; None for those that were deleted."""

    def __init__(self) -> None:
        self.layers: dict[str, dict[str, dict[str, int] | None]] = {name: {} for name in LAYERS}

    def seen(self, id: str) -> dict[str, int] | None:
        """The properties of a feature as the views show it."""
        return next((layer[id] for layer in self.layers.values() if id in layer), None)

    def apply(self, edit: Edit) -> None:
        layer = self.layers[LAYERS[0] if edit.where in VIEWS else edit.where]
        for id in edit.ids:
            head = self.seen(id) if edit.where in VIEWS else layer.get(id)
            if edit.what == "put":
                layer[id] = dict(edit.properties)
            elif edit.what == "patch":
                layer[id] = {**(head or {}), **edit.properties}
            elif head is not None:
                layer[id] = None

    def live(self) -> dict[str, dict[str, int]]:
        found = {id: self.seen(id) for id in IDS}
        return {id: value for id, value in found.items() if value is not None}

    def deleted(self) -> list[str]:
        known = {id for layer in self.layers.values() for id in layer}
        return sorted(id for id in known if self.seen(id) is None)


class Player:
    """Does the same to a hub, each time in new collections of it."""

    def __init__(self, hub: HubUnderTest) -> None:
        self._hub = hub
        self._numbers = itertools.count()

    async def begin(self) -> None:
        self._prefix = f"s{next(self._numbers)}-"
        for name in LAYERS:
            await self._hub.space(self._prefix + name)
        top, middle, bottom = (self._prefix + name for name in LAYERS)
        below = self._prefix + "below"
        await self._view("flat", top, middle, bottom)
        await self._view("below", middle, bottom)
        await self._view("nested", top, below)

    async def _view(self, name: str, *layers: str) -> None:
        await self._hub.space(self._prefix + name, ("view", {"spaceIds": list(layers)}))

    async def apply(self, edit: Edit) -> None:
        space = self._prefix + edit.where
        if edit.what == "delete":
            await self._hub.delete(space, *edit.ids)
            return
        features = [{**feature(id), "properties": {**edit.properties}} for id in edit.ids]
        how = IfExists.REPLACE if edit.what == "put" else IfExists.PATCH
        await self._hub.write(space, *features, e=how)

    async def check(self, model: Model, where: Predicate | None, ids: Any, size: int) -> None:
        wanted = {
            id: value
            for id, value in model.live().items()
            if (ids is None or id in ids) and (where is None or holds({"properties": value}, where))
        }
        query = Query(where=where, ids=ids)
        for view in VIEWS:
            space = self._prefix + view
            assert await self._hub.read(space, query) == wanted
            assert await self._hub.count(space, query) == len(wanted)
            pages = await self._hub.pages(space, Query(where=where, ids=ids, limit=size))
            assert [id for page in pages for id in page] == [*wanted]
            assert all(len(page) == size for page in pages[:-1])
            some = await self._hub.states(space, Query(where=where, ids=ids, limit=size))
            assert len(some) == min(size, len(wanted))
            gone = await self._hub.states(space, Query(states=States.DELETED))
            assert sorted(state.id for state in gone) == model.deleted()


@pytest.fixture(scope="module")
def player(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[asyncio.Runner, Player]]:
    """One hub for all examples, since opening one takes longer than an example."""
    location = f"file:{tmp_path_factory.mktemp('model')}/{{realm}}.naksha"
    with asyncio.Runner() as runner:
        stack = AsyncExitStack()
        hub = runner.run(stack.enter_async_context(open_hub(location)))
        yield runner, Player(hub)
        runner.run(stack.aclose())


async def play(
    player: Player,
    edits: list[Edit],
    where: Predicate | None,
    ids: tuple[str, ...] | None,
    size: int,
) -> None:
    model = Model()
    await player.begin()
    # Where nothing lies below nothing can come back.
    for edit in [Edit("put", "bottom", IDS, {"n": 1}), *edits]:
        model.apply(edit)
        await player.apply(edit)
    await player.check(model, where, ids, size)


@given(st.lists(EDITS, max_size=8), FILTERS, SOME_IDS, st.integers(1, 4))
@settings(max_examples=20)
def test_views_equal_the_model(
    player: tuple[asyncio.Runner, Player],
    edits: list[Edit],
    where: Predicate | None,
    ids: tuple[str, ...] | None,
    size: int,
) -> None:
    runner, one = player
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("naksha.model.limits.READ_CHUNK_FEATURES", CHUNK)
        patch.setattr("naksha.hub.handlers.views.layers.READ_CHUNK_FEATURES", CHUNK)
        runner.run(play(one, edits, where, ids, size))


@pytest.mark.long
@given(st.lists(EDITS, max_size=20), FILTERS, SOME_IDS, st.integers(1, 4))
@settings(max_examples=300)
def test_views_equal_the_model_after_many_edits(
    player: tuple[asyncio.Runner, Player],
    edits: list[Edit],
    where: Predicate | None,
    ids: tuple[str, ...] | None,
    size: int,
) -> None:
    runner, one = player
    runner.run(play(one, edits, where, ids, size))
