"""How many may stream from a storage at once.

Whoever streams keeps a connection for as long as somebody reads, and may ask the storage for more
meanwhile: a view what its upper layers hide, a copy to have something written. If streams had all
connections, each would wait for the others, and so for itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from naksha.model.errors import Unavailable
from naksha.model.query import Query

_PART: Final = 0.75
"""Of all connections, those that streams may have."""


class Streams:
    """The streams of one storage."""

    def __init__(self, connections: int, wait_s: float) -> None:
        self._most = max(1, int(connections * _PART))
        self._places = asyncio.Semaphore(self._most)
        self._wait_s = wait_s

    @asynccontextmanager
    async def turn(self, query: Query) -> AsyncIterator[None]:
        """Wait for a place. What is asked for by ids is what others wait for, and is soon read; so
        it needs none."""
        if query.ids is not None:
            yield
            return
        try:
            async with asyncio.timeout(self._wait_s):
                await self._places.acquire()
        except TimeoutError:
            raise Unavailable(
                f"{self._most} answers are being read from this storage, and none of them came to "
                f"its end within {self._wait_s:g} seconds"
            ) from None
        try:
            yield
        finally:
            self._places.release()
