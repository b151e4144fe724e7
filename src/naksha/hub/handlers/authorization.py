"""Authorization, the first handler of every pipeline.

It runs before all other handlers, also when another space forwarded the request. Rights that cover
only some features narrow what is read and put a guard on what is written; a request that supports
neither is refused.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, ClassVar, Final

import msgspec

from naksha.hub.auth.resources import Resource
from naksha.hub.auth.rights import FEATURE_RIGHTS, FeatureScope, Right, Rights, forbidden
from naksha.hub.auth.row_rights import (
    RowGuard,
    predicate_of,
    rights_attributes_in,
    rights_attributes_of,
)
from naksha.hub.config.objects import Space
from naksha.hub.pipeline.pipeline import Event
from naksha.hub.pipeline.requests import ReadFeatures
from naksha.hub.pipeline.responses import Features, Written
from naksha.model.errors import Conflict, Forbidden, Inactive
from naksha.model.state import State

EVERYTHING: Final = FeatureScope(((),))
NOTHING: Final = FeatureScope(())


class Authorization:
    """Handler that checks the rights a request needs."""

    metric_name: ClassVar[str] = "Authorization"
    keeps_json: ClassVar[bool] = True

    def __init__(self, space: Space, features: Resource) -> None:
        self._space = space.resource()
        self._features = features
        self._is_active = space.active
        self._is_shared = space.shared

    async def process(self, event: Event) -> Any:
        rights = event.context.actor.rights
        if not self._may_use(rights):
            raise forbidden(Right.USE_SPACES, self._space)
        scopes = self._scopes(event)
        check_active(event.space)
        if event.request.guarded:
            return await self._guarded(event, scopes)
        partial = {right: scope for right, scope in scopes.items() if not scope.is_everything}
        if partial and event.request.tells_features:
            return await self._narrowed(event, partial)
        return await event.send_upstream()

    def scope(self, rights: Rights, right: Right) -> FeatureScope:
        """Return the features that a right covers, for callers without an event.

        Returns NOTHING for a space that the actor may not use or that is not active.
        """
        usable = self._is_active and self._may_use(rights)
        return self._scope(rights, right) if usable else NOTHING

    def _may_use(self, rights: Rights) -> bool:
        return self._is_shared or rights.allows(Right.USE_SPACES, self._space)

    def _scopes(self, event: Event) -> dict[Right, FeatureScope]:
        """Return the scope of each feature right that the request needs."""
        found: dict[Right, FeatureScope] = {}
        rights = event.context.actor.rights
        for right in event.request.needs():
            if right not in FEATURE_RIGHTS:
                rights.check(right, self._space)
                continue
            found[right] = self._scope(rights, right)
            if found[right].is_nothing:
                raise forbidden(right, self._features)
        return found

    def _scope(self, rights: Rights, right: Right) -> FeatureScope:
        """Return the features that a right covers; a shared space is readable by everyone."""
        if self._is_shared and right is Right.READ_FEATURES:
            return EVERYTHING
        return rights.scope(right, self._features)

    # ---- Reading -----------------------------------------------------------------------------

    async def _narrowed(self, event: Event, partial: dict[Right, FeatureScope]) -> Any:
        """Answer a read with only the features that the actor may read."""
        if isinstance(event.request, ReadFeatures) and event.request.is_about_ids:
            return _only_ids(await event.send_upstream())
        readable = partial.pop(Right.READ_FEATURES, None)
        request = None if readable is None else event.request.narrowed(predicate_of(readable))
        if request is None or readable is None or partial:
            raise self._only_some(event, readable, partial)
        response = await event.send_upstream(request)
        # A later handler may answer itself or send a different query, so filter the response too.
        return _readable(response, readable) if isinstance(response, Features) else response

    def _only_some(
        self, event: Event, readable: FeatureScope | None, partial: dict[Right, FeatureScope]
    ) -> Forbidden:
        right = Right.READ_FEATURES if readable is not None else next(iter(partial))
        return Forbidden(
            f"The right {right.value!r} is granted for only some features of the space "
            f"{event.space.id!r}, but the request {type(event.request).__name__} needs it for all "
            "of them; use a token or a role that grants it for all features",
            right=right.value,
            resource=str(self._features),
        )

    # ---- Writing -----------------------------------------------------------------------------

    async def _guarded(self, event: Event, scopes: dict[Right, FeatureScope]) -> Any:
        """Run a write whose changes are checked against the scopes.

        Existing features in the response (or the conflict's head) are removed if the actor may not
        read them.
        """
        context = event.context
        if not all(scope.is_everything for scope in scopes.values()):
            context = context.guarded(RowGuard(self._features, scopes))
        readable = self._scope(context.actor.rights, Right.READ_FEATURES)
        try:
            response = await event.send_upstream(context=context)
        except Conflict as error:
            if error.head is not None and not self._reads(readable, error.head):
                error.head = None
            raise
        if readable.is_everything or not isinstance(response, Written):
            return response
        own = {*response.inserted, *response.updated}
        return msgspec.structs.replace(
            response,
            states=tuple(
                one for one in response.states if one.id in own or is_in_scope(readable, one)
            ),
            tombstones=tuple(one for one in response.tombstones if is_in_scope(readable, one)),
        )

    def _reads(self, readable: FeatureScope, head: dict[str, Any]) -> bool:
        return readable.allows(rights_attributes_in(head).among(self._features).attributes)


def check_active(space: Space) -> None:
    """Raise Inactive if the space is not active."""
    if not space.active:
        raise Inactive(
            f"The space {space.id!r} is not active; its owner has to activate it", field="space"
        )


def is_in_scope(scope: FeatureScope, state: State) -> bool:
    """Whether a state is within a scope."""
    marks = rights_attributes_of(state)
    return scope.allows(
        {"id": marks.id, "tags": marks.tags, "appId": marks.app_id, "author": marks.author}
    )


def _readable(answer: Features, scope: FeatureScope) -> Features:
    """Keep only the features of a response that are within a scope."""
    return _map_states(
        answer, lambda states: [state for state in states if is_in_scope(scope, state)]
    )


def _only_ids(answer: Features) -> Features:
    """Reduce each feature of a response to its id and type."""
    return _map_states(
        answer,
        lambda states: [
            State(state.id, msgspec.json.encode({"id": state.id, "type": "Feature"}))
            for state in states
        ],
    )


def _map_states(answer: Features, change: Callable[[Sequence[State]], Sequence[State]]) -> Features:
    async def read(outer: Features) -> AsyncIterator[Sequence[State]]:
        try:
            async for states in answer:
                some = change(states)
                if some:
                    yield some
            outer.cursor = answer.cursor
        finally:
            await answer.aclose()

    return Features(read)
