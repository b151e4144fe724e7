"""Pushdown of Spark's filters to a storage.

A filter is pushed down completely if the storage returns exactly the rows that Spark would keep,
with Spark's semantics of null: neither a comparison with null nor its negation is ever true. Other
filters at best narrow the query, and Spark evaluates them again.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    StringStartsWith,
)
from pyspark.sql.datasource import Not as NotFilter

from naksha.model import limits
from naksha.model.errors import InvalidArgument
from naksha.model.query import (
    MEMBERS,
    ONE_OF,
    PREFIXES,
    RANGES,
    And,
    Bbox,
    Not,
    Op,
    Or,
    Predicate,
    Query,
)
from naksha.model.query import Test as PropertyTest
from naksha.model.state import XYZ
from naksha.spi.arrow import COLUMNS
from naksha.spi.query.values import check_text

Path = tuple[str, ...]
_EVERYTHING: Final = And(())
_NOTHING: Final = Or(())
_TEXTS: Final[dict[str, Path]] = {
    "id": ("id",),
    **{
        name: ("properties", XYZ, MEMBERS.get(name, name))
        for name in ("uuid", "puuid", "muuid", *ONE_OF, "crid", *PREFIXES)
    },
}
"""String columns and their paths in a feature."""
_NUMBERS: Final[dict[str, Path]] = {
    name: ("properties", XYZ, MEMBERS.get(name, name))
    for name in ("created_at", "updated_at", "version", "rtcts", "rtuts")
}
_AMONG: Final = {"id": "ids", **ONE_OF}
"""Columns that a query restricts by a set of values."""
_ORDERS: Final[dict[type[Filter], Op]] = {
    EqualTo: Op.EQ,
    LessThan: Op.LT,
    LessThanOrEqual: Op.LTE,
    GreaterThan: Op.GT,
    GreaterThanOrEqual: Op.GTE,
    StringStartsWith: Op.STARTS_WITH,
}
_EXACT_MAX: Final = 2.0**53
"""All integers up to this one are exact as doubles."""
_EDGES: Final = ("west", "south", "east", "north")
_WORLD: Final = Bbox(-180.0, -90.0, 180.0, 90.0)


def pushed(query: Query, filters: Sequence[Filter]) -> tuple[Query, list[Filter]]:
    """Extend a query by filters; return it with the filters that Spark must evaluate again."""
    builder = _QueryBuilder(query)
    boxed = [f for f in filters if _column(f) in _EDGES and not isinstance(f, IsNull | IsNotNull)]
    left = builder.box(boxed)
    for each in filters:
        if each not in boxed and not builder.take(each):
            left.append(each)
    return builder.query(), left


class _QueryBuilder:
    """Builder of a query from filters."""

    def __init__(self, query: Query) -> None:
        self._query = query
        self._where: list[Predicate] = []

    def query(self) -> Query:
        """Build the query."""
        if not self._where:
            return self._query
        if any(part == _NOTHING for part in self._where):
            return msgspec.structs.replace(self._query, ids=())
        given = () if self._query.where is None else (self._query.where,)
        return self._with(where=And((*given, *self._where)))

    def take(self, filter_: Filter) -> bool:
        """Add a filter to the query; return whether the query covers it exactly."""
        name = _column(filter_)
        inside = _inside(filter_)
        if inside is not None:
            # Not exact: Spark may compare numbers and strings differently.
            self._where.append(inside)
            return False
        if name in _AMONG and self._among(_AMONG[name], filter_):
            return True
        if name in RANGES and isinstance(filter_, (*_ORDERS, In, EqualNullSafe)):
            return self._range(*RANGES[name], filter_)
        predicate = _predicate(filter_, name)
        if predicate is None:
            return False
        if name in PREFIXES and isinstance(filter_, EqualTo | StringStartsWith):
            self._prefix(PREFIXES[name], filter_.value)
        if predicate != _EVERYTHING:
            self._where.append(predicate)
        return True

    def box(self, filters: Sequence[Filter]) -> list[Filter]:
        """Restrict the query to a box by filters on its edges; return the remaining filters."""
        given = self._query.spatial if self._query.spatial is not None else _WORLD
        if not filters or not isinstance(given, Bbox) or given.west > given.east:
            return list(filters)
        bounds, left = given, []
        for each in filters:
            narrowed, is_exact = _narrowed(bounds, each)
            # A box whose edges are swapped cannot be queried, yet a feature may span both edges.
            is_box = narrowed.west <= narrowed.east and narrowed.south <= narrowed.north
            if is_box:
                bounds = narrowed
            if not (is_box and is_exact):
                left.append(each)
        if bounds != given:
            self._query = self._with(spatial=bounds)
        elif len(left) < len(filters):
            self._where.append(_known(_TEXTS["qrid"]))
        return left

    def _with(self, **parts: Any) -> Query:
        return msgspec.structs.replace(self._query, **parts)

    def _among(self, part: str, filter_: Filter) -> bool:
        values = _values(filter_)
        if values is None or not all(isinstance(value, str) for value in values):
            return False
        if len(values) > limits.SPARK_PUSHED_IDS_MAX or not all(map(_is_storable_text, values)):
            return False
        known = getattr(self._query, part)
        among = dict.fromkeys(values)
        if known is not None:
            among = {value: None for value in known if value in among}
        self._query = self._with(**{part: tuple(among)})
        return True

    def _range(self, first: str, end: str, filter_: Filter) -> bool:
        bounds = _bounds(filter_)
        if bounds is None:
            return False
        low, high = bounds
        known_low, known_high = getattr(self._query, first), getattr(self._query, end)
        if low is not None and low > limits.INT8_MAX:
            self._where.append(_NOTHING)
        elif low is not None and (known_low is None or low > known_low):
            self._query = self._with(**{first: low})
        # An upper bound beyond the largest int8 does not exclude anything.
        is_bound = high is not None and high <= limits.INT8_MAX
        if high is not None and is_bound and (known_high is None or high < known_high):
            self._query = self._with(**{end: high})
        return not (isinstance(filter_, In) and len(filter_.value) > 1)

    def _prefix(self, part: str, prefix: str) -> None:
        """Restrict the query to a prefix, for which there is an index; it serves equality, too."""
        known = getattr(self._query, part)
        if known is None or prefix.startswith(known):
            self._query = self._with(**{part: prefix})


def _column(filter_: Filter) -> str:
    """Return the column of a filter; "" for a filter on a field inside a column."""
    while isinstance(filter_, NotFilter):
        filter_ = filter_.child
    path: Path = getattr(filter_, "attribute", ())
    return path[0] if len(path) == 1 else ""


def _values(filter_: Filter) -> tuple[Any, ...] | None:
    """Return the values of which the column must have one; None for other kinds of filters."""
    if isinstance(filter_, In):
        return tuple(value for value in filter_.value if value is not None)
    if isinstance(filter_, EqualTo) or (
        isinstance(filter_, EqualNullSafe) and filter_.value is not None
    ):
        return (filter_.value,)
    return None


def _bounds(filter_: Filter) -> tuple[int | None, int | None] | None:
    """Return the half-open range of integers that a filter allows; None if it is not one."""
    values = _values(filter_)
    given = values if values is not None else (getattr(filter_, "value", None),)
    if not given or not all(map(_is_whole, given)):
        return None
    low, high = min(given), max(given)
    if isinstance(filter_, LessThan):
        return None, high
    if isinstance(filter_, LessThanOrEqual):
        return None, high + 1
    if isinstance(filter_, GreaterThan):
        return low + 1, None
    if isinstance(filter_, GreaterThanOrEqual):
        return low, None
    return (low, high + 1) if values is not None else None


def _narrowed(box: Bbox, filter_: Filter) -> tuple[Bbox, bool]:
    """Narrow a box by a filter on an edge of features; also return whether that is exact.

    A feature intersects a box if it starts before the end of the box and ends after its start. So
    upper bounds of a start and lower bounds of an end are exact; other comparisons only narrow.
    """
    column, value = _column(filter_), getattr(filter_, "value", None)
    op = _ORDERS.get(type(filter_))
    if op is None or not isinstance(value, int | float) or not math.isfinite(value):
        return box, False
    bound = float(value)
    if bound != value:
        return box, False
    is_start = column in ("west", "south")
    low, high = ("west", "east") if column in ("west", "east") else ("south", "north")
    parts: dict[str, float] = {}
    if op in (Op.LT, Op.LTE, Op.EQ):
        end = math.nextafter(bound, -math.inf) if op is Op.LT else bound
        parts[high] = min(getattr(box, high), end)
    if op in (Op.GT, Op.GTE, Op.EQ):
        start = math.nextafter(bound, math.inf) if op is Op.GT else bound
        parts[low] = max(getattr(box, low), start)
    is_exact = op in ((Op.LT, Op.LTE) if is_start else (Op.GT, Op.GTE))
    return msgspec.structs.replace(box, **parts), is_exact


# ---- Predicates ------------------------------------------------------------------------------


def _predicate(filter_: Filter, name: str) -> Predicate | None:
    """Convert a filter on a column to an equivalent predicate; None if there is none."""
    if isinstance(filter_, NotFilter):
        return _opposite(filter_.child, name)
    if name not in COLUMNS.names:
        return None
    if isinstance(filter_, IsNull):
        return _opposite(IsNotNull(filter_.attribute), name)
    if isinstance(filter_, IsNotNull):
        return _not_null(name)
    path = _TEXTS.get(name) or _NUMBERS.get(name)
    if path is None:
        return None
    if isinstance(filter_, EqualNullSafe):
        if filter_.value is None:
            return _opposite(IsNotNull(filter_.attribute), name)
        filter_ = EqualTo(filter_.attribute, filter_.value)
    kind = str if name in _TEXTS else int
    if isinstance(filter_, In):
        return _any_of(path, _values(filter_) or (), kind)
    op = _ORDERS.get(type(filter_))
    if op is None or (op is Op.STARTS_WITH and kind is int):
        return None
    return _test(path, op, getattr(filter_, "value", None), kind)


def _inside(filter_: Filter) -> Predicate | None:
    """Convert a filter on a property to a predicate that is true for at least the same features.

    The property is a field of the struct that `naksha.spark.source.property_structs` creates.
    """
    path: Path = getattr(filter_, "attribute", ())
    if len(path) < 2 or path[0] != "properties" or not all(map(_is_storable_text, path)):
        return None
    if isinstance(filter_, IsNotNull):
        return _known(path)
    values = _values(filter_)
    if values is not None:
        # Equality with a double takes two tests.
        tests = len(values) + sum(isinstance(value, float) for value in values)
        if tests > limits.SPARK_PUSHED_VALUES_MAX or not all(map(_is_itself, values)):
            return None
        return Or(tuple(_about(path, Op.EQ, value) for value in values))
    op, value = _ORDERS.get(type(filter_)), getattr(filter_, "value", None)
    if op is None or isinstance(value, bool):
        return None
    if isinstance(value, str):
        is_asked = op is Op.STARTS_WITH and _is_storable_text(value) and not _starts_json(value)
        return PropertyTest(path, op, value) if is_asked else None
    return _about(path, op, value) if _is_itself(value) else None


def _about(path: Path, op: Op, value: Any) -> Predicate:
    """Build a test that is true wherever Spark's comparison of doubles is.

    A storage may compare all decimal digits, or round them differently. So the bounds are widened
    to the neighbouring doubles.
    """
    if not isinstance(value, float):
        return PropertyTest(path, op, value)
    below, above = (math.nextafter(value, end) for end in (-math.inf, math.inf))
    if op is Op.EQ:
        return And((PropertyTest(path, Op.GTE, below), PropertyTest(path, Op.LTE, above)))
    return PropertyTest(path, op, above if op in (Op.LT, Op.LTE) else below)


def _is_itself(value: Any) -> bool:
    """Whether only the same JSON value is equal to the value on Spark.

    A STRING column also contains the JSON of values that are not strings, and large numbers are
    rounded.
    """
    if isinstance(value, str):
        return _is_storable_text(value) and not _is_json(value)
    return isinstance(value, bool | int) or (isinstance(value, float) and abs(value) < _EXACT_MAX)


def _starts_json(prefix: str) -> bool:
    """Whether the JSON of a value that is not a string can start with the prefix."""
    words = ("true", "false")
    return prefix[:1] in tuple("-0123456789{[") or any(word.startswith(prefix) for word in words)


def _is_json(text: str) -> bool:
    try:
        msgspec.json.decode(text)
    except msgspec.DecodeError:
        return False
    return True


def _opposite(filter_: Filter, name: str) -> Predicate | None:
    """Convert the negation of a filter; where a filter is null, so is its negation."""
    if isinstance(filter_, In) and None in filter_.value:
        return _NOTHING
    same = _predicate(filter_, name)
    if same is None:
        return None
    if isinstance(filter_, IsNotNull | EqualNullSafe | IsNull):
        return _not(same)
    known = _not_null(name)
    return None if known is None else _and((known, _not(same)))


def _not_null(name: str) -> Predicate | None:
    """Build a test that a column is not null; columns of the box have a value iff `qrid` has."""
    if not COLUMNS.field(name).nullable:
        return _EVERYTHING
    path = _TEXTS["qrid"] if name in _EDGES else _TEXTS.get(name)
    if path is None:
        return None
    return _known(path)


def _known(path: Path) -> Predicate:
    return And((PropertyTest(path, Op.EXISTS), Not(PropertyTest(path, Op.IS_NULL))))


def _any_of(path: Path, values: Sequence[Any], kind: type) -> Predicate | None:
    if len(values) > limits.SPARK_PUSHED_VALUES_MAX:
        return None
    tests = [_test(path, Op.EQ, value, kind) for value in values]
    found = [test for test in tests if test is not None]
    return Or(tuple(found)) if len(found) == len(tests) else None


def _test(path: Path, op: Op, value: Any, kind: type) -> PropertyTest | None:
    fits = _is_whole(value) if kind is int else isinstance(value, str) and _is_storable_text(value)
    return PropertyTest(path, op, value) if fits else None


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_storable_text(text: str) -> bool:
    """Whether a storage accepts a text in queries; no stored value equals any other text."""
    try:
        check_text(text)
    except InvalidArgument:
        return False
    return True


def _and(parts: Iterable[Predicate]) -> Predicate:
    found = tuple(part for part in parts if part != _EVERYTHING)
    return found[0] if len(found) == 1 else And(found)


def _not(predicate: Predicate) -> Predicate:
    if predicate == _EVERYTHING:
        return _NOTHING
    return _EVERYTHING if predicate == _NOTHING else Not(predicate)
