"""In-memory tail of a storage's log, shared by all clients that wait for changes.

Clients that wait for changes of some collections need not each read the transactions of others.
"""

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
_tails: Final[WeakKeyDictionary[Storage, LogTail]] = WeakKeyDictionary()


def tail_of(storage: Storage) -> LogTail:
    """Return the tail of an open storage."""
    tail = _tails.get(storage)
    if tail is None:
        tail = _tails[storage] = LogTail()
    return tail


class LogTail:
    """The collections touched by the latest transactions on main.

    It covers a limited number of transactions, starting with the first query.
    """

    def __init__(self) -> None:
        self._end = -limits.INT8_MAX
        """Version of the last transaction in the tail."""
        self._touched: deque[frozenset[str]] = deque(maxlen=limits.FEED_TAIL_TRANSACTIONS)
        self._lock = asyncio.Lock()

    async def untouched(
        self, storage: Storage, after: int, last: int, collections: Collection[str]
    ) -> int:
        """Return the last version, from `after` to `last`, before any of the collections changed.

        Returns `after` if a collection changed immediately, or if the tail does not reach back that
        far. `last` must be published.
        """
        async with self._lock:
            if self._end < after - limits.FEED_TRANSACTIONS_MAX:
                self._begin(after)
            try:
                await self._read_until(storage, last)
            except Expired:
                # The tail was not used for a long time, and the log after it has expired.
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
            assert found, "published transactions are in the log"
            self._touched.extend(map(_touched, found))
            self._end += len(found)


def _touched(transaction: Transaction) -> frozenset[str]:
    if transaction.overlay != MAIN:
        return _NOTHING
    return frozenset(each.id for each in transaction.signals if each.action != "MESSAGE")
