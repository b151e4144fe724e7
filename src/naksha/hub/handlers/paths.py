"""Property paths in connector configurations.

A path is text (`properties.road.class`) or, where a name contains a dot, an array of names.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from naksha.model.errors import InvalidArgument
from naksha.model.merge import ABSENT
from naksha.model.state import XYZ

Path = tuple[str, ...]
KEPT: Final[frozenset[Path]] = frozenset({("id",), ("type",), ("properties",), ("properties", XYZ)})
"""Members every feature has, which only the hub and the storage may set."""


def path_of(value: object, field: str) -> Path:
    """Parse a configured path.

    Raises:
        InvalidArgument: It is not a valid path.
    """
    names = value.split(".") if isinstance(value, str) else value
    if (
        not isinstance(names, list | tuple)
        or not names
        or not all(isinstance(name, str) and name for name in names)
    ):
        raise InvalidArgument(
            f"{field} is {value!r:.80}; a path must be text such as 'properties.name', or an "
            "array of names",
            field=field,
        )
    return tuple(names)


def writable_path(value: object, field: str) -> Path:
    """Parse a path that may be changed: not the id, the type or the namespace."""
    path = path_of(value, field)
    if path in KEPT or path[:2] == ("properties", XYZ):
        raise InvalidArgument(
            f"{field} is {'.'.join(path)!r:.80}, which a connector cannot change; name a property "
            "of the feature",
            field=field,
        )
    return path


def get_at(feature: Mapping[str, Any], path: Path) -> Any:
    """Return the value at a path, or ABSENT."""
    value: Any = feature
    for name in path:
        if not isinstance(value, Mapping) or name not in value:
            return ABSENT
        value = value[name]
    return value


def set_at(feature: Mapping[str, Any], path: Path, value: Any) -> dict[str, Any]:
    """Return a copy of the feature with a value set at a path, or removed if it is ABSENT.

    A value on the way that is not an object is replaced by one.
    """
    name, *rest = path
    changed = dict(feature)
    if rest:
        below = changed.get(name)
        if value is ABSENT and not isinstance(below, Mapping):
            return changed
        changed[name] = set_at(below if isinstance(below, Mapping) else {}, tuple(rest), value)
    elif value is ABSENT:
        changed.pop(name, None)
    else:
        changed[name] = value
    return changed
