"""Evaluation of conditions in Python, where no database can do it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, assert_never

from naksha.model.merge import ABSENT, same
from naksha.model.query import MEMBERS, And, Not, Op, Or, Predicate
from naksha.model.state import XYZ
from naksha.spi.query.plan import (
    AnyAction,
    AtLeast,
    Below,
    Condition,
    OneOf,
    Plan,
    StartsWith,
    Where,
)


def matches(feature: Mapping[str, Any], plan: Plan) -> bool:
    """Return whether a feature with namespace has the tags and meets the conditions of a plan."""
    namespace = feature["properties"][XYZ]
    tags = set(namespace.get("tags") or ())
    return (plan.tags is None or any(tags.issuperset(group) for group in plan.tags)) and all(
        _meets(feature, namespace, condition) for condition in plan.conditions
    )


def _meets(feature: Mapping[str, Any], namespace: Mapping[str, Any], condition: Condition) -> bool:
    if isinstance(condition, Where):
        return holds(feature, condition.predicate)
    value = namespace.get(MEMBERS.get(condition.column, condition.column))
    if value is None:
        return False
    match condition:
        case AtLeast(value=bound):
            return int(value) >= bound  # a txn is a decimal string
        case Below(value=bound):
            return int(value) < bound
        case OneOf(values=values):
            return value in values
        case StartsWith(prefix=prefix):
            return bool(value.startswith(prefix))
        case AnyAction():
            return True
        case _:
            assert_never(condition)


def holds(feature: Mapping[str, Any], predicate: Predicate) -> bool:
    """Return whether a predicate is true for a feature; no test is true for an absent property."""
    match predicate:
        case And(parts):
            return all(holds(feature, part) for part in parts)
        case Or(parts):
            return any(holds(feature, part) for part in parts)
        case Not(part):
            return not holds(feature, part)
    found = member_at(feature, predicate.path)
    return found is not ABSENT and compare(found, predicate.op, predicate.value)


def member_at(value: Any, path: tuple[str, ...]) -> Any:
    """Return the value at a path through objects, or ABSENT."""
    for key in path:
        if not isinstance(value, dict) or key not in value:
            return ABSENT
        value = value[key]
    return value


def compare(found: Any, op: Op, value: Any) -> bool:
    """Return whether `found op value` is true."""
    match op:
        case Op.EXISTS:
            return True
        case Op.IS_NULL:
            return found is None
        case Op.EQ:
            return same(found, value)
        case Op.NE:
            return not same(found, value)
        case Op.CONTAINS:
            return contains(found, value)
        case Op.STARTS_WITH:
            return isinstance(found, str) and isinstance(value, str) and found.startswith(value)
        case Op.ANY_STARTS_WITH:
            return isinstance(found, list) and any(
                isinstance(one, str) and one.startswith(value) for one in found
            )
        case _:
            return _ordered(found, op, value)


def _ordered(found: Any, op: Op, value: Any) -> bool:
    if isinstance(value, str) != isinstance(found, str) or isinstance(found, bool):
        return False
    if not isinstance(found, str | int | float) or isinstance(value, bool):
        return False
    if same(found, value):
        return op in (Op.LTE, Op.GTE)
    return bool(found < value) == (op in (Op.LT, Op.LTE))


def contains(whole: Any, part: Any) -> bool:
    """Return whether JSON contains a part: objects by key, arrays as sets, or arrays a scalar."""
    if isinstance(whole, list) and not isinstance(part, list | dict):
        return any(same(member, part) for member in whole)
    return _contains(whole, part)


def _contains(whole: Any, part: Any) -> bool:
    if isinstance(whole, dict) and isinstance(part, dict):
        return all(key in whole and _contains(whole[key], part[key]) for key in part)
    if isinstance(whole, list) and isinstance(part, list):
        return all(any(_contains(member, wanted) for member in whole) for wanted in part)
    return same(whole, part)
