"""Storages that this process has open. Spark's Python workers run one task after the other: what
they opened for one is good for the next."""

from __future__ import annotations

import atexit
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

    def __init__(self, place: Place, *, must_exist: bool = False) -> None:
        self._background = Background()
        self._context: AbstractAsyncContextManager[Storage] = open_storage(
            place.location, **place.settings, must_exist=must_exist
        )
        try:
            self._held = self._background.hold(self._context)
        except BaseException:
            self._background.close()
            raise

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

    def end_calls(self, *, for_good: bool = False) -> None:
        """Cancel what others wait for, see `Background.end_calls`."""
        self._background.end_calls(for_good=for_good)

    def close(self) -> None:
        """Close the storage and end its thread."""
        self._background.end_iterations()
        self._held.leave()
        self._background.close()


_opened: Final[dict[Place, Opened]] = {}
_lock: Final = threading.Lock()


def opened(place: Place) -> Opened:
    """The storage at a place, opened once in this process and kept until it ends. One that is not
    there is made."""
    return _opened_once(place, must_exist=False)


def existing(place: Place) -> Opened:
    """The same for who only reads, and makes none.

    Raises:
        NotFound: It is not there; names the place.
    """
    return _opened_once(place, must_exist=True)


def _opened_once(place: Place, *, must_exist: bool) -> Opened:
    with _lock:
        found = _opened.get(place)
        if found is None:
            found = _opened[place] = Opened(place, must_exist=must_exist)
        return found


def end_calls(*, for_good: bool = False) -> None:
    """Cancel what this process waits for in any storage; with `for_good` also what comes later."""
    # Without the lock: whoever has it may be waiting for a storage.
    for each in list(_opened.values()):
        each.end_calls(for_good=for_good)


def close(place: Place) -> None:
    """Close the storage at a place, if this process has it open."""
    with _lock:
        found = _opened.pop(place, None)
    if found is not None:
        found.close()


@atexit.register
def close_all() -> None:
    """Close what this process has open."""
    with _lock:
        while _opened:
            _opened.popitem()[1].close()
