"""Storages by location: the scheme names an entry point of the group `naksha.storages`.

    async with open_storage("file:town.naksha") as storage:
        ...

A backend is a class with `open(location, storage_id, *, must_exist=False, new_id=None, number=None,
…)` and `fork(location, storage_id, *, number=None, …)`; no backend is imported by name.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

from naksha.model.errors import NakshaError, Unavailable
from naksha.model.identity.storage_identity import StorageIdentity
from naksha.spi.locations import STORAGES
from naksha.spi.storage import Storage

OPEN_SECONDS_MAX: Final = 30.0
"""How long a storage may take to answer and to set itself up."""
REFUSALS: Final = ("28", "3D")
"""SQLSTATE classes of a server that answers but refuses: who you are, which database."""


async def fork_storage(
    location: str, storage_id: str | None = None, **options: Any
) -> StorageIdentity:
    """Give the storage at a location, which is a copy of another one, an id and a number of its
    own. States written before keep their ids, and the storage still answers to them.

    Raises:
        Conflict: The storage is open, or has had that id before.
        NotFound: There is no storage.
    """
    backend = STORAGES.find(location)
    try:
        forked: StorageIdentity = await backend.fork(location, storage_id, **options)
    except ValueError as error:
        raise STORAGES.unreadable(location) from error
    except NakshaError as error:
        raise _refusal(error) or error from error.__cause__
    return forked


@asynccontextmanager
async def open_storage(
    location: str, storage_id: str | None = None, **options: Any
) -> AsyncIterator[Storage]:
    """The storage at a location, set up when it is new, closed at the end of the block.

    `options` go to the backend as they are, for example `schema` of PostgreSQL. With `must_exist`
    a storage that is not there is NotFound, and none is made.

    Raises:
        InvalidArgument: The location is none, or no backend knows its scheme.
        Unavailable: There is no server, or it refuses us.
    """
    backend = STORAGES.find(location)
    try:
        async with asyncio.timeout(OPEN_SECONDS_MAX):
            storage: Storage = await backend.open(location, storage_id, **options)
    except TimeoutError as error:
        raise Unavailable(
            f"The storage did not answer within {OPEN_SECONDS_MAX:.0f} seconds"
        ) from error
    except ValueError as error:
        raise STORAGES.unreadable(location) from error
    except NakshaError as error:
        raise _refusal(error) or error from error.__cause__
    try:
        yield storage
    finally:
        await storage.close()


def _refusal(error: NakshaError) -> NakshaError | None:
    """A server that refuses us is not broken, and what it says is worth reading."""
    state = getattr(error.__cause__, "sqlstate", None) or ""
    if state.startswith(REFUSALS):
        return Unavailable(f"The server refuses: {error.__cause__}")
    return None
