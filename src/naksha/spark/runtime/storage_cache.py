"""Cache of open storages per process.

Spark's Python workers run one task after the other and reuse storages that an earlier task opened,
as long as the same storage is still at the location. Only a few idle storages stay open, because
connections of a database server are scarce.
"""

from __future__ import annotations

import atexit
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager, suppress
from typing import Any, Final, TypeVar

from naksha.model import limits
from naksha.model.errors import Cancelled
from naksha.spark.source.options import StorageRef
from naksha.spi.locations import FILE, STORAGES, path_of
from naksha.spi.loop_thread import LoopThread
from naksha.spi.storage import Storage
from naksha.spi.storage_factory import open_storage

T = TypeVar("T")


class OpenStorage:
    """Open storage for use from threads without an event loop."""

    def __init__(self, place: StorageRef, *, must_exist: bool = False) -> None:
        self._place = place
        self._background = LoopThread()
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
        """Current users. They are removed without the lock: the garbage collector may do so, when
        it closes an abandoned iteration at any point, also while the lock is held."""

    @property
    def is_current(self) -> bool:
        """Whether the file at the location is still the open one, not removed or replaced.

        The inode identifies it: it is not reused while the file is open.
        """
        return self._file == _file_at(self._place)

    def call(self, work: Callable[[Storage], Coroutine[Any, Any, T]]) -> T:
        """Wait for a call of the storage."""
        return self._background.call(work(self._held.inside))

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """Wait for a coroutine of an object that came from the storage."""
        return self._background.call(work)

    def iterate(self, work: Callable[[Storage], AsyncIterator[T]]) -> Iterator[T]:
        """Iterate over results of the storage one by one, without loading all of them."""
        return self._background.iterate(work(self._held.inside), 1)

    def end_calls(self, *, for_good: bool = False) -> None:
        """Cancel pending calls of other threads, see `LoopThread.end_calls`."""
        self._background.end_calls(for_good=for_good)

    def close(self) -> None:
        """Close the storage and end its thread."""
        self._background.end_iterations()
        self._held.leave()
        self._background.close()


class SharedStorage:
    """Storage at a location, opened on first use and kept open for later users."""

    def __init__(self, place: StorageRef, *, must_exist: bool) -> None:
        self._place = place
        self._must_exist = must_exist

    @contextmanager
    def using(self) -> Iterator[OpenStorage]:
        """Keep the storage, and objects that came from it, open for a block.

        Raises:
            NotFound: The storage does not exist and must exist.
        """
        user = object()
        storage = _acquired(self._place, user, must_exist=self._must_exist)
        try:
            yield storage
        finally:
            storage.users.discard(user)

    def call(self, work: Callable[[Storage], Coroutine[Any, Any, T]]) -> T:
        """Wait for a call of the storage."""
        with self.using() as storage:
            return storage.call(work)

    def iterate(self, work: Callable[[Storage], AsyncIterator[T]]) -> Iterator[T]:
        """Iterate over results of the storage one by one, without loading all of them."""
        with self.using() as storage:
            yield from storage.iterate(work)


_opened: Final[dict[StorageRef, OpenStorage]] = {}
"""Open storages, least recently used first."""
_given_up: Final[list[OpenStorage]] = []
"""Storages to close as soon as they are idle."""
_lock: Final = threading.Lock()
_is_ended = False


def shared_storage(place: StorageRef) -> SharedStorage:
    """Return the storage at a location; it is created if it does not exist."""
    return _shared(place, must_exist=False)


def existing_storage(place: StorageRef) -> SharedStorage:
    """Return the storage at a location without creating it.

    Raises:
        NotFound: There is no storage; the message contains the location.
    """
    return _shared(place, must_exist=True)


def _shared(place: StorageRef, *, must_exist: bool) -> SharedStorage:
    found = SharedStorage(place, must_exist=must_exist)
    with found.using():  # report now if it cannot be opened
        return found


def _acquired(place: StorageRef, user: object, *, must_exist: bool) -> OpenStorage:
    """Return the storage at a location and register a user."""
    with _lock:
        found = _opened.pop(place, None)
        if found is not None and not found.is_current:
            _given_up.append(found)
            found = None
        if found is None:
            found = OpenStorage(place, must_exist=must_exist)
        _opened[place] = found
        if _is_ended:
            raise Cancelled("The process is shutting down; its storages cannot be used any more")
        found.users.add(user)
        unused = _unused()
    _close(unused)
    return found


def _unused() -> list[OpenStorage]:
    """Remove and return the idle storages that the caller is to close."""
    idle = [place for place, each in _opened.items() if not each.users]
    _given_up.extend(_opened.pop(place) for place in idle[: -limits.SPARK_IDLE_STORAGES_MAX])
    found = [each for each in _given_up if not each.users]
    for each in found:
        _given_up.remove(each)
    return found


def _close(unused: list[OpenStorage]) -> None:
    for each in unused:
        with suppress(
            Exception
        ):  # the current user needs another storage, and must not fail because of this one
            each.close()


def _file_at(place: StorageRef) -> tuple[int, int] | None:
    """Return device and inode of the file at a location; None without a file."""
    if STORAGES.scheme_of(place.location) != FILE:
        return None
    try:
        found = path_of(place.location).stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def end_calls(*, for_good: bool = False) -> None:
    """Cancel pending calls of all storages; with `for_good` also reject later ones."""
    global _is_ended  # noqa: PLW0603 - it is the end of the whole process
    _is_ended = _is_ended or for_good
    # Without the lock: its holder may be waiting for a storage.
    for each in [*_opened.values(), *_given_up]:
        each.end_calls(for_good=for_good)


def close(place: StorageRef) -> None:
    """Close the storage at a location if it is open; once it is idle if it is in use."""
    with _lock:
        found = _opened.pop(place, None)
        if found is not None:
            _given_up.append(found)
        unused = _unused()
    _close(unused)


@atexit.register
def close_all() -> None:
    """Close all storages of this process."""
    with _lock:
        while _opened or _given_up:
            (_given_up.pop() if _given_up else _opened.popitem()[1]).close()
