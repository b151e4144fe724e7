"""Coordinate reference systems by names, codes and definitions."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import pyproj
from pyproj.exceptions import CRSError

from naksha.model.errors import InvalidArgument

LON_LAT: Final = "OGC:CRS84"
"""Reference system of every storage, and of files that do not specify one."""
_LON_LAT_TOO: Final = ("CRS84", "CRS:84")
"""Aliases that PROJ does not know."""
_NAMED_MAX: Final = 16


@lru_cache(maxsize=_NAMED_MAX)
def reference_system(name: str) -> pyproj.CRS:
    """Parse a reference system: a code, WKT, PROJJSON and so on."""
    is_lon_lat = name.strip().upper() in _LON_LAT_TOO
    return pyproj.CRS.from_user_input(LON_LAT if is_lon_lat else name)


def check_known(name: str, *, whose: str, field: str) -> None:
    """Reject an unknown reference system early."""
    try:
        reference_system(name)
    except CRSError as error:
        raise InvalidArgument(
            f"{whose} {name!r:.64} is unknown: {error!s:.200}", field=field
        ) from error


def are_same(one: str | None, other: str | None) -> bool:
    """Whether coordinates have the same meaning in both reference systems.

    The order of axes is ignored: in files longitude always comes first.
    """
    if one == other:
        return True
    first, second = (reference_system(name or LON_LAT) for name in (one, other))
    return first.equals(second, ignore_axis_order=True)


def is_lon_lat(name: str | None) -> bool:
    """Whether a reference system is that of every storage; False for unknown ones."""
    try:
        return name is None or are_same(name, LON_LAT)
    except CRSError:
        return False


def shown(name: str | None) -> str:
    """Return the name of a reference system for messages."""
    return "no reference system" if name is None else repr(reference_system(name).name)
