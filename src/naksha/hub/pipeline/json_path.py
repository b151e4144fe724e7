"""JSONPath (RFC 9535), as far as it can be asked about features of strangers: whatever the path and
whatever the feature, each part of the one looks at each place in the other about once.

So there are no functions that take patterns, which can be written so that they never end; brackets
have one selector, since of several each is followed by all that comes next; `..` is there once; and
a filter that begins at `$` names one place, since it is asked anew for every place around it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from jsonpath_rfc9535 import JSONPathEnvironment, JSONPathError, JSONPathQuery
from jsonpath_rfc9535.filter_expressions import (
    ComparisonExpression,
    Expression,
    FilterExpression,
    FilterQuery,
    FunctionExtension,
    LogicalExpression,
    PrefixExpression,
    RootFilterQuery,
)
from jsonpath_rfc9535.segments import JSONPathRecursiveDescentSegment
from jsonpath_rfc9535.selectors import FilterSelector

from naksha.model import limits
from naksha.model.errors import InvalidArgument

_UNBOUNDED: Final = ("match", "search")


class _Environment(JSONPathEnvironment):
    max_recursion_depth = limits.JSON_DEPTH_MAX + 1

    def setup_function_extensions(self) -> None:
        super().setup_function_extensions()
        for name in _UNBOUNDED:
            self.function_extensions.pop(name)


_environment: Final = _Environment()


class JsonPath(NamedTuple):
    """A path that was understood."""

    query: JSONPathQuery

    @classmethod
    def parse(cls, text: str, *, field: str) -> JsonPath:
        """Raises InvalidArgument for what is no path, or one that may take for ever."""
        if len(text) > limits.JSON_PATH_LENGTH_MAX:
            raise InvalidArgument(
                f"A path has at most {limits.JSON_PATH_LENGTH_MAX} characters", field=field
            )
        try:
            query = _environment.compile(text)
            problem = _problem(query)
        except JSONPathError as error:
            raise InvalidArgument(f"It is no JSONPath (RFC 9535): {error}", field=field) from None
        except (ArithmeticError, RecursionError, ValueError):
            raise InvalidArgument(
                "It is too deep, or has numbers that are too large", field=field
            ) from None
        if problem is not None:
            raise InvalidArgument(problem, field=field)
        return cls(query)

    def finds(self, feature: dict[str, Any]) -> bool:
        """Whether there is something at the path; yes, when that cannot be said."""
        try:
            return any(True for _ in self.query.finditer(feature))
        except (JSONPathError, ArithmeticError, RecursionError):
            return True


def _problem(query: JSONPathQuery) -> str | None:
    """Why it may take too long to look for a path."""
    queries = list(_queries(query))
    segments = [segment for one in queries for segment in one.segments]
    if len(segments) > limits.JSON_PATH_SEGMENTS_MAX:
        return f"A path has at most {limits.JSON_PATH_SEGMENTS_MAX} segments, with its filters"
    if any(len(segment.selectors) > 1 for segment in segments):
        return "There is one selector in brackets"
    if sum(isinstance(segment, JSONPathRecursiveDescentSegment) for segment in segments) > 1:
        return "There is one `..` in a path, with its filters"
    if any(not one.query.singular_query() for one in _expressions(query, RootFilterQuery)):
        return "In a filter, what begins at `$` names one place"
    return None


def _queries(query: JSONPathQuery) -> Iterator[JSONPathQuery]:
    """A path and all those in its filters."""
    yield query
    yield from (one.query for one in _expressions(query, FilterQuery))


def _expressions(query: JSONPathQuery, kind: type[Any]) -> Iterator[Any]:
    """All expressions of a kind in the filters of a path, and in those of the paths in them."""
    for segment in query.segments:
        for selector in segment.selectors:
            if isinstance(selector, FilterSelector):
                yield from _within(selector.expression, kind)


def _within(expression: Expression, kind: type[Any]) -> Iterator[Any]:
    if isinstance(expression, kind):
        yield expression
    match expression:
        case FilterExpression():
            yield from _within(expression.expression, kind)
        case PrefixExpression():
            yield from _within(expression.right, kind)
        case LogicalExpression() | ComparisonExpression():
            yield from _within(expression.left, kind)
            yield from _within(expression.right, kind)
        case FunctionExtension():
            for argument in expression.args:
                yield from _within(argument, kind)
        case FilterQuery():
            yield from _expressions(expression.query, kind)
