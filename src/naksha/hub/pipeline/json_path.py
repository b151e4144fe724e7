"""JSONPath (RFC 9535), restricted so that evaluation takes bounded time on untrusted input.

For any path and feature, each segment visits each node about once. Therefore:
- `match` and `search` are not available, as patterns can backtrack catastrophically;
- brackets contain one selector, as every further selector multiplies the work of all segments
  after it;
- `..` occurs at most once;
- a query in a filter that begins at `$` must be singular, as it is evaluated for every filtered
  node.
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
    """A parsed path."""

    query: JSONPathQuery

    @classmethod
    def parse(cls, text: str, *, field: str) -> JsonPath:
        """Parse a path; raise InvalidArgument if it is invalid or not bounded in time."""
        if len(text) > limits.JSON_PATH_LENGTH_MAX:
            raise InvalidArgument(
                f"The JSONPath has {len(text)} characters; the maximum is "
                f"{limits.JSON_PATH_LENGTH_MAX}",
                field=field,
            )
        try:
            query = _environment.compile(text)
            problem = _problem(query)
        except JSONPathError as error:
            raise InvalidArgument(
                f"{text!r:.80} is not a valid JSONPath (RFC 9535): {error}", field=field
            ) from None
        except (ArithmeticError, RecursionError, ValueError):
            raise InvalidArgument(
                "The JSONPath is nested too deeply or contains a number that is too large",
                field=field,
            ) from None
        if problem is not None:
            raise InvalidArgument(problem, field=field)
        return cls(query)

    def finds(self, feature: dict[str, Any]) -> bool:
        """Return whether the path selects anything in a feature; true if evaluation fails."""
        try:
            return any(True for _ in self.query.finditer(feature))
        except (JSONPathError, ArithmeticError, RecursionError):
            return True


def _problem(query: JSONPathQuery) -> str | None:
    """Return why the evaluation of a path may take too long, or None."""
    queries = list(_queries(query))
    segments = [segment for one in queries for segment in one.segments]
    if len(segments) > limits.JSON_PATH_SEGMENTS_MAX:
        return f"A JSONPath has at most {limits.JSON_PATH_SEGMENTS_MAX} segments, with its filters"
    if any(len(segment.selectors) > 1 for segment in segments):
        return "Brackets in a JSONPath can contain only one selector"
    if sum(isinstance(segment, JSONPathRecursiveDescentSegment) for segment in segments) > 1:
        return "A JSONPath can contain only one `..`, including its filters"
    if any(not one.query.singular_query() for one in _expressions(query, RootFilterQuery)):
        return "In a filter, a JSONPath that begins at `$` must select a single node"
    return None


def _queries(query: JSONPathQuery) -> Iterator[JSONPathQuery]:
    """Yield a query and all queries in its filters."""
    yield query
    yield from (one.query for one in _expressions(query, FilterQuery))


def _expressions(query: JSONPathQuery, kind: type[Any]) -> Iterator[Any]:
    """Yield all expressions of a kind in the filters of a query, recursively."""
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
