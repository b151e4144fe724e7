"""Problems of a feature with the path of the invalid value, shared by the checks of features."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from naksha.model.errors import InvalidArgument
from naksha.model.identity.names import text_problem
from naksha.model.limits import FEATURE_ID_BYTES_MAX, INT8_MAX


@dataclass(frozen=True, slots=True)
class Problem:
    """A message and the path of the value it is about (an empty path is the whole value)."""

    path: str
    message: str

    def below(self, path: str) -> Problem:
        """Return the same problem for an outer value that has this one at `path`."""
        joint = "." if self.path and not self.path.startswith("[") else ""
        return Problem(f"{path}{joint}{self.path}", self.message)


class Broken(Exception):
    """Internal exception that carries the first problem out of a check."""

    def __init__(self, path: str, message: str) -> None:
        super().__init__(message)
        self.problem = Problem(path, message)


def invalid_feature(problem: Problem, feature: Mapping[str, Any], position: int) -> InvalidArgument:
    """Build the error for a feature: by its id if it has a usable one, else by its position."""
    feature_id = readable_id(feature.get("id"))
    if feature_id is None:
        problem = problem.below(f"features[{position}]")
    return InvalidArgument(problem.message, field=problem.path, feature_id=feature_id)


def readable_id(value: object) -> str | None:
    """Return the id for use in an error, or None if it is not a valid id."""
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) <= INT8_MAX:
        return str(value)
    return None if text_problem(value, FEATURE_ID_BYTES_MAX) else str(value)


def readable_key(key: str) -> str:
    """Return a member's name for use in a path, with NUL and lone surrogates escaped."""
    shown = key.encode("utf-8", "backslashreplace").decode().replace("\0", "\\u0000")
    return shown if len(shown) <= 128 else f"{shown[:128]}…"


def invalid_struct(noun: str, error: msgspec.ValidationError, outer: str = "") -> InvalidArgument:
    """Build the error for a value that does not match its type; `outer` is the path of the value.

    The field is parsed from the message of msgspec, which ends with ``… - at `$.title` `` or names
    the missing or unknown field.
    """
    message, _, place = str(error).partition(" - at `$")
    named = re.search(r"(?:missing required|contains unknown) field `([^`]+)`", message)
    parts = (outer, place.strip("`."), named[1] if named else "")
    field = ".".join(part for part in parts if part)
    return InvalidArgument(f"Invalid {noun}: {message}", field=field or noun)
