"""Places in features, as connectors name them: `properties.road.class`, or, where a name has a dot
in it, as an array of names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from naksha.model.errors import InvalidArgument
from naksha.model.merge import ABSENT
from naksha.model.state import XYZ

Path = tuple[str, ...]
KEPT: Final[frozenset[Path]] = frozenset({("id",), ("type",), ("properties",), ("properties", XYZ)})
"""What a feature must have, and have as the hub and the storage made it."""


def path_of(value: object, field: str) -> Path:
    """The path that is configured.

    Raises:
        InvalidArgument: It is none.
    """
    names = value.split(".") if isinstance(value, str) else value
    if (
        not isinstance(names, list | tuple)
        or not names
        or not all(isinstance(name, str) and name for name in names)
    ):
        raise InvalidArgument(
            "It is a path like properties.name, or an array of names", field=field
        )
    return tuple(names)


def writable_path(value: object, field: str) -> Path:
    """A path at which something may be changed: not the id, the type or the namespace."""
    path = path_of(value, field)
    if path in KEPT or path[:2] == ("properties", XYZ):
        raise InvalidArgument(f"{'.'.join(path)} cannot be changed by a connector", field=field)
    return path


def get_at(feature: Mapping[str, Any], path: Path) -> Any:
    """What is at a path, or ABSENT."""
    value: Any = feature
    for name in path:
        if not isinstance(value, Mapping) or name not in value:
            return ABSENT
        value = value[name]
    return value


def set_at(feature: Mapping[str, Any], path: Path, value: Any) -> dict[str, Any]:
    """The feature with something else at a path; ABSENT takes it away. What is given is not
    changed; what is not an object on the way is replaced by one."""
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
