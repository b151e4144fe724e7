"""Readable rules for a GeoJSON geometry, which report where one is broken.

`geometry` applies the same rules to many geometries at once and calls this module only to locate an
error, so it may be slow.  The tests compare both implementations.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from numbers import Real
from typing import Any, Final

from naksha.model.feature_problems import FeatureProblem, ProblemError
from naksha.model.limits import GEOMETRY_DEPTH_MAX
from naksha.model.value_text import value_text

COUNTS_MIN: Final[Mapping[str, tuple[int, ...]]] = {
    "Point": (),
    "MultiPoint": (1,),
    "LineString": (2,),
    "Polygon": (1, 4),
    "MultiLineString": (1, 2),
    "MultiPolygon": (1, 1, 4),
}
"""Minimum number of members of each level of arrays above the positions, outermost first."""

COLLECTION: Final = "GeometryCollection"
RINGED: Final = frozenset({"Polygon", "MultiPolygon"})
_TYPES: Final = f"{', '.join(COUNTS_MIN)} or {COLLECTION}"


def is_number_type(type_: type) -> bool:
    """Return whether values of this type are JSON numbers; NumPy scalars are accepted."""
    return type_ is not bool and issubclass(type_, Real)


def is_array_type(type_: type) -> bool:
    """Return whether values of this type are JSON arrays."""
    return issubclass(type_, list | tuple)


def geometry_problem(geometry: object) -> FeatureProblem | None:
    """Return the first problem of a geometry, or None."""
    try:
        _Checker().geometry(geometry, "", 1)
    except ProblemError as broken:
        return broken.problem
    return None


class _Checker:
    """Check one geometry; remembers the dimension of its positions."""

    def __init__(self) -> None:
        self._dimension: int | None = None

    def geometry(self, value: object, path: str, depth: int) -> None:
        if not isinstance(value, Mapping):
            raise ProblemError(path, f"must be a GeoJSON geometry object, not {value_text(value)}")
        prefix = f"{path}." if path else ""
        name = value.get("type")
        if name == COLLECTION:
            self._collection(value.get("geometries"), f"{prefix}geometries", depth)
        elif isinstance(name, str) and name in COUNTS_MIN:
            coordinates = value.get("coordinates")
            self._coordinates(coordinates, f"{prefix}coordinates", name, COUNTS_MIN[name])
        else:
            raise ProblemError(f"{prefix}type", f"must be {_TYPES}, not {value_text(name)}")

    def _collection(self, value: object, path: str, depth: int) -> None:
        if depth > GEOMETRY_DEPTH_MAX:
            raise ProblemError(
                path,
                f"is a geometry collection nested more than {GEOMETRY_DEPTH_MAX} levels deep; "
                "flatten it",
            )
        for index, member in enumerate(_array(value, path, 1)):
            self.geometry(member, f"{path}[{index}]", depth + 1)

    def _coordinates(
        self, value: object, path: str, name: str, counts_min: tuple[int, ...]
    ) -> None:
        if not counts_min:
            self._position(value, path)
            return
        members = _array(value, path, counts_min[0])
        for index, member in enumerate(members):
            self._coordinates(member, f"{path}[{index}]", name, counts_min[1:])
        if name in RINGED and len(counts_min) == 1 and _differ(members[0], members[-1]):
            raise ProblemError(
                path,
                "is a ring that is not closed: its first and last positions differ; "
                "repeat the first position at the end",
            )

    def _position(self, value: object, path: str) -> None:
        numbers = _array(value, path, 0)
        if len(numbers) not in (2, 3):
            raise ProblemError(path, f"must be a position of 2 or 3 numbers, not {len(numbers)}")
        for index, number in enumerate(numbers):
            _number(number, f"{path}[{index}]", (180.0, 90.0, math.inf)[index])
        if self._dimension is None:
            self._dimension = len(numbers)
        elif self._dimension != len(numbers):
            message = (
                f"is a position of {len(numbers)} numbers, but earlier ones have "
                f"{self._dimension}; use the same dimension in the whole geometry"
            )
            raise ProblemError(path, message)


def _array(value: object, path: str, count_min: int) -> list[object] | tuple[object, ...]:
    if not isinstance(value, list | tuple):
        raise ProblemError(path, f"must be an array, not {value_text(value)}")
    if len(value) < count_min:
        raise ProblemError(path, f"must have at least {count_min} members, not {len(value)}")
    return value


def _differ(first: Any, last: Any) -> bool:
    """Return whether two checked positions differ as the doubles that are stored."""
    return list(map(float, first)) != list(map(float, last))


def _number(value: object, path: str, most: float) -> None:
    if isinstance(value, bool) or not isinstance(value, Real):
        raise ProblemError(path, f"must be a number, not {value_text(value)}")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise ProblemError(path, f"must be a finite number, not {value_text(value)}")
    if abs(number) > most:
        raise ProblemError(path, f"must be between -{most:g} and {most:g}, not {number}")
