"""A handler that lets nothing through that would change anything."""

from __future__ import annotations

from typing import Any, ClassVar

from naksha.hub.pipeline.pipeline import Event, Setup
from naksha.model.errors import ReadOnly


class ReadOnlyHandler:
    """Refuses whatever changes the space, whoever asks."""

    metric_name: ClassVar[str] = "ReadOnlyHandler"

    def __init__(self, setup: Setup) -> None:
        self._space_id = setup.space.id

    async def process(self, event: Event) -> Any:
        if event.request.changes:
            raise ReadOnly(f"The space {self._space_id!r} is read-only", field="space")
        return await event.send_upstream()
