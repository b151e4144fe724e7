"""Transformation of features on write or on read.

    {"onWrite": [{"op": "rename", "from": "properties.maxSpeed", "to": "properties.speed"}],
     "onRead":  [{"op": "remove", "path": "properties.internal"}]}

`transformation` lists the steps. A property renamed on read is queried by its new name; other
properties changed on read cannot be queried, so that queries disclose nothing that is hidden. In a
space without a storage, where this handler is the last one, a write returns the changed features
and stores nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Final

import msgspec

from naksha.hub.handlers.passthrough import Feature, with_features, with_query, with_states
from naksha.hub.handlers.transformation import TransformStep, Unconvertible, steps_of, stored_path
from naksha.hub.handlers.writes.head_writes import (
    Heads,
    is_patch,
    with_patches_applied,
    write_over_heads,
)
from naksha.hub.handlers.writes.write_parts import with_ids
from naksha.hub.pipeline.pipeline import Event, Setup
from naksha.hub.pipeline.requests import (
    CountFeatures,
    DeleteFeatures,
    FindStorages,
    GetVersion,
    ReadFeatures,
    WriteFeatures,
)
from naksha.hub.pipeline.responses import Features, Written
from naksha.model.errors import Conflict, InvalidArgument, NotImplementedHere
from naksha.model.features import generate_ids
from naksha.model.query import And, Not, Or, Predicate, Query
from naksha.model.query import Test as PropertyTest
from naksha.model.state import State

_UNDERSTOOD: Final = (
    *(ReadFeatures, CountFeatures, DeleteFeatures),
    *(GetVersion, FindStorages),
)
"""Requests supported when features are changed on read. Responses to other requests would show
features as they are stored."""


class TransformHandler:
    """Handler that applies the configured steps."""

    metric_name: ClassVar[str] = "TransformHandler"

    def __init__(self, setup: Setup) -> None:
        properties = setup.connector.properties
        self._on_write = steps_of(properties.get("onWrite"), "properties.onWrite")
        self._on_read = steps_of(properties.get("onRead"), "properties.onRead")
        self._needs_whole = any(step.needs_whole for step in self._on_write)

    async def process(self, event: Event) -> Any:
        request = event.request
        if isinstance(request, WriteFeatures):
            try:
                return self._shown_after(await self._write(event, request))
            except Conflict as error:
                if error.head is not None:
                    error.head = self._changed_on_read(error.head)
                raise
        if not self._on_read:
            return await event.send_upstream()
        if not isinstance(request, _UNDERSTOOD):
            raise NotImplementedHere(
                "This space changes features on read, so it does not support the request "
                f"{type(request).__name__}; use the space that it is derived from"
            )
        response = await event.send_upstream(with_query(request, self._stored_query))
        return (
            await with_states(response, self._shown) if isinstance(response, Features) else response
        )

    # ---- Reading -----------------------------------------------------------------------------

    def _stored_query(self, query: Query) -> Query:
        if query.where is None:
            return query
        return msgspec.structs.replace(query, where=self._stored(query.where))

    def _stored(self, predicate: Predicate) -> Predicate:
        match predicate:
            case And(parts):
                return And(tuple(map(self._stored, parts)))
            case Or(parts):
                return Or(tuple(map(self._stored, parts)))
            case Not(part):
                return Not(self._stored(part))
            case PropertyTest(path, op, value):
                return PropertyTest(stored_path(self._on_read, path), op, value)

    def _shown(self, state: State) -> State:
        return State(state.id, msgspec.json.encode(self._changed_on_read(state.feature)))

    def _changed_on_read(self, feature: Feature) -> Feature:
        for step in self._on_read:
            try:
                feature = step.apply(feature)
            except Unconvertible:
                continue  # shown unchanged
        return feature

    def _shown_after(self, written: Written) -> Written:
        if not self._on_read:
            return written
        return msgspec.structs.replace(
            written,
            states=tuple(map(self._shown, written.states)),
            tombstones=tuple(map(self._shown, written.tombstones)),
        )

    # ---- Writing -----------------------------------------------------------------------------

    async def _write(self, event: Event, request: WriteFeatures) -> Written:
        request = with_ids(request)
        if event.is_last:
            return _echo(with_features(request, lambda feature, _: self._changed(feature)))
        ids: set[str] = set()
        if self._needs_whole:
            patches = [one for one in request.modifications if is_patch(one)]
            ids = {f["id"] for one in patches for f in one.features if isinstance(f.get("id"), str)}

        async def change(heads: Heads) -> WriteFeatures:
            patched = with_patches_applied(request, heads)
            return with_features(patched, lambda feature, _: self._changed(feature))

        return await write_over_heads(event, request, ids, change)

    def _changed(self, feature: Feature) -> Feature:
        return changed(self._on_write, feature)


def changed(steps: Sequence[TransformStep], feature: Feature) -> Feature:
    """Apply all steps to a feature.

    Raises:
        InvalidArgument: A value cannot be converted.
    """
    try:
        for step in steps:
            feature = step.apply(feature)
    except Unconvertible as error:
        raise InvalidArgument(str(error), feature_id=feature.get("id")) from error
    return feature


def _echo(request: WriteFeatures) -> Written:
    """Return the features as written; nothing is stored."""
    features = [feature for one in request.modifications for feature in one.features]
    missing = iter(generate_ids(len(features)))
    named = [{**f, "id": f["id"] if f.get("id") else next(missing)} for f in features]
    states = tuple(State(str(f["id"]), msgspec.json.encode(f)) for f in named)
    return Written(states=states if request.returning else ())
