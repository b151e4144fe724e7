"""The *patch* of the REST API: what a client sends is laid over what is there.

Objects are merged member by member, null takes a member away, an array replaces an array. A
geometry is one value, as in a three-way merge (see `naksha.model.merge`), and null is one too: the
feature is nowhere then, which is not the same as saying nothing about it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from naksha.model.merge import GEOMETRY, pointer


def patched(head: Mapping[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    """The feature that a patch makes of HEAD; neither is changed, but the result shares parts."""
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
