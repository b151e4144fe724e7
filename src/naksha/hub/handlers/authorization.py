"""The first handler of every pipeline: may this actor do this with this space?"""

from __future__ import annotations

from typing import Any

from naksha.hub.objects import Space
from naksha.hub.pipeline import Event
from naksha.hub.resources import features
from naksha.model.errors import NotSupported


class Authorization:
    """Checks the rights that a request needs, also when another space sent it here."""

    def __init__(self, space: Space) -> None:
        self._resource = features(space.resource())
        self._is_active = space.active

    async def process(self, event: Event) -> Any:
        for right in event.request.needs():
            event.context.actor.rights.check(right, self._resource)
        if not self._is_active:
            raise NotSupported(f"The space {event.space.id!r} is not active", field="space")
        return await event.send_upstream()
