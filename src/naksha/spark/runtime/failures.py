"""Errors of Naksha on their way through Spark, which carries nothing but the text of a traceback:
what they say is put into a note there, and read again from it."""

from __future__ import annotations

import re
from ast import literal_eval
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import msgspec

from naksha.model import errors
from naksha.model.errors import InvalidArgument, NakshaError
from naksha.spi.jobs.messages import Failed, errors_by_code

MARK: Final = "naksha-error:"
"""What a note begins with."""
_NOTE: Final = re.compile(re.escape(MARK) + r" (\{.*\})$", re.MULTILINE)
_RAISED: Final = re.compile(
    rf"^\s*{re.escape(NakshaError.__module__)}\.(?P<name>\w+): (?P<said>.+)$", re.MULTILINE
)
_UNREADABLE: Final = re.compile(
    r"\[FAILED_READ_FILE\.\w+\] Encountered error while reading file (?:file://)?(\S+)\.\s"
)
"""What Spark says of a file that its own reader gives up."""
_VALUE: Final = r"""(?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|\d+)"""
_PART: Final = re.compile(rf"(collection|feature|position|field) ({_VALUE})(?:, )?")
_WHERE: Final = re.compile(rf"^(.*) \(((?:{_PART.pattern})+)\)$")
"""How an error of ours says where it was, see `NakshaError.__str__`."""


class _Failure(msgspec.Struct, omit_defaults=True):
    code: str
    message: str
    field: str | None = None
    feature_id: str | None = None
    collection_id: str | None = None
    position: int | None = None


def note(error: NakshaError) -> str:
    """One line that `failure_in` understands."""
    failure = _Failure(
        error.code,
        error.message,
        error.field,
        error.feature_id,
        error.collection_id,
        error.position,
    )
    return f"{MARK} {msgspec.json.encode(failure).decode()}"


@contextmanager
def noting() -> Iterator[None]:
    """Errors on their way to Spark get a note: it turns them into texts, from which they are read
    again later."""
    try:
        yield
    except NakshaError as error:
        if not any(each.startswith(MARK) for each in getattr(error, "__notes__", ())):
            error.add_note(note(error))
        raise


def failure_in(text: str) -> NakshaError | None:
    """The error of ours that a text of Spark's tells of, if there is one. One that was raised
    without a note is read from the last line of its traceback."""
    failure = _noted(text) or _raised(text) or _unreadable(text)
    if failure is None:
        return None
    error = errors_by_code().get(failure.code, NakshaError)(
        failure.message,
        field=failure.field,
        feature_id=failure.feature_id,
        collection_id=failure.collection_id,
    )
    error.position = failure.position
    return error


def ours(error: BaseException) -> BaseException:
    """The error of ours that an error is, or tells of; else what it is."""
    if isinstance(error, NakshaError):
        return error
    found = failure_in(str(error))
    if found is None:
        return error
    found.__cause__ = error
    return found


def failure_of(error: BaseException) -> Failed | None:
    """What Naksha said, or None when it is an error that nobody raised on purpose."""
    found = ours(error)
    return Failed.of(found) if isinstance(found, NakshaError) else None


def _noted(text: str) -> _Failure | None:
    found = _NOTE.findall(text)
    if not found:
        return None
    try:
        return msgspec.json.decode(found[-1], type=_Failure)
    except msgspec.DecodeError:
        return None


def _unreadable(text: str) -> _Failure | None:
    found = _UNREADABLE.search(text)
    if found is None:
        return None
    return _Failure(InvalidArgument.code, f"{found[1]} cannot be read, it is damaged", "files")


def _raised(text: str) -> _Failure | None:
    found = _RAISED.findall(text)
    if not found:
        return None
    name, said = found[-1]
    code = getattr(getattr(errors, name, NakshaError), "code", NakshaError.code)
    where = _WHERE.match(said.strip())
    if where is None:
        return _Failure(code, said.strip())
    told = {name: literal_eval(value) for name, value in _PART.findall(where[2])}
    return _Failure(
        code,
        where[1],
        told.get("field"),
        told.get("feature"),
        told.get("collection"),
        told.get("position"),
    )
