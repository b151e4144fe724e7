"""Resolution of the roles in tokens to rights, for one configuration snapshot."""

from __future__ import annotations

from collections import OrderedDict

import msgspec

from naksha.catalog.entities import EntitySnapshot
from naksha.hub.auth.rights import Rights
from naksha.hub.config.objects import Role, key_of
from naksha.hub.pipeline.request_context import Actor
from naksha.model import limits


class Roles:
    """Roles of a realm in one configuration snapshot, with a cache of resolved rights."""

    def __init__(self, snapshot: EntitySnapshot) -> None:
        self._snapshot = snapshot
        # Keyed by id(rights): a cached token yields the identical Rights object. The entry holds a
        # reference to it, so that no other object can get the same id.
        self._resolved: OrderedDict[int, tuple[Rights, Rights]] = OrderedDict()

    async def granted(self, actor: Actor) -> Actor:
        """Return the actor with the rights of their roles added."""
        if not actor.rights.roles:
            return actor
        return msgspec.structs.replace(actor, rights=await self._rights(actor.rights))

    async def _rights(self, named: Rights) -> Rights:
        known = self._resolved.get(id(named))
        if known is not None:
            self._resolved.move_to_end(id(named))
            return known[1]
        names = sorted({grant.role for grants in named.roles.values() for grant in grants})
        found = await self._snapshot.get_many([key_of(Role, name) for name in names], Role)
        granted = {
            name: role.value.rights()
            for name, role in zip(names, found, strict=True)
            if role is not None
        }
        resolved = named.resolved(granted.get)
        self._resolved[id(named)] = (named, resolved)
        if len(self._resolved) > limits.TOKENS_KEPT_MAX:
            self._resolved.popitem(last=False)
        return resolved
