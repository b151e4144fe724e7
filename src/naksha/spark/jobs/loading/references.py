"""Reference systems of coordinates: by whatever name they are given."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import pyproj
from pyproj.exceptions import CRSError

from naksha.model.errors import InvalidArgument

LON_LAT: Final = "OGC:CRS84"
"""That of every storage, and of files that name none."""
_LON_LAT_TOO: Final = ("CRS84", "CRS:84")
"""What it is called as well; PROJ does not know that."""
_NAMED_MAX: Final = 16


@lru_cache(maxsize=_NAMED_MAX)
def reference_system(name: str) -> pyproj.CRS:
    """The one that is meant: by a code, WKT, PROJJSON and so on."""
    is_lon_lat = name.strip().upper() in _LON_LAT_TOO
    return pyproj.CRS.from_user_input(LON_LAT if is_lon_lat else name)


def check_known(name: str, *, whose: str, field: str) -> None:
    """Refuse what is no reference system, before anybody has to work with it."""
    try:
        reference_system(name)
    except CRSError as error:
        raise InvalidArgument(
            f"{whose} {name!r:.64} is not known: {error!s:.200}", field=field
        ) from error


def are_same(one: str | None, other: str | None) -> bool:
    """Whether coordinates mean the same in both: longitude comes first in files, whatever order
    their reference system is defined with."""
    if one == other:
        return True
    first, second = (reference_system(name or LON_LAT) for name in (one, other))
    return first.equals(second, ignore_axis_order=True)


def is_lon_lat(name: str | None) -> bool:
    """Whether it is that of every storage; what nobody knows is not."""
    try:
        return name is None or are_same(name, LON_LAT)
    except CRSError:
        return False


def shown(name: str | None) -> str:
    """What a person calls it."""
    return "no reference system" if name is None else repr(reference_system(name).name)
