"""A handler whose behaviour a test chooses."""

from collections.abc import Awaitable, Callable
from typing import Any, ClassVar

from naksha.hub.pipeline.pipeline import Event, Setup


async def _takes(_: Event) -> None:
    return None


class Chosen:
    """Handler that applies `behaviour` to deliveries and records them in `taken`."""

    behaviour: ClassVar[Callable[[Event], Awaitable[Any]]] = staticmethod(_takes)
    taken: ClassVar[list[Any]] = []

    def __init__(self, _: Setup) -> None:
        pass

    async def process(self, event: Event) -> Any:
        await Chosen.behaviour(event)
        Chosen.taken.append(event.request)
