"""Open and fork storages by location; the scheme selects an entry point of `naksha.storages`.

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
from naksha.spi.locations import STORAGES, redacted
from naksha.spi.storage import Storage

OPEN_SECONDS_MAX: Final = 30.0
"""Timeout for connecting to a storage and setting it up."""
REFUSALS: Final = ("28", "3D")
"""SQLSTATE classes of a server that refuses the connection: authorization, database."""


async def fork_storage(
    location: str, storage_id: str | None = None, **options: Any
) -> StorageIdentity:
    """Give a copied storage an id and a number of its own.

    States written before keep their ids, and the storage still finds them by these.

    Raises:
        Conflict: The storage is open, or had that id before.
        NotFound: The storage does not exist.
    """
    backend = STORAGES.find(location)
    try:
        forked: StorageIdentity = await backend.fork(location, storage_id, **options)
    except ValueError as error:
        raise STORAGES.unreadable(location) from error
    except NakshaError as error:
        raise _refusal(error, location) or error from error.__cause__
    return forked


@asynccontextmanager
async def open_storage(
    location: str, storage_id: str | None = None, **options: Any
) -> AsyncIterator[Storage]:
    """Open the storage at a location, set it up if it is new, and close it at the end of the block.

    `options` are passed to the backend unchanged, for example `schema` of PostgreSQL. With
    `must_exist` a storage that does not exist is NotFound and is not created.

    Raises:
        InvalidArgument: The location is invalid, or no backend supports its scheme.
        Unavailable: The server cannot be reached, or refuses the connection.
    """
    backend = STORAGES.find(location)
    try:
        async with asyncio.timeout(OPEN_SECONDS_MAX):
            storage: Storage = await backend.open(location, storage_id, **options)
    except TimeoutError as error:
        raise Unavailable(
            f"The storage at {redacted(location)!r} did not respond within "
            f"{OPEN_SECONDS_MAX:.0f} s; check that its server can be reached"
        ) from error
    except ValueError as error:
        raise STORAGES.unreadable(location) from error
    except NakshaError as error:
        raise _refusal(error, location) or error from error.__cause__
    try:
        yield storage
    finally:
        await storage.close()


def _refusal(error: NakshaError, location: str) -> NakshaError | None:
    """Convert an error of a server that refuses the connection, with the server's message."""
    state = getattr(error.__cause__, "sqlstate", None) or ""
    if state.startswith(REFUSALS):
        return Unavailable(
            f"The server of {redacted(location)!r} refused the connection: {error.__cause__}"
        )
    return None
