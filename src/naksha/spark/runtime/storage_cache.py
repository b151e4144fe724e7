"""Storages that this process has open. Spark's Python workers run one task after the other: what
they opened for one is good for the next, as long as it is still what is at its place. Of those that
nobody uses only a few are kept: a server has no connections to spare for all that a process ever
used."""

from __future__ import annotations

import atexit
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager, suppress
from typing import Any, Final, TypeVar

from naksha.model import limits
from naksha.model.errors import Cancelled
from naksha.spark.source.options import Place
from naksha.spi.locations import FILE, STORAGES, path_of
from naksha.spi.loop_thread import Background
from naksha.spi.opening import open_storage
from naksha.spi.storage import Storage

T = TypeVar("T")


class Opened:
    """A storage, used from threads without an event loop."""

    def __init__(self, place: Place, *, must_exist: bool = False) -> None:
        self._place = place
        self._background = Background()
        self._context: AbstractAsyncContextManager[Storage] = open_storage(
            place.location, **place.settings, must_exist=must_exist
        )
        try:
            self._held = self._background.hold(self._context)
        except BaseException:
            self._background.close()
            raise
        self._file = _file_at(place)
        self.users: Final[set[object]] = set()
        """Who uses it now. Whoever leaves takes no lock for it: that may be the garbage collector,
        which ends an iteration in the midst of anything."""

    @property
    def is_current(self) -> bool:
        """Whether it is still what is at its place: somebody may have removed the file, or put
        another one there. As long as we have ours open no other one gets its number."""
        return self._file == _file_at(self._place)

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


class Shared:
    """The storage at a place, which this process opens when it is used, and keeps open for whoever
    uses it next."""

    def __init__(self, place: Place, *, must_exist: bool) -> None:
        self._place = place
        self._must_exist = must_exist

    @contextmanager
    def using(self) -> Iterator[Opened]:
        """The storage for a block: it is not closed meanwhile, and neither is what was got from it.

        Raises:
            NotFound: It is not there, and must be.
        """
        user = object()
        storage = _taken(self._place, user, must_exist=self._must_exist)
        try:
            yield storage
        finally:
            storage.users.discard(user)

    def call(self, work: Callable[[Storage], Coroutine[Any, Any, T]]) -> T:
        """Wait for something that the storage does."""
        with self.using() as storage:
            return storage.call(work)

    def iterate(self, work: Callable[[Storage], AsyncIterator[T]]) -> Iterator[T]:
        """What the storage gives, one by one: it may be large."""
        with self.using() as storage:
            yield from storage.iterate(work)


_opened: Final[dict[Place, Opened]] = {}
"""What is kept, the one that was used last at the end."""
_given_up: Final[list[Opened]] = []
"""What is to be closed as soon as nobody uses it."""
_lock: Final = threading.Lock()
_is_ended = False


def opened(place: Place) -> Shared:
    """The storage at a place; one that is not there is made."""
    return _shared(place, must_exist=False)


def existing(place: Place) -> Shared:
    """The same for who only reads, and makes none.

    Raises:
        NotFound: It is not there; names the place.
    """
    return _shared(place, must_exist=True)


def _shared(place: Place, *, must_exist: bool) -> Shared:
    found = Shared(place, must_exist=must_exist)
    with found.using():  # whoever asks learns now that it cannot be opened
        return found


def _taken(place: Place, user: object, *, must_exist: bool) -> Opened:
    """The storage at a place, with one user more."""
    with _lock:
        found = _opened.pop(place, None)
        if found is not None and not found.is_current:
            _given_up.append(found)
            found = None
        if found is None:
            found = Opened(place, must_exist=must_exist)
        _opened[place] = found
        if _is_ended:
            raise Cancelled("No more calls are made")
        found.users.add(user)
        unused = _unused()
    _close(unused)
    return found


def _unused() -> list[Opened]:
    """What nobody uses and is not worth keeping; it is ours to close."""
    idle = [place for place, each in _opened.items() if not each.users]
    _given_up.extend(_opened.pop(place) for place in idle[: -limits.SPARK_IDLE_STORAGES_MAX])
    found = [each for each in _given_up if not each.users]
    for each in found:
        _given_up.remove(each)
    return found


def _close(unused: list[Opened]) -> None:
    for each in unused:
        with suppress(Exception):  # whoever uses another one has nothing to do with it
            each.close()


def _file_at(place: Place) -> tuple[int, int] | None:
    """Which file is at a place now; None when it is no file, or none is there."""
    if STORAGES.scheme_of(place.location) != FILE:
        return None
    try:
        found = path_of(place.location).stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def end_calls(*, for_good: bool = False) -> None:
    """Cancel what this process waits for in any storage; with `for_good` also what comes later."""
    global _is_ended  # noqa: PLW0603 - it is the end of the whole process
    _is_ended = _is_ended or for_good
    # Without the lock: whoever has it may be waiting for a storage.
    for each in [*_opened.values(), *_given_up]:
        each.end_calls(for_good=for_good)


def close(place: Place) -> None:
    """Close the storage at a place, if this process has it open; when somebody uses it, later."""
    with _lock:
        found = _opened.pop(place, None)
        if found is not None:
            _given_up.append(found)
        unused = _unused()
    _close(unused)


@atexit.register
def close_all() -> None:
    """Close what this process has open."""
    with _lock:
        while _opened or _given_up:
            (_given_up.pop() if _given_up else _opened.popitem()[1]).close()
