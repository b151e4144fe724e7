"""Property query of the REST API: parses `p.speed>=50&f.id=a,b` into a predicate.

    pair      = key operator value *( "," value )
    key       = ( "p." | "properties." | "f." ) name *( "." name )
    operator  = "=" | "!=" | ">=" | "=gte=" | "<=" | "=lte=" | ">" | "=gt=" | "<" | "=lt="
              | "@>" | "=cs=" | "^=" | "=bw="

Pairs are combined with AND, the values of one pair with OR. A raw comma separates values, an
encoded one is data. Each pair is decoded before its operator is searched, because clients encode
parts of operators; the earliest operator wins, and the longest one at the same position. Other
parameters are ignored. The result is plain data and never becomes a part of a statement.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from naksha.hub.query_language.query_string import decoded, raw_pairs
from naksha.model.errors import InvalidArgument, LimitExceeded
from naksha.model.json_rules import json_problem
from naksha.model.limits import INT8_MAX, PROPERTY_CONDITIONS_MAX, PROPERTY_VALUES_MAX
from naksha.model.query import GEOMETRY_TYPE, And, Not, Op, Or, Predicate
from naksha.model.query import Test as PropertyTest
from naksha.model.state import CONFLICTING, XYZ
from naksha.model.tags import normalise_tag

Path = tuple[str, ...]

_OPERATORS: Final = {
    "=": Op.EQ,
    "!=": Op.NE,
    ">=": Op.GTE,
    "=gte=": Op.GTE,
    "<=": Op.LTE,
    "=lte=": Op.LTE,
    ">": Op.GT,
    "=gt=": Op.GT,
    "<": Op.LT,
    "=lt=": Op.LT,
    "@>": Op.CONTAINS,
    "=cs=": Op.CONTAINS,
    "^=": Op.STARTS_WITH,
    "=bw=": Op.STARTS_WITH,
}
_OPERATOR: Final = re.compile("|".join(sorted(map(re.escape, _OPERATORS), key=len, reverse=True)))
_ORDERS: Final = frozenset({Op.LT, Op.LTE, Op.GT, Op.GTE})
_PREFIXES: Final = ("p.", "f.", "properties.")
_INTEGER: Final = re.compile(r"[+-]?[0-9]+")
_NUMBER: Final = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")

_SEPARATOR: Final = "\0"
"""Marks a raw comma in decoded text, which cannot contain NUL itself."""

_NAMESPACE_TEXTS: Final = frozenset(
    {"action", "author", "appId", "uuid", "puuid", "muuid", "txn", "txn_next"}
    | {"tags", "crid", "qrid", "mrid"}
)
"""Members of the namespace that are text, even if a value looks like a number."""
_NAMESPACE_NUMBERS: Final = frozenset(["version", "createdAt", "updatedAt", "rtcts", "rtuts"])
_GEOMETRY_TYPES: Final = {
    name.lower(): name
    for name in (
        *("Point", "MultiPoint", "LineString", "MultiLineString", "Polygon", "MultiPolygon"),
        "GeometryCollection",
    )
}
"""Geometry types by lower-case name, since clients use any case."""
_OLDER_NAMES: Final = {"app_id": "appId"}


def property_query(raw: str | bytes) -> Predicate | None:
    """Parse the property predicate of a query string, or return None if it has none."""
    conditions = [
        condition for pair in raw_pairs(raw) if (condition := _condition(pair)) is not None
    ]
    if not conditions:
        return None
    _check_limit(len(conditions), PROPERTY_CONDITIONS_MAX, "property conditions", "query")
    count = sum(len(each.parts) if isinstance(each, Or) else 1 for each in conditions)
    _check_limit(count, PROPERTY_VALUES_MAX, "values of properties", "query")
    return conditions[0] if len(conditions) == 1 else And(tuple(conditions))


def property_path(key: str) -> Path:
    """Return the path in a feature of a property name like `p.a.b` or `f.updatedAt`."""
    prefix, _, rest = key.partition(".")
    names = tuple(rest.split("."))
    if not all(names):
        raise InvalidArgument(
            "The property name has an empty part; write p.name or f.name", field=key
        )
    if names == (XYZ, "conflicting"):
        return (CONFLICTING,)
    if prefix != "f":
        return ("properties", *names)
    name = _OLDER_NAMES.get(names[0], names[0])
    if name in _NAMESPACE_TEXTS or name in _NAMESPACE_NUMBERS:
        return ("properties", XYZ, name, *names[1:])
    return names


def _condition(pair: str) -> Predicate | None:
    text = _SEPARATOR.join(decoded(piece, "query") for piece in pair.split(","))
    if not text.startswith(_PREFIXES):
        return None
    found = _OPERATOR.search(text)
    if found is None:
        raise InvalidArgument(
            "The property condition has no operator; write for example p.name=value",
            field=_shown(text),
        )
    key, operator = text[: found.start()].replace(_SEPARATOR, ","), found[0]
    values = text[found.end() :].split(_SEPARATOR)
    _check_limit(len(values), PROPERTY_VALUES_MAX, "values", _shown(key))
    if operator in ("<", ">"):
        # Gateways that only support name=value append "=" to a pair without one.
        values[-1] = values[-1].removesuffix("=")
    return _any_of(_shown(key), property_path(key), _OPERATORS[operator], values)


def _check_limit(count: int, most: int, noun: str, field: str) -> None:
    if count > most:
        raise LimitExceeded(f"The query has {count} {noun}; the maximum is {most}", field=field)


def _shown(text: str) -> str:
    """Return a key as it is shown in an error."""
    return text.replace(_SEPARATOR, ",")[:128]


def _any_of(field: str, path: Path, op: Op, values: Sequence[str]) -> Predicate:
    tests = [_test(field, path, op, value) for value in values]
    return tests[0] if len(tests) == 1 else Or(tuple(tests))


def _test(field: str, path: Path, op: Op, text: str) -> Predicate:
    if path[0] == "geometry" and path != GEOMETRY_TYPE:
        raise InvalidArgument(
            f"{field!r} is not supported: of a geometry, only f.geometry.type can be queried; "
            "use a spatial search",
            field=field,
        )
    if text.lower() == ".null":
        return _null_test(path, op)
    if op is Op.CONTAINS and text.startswith(("{", "[")):
        return _containment(path, _json(field, text))
    value = _value_reader(path, op)(text)
    if op in _ORDERS and isinstance(value, bool):
        raise InvalidArgument(
            f"The condition on {field!r} compares with the boolean {text}, which has no order; "
            "use = or !=",
            field=field,
        )
    return PropertyTest(path, op, value)


def _null_test(path: Path, op: Op) -> Predicate:
    """Test for null or absent, which are equal here; all operators but != mean "is null"."""
    has_value = And((PropertyTest(path, Op.EXISTS), Not(PropertyTest(path, Op.IS_NULL))))
    return has_value if op is Op.NE else Not(has_value)


def _containment(path: Path, value: Any) -> Predicate:
    """Test containment of an object in the property, or in an array at the property."""
    test = PropertyTest(path, Op.CONTAINS, value)
    if not isinstance(value, dict):
        return test
    return Or((test, PropertyTest(path, Op.CONTAINS, [value])))


def _json(field: str, text: str) -> Any:
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise InvalidArgument(
            f"The value of {field!r} is not valid JSON: {error}; encode commas in it as %2C",
            field=field,
        ) from None
    problem = json_problem(value)
    if problem is not None:
        raise InvalidArgument(
            f"The JSON value of {field!r} is invalid: {problem.path} {problem.message}", field=field
        )
    return value


# ---- Values --------------------------------------------------------------------------------------


def _value_reader(path: Path, op: Op) -> Callable[[str], Any]:
    if path == GEOMETRY_TYPE:
        return lambda text: _GEOMETRY_TYPES.get(_as_text(text).lower(), text)
    if path == ("properties", XYZ, "tags"):
        return lambda text: normalise_tag(_as_text(text))
    holds_text = path == ("id",) or (path[1:2] == (XYZ,) and path[-1] in _NAMESPACE_TEXTS)
    return _as_text if holds_text or op is Op.STARTS_WITH else _typed


def _typed(text: str) -> str | int | float | bool:
    if text in ("true", "false"):
        return text == "true"
    if _INTEGER.fullmatch(text) and len(text) <= len(str(INT8_MAX)):
        return int(text)
    if _NUMBER.fullmatch(text) and math.isfinite(number := float(text)):
        return number
    return _as_text(text)


def _as_text(text: str) -> str:
    return text if (inner := _unquoted(text)) is None else inner


def _unquoted(text: str) -> str | None:
    """Return the text between quotes, or None if it is not quoted."""
    quoted = len(text) >= 2 and text[0] in "'\"" and text[0] == text[-1]
    return text[1:-1] if quoted else None
