"""Errors of Naksha on their way through Spark, which carries nothing but the text of a traceback:
what they say is put into a note there, and read again from it."""

from __future__ import annotations

import re
from typing import Final

import msgspec

from naksha.model import errors
from naksha.model.errors import NakshaError
from naksha.spi.jobs import Failed

_MARK: Final = "naksha-error:"
_NOTE: Final = re.compile(re.escape(_MARK) + r" (\{.*\})$", re.MULTILINE)


_RAISED: Final = re.compile(
    r"^\s*naksha\.model\.errors\.(?P<name>\w+): (?P<said>.+)$", re.MULTILINE
)


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


def failure_of(error: BaseException) -> Failed | None:
    """What Naksha said, or None when it is an error that nobody raised on purpose. One that was
    raised elsewhere without a note is known by its name in the traceback."""
    ours = error if isinstance(error, NakshaError) else failure_in(str(error))
    if ours is not None:
        return Failed.of(ours)
    raised = _RAISED.findall(str(error))
    if not raised:
        return None
    name, said = raised[-1]
    kind = getattr(errors, name, NakshaError)
    return Failed(kind.code, said.strip())
