"""Comparison, containment and merge of JSON values by JSON semantics instead of Python's.

Python says `True == 1` and `1e308 != 10**308`; in JSON the first two differ and the last two are
the same number. The code is written for readability: the oracle and the brute-force queries rely
on these few functions. `naksha.model.merge` and `naksha.spi.query.predicates` have similar ones;
the duplication is deliberate, because those are under test and must not be compared with
themselves.
"""

from __future__ import annotations

from typing import Any, Final

from naksha.model.errors import Conflict

ABSENT: Final = object()
"""Marks a missing property, which differs from a null one."""


def is_number(value: object) -> bool:
    """Return whether the value is a JSON number."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def same(left: object, right: object) -> bool:
    """Return whether both are the same JSON value: numbers by value, keys in any order."""
    if is_number(left) and is_number(right):
        return _same_number(left, right)
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(same(left[key], right[key]) for key in left)
    if isinstance(left, list | tuple) and isinstance(right, list | tuple):
        return len(left) == len(right) and all(map(same, left, right))
    return type(left) is type(right) and left == right


def _same_number(left: Any, right: Any) -> bool:
    if isinstance(left, int) and isinstance(right, int):
        return left == right
    try:
        return float(left) == float(right)
    except OverflowError:
        return False


def get_path(value: object, path: tuple[str, ...]) -> object:
    """Return the value at a path of object keys, or ABSENT."""
    for key in path:
        if not isinstance(value, dict) or key not in value:
            return ABSENT
        value = value[key]
    return value


def contains(whole: object, part: object) -> bool:
    """Return whether one JSON value contains another.

    Objects are compared by key, arrays as sets; an array also contains a bare scalar.
    """
    if isinstance(whole, list) and not isinstance(part, list | dict):
        return any(same(member, part) for member in whole)
    return _contains(whole, part)


def _contains(whole: object, part: object) -> bool:
    if isinstance(whole, dict) and isinstance(part, dict):
        return all(key in whole and _contains(whole[key], part[key]) for key in part)
    if isinstance(whole, list) and isinstance(part, list):
        return all(any(_contains(member, wanted) for member in whole) for wanted in part)
    return same(whole, part)


def merge(base: object, head: object, mine: object, path: tuple[str, ...] = ()) -> object:
    """Merge three ways by property; raise Conflict if both sides changed a property differently.

    Objects are merged member by member, also when both sides added them.
    """
    if same(mine, base) or same(mine, head):
        return head
    if same(head, base):
        return mine
    if base is ABSENT:
        base = {}
    if not (isinstance(base, dict) and isinstance(head, dict) and isinstance(mine, dict)):
        raise Conflict("Both sides changed the same property", field=".".join(path))
    merged = {}
    for key in [*head, *(key for key in mine if key not in head)]:
        value = merge(
            base.get(key, ABSENT), head.get(key, ABSENT), mine.get(key, ABSENT), (*path, key)
        )
        if value is not ABSENT:
            merged[key] = value
    return merged
