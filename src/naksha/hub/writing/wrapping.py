"""Geometries that reach over the date line, before the storage refuses them."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from naksha.model.dateline import Change, mended_geometry

_MESSAGES: Final = {
    Change.WRAPPED: "The geometry had longitudes beyond ±180; they were moved by full turns",
    Change.SPLIT: "The geometry crosses the date line; it was split at ±180",
}


class Wrapped(NamedTuple):
    """A feature whose geometry was changed, and what its sender should know of that."""

    feature: dict[str, Any]
    message: str


def wrapped(feature: dict[str, Any]) -> Wrapped | None:
    """The feature with its geometry on the map; None when it is there already, or is none."""
    geometry = feature.get("geometry")
    if geometry is None:
        return None
    mended, change = mended_geometry(geometry)
    if change is None:
        return None
    return Wrapped({**feature, "geometry": mended}, _MESSAGES[change])
