"""Printing of plans in SQL: what the dialects have in common.

A dialect subclasses `Printer` with the form of its parameters, and defines the fragments that are
filled here, under these names, in its files. Sort orders are printed by `sort_keys`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any, Final, assert_never

from naksha.model import limits
from naksha.model.errors import LimitExceeded, NotSupported
from naksha.model.query import GEOMETRY_TYPE, And, Not, Op, Or, Predicate
from naksha.model.query import Test as PropertyTest
from naksha.spi.query.plan import (
    AnyAction,
    AtLeast,
    Below,
    Condition,
    OneOf,
    StartsWith,
    Where,
)

ORDER: Final = {Op.LT: "<", Op.LTE: "<=", Op.GT: ">", Op.GTE: ">="}
_FLAT_MAX: Final = 8
"""Maximum number of conditions in a chain."""


class Printer(ABC):
    """An SQL statement under construction, with its parameters.

    Values never become text of the statement: each is a parameter.
    """

    def __init__(self) -> None:
        self.values: list[Any] = []

    def add(self, value: Any) -> int:
        """Add a parameter; return its number, from 1."""
        if len(self.values) == limits.QUERY_VALUES_MAX:
            raise LimitExceeded(
                f"The query has more than {limits.QUERY_VALUES_MAX} values; split it into several"
            )
        self.values.append(value)
        return len(self.values)

    @abstractmethod
    def fill(self, name: str, **slots: str) -> str:
        """Return a fragment of the dialect."""

    @abstractmethod
    def text(self, text: str) -> str:
        """Add a text, and return its placeholder; refuse text that cannot be stored."""

    @abstractmethod
    def texts(self, texts: Iterable[str]) -> str:
        """Add a list of texts as one parameter, with the same check."""

    @abstractmethod
    def number(self, number: int) -> str:
        """Add an integer."""

    @abstractmethod
    def decimal(self, json: str) -> str:
        """Add a number as JSON, which may be more precise than an integer or a double."""

    @abstractmethod
    def column(self, name: str) -> str:
        """Return a column of the namespace."""

    @abstractmethod
    def property_test(self, test: PropertyTest) -> str:
        """Return a test of a property, whose operator applies to the type of its value."""

    def conditions(self, conditions: Iterable[Condition]) -> list[str]:
        """Return some conditions in SQL."""
        return [self._condition(condition) for condition in conditions]

    def _condition(self, condition: Condition) -> str:
        match condition:
            case Where(predicate=predicate):
                return self._predicate(predicate, 1)
            case AtLeast(column=column, value=value):
                return self.at_least(column, value)
            case Below(column=column, value=value):
                return self.fill("below", column=self.column(column), value=self.number(value))
            case OneOf(column=column, values=values):
                return self.fill("one_of", column=self.column(column), values=self.texts(values))
            case AnyAction():
                return self.fill("any_action")
            case StartsWith(column=column, prefix=prefix, end=end):
                return self._prefix(self.column(column), prefix, end)
            case _:
                assert_never(condition)

    def at_least(self, column: str, value: int) -> str:
        """Return the condition that a numeric column is not less than a value."""
        return self.fill("at_least", column=self.column(column), value=self.number(value))

    def _prefix(self, column: str, prefix: str, end: str | None) -> str:
        """Return the condition that a column starts with a prefix, as a range.

        So an index can be used by a generic plan, whatever the prefix is.
        """
        first = self.text(prefix)
        if end is None:
            return self.fill("from_value", column=column, first=first)
        return self.fill("prefix", column=column, first=first, end=self.text(end))

    def _predicate(self, predicate: Predicate, level: int) -> str:
        if level > limits.PREDICATE_DEPTH_MAX:
            raise LimitExceeded(
                f"The predicate is nested more than {limits.PREDICATE_DEPTH_MAX} levels deep; "
                "flatten it",
                field="where",
            )
        if isinstance(predicate, And | Or):
            parts = [self._predicate(part, level + 1) for part in predicate.parts]
            if isinstance(predicate, And):
                return joined(parts, " AND ", "true")
            return joined(parts, " OR ", "false")
        if isinstance(predicate, Not):
            # A test of an absent property is null in SQL, and so would be its negation by NOT.
            return f"({self._predicate(predicate.part, level + 1)}) IS NOT TRUE"
        if predicate.path[:1] == GEOMETRY_TYPE[:1] and predicate.path != GEOMETRY_TYPE:
            raise NotSupported(
                f"The predicate tests {'.'.join(map(str, predicate.path))!r:.100}; of a geometry, "
                "only geometry.type can be tested",
                field="where",
            )
        return self.property_test(predicate) if _can_hold(predicate) else "false"


def _can_hold(test: PropertyTest) -> bool:
    """Return whether the operator can be true for the type of the value."""
    if test.op in (Op.STARTS_WITH, Op.ANY_STARTS_WITH):
        return isinstance(test.value, str)
    if test.op in ORDER:
        return isinstance(test.value, str | int | float) and not isinstance(test.value, bool)
    return True


def joined(parts: Sequence[str], operator: str, empty: str) -> str:
    """Join conditions by an operator.

    Long chains are split in halves recursively: a chain is a tree as deep as its number of
    conditions, and SQLite limits the depth to 1,000.
    """
    if len(parts) > _FLAT_MAX:
        half = len(parts) // 2
        parts = [joined(some, operator, empty) for some in (parts[:half], parts[half:])]
    return "(" + operator.join(f"({part})" for part in parts) + ")" if parts else empty
