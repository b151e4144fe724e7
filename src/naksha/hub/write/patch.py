"""Patch semantics of the REST API: a client's feature is merged into the current one.

Objects are merged member by member, null removes a member, and an array replaces an array. A
geometry is one value, as in a three-way merge (see `naksha.model.merge`), and null is a valid one:
it means a feature without geometry, while a missing geometry means no change.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from naksha.model.merge import GEOMETRY, pointer


def apply_patch(head: Mapping[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    """Apply a patch to HEAD without modifying either; the result shares parts with both."""
    return _patched(head, patch, "")


def _patched(value: Mapping[str, Any], patch: Mapping[str, Any], path: str) -> dict[str, Any]:
    result = dict(value)
    for name, change in patch.items():
        place = pointer(path, name)
        if place == GEOMETRY:
            result[name] = change
        elif change is None:
            result.pop(name, None)
        elif isinstance(change, Mapping):
            below = result.get(name)
            result[name] = _patched(below if isinstance(below, Mapping) else {}, change, place)
        else:
            result[name] = change
    return result
