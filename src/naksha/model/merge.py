"""Three-way merge, changed paths and JSON patches of features, property by property.

Values are parsed JSON (dict, list, str, int, float, bool, None).  Objects are compared member by
member; an array is one value, and so is the `geometry` of a feature.  An absent member differs from
one that is null, true is not 1, but 1 is 1.0.  Paths are RFC 6901 pointers.  Results share parts
with the arguments: treat both as immutable.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

GEOMETRY: Final = "/geometry"
"""The one object that is never merged: parts of two geometries do not form a valid one."""


class AbsentType(enum.Enum):
    """Type of `ABSENT`."""

    ABSENT = "absent"

    def __repr__(self) -> str:
        return "ABSENT"


ABSENT: Final = AbsentType.ABSENT
"""Marks a member that does not exist."""

Side: TypeAlias = Literal["base", "ours", "theirs"]


@dataclass(frozen=True, slots=True)
class PathConflict:
    """Path that both sides changed differently; each value may be `ABSENT`."""

    path: str
    base: Any
    ours: Any
    theirs: Any


@dataclass(frozen=True, slots=True)
class MergeResult:
    """Result of a merge; a conflicting path has the value of the preferred side."""

    value: Any
    conflicts: list[PathConflict]


def merge3(base: Any, ours: Any, theirs: Any, *, prefer: Side = "ours") -> MergeResult:
    """Merge the changes of two sides since a common base.

    Args:
        base: The value that both sides started from.
        ours: The value of one side.
        theirs: The value of the other side.
        prefer: The side whose value is taken where both changed the same path differently.
    """
    conflicts: list[PathConflict] = []
    value = _merge(base, ours, theirs, "", prefer, conflicts)
    return MergeResult(value, conflicts)


def changed_paths(old: Any, new: Any) -> list[str]:
    """Return the paths that were added, removed or replaced, in order.

    An added or removed object is reported as one path, without its members.
    """
    return [path for path, _, _ in _changes(old, new, "")]


def json_patch(old: Any, new: Any) -> list[dict[str, Any]]:
    """Return the RFC 6902 patch that turns `old` into `new`."""
    return [_operation(*change) for change in _changes(old, new, "")]


def same(one: Any, other: Any) -> bool:
    """Return whether two values are equal as JSON: true is not 1, but 1 is 1.0."""
    if one is other:
        return True
    if isinstance(one, dict):
        return (
            isinstance(other, dict)
            and one.keys() == other.keys()
            and all(same(value, other[key]) for key, value in one.items())
        )
    if isinstance(one, list):
        return isinstance(other, list) and len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, bool) or isinstance(other, bool):
        return False
    return bool(one == other)


def _merge(
    base: Any, ours: Any, theirs: Any, path: str, prefer: Side, conflicts: list[PathConflict]
) -> Any:
    if same(ours, theirs) or same(base, theirs):
        return ours
    if same(base, ours):
        return theirs
    if _is_mergeable(base, ours, theirs, path):
        return _merge_members(base, ours, theirs, path, prefer, conflicts)
    conflicts.append(PathConflict(path, base, ours, theirs))
    return {"base": base, "ours": ours, "theirs": theirs}[prefer]


def _is_mergeable(base: Any, ours: Any, theirs: Any, path: str) -> bool:
    """Return whether both sides are objects, and the base an object or absent."""
    return (
        path != GEOMETRY
        and isinstance(ours, dict)
        and isinstance(theirs, dict)
        and (isinstance(base, dict) or base is ABSENT)
    )


def _merge_members(
    base: Any,
    ours: dict[str, Any],
    theirs: dict[str, Any],
    path: str,
    prefer: Side,
    conflicts: list[PathConflict],
) -> dict[str, Any]:
    origin: dict[str, Any] = {} if base is ABSENT else base
    merged: dict[str, Any] = {}
    for key in dict.fromkeys((*ours, *theirs)):
        was, one, other = (each.get(key, ABSENT) for each in (origin, ours, theirs))
        value = _merge(was, one, other, pointer(path, key), prefer, conflicts)
        if value is not ABSENT:
            merged[key] = value
    return merged


def _changes(old: Any, new: Any, path: str) -> Iterator[tuple[str, Any, Any]]:
    if path != GEOMETRY and isinstance(old, dict) and isinstance(new, dict):
        for key in sorted(old.keys() | new.keys()):
            members = old.get(key, ABSENT), new.get(key, ABSENT)
            yield from _changes(*members, pointer(path, key))
    elif not same(old, new):
        yield path, old, new


def _operation(path: str, old: Any, new: Any) -> dict[str, Any]:
    if new is ABSENT:
        return {"op": "remove", "path": path}
    return {"op": "add" if old is ABSENT else "replace", "path": path, "value": new}


def pointer(path: str, key: str) -> str:
    """Return the RFC 6901 pointer of a member of the object at `path`."""
    return f"{path}/{key.replace('~', '~0').replace('/', '~1')}"
