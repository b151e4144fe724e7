"""What is wrong with a feature, and where: shared by the checks that name the place of an error."""

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
    """A message, and the path of the value it is about (an empty path is the whole value)."""

    path: str
    message: str

    def below(self, path: str) -> Problem:
        """The same problem, seen from a value that has this one at `path`."""
        joint = "." if self.path and not self.path.startswith("[") else ""
        return Problem(f"{path}{joint}{self.path}", self.message)


class Broken(Exception):
    """Carries the first problem out of a check; never leaves the model."""

    def __init__(self, path: str, message: str) -> None:
        super().__init__(message)
        self.problem = Problem(path, message)


def invalid_feature(problem: Problem, feature: Mapping[str, Any], position: int) -> InvalidArgument:
    """The error about a feature: by its id if it has a usable one, else by its position."""
    feature_id = readable_id(feature.get("id"))
    if feature_id is None:
        problem = problem.below(f"features[{position}]")
    return InvalidArgument(problem.message, field=problem.path, feature_id=feature_id)


def readable_id(value: object) -> str | None:
    """The id as it may stand in an error, or None if it cannot."""
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) <= INT8_MAX:
        return str(value)
    return None if text_problem(value, FEATURE_ID_BYTES_MAX) else str(value)


def readable_key(key: str) -> str:
    """A member's name as it may stand in a path: what no text can hold is escaped."""
    shown = key.encode("utf-8", "backslashreplace").decode().replace("\0", "\\u0000")
    return shown if len(shown) <= 128 else f"{shown[:128]}…"


def invalid_struct(noun: str, error: msgspec.ValidationError, outer: str = "") -> InvalidArgument:
    """The error about a value that is not built as its type is; `outer` is where the value is.
    msgspec says ``… - at `$.title` ``, or which field is missing or unknown."""
    message, _, place = str(error).partition(" - at `$")
    named = re.search(r"(?:missing required|contains unknown) field `([^`]+)`", message)
    parts = (outer, place.strip("`."), named[1] if named else "")
    field = ".".join(part for part in parts if part)
    return InvalidArgument(f"The {noun} is not right: {message}", field=field or noun)
