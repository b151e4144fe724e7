"""Catalog backends by location: the scheme names an entry point of the group `naksha.catalogs`.

    backend = await open_backend("file:hub.catalog")

A backend is a class with `open(location, …)`; see `naksha.spi.catalog`.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from naksha.model.errors import Unavailable
from naksha.spi.catalog import CatalogBackend
from naksha.spi.locations import CATALOGS

OPEN_SECONDS_MAX: Final = 30.0
"""Time limit for connecting to a database and setting it up."""


async def open_backend(location: str, **options: Any) -> CatalogBackend:
    """Open the backend at a location, and set it up if it is new; the caller closes it.

    `options` are passed to the backend unchanged, for example `schema` of PostgreSQL.

    Raises:
        InvalidArgument: The location is not valid, or no backend is registered for its scheme.
        NotSupported: The location holds something else, or data of a newer version.
        Unavailable: The server does not exist, or it refuses the connection.
    """
    opener = CATALOGS.find(location)
    try:
        async with asyncio.timeout(OPEN_SECONDS_MAX):
            backend: CatalogBackend = await opener.open(location, **options)
    except TimeoutError as error:
        raise Unavailable(
            f"The catalog could not be opened within {OPEN_SECONDS_MAX:.0f} seconds; check that"
            " its database is reachable"
        ) from error
    except ValueError as error:
        raise CATALOGS.unreadable(location) from error
    return backend
