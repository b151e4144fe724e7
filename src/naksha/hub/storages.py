"""The storages that are open: each once in a process, whoever of whatever realm uses it."""

from __future__ import annotations

import asyncio
import re
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import msgspec

from naksha.hub.objects import StorageObject
from naksha.model.errors import InvalidArgument, Unavailable
from naksha.model.names import STORAGE_ID_PATTERN
from naksha.spi.locations import FILE, STORAGES, path_of, redacted
from naksha.spi.opening import open_storage
from naksha.spi.storage import Storage

_STORAGE_ID: Final = re.compile(STORAGE_ID_PATTERN)


class _Opened:
    """A storage that is open, or is being opened."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.lock = asyncio.Lock()
        self.stack: AsyncExitStack | None = None
        self.storage: Storage | None = None


class OpenStorages:
    """Opens storages when they are needed first; closes them all at the end."""

    def __init__(self, files: Path | None = None) -> None:
        """`files` is the directory that paths of files begin at; else it is the present one."""
        self._files = files
        self._opened: dict[bytes, _Opened] = {}
        self._is_closed = False

    async def get(self, thing: StorageObject) -> Storage:
        """The storage that is configured."""
        if not thing.active:
            raise Unavailable(f"The storage {thing.id!r} is not active", field="storage")
        location, options = location_of(thing)
        location = self._placed(location)
        opened = self._opened.setdefault(_key(location, options), _Opened(redacted(location)))
        if opened.storage is None:
            async with opened.lock:
                if opened.storage is None:
                    await self._open(opened, location, options)
        assert opened.storage is not None
        return opened.storage

    def _placed(self, location: str) -> str:
        """The same wherever the hub is started, or its directory moved to."""
        if self._files is None or STORAGES.scheme_of(location) != FILE:
            return location
        return f"{FILE}:{quote(str(self._files / path_of(location)))}"

    async def _open(self, opened: _Opened, location: str, options: dict[str, Any]) -> None:
        if self._is_closed:
            raise Unavailable("The hub is being closed")
        async with AsyncExitStack() as stack:
            opened.storage = await stack.enter_async_context(open_storage(location, **options))
            opened.stack = stack.pop_all()

    def opened(self) -> list[tuple[str, Storage]]:
        """Those that are open, by location as it may be shown."""
        return [(one.name, one.storage) for one in self._opened.values() if one.storage is not None]

    async def close(self) -> None:
        """Close all of them."""
        self._is_closed = True
        for opened in self._opened.values():
            async with opened.lock:
                opened.storage = None
                if opened.stack is not None:
                    await opened.stack.aclose()


def location_of(thing: StorageObject) -> tuple[str, dict[str, Any]]:
    """Where a storage is, and the options of its backend.

    Raises:
        InvalidArgument: It does not say so.
    """
    options = dict(thing.properties)
    location = options.pop("location", None)
    if not isinstance(location, str):
        raise InvalidArgument(
            "A storage has a location, for example file:town.naksha or postgresql:///maps",
            field="properties.location",
        )
    return location, options


def _key(location: str, options: dict[str, Any]) -> bytes:
    return msgspec.json.encode([location, options], order="sorted")
