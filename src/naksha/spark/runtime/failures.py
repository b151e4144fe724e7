"""Transport of Naksha errors through Spark.

Spark forwards only the text of a traceback. So the parts of an error are encoded in a note of the
exception, and decoded from the text of the traceback.
"""

from __future__ import annotations

import re
from ast import literal_eval
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import msgspec

from naksha.model import errors
from naksha.model.errors import InvalidArgument, NakshaError
from naksha.spi.jobs.messages import FailedMessage, errors_by_code

MARK: Final = "naksha-error:"
"""Prefix of a note."""
_NOTE: Final = re.compile(re.escape(MARK) + r" (\{.*\})$", re.MULTILINE)
_RAISED: Final = re.compile(
    rf"^\s*{re.escape(NakshaError.__module__)}\.(?P<name>\w+): (?P<said>.+)$", re.MULTILINE
)
_UNREADABLE: Final = re.compile(
    r"\[FAILED_READ_FILE\.\w+\] Encountered error while reading file (?:file://)?(\S+)\.\s"
)
"""Spark's message about a file that its own reader cannot read."""
_VALUE: Final = r"""(?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|\d+)"""
_PART: Final = re.compile(rf"(collection|feature|position|field) ({_VALUE})(?:, )?")
_WHERE: Final = re.compile(rf"^(.*) \(((?:{_PART.pattern})+)\)$")
"""The location suffix that `NakshaError.__str__` appends to a message."""


class _Failure(msgspec.Struct, omit_defaults=True):
    code: str
    message: str
    field: str | None = None
    feature_id: str | None = None
    collection_id: str | None = None
    position: int | None = None


def note(error: NakshaError) -> str:
    """Encode an error as one line that `failure_in` can decode."""
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
    """Add a note to every Naksha error that leaves the block.

    Spark converts exceptions to text; `failure_in` restores the error from the note.
    """
    try:
        yield
    except NakshaError as error:
        if not any(each.startswith(MARK) for each in getattr(error, "__notes__", ())):
            error.add_note(note(error))
        raise


def failure_in(text: str) -> NakshaError | None:
    """Restore the Naksha error that a text from Spark contains, if any.

    An error that was raised without a note is parsed from the last line of its traceback.
    """
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
    """Return the Naksha error that an exception is or contains, else the exception itself."""
    if isinstance(error, NakshaError):
        return error
    found = failure_in(str(error))
    if found is None:
        return error
    found.__cause__ = error
    return found


def failure_of(error: BaseException) -> FailedMessage | None:
    """Convert an exception to a `FailedMessage`; None if it contains no Naksha error."""
    found = ours(error)
    return FailedMessage.of(found) if isinstance(found, NakshaError) else None


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
    return _Failure(
        InvalidArgument.code, f"{found[1]} cannot be read: the file is damaged", "files"
    )


def _raised(text: str) -> _Failure | None:
    found = _RAISED.findall(text)
    if not found:
        return None
    name, arguments = found[-1]
    code = getattr(getattr(errors, name, NakshaError), "code", NakshaError.code)
    where = _WHERE.match(arguments.strip())
    if where is None:
        return _Failure(code, arguments.strip())
    parts = {name: literal_eval(value) for name, value in _PART.findall(where[2])}
    return _Failure(
        code,
        where[1],
        parts.get("field"),
        parts.get("feature"),
        parts.get("collection"),
        parts.get("position"),
    )
