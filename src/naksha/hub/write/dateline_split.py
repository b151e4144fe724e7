"""Geometries that cross the date line or leave the map: split, kept or refused."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from naksha.hub.config.objects import Dateline
from naksha.model.errors import InvalidArgument
from naksha.model.geo.dateline import Change, mended_geometry

_MESSAGES: Final = {
    Change.WRAPPED: "The geometry had longitudes beyond ±180; they were moved by full turns",
    Change.SPLIT: "The geometry crosses the date line; it was split at ±180",
}
_REFUSALS: Final = {
    Change.WRAPPED: "The geometry has longitudes beyond ±180",
    Change.SPLIT: "The geometry crosses the date line",
}


class Wrapped(NamedTuple):
    """A feature whose geometry was changed, and the notice for its sender."""

    feature: dict[str, Any]
    message: str


def wrapped(feature: dict[str, Any], dateline: Dateline) -> Wrapped | None:
    """Return the feature with its geometry on the map, None if nothing is to be changed.

    Raises:
        InvalidArgument: The geometry would have to be changed, and the space refuses that.
    """
    geometry = feature.get("geometry")
    if geometry is None or dateline is Dateline.KEEP:
        return None
    mended, change = mended_geometry(geometry)
    if change is None:
        return None
    if dateline is Dateline.REFUSE:
        raise InvalidArgument(
            f"{_REFUSALS[change]}, and the space does not split geometries (dateline: refuse)",
            field="geometry",
        )
    return Wrapped({**feature, "geometry": mended}, _MESSAGES[change])
