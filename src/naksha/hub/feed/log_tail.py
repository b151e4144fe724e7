"""The end of the log of a storage, in memory: so that many who wait for changes of some collections
need not all look at each transaction of others."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Collection
from typing import Final
from weakref import WeakKeyDictionary

from naksha.model import limits
from naksha.model.errors import Expired
from naksha.model.transaction import MAIN, LogFilter, Transaction
from naksha.spi.storage import Storage

_EVERYWHERE: Final = LogFilter(overlays=None)
_NOTHING: Final[frozenset[str]] = frozenset()
_tails: Final[WeakKeyDictionary[Storage, Tail]] = WeakKeyDictionary()


def tail_of(storage: Storage) -> Tail:
    """The one of an open storage."""
    tail = _tails.get(storage)
    if tail is None:
        tail = _tails[storage] = Tail()
    return tail


class Tail:
    """The collections that the last transactions touched on main. It knows no more than what came
    since somebody asked first, and of that only so much."""

    def __init__(self) -> None:
        self._end = -limits.INT8_MAX
        """The last transaction that is known."""
        self._touched: deque[frozenset[str]] = deque(maxlen=limits.FEED_TAIL_TRANSACTIONS)
        self._turn = asyncio.Lock()

    async def untouched(
        self, storage: Storage, after: int, last: int, collections: Collection[str]
    ) -> int:
        """The version until which nothing was done to any of the collections since a version, as
        far as is known; the given one if that is nothing. `last` is published."""
        async with self._turn:
            if self._end < after - limits.FEED_TRANSACTIONS_MAX:
                self._begin(after)
            try:
                await self._read_until(storage, last)
            except Expired:
                # Nobody has asked for a long time.
                self._begin(after)
                await self._read_until(storage, last)
        first = self._end - len(self._touched) + 1
        if after + 1 < first:
            return after
        while after < last and self._touched[after + 1 - first].isdisjoint(collections):
            after += 1
        return after

    def _begin(self, after: int) -> None:
        self._touched.clear()
        self._end = after

    async def _read_until(self, storage: Storage, last: int) -> None:
        while self._end < last:
            found = await storage.transactions(self._end, limits.FEED_TRANSACTIONS_MAX, _EVERYWHERE)
            assert found, "what is published is in the log"
            self._touched.extend(map(_touched, found))
            self._end += len(found)


def _touched(transaction: Transaction) -> frozenset[str]:
    if transaction.overlay != MAIN:
        return _NOTHING
    return frozenset(each.id for each in transaction.signals if each.action != "MESSAGE")
