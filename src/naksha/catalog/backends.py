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
"""How long a database may take to answer and to be set up."""


async def open_backend(location: str, **options: Any) -> CatalogBackend:
    """The backend at a location, set up when it is new; whoever opened it closes it.

    `options` go to the backend as they are, for example `schema` of PostgreSQL.

    Raises:
        InvalidArgument: The location is none, or no backend knows its scheme.
        NotSupported: Something else is there, or what a newer version wrote.
        Unavailable: There is no server, or it refuses us.
    """
    opener = CATALOGS.find(location)
    try:
        async with asyncio.timeout(OPEN_SECONDS_MAX):
            backend: CatalogBackend = await opener.open(location, **options)
    except TimeoutError as error:
        raise Unavailable(
            f"The catalog did not answer within {OPEN_SECONDS_MAX:.0f} seconds"
        ) from error
    except ValueError as error:
        raise CATALOGS.unreadable(location) from error
    return backend
