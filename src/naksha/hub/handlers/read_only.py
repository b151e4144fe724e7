"""Handler that makes a space read-only."""

from __future__ import annotations

from typing import Any, ClassVar

from naksha.hub.pipeline.pipeline import Event, Setup
from naksha.model.errors import ReadOnly


class ReadOnlyHandler:
    """Handler that refuses every change, regardless of the actor's rights."""

    metric_name: ClassVar[str] = "ReadOnlyHandler"
    keeps_json: ClassVar[bool] = True

    def __init__(self, setup: Setup) -> None:
        self._space_id = setup.space.id

    async def process(self, event: Event) -> Any:
        if event.request.changes:
            raise ReadOnly(
                f"The space {self._space_id!r} is read-only; its owner can make it writable",
                field="space",
            )
        return await event.send_upstream()
