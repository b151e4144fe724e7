"""Limit of concurrent streams from a storage.

A stream holds a connection as long as its client reads, and may need the storage for more: a view
reads what its upper layers hide, a copy writes. If streams held all connections, each would wait
for the others, and all would deadlock.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from naksha.model.errors import Unavailable
from naksha.model.query import Query

_PART: Final = 0.75
"""Part of all connections that streams may hold."""


class StreamLimit:
    """Concurrent streams of one storage."""

    def __init__(self, connections: int, wait_s: float) -> None:
        self._most = max(1, int(connections * _PART))
        self._slots = asyncio.Semaphore(self._most)
        self._wait_s = wait_s

    @asynccontextmanager
    async def slot(self, query: Query) -> AsyncIterator[None]:
        """Wait for a slot.

        Queries by ids need none: other streams wait for them, and they are read quickly.
        """
        if query.ids is not None:
            yield
            return
        try:
            async with asyncio.timeout(self._wait_s):
                await self._slots.acquire()
        except TimeoutError:
            raise Unavailable(
                f"The storage is busy: {self._most} streams are open, and none of them ended "
                f"within {self._wait_s:g} seconds; retry later"
            ) from None
        try:
            yield
        finally:
            self._slots.release()
