"""Open storages of a process, each opened once and shared by all realms."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import quote

import msgspec

from naksha.hub.config.objects import Identity, StorageObject
from naksha.hub.storages.identities import identity_of
from naksha.hub.storages.locations import location_of
from naksha.model import limits
from naksha.model.errors import NakshaError, Unavailable
from naksha.spi.clock import Clock
from naksha.spi.locations import FILE, STORAGES, path_of, redacted
from naksha.spi.storage import Storage
from naksha.spi.storage_factory import open_storage
from naksha.spi.support.cancellation import check_cancelled

_log: Final = logging.getLogger(__name__)
_BORROWED: Final = "!"
"""Precedes the id of a storage as a user of itself, which no configured id does."""


class StorageUser(NamedTuple):
    """A user of an open storage: a realm and the storage's id in that realm."""

    realm: str
    storage_id: str


class _PooledStorage:
    """A storage that is open or being opened, with its users."""

    def __init__(self, location: str, options: dict[str, Any]) -> None:
        self.name = redacted(location)
        self.users: set[StorageUser] = set()
        self.storage: Storage | None = None
        self.ending: asyncio.TimerHandle | None = None
        self._stack = AsyncExitStack()
        self.opening = asyncio.create_task(self._open(location, options))

    async def _open(self, location: str, options: dict[str, Any]) -> Storage:
        self.storage = await self._stack.enter_async_context(open_storage(location, **options))
        return self.storage

    def stay(self) -> None:
        """Cancel the scheduled closing."""
        if self.ending is not None:
            self.ending.cancel()
            self.ending = None

    async def close(self) -> None:
        """Close the storage, after a pending opening has finished."""
        self.stay()
        await asyncio.wait([self.opening])
        self.storage = None
        await self._stack.aclose()


class OpenStorages:
    """Pool of open storages.

    A storage is opened on first use. When no configuration names it any more, it is closed after a
    delay, as requests that began before may still use it.
    """

    def __init__(
        self,
        files: Path | None = None,
        *,
        release_seconds: float = limits.STORAGE_RELEASE_SECONDS,
        clock: Clock | None = None,
    ) -> None:
        """Create an empty pool.

        `files` is the base directory of relative file paths; the default is the working one.
        `clock` replaces the clocks of the storages.
        """
        self._files = files
        self._options = {} if clock is None else {"clock": clock}
        self._opened: dict[bytes, _PooledStorage] = {}
        self._keys: dict[StorageUser, bytes] = {}
        self._release_seconds = release_seconds
        self._closing: set[asyncio.Task[None]] = set()
        self._is_closed = False

    def opened(self) -> list[tuple[str, Storage]]:
        """Return the open storages with their redacted locations."""
        return [(one.name, one.storage) for one in self._opened.values() if one.storage is not None]

    def __len__(self) -> int:
        """Return the number of storages that are open or being opened."""
        return len(self._opened)

    async def get(self, realm: str, entity: StorageObject) -> Storage:
        """Return a configured storage, opening it if needed.

        Concurrent callers share one opening; after a failure, the next caller retries.
        """
        return await self._get(StorageUser(realm, entity.id), entity)

    async def _get(self, user: StorageUser, entity: StorageObject) -> Storage:
        if not entity.active:
            raise Unavailable(
                f"The storage {entity.id!r} is inactive; its owner has to activate it",
                field="storage",
            )
        if self._is_closed:
            raise Unavailable("The hub is shutting down; retry later")
        key = _key(entity)
        opened = self._opened.get(key)
        if opened is None:
            opened = self._open(key, entity)
        self._use(user, key, opened)
        if opened.storage is not None:
            return opened.storage
        # A cancelled caller must not cancel the opening that others wait for.
        return await asyncio.shield(opened.opening)

    def located(self, entity: StorageObject) -> tuple[str, dict[str, Any]]:
        """Return the absolute location and backend options, for use in another process."""
        location, options = location_of(entity)
        if entity.identity is not None:
            made = {"new_id": entity.identity.id, "number": entity.identity.number}
            options = made | options
        return self._absolute(location), options

    def exists(self, entity: StorageObject) -> bool:
        """Return whether a storage exists; opening a missing file would create it."""
        location, _ = self.located(entity)
        return STORAGES.scheme_of(location) != FILE or Path(path_of(location)).exists()

    async def try_out(self, realm: str, entity: StorageObject) -> Identity:
        """Open a storage before it is configured, and return its identity.

        A storage that is already configured under the same id stays open.
        """
        trial = StorageUser(realm, f"?{entity.id}")
        storage = await self._get(trial, entity)
        self._release(trial)
        return identity_of(storage)

    @asynccontextmanager
    async def borrowed(self, realm: str, entity: StorageObject) -> AsyncIterator[Storage]:
        """Open a storage for the block; afterwards it is closed, unless requests use it.

        Raises:
            Unavailable: Its file is missing, or it could not be opened in time.
        """
        if not await asyncio.to_thread(self.exists, entity):
            raise Unavailable(
                f"The file of the storage {entity.id!r} is missing; mount its volume, restore it "
                "from a backup, or remove the storage",
                field="storage",
            )
        borrower = StorageUser(realm, f"{_BORROWED}{entity.id}")
        try:
            try:
                async with asyncio.timeout(limits.MAINTENANCE_OPEN_SECONDS_MAX):
                    storage = await self._get(borrower, entity)
            except TimeoutError:
                check_cancelled()
                raise Unavailable(
                    f"The storage {entity.id!r} could not be opened within "
                    f"{limits.MAINTENANCE_OPEN_SECONDS_MAX:g} s",
                    field="storage",
                ) from None
            yield storage
        finally:
            self._release(borrower)

    async def drop(self, entity: StorageObject) -> None:
        """Close a tried-out storage immediately, unless it is in use.

        Called when the storage was rejected: the user may want to fork it next.
        """
        key = _key(entity)
        opened = self._opened.get(key)
        if opened is not None and not opened.users:
            del self._opened[key]
            await _closed(opened)

    def keep_only(self, realm: str, entities: Iterable[StorageObject]) -> None:
        """Release all open storages of a realm except these."""
        configured: dict[StorageUser, bytes] = {}
        for entity in entities:
            if entity.active:
                with suppress(NakshaError):  # a storage without a valid location is never open
                    configured[StorageUser(realm, entity.id)] = _key(entity)
        for user, key in list(self._keys.items()):
            is_borrower = user.storage_id.startswith(_BORROWED)
            if user.realm == realm and not is_borrower and configured.get(user) != key:
                self._release(user)

    async def close(self) -> None:
        """Close all storages."""
        self._is_closed = True
        opened = list(self._opened.values())
        self._opened.clear()
        self._keys.clear()
        results = await asyncio.gather(
            *(one.close() for one in opened), *self._closing, return_exceptions=True
        )
        for result in results:
            if isinstance(result, Exception):
                _log.warning("A storage could not be closed: %s", result)

    def _open(self, key: bytes, entity: StorageObject) -> _PooledStorage:
        location, options = self.located(entity)
        opened = self._opened[key] = _PooledStorage(location, options | self._options)

        def done(opening: asyncio.Task[Storage]) -> None:
            failed = opening.cancelled() or opening.exception() is not None
            if failed and self._opened.get(key) is opened:
                del self._opened[key]
                for user in opened.users:
                    self._keys.pop(user, None)

        opened.opening.add_done_callback(done)
        return opened

    def _absolute(self, location: str) -> str:
        """Make a file location absolute, relative to the hub's directory of files."""
        return location if self._files is None else absolute_location(location, self._files)

    def _use(self, user: StorageUser, key: bytes, opened: _PooledStorage) -> None:
        if self._keys.get(user) == key:
            return
        self._release(user)
        self._keys[user] = key
        opened.users.add(user)
        opened.stay()

    def _release(self, user: StorageUser) -> None:
        key = self._keys.pop(user, None)
        opened = self._opened.get(key) if key is not None else None
        if key is None or opened is None:
            return
        opened.users.discard(user)
        if not opened.users:
            loop = asyncio.get_running_loop()
            opened.ending = loop.call_later(self._release_seconds, self._end, key, opened)

    def _end(self, key: bytes, opened: _PooledStorage) -> None:
        if self._opened.get(key) is opened and not opened.users:
            del self._opened[key]
            task = asyncio.create_task(_closed(opened))
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)


def absolute_location(location: str, files: Path) -> str:
    """Make a file location absolute, relative to a directory; others are returned unchanged."""
    if STORAGES.scheme_of(location) != FILE:
        return location
    return f"{FILE}:{quote(str(files / path_of(location)))}"


async def _closed(opened: _PooledStorage) -> None:
    try:
        await opened.close()
    except (NakshaError, OSError) as error:
        _log.warning("A storage that is no longer used could not be closed: %s", error)


def _key(entity: StorageObject) -> bytes:
    return msgspec.json.encode(location_of(entity), order="sorted")
