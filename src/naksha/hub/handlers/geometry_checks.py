"""Geometry rules of a space, in addition to those of every storage.

    {"required": true, "types": ["LineString"], "valid": true, "simple": true,
     "within": [5, 47, 16, 55], "minVertices": 2, "maxVertices": 1000, "maxBytes": 100000,
     "minLength": 1, "maxLength": 100000, "minArea": 10, "maxArea": 1e9}

`valid`: polygons do not cross themselves and their holes are inside (rings are always closed).
`simple`: lines do not cross themselves. `within` is west, south, east, north. Lengths are metres,
of lines and of polygon rings; areas are square metres. Both are computed on a sphere and accurate
to half a percent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import shapely

from naksha.model.errors import InvalidArgument
from naksha.model.geo.geometry import encode_geometries
from naksha.model.geo.geometry_rules import COLLECTION, COUNTS_MIN
from naksha.model.value_text import value_text

EARTH_RADIUS_M: Final = 6_371_008.8
_TYPES: Final = frozenset({*COUNTS_MIN, COLLECTION})
Check = Callable[[Any, Any], str | None]
"""Returns what is wrong with a shape under the rule's configured value, or None."""


class GeometryRule(NamedTuple):
    """One configured geometry rule."""

    name: str
    expected: Any

    def problem(self, shape: Any) -> str | None:
        """Return the violation of the rule by a geometry, or None."""
        return _CHECKS[self.name](shape, self.expected)


class GeometryRules:
    """All geometry rules of a space."""

    def __init__(self, rules: object, field: str) -> None:
        if not isinstance(rules, Mapping):
            raise InvalidArgument(
                f"{field} must be a JSON object of geometry rules, not {value_text(rules)}",
                field=field,
            )
        unknown = sorted({*rules} - {*_KINDS})
        if unknown:
            raise InvalidArgument(
                f"{unknown[0]!r:.40} is not a geometry rule; use one of {', '.join(_KINDS)}",
                field=field,
            )
        for name, value in rules.items():
            if not _KINDS[name](value):
                raise InvalidArgument(
                    f"{value!r:.60} is not a valid value of the geometry rule {name}",
                    field=f"{field}.{name}",
                )
        self._is_required = bool(rules.get("required", False))
        # A rule set to false is switched off.
        self._rules = [
            GeometryRule(name, value)
            for name, value in rules.items()
            if name != "required" and value is not False
        ]

    def problems(self, feature: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        """Yield the names of the rules that a feature's geometry breaks, and how."""
        if feature.get("geometry") is None:
            if self._is_required:
                yield "required", "the geometry is missing"
            return
        try:
            (wkb,) = encode_geometries([feature]).wkb
        except InvalidArgument as error:
            yield "geometry", error.message
            return
        shape = shapely.from_wkb(wkb)
        for rule in self._rules:
            problem = rule.problem(shape)
            if problem is not None:
                yield rule.name, problem


# ---- Validation of configured values ---------------------------------------------------------


def _is_flag(value: object) -> bool:
    return isinstance(value, bool)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_size(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value >= 0


def _are_types(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(name in _TYPES for name in value)


def _is_box(value: object) -> bool:
    return (
        isinstance(value, list)
        and len(value) == 4
        and all(isinstance(x, int | float) and not isinstance(x, bool) for x in value)
        and value[0] <= value[2]
        and value[1] <= value[3]
    )


_KINDS: Final[dict[str, Callable[[object], bool]]] = {
    "required": _is_flag,
    "types": _are_types,
    "valid": _is_flag,
    "simple": _is_flag,
    "within": _is_box,
    "minVertices": _is_count,
    "maxVertices": _is_count,
    "maxBytes": _is_count,
    "minLength": _is_size,
    "maxLength": _is_size,
    "minArea": _is_size,
    "maxArea": _is_size,
}


# ---- The checks ------------------------------------------------------------------------------


def _types(shape: Any, types: list[str]) -> str | None:
    return None if shape.geom_type in types else f"geometry type {shape.geom_type} is not allowed"


def _valid(shape: Any, _: bool) -> str | None:
    return None if shapely.is_valid(shape) else str(shapely.is_valid_reason(shape))


def _simple(shape: Any, _: bool) -> str | None:
    return None if shapely.is_simple(shape) else "the geometry crosses or touches itself"


def _within(shape: Any, box: list[float]) -> str | None:
    west, south, east, north = shapely.bounds(shape).tolist()
    if box[0] <= west and box[1] <= south and east <= box[2] and north <= box[3]:
        return None
    return f"the geometry reaches outside the box {box}"


def _at_least(measure: Callable[[Any], float], what: str) -> Check:
    def check(shape: Any, least: float) -> str | None:
        found = measure(shape)
        return None if found >= least else f"{found:.10g} {what}, minimum is {least:.10g}"

    return check


def _at_most(measure: Callable[[Any], float], what: str) -> Check:
    def check(shape: Any, most: float) -> str | None:
        found = measure(shape)
        return None if found <= most else f"{found:.10g} {what}, maximum is {most:.10g}"

    return check


def _vertices(shape: Any) -> float:
    return float(shapely.get_num_coordinates(shape))


def _bytes(shape: Any) -> float:
    return float(len(shapely.to_wkb(shape)))


def length_m(shape: Any) -> float:
    """Return the length of all lines and rings on the sphere, in metres."""
    return sum(_line_m(line) for line in _lines(shape))


def area_m2(shape: Any) -> float:
    """Return the area of all polygons on the sphere without their holes, in square metres."""
    return sum(
        _ring_m2(polygon.exterior) - sum(map(_ring_m2, polygon.interiors))
        for polygon in _parts(shape)
        if polygon.geom_type == "Polygon"
    )


def _parts(shape: Any) -> Iterator[Any]:
    if hasattr(shape, "geoms"):
        for part in shape.geoms:
            yield from _parts(part)
    else:
        yield shape


def _lines(shape: Any) -> Iterator[Any]:
    for part in _parts(shape):
        if part.geom_type == "Polygon":
            yield part.exterior
            yield from part.interiors
        elif part.geom_type == "LineString":
            yield part


def _radians(line: Any) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    positions = np.radians(shapely.get_coordinates(line))
    return positions[:, 0], positions[:, 1]


def _line_m(line: Any) -> float:
    lon, lat = _radians(line)
    half = (
        np.sin(np.diff(lat) / 2) ** 2
        + np.cos(lat[:-1]) * np.cos(lat[1:]) * np.sin(np.diff(lon) / 2) ** 2
    )
    return float(2 * EARTH_RADIUS_M * np.arcsin(np.sqrt(np.minimum(half, 1.0))).sum())


def _ring_m2(ring: Any) -> float:
    """Return the area of a ring on the sphere.

    Sums the signed areas of the strips between each edge and the equator; the area of a strip
    follows from the sines of its latitudes.
    """
    lon, lat = _radians(ring)
    strips = np.diff(lon) * (2 + np.sin(lat[:-1]) + np.sin(lat[1:]))
    return float(abs(strips.sum()) * EARTH_RADIUS_M**2 / 2)


_CHECKS: Final[dict[str, Check]] = {
    "types": _types,
    "valid": _valid,
    "simple": _simple,
    "within": _within,
    "minVertices": _at_least(_vertices, "vertices"),
    "maxVertices": _at_most(_vertices, "vertices"),
    "maxBytes": _at_most(_bytes, "bytes"),
    "minLength": _at_least(length_m, "metres"),
    "maxLength": _at_most(length_m, "metres"),
    "minArea": _at_least(area_m2, "square metres"),
    "maxArea": _at_most(area_m2, "square metres"),
}
