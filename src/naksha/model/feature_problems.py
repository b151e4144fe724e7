"""Problems of a feature with the path of the invalid value, shared by the checks of features."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from naksha.model.errors import InvalidArgument
from naksha.model.identity.names import text_problem
from naksha.model.limits import FEATURE_ID_BYTES_MAX, INT8_MAX

_SHOWN_LENGTH_MAX: Final = 128
_JSON_TYPES: Final = {"bool": "boolean", "float": "number", "int": "integer", "str": "string"}
"""Names of JSON types for those that msgspec has from Python."""


@dataclass(frozen=True, slots=True)
class FeatureProblem:
    """A problem of the value at a path; an empty path is the whole value.

    The message is a predicate, such as "must not be empty": its subject is the path.
    """

    path: str
    message: str

    def below(self, path: str) -> FeatureProblem:
        """Return the same problem for an outer value that has this one at `path`."""
        joint = "." if self.path and not self.path.startswith("[") else ""
        return FeatureProblem(f"{path}{joint}{self.path}", self.message)

    def sentence(self, whole: str = "The value") -> str:
        """Return the problem as a sentence; `whole` is the subject if the path is empty."""
        return f"{_shortened(self.path) or whole} {self.message}"

    def sentence_of(self, feature_id: str) -> str:
        """Return the problem as a sentence that names the feature."""
        owner = f"feature {feature_id!r:.64}"
        if not self.path:
            return f"The {owner} {self.message}"
        return f"{_shortened(self.path)} of {owner} {self.message}"


class ProblemError(Exception):
    """Internal exception that carries the first problem out of a check."""

    def __init__(self, path: str, message: str) -> None:
        super().__init__(message)
        self.problem = FeatureProblem(path, message)


def invalid_feature(
    problem: FeatureProblem, feature: Mapping[str, Any], position: int
) -> InvalidArgument:
    """Build the error for a feature: by its id if it has a usable one, else by its position."""
    feature_id = readable_id(feature.get("id"))
    if feature_id is None:
        problem = problem.below(f"features[{position}]")
        return InvalidArgument(problem.sentence(), field=problem.path)
    message = problem.sentence_of(feature_id)
    return InvalidArgument(message, field=problem.path, feature_id=feature_id)


def readable_id(value: object) -> str | None:
    """Return the id for use in an error, or None if it is not a valid id."""
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) <= INT8_MAX:
        return str(value)
    return None if text_problem(value, FEATURE_ID_BYTES_MAX) else str(value)


def readable_key(key: str) -> str:
    """Return a member's name for use in a path, with NUL and lone surrogates escaped."""
    shown = key.encode("utf-8", "backslashreplace").decode().replace("\0", "\\u0000")
    return _shortened(shown)


def _shortened(text: str) -> str:
    return text if len(text) <= _SHOWN_LENGTH_MAX else f"{text[:_SHOWN_LENGTH_MAX]}…"


def invalid_struct(noun: str, error: msgspec.ValidationError, outer: str = "") -> InvalidArgument:
    """Build the error for a value that does not match its type; `outer` is the path of the value.

    The field is parsed from the message of msgspec, which ends with ``… - at `$.title` `` or names
    the missing or unknown field.
    """
    message, _, place = str(error).partition(" - at `$")
    if message.startswith("Expected"):
        message = re.sub(r"\w+", lambda word: _JSON_TYPES.get(word[0], word[0]), message)
    named = re.search(r"(?:missing required|contains unknown) field `([^`]+)`", message)
    parts = (outer, place.strip("`."), named[1] if named else "")
    field = ".".join(part for part in parts if part)
    where = f"{field}: " if place else ""
    return InvalidArgument(f"Invalid {noun}: {where}{message}", field=field or noun)
