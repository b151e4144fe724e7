"""Space lists: filters, and members computed in addition to the configuration."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from naksha.hub.auth.rights import Right
from naksha.hub.auth.row_scope import pipeline_of, scope_in
from naksha.hub.config.change_rights import is_visible
from naksha.hub.config.objects import Space
from naksha.hub.config.references import connectors_of
from naksha.hub.config.registry import ConfiguredRealm
from naksha.hub.config.space_names import spaces_with_tag
from naksha.hub.pipeline.request_context import Actor, RequestContext
from naksha.hub.query_language.content_time import Test
from naksha.hub.render.space_contents import UNKNOWN, SpaceSize, contents_updated_at, sizes

_SPACE_RIGHTS: Final = (Right.USE_SPACES, Right.MANAGE_SPACES, Right.ADMIN_SPACES)
_FEATURE_RIGHTS: Final = (
    Right.READ_FEATURES,
    Right.CREATE_FEATURES,
    Right.UPDATE_FEATURES,
    Right.DELETE_FEATURES,
)


class SpaceFilter(NamedTuple):
    """Conditions that a listed space must all meet."""

    owner: str = "*"
    """`me`, `others`, `*`, or an owner."""
    tags: frozenset[str] = frozenset()
    """If not empty, the space or one of its versions must have one of these tags."""
    region: str | None = None
    content_tests: tuple[Test, ...] = ()

    def takes(self, space: Space, actor: Actor, tagged: Collection[str] = ()) -> bool:
        """Return whether a space's configuration meets the conditions.

        `tagged` are the ids of spaces with a version tag of the filter. Content tests are not
        evaluated here.
        """
        is_mine = space.owner == actor.owner
        is_owned = {"*": True, "me": is_mine, "others": not is_mine}.get(
            self.owner, space.owner == self.owner
        )
        has_tag = not self.tags or space.id in tagged or not self.tags.isdisjoint(space.tags)
        return is_owned and has_tag and self.region in (None, space.region)


class SpaceListMembers(NamedTuple):
    """Computed members that the response includes for each space."""

    rights: bool = False
    connectors: bool = False
    counts: bool = False


async def visible_spaces(
    realm: ConfiguredRealm, where: SpaceFilter, members: SpaceListMembers, context: RequestContext
) -> list[dict[str, Any]]:
    """Return the spaces that the actor may see, as JSON, ordered by id."""
    actor = context.actor
    tagged = await spaces_with_tag(realm, where.tags) if where.tags else ()
    spaces = [
        space
        for space in await realm.registry.list(Space)
        if where.takes(space, actor, tagged) and is_visible(space, actor)
    ]
    computed: list[dict[str, Any]] = [{} for _ in spaces]
    if where.content_tests or members.counts:
        times = await contents_updated_at(realm, spaces)
        kept = [
            (space, {"contentUpdatedAt": time})
            for space, time in zip(spaces, times, strict=True)
            if not where.content_tests
            or (time is not None and all(test(time) for test in where.content_tests))
        ]
        spaces, computed = [space for space, _ in kept], [dict(more) for _, more in kept]
    if members.counts:
        for more, size in zip(computed, await _sizes(realm, spaces, context), strict=True):
            more.update(msgspec.to_builtins(size))
    for space, more in zip(spaces, computed, strict=True):
        if members.rights:
            more["rights"] = await _rights_on(space, context)
        if members.connectors:
            more["connectors"] = await _connectors(realm, space, actor)
    return [{**space.to_json(), **more} for space, more in zip(spaces, computed, strict=True)]


async def _sizes(
    realm: ConfiguredRealm, spaces: Sequence[Space], context: RequestContext
) -> list[SpaceSize]:
    """Return the sizes of spaces.

    The size is UNKNOWN if the actor may not read all features, or if a handler hides some.
    """
    shown = [space for space in spaces if await _shows_all(space, context)]
    known = dict(zip([space.id for space in shown], await sizes(realm, shown), strict=True))
    return [known.get(space.id, UNKNOWN) for space in spaces]


async def _shows_all(space: Space, context: RequestContext) -> bool:
    pipeline = await pipeline_of(context.configured, space.id)
    hides = pipeline is None or any(
        getattr(stage.handler, "hides_features", False) for stage in pipeline.stages
    )
    return not hides and scope_in(pipeline, context.actor.rights, Right.READ_FEATURES).is_everything


async def _rights_on(space: Space, context: RequestContext) -> list[str]:
    """Return the actor's rights on a space or on some of its features."""
    resource, rights = space.resource(), context.actor.rights
    pipeline = await pipeline_of(context.configured, space.id)
    return [
        *(right for right in _SPACE_RIGHTS if rights.allows(right, resource)),
        *(right for right in _FEATURE_RIGHTS if not scope_in(pipeline, rights, right).is_nothing),
    ]


async def _connectors(realm: ConfiguredRealm, space: Space, actor: Actor) -> list[dict[str, Any]]:
    """Return the space's connectors, reduced to their ids where the actor may not see them."""
    if not space.event_handler_ids:
        return []
    found = await connectors_of(await realm.registry.snapshot(), space)
    return [
        connector.to_json() if is_visible(connector, actor) else {"id": connector.id}
        for connector in found
    ]
