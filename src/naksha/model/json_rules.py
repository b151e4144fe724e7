"""Readable rules for JSON inside a feature, which report where one is broken.

PostgreSQL's jsonb stores no NUL characters and no lone surrogates; JSON has no NaN and no infinite
numbers; names are strings.  `features` detects quickly whether all values are valid and calls this
module only to locate an error, so it may be slow.
"""

from __future__ import annotations

import math
from typing import Final

from naksha.model.feature_problems import FeatureProblem, readable_key
from naksha.model.limits import JSON_DEPTH_MAX

_PLAIN: Final = frozenset({bool, type(None)})


def json_problem(value: object, path: str = "", depth: int = 1) -> FeatureProblem | None:
    """Return the first problem of a value, or None."""
    if isinstance(value, dict | list | tuple):
        if depth > JSON_DEPTH_MAX:
            return FeatureProblem(
                path, f"is nested more than {JSON_DEPTH_MAX} levels deep; flatten it"
            )
        if isinstance(value, dict):
            return _object_problem(value, path, depth)
        return _array_problem(value, path, depth)
    message = _scalar_problem(value)
    return None if message is None else FeatureProblem(path, message)


def _object_problem(value: dict[object, object], path: str, depth: int) -> FeatureProblem | None:
    for key, member in value.items():
        if type(key) is not str:
            return FeatureProblem(path, f"has the member name {key!r:.64}, which must be a string")
        place = f"{path}.{readable_key(key)}" if path else readable_key(key)
        message = _text_problem(key)
        if message is not None:
            return FeatureProblem(place, f"has an invalid name: the name {message}")
        problem = json_problem(member, place, depth + 1)
        if problem is not None:
            return problem
    return None


def _array_problem(
    value: list[object] | tuple[object, ...], path: str, depth: int
) -> FeatureProblem | None:
    for index, member in enumerate(value):
        problem = json_problem(member, f"{path}[{index}]", depth + 1)
        if problem is not None:
            return problem
    return None


def _scalar_problem(value: object) -> str | None:
    if type(value) is str:
        return _text_problem(value)
    if type(value) is float:
        return None if math.isfinite(value) else f"must be a finite number, not {value}"
    if type(value) is int:
        return _integer_problem(value)
    if type(value) in _PLAIN:
        return None
    return f"has the Python type {type(value).__qualname__}, which is not a JSON type"


def _text_problem(text: str) -> str | None:
    if "\0" in text:
        return "must not contain the character U+0000 (NUL)"
    try:
        text.encode()
    except UnicodeEncodeError:
        return "must not contain an unpaired surrogate (U+D800 to U+DFFF)"
    return None


def _integer_problem(number: int) -> str | None:
    try:
        str(number)
    except ValueError:
        return "is an integer with too many digits; send it as a string"
    return None
