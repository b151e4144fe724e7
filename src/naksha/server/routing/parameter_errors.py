"""Errors of invalid parameters, in the words of the API."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from naksha.model.errors import InvalidArgument

Problem = tuple[str, Mapping[str, Any]]
"""Source of an invalid parameter (`query`, `path`, `header`, `body`), and pydantic's error."""
_SENTENCES: Final = {
    "missing": "required but missing",
    "extra_forbidden": "unknown member",
    "model_type": "must be a JSON object",
    "dict_type": "must be a JSON object",
    "union_tag_invalid": "{tag!r:.64} is not one of {expected_tags}",
    "union_tag_not_found": "required but missing",
    "value_error": "{error}",
}
"""Messages that replace those of pydantic, by pydantic's error types."""


def invalid_parameters(problems: Sequence[Problem]) -> InvalidArgument:
    """Build the error: `field` names the first invalid parameter, the message all of them."""
    described = [_described(*problem) for problem in problems]
    field, message = described[0]
    others = "".join(f"; {name}: {text}" for name, text in described[1:])
    return InvalidArgument(f"{field}: {message}{others}", field=field)


def _described(source: str, problem: Mapping[str, Any]) -> tuple[str, str]:
    """Return field and message."""
    path = [str(step) for step in problem["loc"]]
    more = problem.get("ctx", {})
    if "discriminator" in more:
        path.append(more["discriminator"].strip("'"))
    text = _SENTENCES.get(problem["type"], "{msg}").format(msg=problem["msg"], **more)
    return ".".join(path) or source, text
