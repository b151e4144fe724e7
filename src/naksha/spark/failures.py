"""Errors of Naksha on their way through Spark, which carries nothing but the text of a traceback:
what they say is put into a note there, and read again from it."""

from __future__ import annotations

import re
from typing import Final

import msgspec

from naksha.model import errors
from naksha.model.errors import NakshaError

_MARK: Final = "naksha-error:"
_NOTE: Final = re.compile(re.escape(_MARK) + r" (\{.*\})$", re.MULTILINE)


class _Failure(msgspec.Struct, omit_defaults=True):
    kind: str
    message: str
    field: str | None = None
    feature_id: str | None = None
    collection_id: str | None = None
    position: int | None = None


def note(error: NakshaError) -> str:
    """One line that `failure_in` understands."""
    failure = _Failure(
        type(error).__name__,
        error.message,
        error.field,
        error.feature_id,
        error.collection_id,
        error.position,
    )
    return f"{_MARK} {msgspec.json.encode(failure).decode()}"


def failure_in(text: str) -> NakshaError | None:
    """The error of ours that a text of Spark's tells of, if there is one."""
    found = _NOTE.findall(text)
    if not found:
        return None
    try:
        failure = msgspec.json.decode(found[-1], type=_Failure)
    except msgspec.DecodeError:
        return None
    kind = getattr(errors, failure.kind, NakshaError)
    if not (isinstance(kind, type) and issubclass(kind, NakshaError)):
        kind = NakshaError
    error = kind(
        failure.message,
        field=failure.field,
        feature_id=failure.feature_id,
        collection_id=failure.collection_id,
    )
    error.position = failure.position
    return error
