"""Storages that this process has open. Spark's Python workers run one task after the other: what
they opened for one is good for the next."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager
from typing import Any, Final, TypeVar

from naksha.spark.options import Place
from naksha.spi.background import Background
from naksha.spi.opening import open_storage
from naksha.spi.storage import Storage

T = TypeVar("T")


class Opened:
    """A storage, used from threads without an event loop."""

    def __init__(self, place: Place) -> None:
        self._background = Background()
        self._context: AbstractAsyncContextManager[Storage] = open_storage(
            place.location, **place.settings
        )
        self._held = self._background.hold(self._context)

    @property
    def storage(self) -> Storage:
        """The storage itself; its coroutines go through `call`."""
        return self._held.inside

    def call(self, work: Callable[[Storage], Coroutine[Any, Any, T]]) -> T:
        """Wait for something that the storage does."""
        return self._background.call(work(self._held.inside))

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """Wait for something that was got from the storage."""
        return self._background.call(work)

    def iterate(self, work: Callable[[Storage], AsyncIterator[T]]) -> Iterator[T]:
        """What the storage gives, one by one: it may be large."""
        return self._background.iterate(work(self._held.inside), 1)

    def close(self) -> None:
        """Close the storage and end its thread."""
        self._background.end_iterations()
        self._held.leave()
        self._background.close()


_opened: Final[dict[Place, Opened]] = {}
_lock: Final = threading.Lock()


def opened(place: Place) -> Opened:
    """The storage at a place, opened once in this process and kept until it ends."""
    with _lock:
        found = _opened.get(place)
        if found is None:
            found = _opened[place] = Opened(place)
        return found


def close(place: Place) -> None:
    """Close the storage at a place, if this process has it open."""
    with _lock:
        found = _opened.pop(place, None)
    if found is not None:
        found.close()


def close_all() -> None:
    """Close what this process has open."""
    with _lock:
        while _opened:
            _opened.popitem()[1].close()
