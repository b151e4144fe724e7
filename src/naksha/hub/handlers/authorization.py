"""The first handler of every pipeline: may this actor do this with this space?"""

from __future__ import annotations

from typing import Any

from naksha.hub import resources
from naksha.hub.objects import Space
from naksha.hub.pipeline import Event
from naksha.hub.rights import FEATURE_RIGHTS
from naksha.model.errors import NotSupported


class Authorization:
    """Checks the rights that a request needs, also when another space sent it here."""

    def __init__(self, space: Space) -> None:
        self._space = resources.space(
            space.id,
            owner=space.owner,
            tags=space.tags,
            connector_ids=space.event_handler_ids,
        )
        self._features = resources.features(
            self._space, storage_id=None if space.storage is None else space.storage.id
        )
        self._is_active = space.active

    async def process(self, event: Event) -> Any:
        rights = event.context.actor.rights
        for right in event.request.needs():
            rights.check(right, self._features if right in FEATURE_RIGHTS else self._space)
        if not self._is_active:
            raise NotSupported(f"The space {event.space.id!r} is not active", field="space")
        return await event.send_upstream()
