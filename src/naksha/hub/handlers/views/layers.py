"""Layers of a view, and which features the upper ones hide of the lower ones.

A feature in a layer, live or deleted, hides the feature with its id in all layers below, unless it
was deleted so that they show through (`Modification.unmasks`). The whole layer is checked, not
only the features that match a filter: a feature changed so that a query no longer matches it must
not reappear as it was before.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Collection, Iterable, Iterator, Sequence
from contextlib import aclosing
from itertools import islice
from typing import Final, NamedTuple, Protocol, TypeVar, cast

import msgspec

from naksha.hub.pipeline.pipeline import Event
from naksha.hub.pipeline.requests import MASKS, ReadFeatures, Request
from naksha.hub.pipeline.responses import Features
from naksha.model.errors import Expired, Forbidden
from naksha.model.limits import READ_CHUNK_FEATURES
from naksha.model.query import Query, States
from naksha.model.state import XYZ, State

R = TypeVar("R")


class ViewLayer(Protocol):
    """A layer of a view."""

    async def send(self, event: Event, request: Request[R]) -> R:
        """Send a request to the layer and return its response."""


class SpaceLayer(NamedTuple):
    """Another space, with its own pipeline and its own rights."""

    space_id: str

    async def send(self, event: Event, request: Request[R]) -> R:
        return await event.send_to(self.space_id, request)


class OwnLayer(NamedTuple):
    """The space's own features: the handlers after the view."""

    async def send(self, event: Event, request: Request[R]) -> R:
        response: R = await event.send_upstream(request)
        return response


class PinnedLayer(NamedTuple):
    """A layer at a version; `or_present` reads the current state if the version is expired."""

    layer: ViewLayer
    ref: str
    or_present: bool = False

    async def send(self, event: Event, request: Request[R]) -> R:
        try:
            return await self.layer.send(event, msgspec.structs.replace(request, ref=self.ref))
        except Expired:
            if not self.or_present:
                raise
            return await self.layer.send(event, request)


HIDING: Final = (Query(), Query(states=States.DELETED, where=MASKS))
"""Queries for the states that hide features of the layers below."""


class DeletionLayer(NamedTuple):
    """The lower features that a layer hides by its tombstones.

    Each has only its id and its namespace, with `deleted: true`.
    """

    layer: ViewLayer
    below: Sequence[ViewLayer]

    async def send(self, event: Event, request: Request[R]) -> R:
        assert isinstance(request, ReadFeatures)
        query = msgspec.structs.replace(request.query, states=States.DELETED, where=MASKS)
        response = await self.layer.send(event, msgspec.structs.replace(request, query=query))

        async def hidden(shown: Features) -> AsyncGenerator[Sequence[State], None]:
            async with aclosing(response):
                async for states in response:
                    below = LayerStack(event, self.below, request.ref)
                    heads = await below.readable_heads({state.id for state in states})
                    yield [_marked(state) for state in states if state.id in heads]
            shown.cursor = response.cursor

        return cast(R, await Features.with_first_read(hidden))


def _marked(state: State) -> State:
    feature = {
        "type": "Feature",
        "id": state.id,
        "geometry": None,
        "properties": {XYZ: {**state.xyz, "deleted": True}},
    }
    return State(state.id, msgspec.json.encode(feature))


class LayerStack(NamedTuple):
    """Layers as one event reads them, topmost first.

    All layers are read at `ref`, unless `pins` has a version for each of them. With `only_ids`,
    only the existence of features matters.
    """

    event: Event
    layers: Sequence[ViewLayer]
    ref: str
    pins: tuple[str, ...] = ()
    only_ids: bool = False
    names_origin: bool = False

    def pinned(self, pins: tuple[str, ...], *, or_present: bool = False) -> LayerStack:
        """Return the stack with each layer at its pinned version.

        An empty pin reads the current state; with `or_present`, so does an expired version.
        """
        layers = [
            PinnedLayer(layer, pin, or_present) if pin else layer
            for layer, pin in zip(self.layers, pins, strict=True)
        ]
        return self._replace(layers=layers, pins=pins)

    def above(self, place: int) -> LayerStack:
        """Return the layers above a place, which hide features of its layer."""
        return self._replace(layers=self.layers[:place])

    async def unhidden(self, ids: Collection[str]) -> set[str]:
        """Return the ids that no layer has, live or deleted."""
        left = set(ids)
        for layer in self.layers:
            left -= await self.hidden_by(layer, left)
        return left

    async def hidden_by(self, layer: ViewLayer, ids: Collection[str]) -> set[str]:
        """Return the ids that a layer has, live or deleted, regardless of read rights."""
        left = set(ids)
        for hiding in HIDING:
            left -= {state.id for state in await self._find(layer, left, hiding, only_ids=True)}
        return {*ids} - left

    async def heads(self, ids: Collection[str]) -> dict[str, tuple[int, State]]:
        """Return the visible features with these ids, each with the place of its layer."""
        heads: dict[str, tuple[int, State]] = {}
        left = set(ids)
        for place, layer in enumerate(self.layers):
            live = await self.find(layer, left)
            left -= {state.id for state in live}
            hidden = await self.hidden_by(layer, left)
            # A feature that was created between the two reads is live, not hidden.
            live += await self.find(layer, hidden)
            heads |= {state.id: (place, state) for state in live}
            left -= hidden
        return heads

    async def readable_heads(self, ids: Collection[str]) -> dict[str, State]:
        """Return the same without places; empty if the actor may not read these layers."""
        try:
            return {id: state for id, (_, state) in (await self.heads(ids)).items()}
        except Forbidden:
            return {}

    async def find(self, layer: ViewLayer, ids: Collection[str]) -> list[State]:
        """Return the features that a layer has with these ids."""
        return await self._find(layer, ids, Query(), only_ids=False)

    async def _find(
        self, layer: ViewLayer, ids: Collection[str], query: Query, *, only_ids: bool
    ) -> list[State]:
        found: list[State] = []
        for some in chunks(sorted(ids)):
            space = None if self.names_origin else self.event.space.id
            query = msgspec.structs.replace(query, ids=tuple(some), space=space)
            request = ReadFeatures(query=query, ref=self.ref, only_ids=only_ids)
            found += await (await layer.send(self.event, request)).all()
        return found

    async def stream(self, layer: ViewLayer, query: Query) -> AsyncGenerator[Sequence[State], None]:
        """Yield all features of a layer that match a query, in chunks.

        Features of given ids are read completely before they are yielded: only streams may hold a
        connection while the consumer works.
        """
        if query.ids is not None:
            for ids in [*chunks(dict.fromkeys(query.ids))] or [[]]:
                part = msgspec.structs.replace(query, ids=tuple(ids))
                found = await layer.send(self.event, self._reading(part))
                yield await found.all()
            return
        async with aclosing(await layer.send(self.event, self._reading(query))) as response:
            async for states in response:
                for some in chunks(states):
                    yield some

    def _reading(self, query: Query) -> ReadFeatures:
        return ReadFeatures(query=query, ref=self.ref, only_ids=self.only_ids)


T = TypeVar("T")


def chunks(items: Iterable[T]) -> Iterator[list[T]]:
    """Split into chunks that fit into memory."""
    rest = iter(items)
    while some := list(islice(rest, READ_CHUNK_FEATURES)):
        yield some
