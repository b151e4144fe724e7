"""The storages that are open: each once in a process, whoever of whatever realm uses it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import quote

import msgspec

from naksha.hub.config.objects import Identity, StorageObject
from naksha.hub.storages.identities import identity_of
from naksha.hub.storages.locations import location_of
from naksha.model import limits
from naksha.model.errors import NakshaError, Unavailable
from naksha.spi.locations import FILE, STORAGES, path_of, redacted
from naksha.spi.opening import open_storage
from naksha.spi.storage import Storage

_log: Final = logging.getLogger(__name__)


class User(NamedTuple):
    """Who has a storage open: a realm, under the id that it has there."""

    realm: str
    storage_id: str


class _Opened:
    """A storage that is open or being opened, and who needs it."""

    def __init__(self, location: str, options: dict[str, Any]) -> None:
        self.name = redacted(location)
        self.users: set[User] = set()
        self.storage: Storage | None = None
        self.ending: asyncio.TimerHandle | None = None
        self._stack = AsyncExitStack()
        self.opening = asyncio.create_task(self._open(location, options))

    async def _open(self, location: str, options: dict[str, Any]) -> Storage:
        self.storage = await self._stack.enter_async_context(open_storage(location, **options))
        return self.storage

    def stay(self) -> None:
        """It is needed again."""
        if self.ending is not None:
            self.ending.cancel()
            self.ending = None

    async def close(self) -> None:
        """Close it, after it was opened if need be."""
        self.stay()
        await asyncio.wait([self.opening])
        self.storage = None
        await self._stack.aclose()


class OpenStorages:
    """Opens storages when they are needed first, and closes them when no configuration names them
    any more, after a while: requests that began before may be using them."""

    def __init__(
        self,
        files: Path | None = None,
        *,
        release_seconds: float = limits.STORAGE_RELEASE_SECONDS,
    ) -> None:
        """`files` is the directory that paths of files begin at; else it is the present one."""
        self._files = files
        self._opened: dict[bytes, _Opened] = {}
        self._keys: dict[User, bytes] = {}
        self._release_seconds = release_seconds
        self._closing: set[asyncio.Task[None]] = set()
        self._is_closed = False

    def opened(self) -> list[tuple[str, Storage]]:
        """Those that are open, by location as it may be shown."""
        return [(one.name, one.storage) for one in self._opened.values() if one.storage is not None]

    def __len__(self) -> int:
        """How many are open, or being opened."""
        return len(self._opened)

    async def get(self, realm: str, thing: StorageObject) -> Storage:
        """The storage that is configured. Who comes while it is being opened waits for the same
        opening; one that failed is tried again by the next who comes."""
        return await self._get(User(realm, thing.id), thing)

    async def _get(self, user: User, thing: StorageObject) -> Storage:
        if not thing.active:
            raise Unavailable(f"The storage {thing.id!r} is not active", field="storage")
        if self._is_closed:
            raise Unavailable("The hub is being closed")
        key = _key(thing)
        opened = self._opened.get(key)
        if opened is None:
            opened = self._open(key, thing)
        self._use(user, key, opened)
        if opened.storage is not None:
            return opened.storage
        # Somebody who gives up must not take the opening with him from the others.
        return await asyncio.shield(opened.opening)

    def located(self, thing: StorageObject) -> tuple[str, dict[str, Any]]:
        """Where a storage is, for another process, and the options of its backend."""
        location, options = location_of(thing)
        if thing.identity is not None:
            made = {"new_id": thing.identity.id, "number": thing.identity.number}
            options = made | options
        return self._placed(location), options

    async def try_out(self, realm: str, thing: StorageObject) -> Identity:
        """Open a storage that may be configured soon, and return its id and number. Whatever comes
        of that, the one that is configured under its id stays open."""
        trial = User(realm, f"?{thing.id}")
        storage = await self._get(trial, thing)
        self._release(trial)
        return identity_of(storage)

    async def drop(self, thing: StorageObject) -> None:
        """Close a storage at once that was tried out and is not to be configured, unless it is in
        use: whoever refused it may want to fork it now."""
        key = _key(thing)
        opened = self._opened.get(key)
        if opened is not None and not opened.users:
            del self._opened[key]
            await _closed(opened)

    def keep_only(self, realm: str, things: Iterable[StorageObject]) -> None:
        """These are all that a realm has; others that it had open are released."""
        wanted: dict[User, bytes] = {}
        for thing in things:
            if thing.active:
                with suppress(NakshaError):  # one that cannot be opened is not open
                    wanted[User(realm, thing.id)] = _key(thing)
        for user, key in list(self._keys.items()):
            if user.realm == realm and wanted.get(user) != key:
                self._release(user)

    async def close(self) -> None:
        """Close all of them."""
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

    def _open(self, key: bytes, thing: StorageObject) -> _Opened:
        opened = self._opened[key] = _Opened(*self.located(thing))

        def done(opening: asyncio.Task[Storage]) -> None:
            failed = opening.cancelled() or opening.exception() is not None
            if failed and self._opened.get(key) is opened:
                del self._opened[key]
                for user in opened.users:
                    self._keys.pop(user, None)

        opened.opening.add_done_callback(done)
        return opened

    def _placed(self, location: str) -> str:
        """The same wherever the hub is started, or its directory moved to."""
        if self._files is None or STORAGES.scheme_of(location) != FILE:
            return location
        return f"{FILE}:{quote(str(self._files / path_of(location)))}"

    def _use(self, user: User, key: bytes, opened: _Opened) -> None:
        if self._keys.get(user) == key:
            return
        self._release(user)
        self._keys[user] = key
        opened.users.add(user)
        opened.stay()

    def _release(self, user: User) -> None:
        key = self._keys.pop(user, None)
        opened = self._opened.get(key) if key is not None else None
        if key is None or opened is None:
            return
        opened.users.discard(user)
        if not opened.users:
            loop = asyncio.get_running_loop()
            opened.ending = loop.call_later(self._release_seconds, self._end, key, opened)

    def _end(self, key: bytes, opened: _Opened) -> None:
        if self._opened.get(key) is opened and not opened.users:
            del self._opened[key]
            task = asyncio.create_task(_closed(opened))
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)


async def _closed(opened: _Opened) -> None:
    try:
        await opened.close()
    except (NakshaError, OSError) as error:
        _log.warning("A storage that is not needed any more could not be closed: %s", error)


def _key(thing: StorageObject) -> bytes:
    return msgspec.json.encode(location_of(thing), order="sorted")
