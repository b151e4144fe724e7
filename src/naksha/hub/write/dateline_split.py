"""Geometries that cross the date line or have longitudes beyond ±180: split, kept or refused."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from naksha.hub.config.objects import Dateline
from naksha.model.errors import InvalidArgument
from naksha.model.geo.dateline import DatelineChange, bounded_geometry

_MESSAGES: Final = {
    DatelineChange.WRAPPED: "Longitudes beyond ±180 were shifted by multiples of 360 degrees",
    DatelineChange.SPLIT: "The geometry crosses the date line and was split at ±180",
}
_REFUSALS: Final = {
    DatelineChange.WRAPPED: "The geometry has longitudes beyond ±180",
    DatelineChange.SPLIT: "The geometry crosses the date line",
}


class WrappedFeature(NamedTuple):
    """A feature with a changed geometry, and the notice for the client."""

    feature: dict[str, Any]
    message: str


def wrap_geometry(feature: dict[str, Any], dateline: Dateline) -> WrappedFeature | None:
    """Return the feature with its geometry within ±180, or None if it needs no change.

    Raises:
        InvalidArgument: The geometry needs a change, and the space refuses that.
    """
    geometry = feature.get("geometry")
    if geometry is None or dateline is Dateline.KEEP:
        return None
    bounded, change = bounded_geometry(geometry)
    if change is None:
        return None
    if dateline is Dateline.REFUSE:
        raise InvalidArgument(
            f"{_REFUSALS[change]}, which this space refuses; correct the geometry or change the "
            "setting dateline of the space",
            field="geometry",
        )
    return WrappedFeature({**feature, "geometry": bounded}, _MESSAGES[change])
