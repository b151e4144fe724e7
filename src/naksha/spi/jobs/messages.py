"""Messages of a data pipeline job in its own process: lines of JSON, the last one being its end.

    {"event": "phase", "name": "reading", "total": 1000}
    {"event": "moved", "done": 250}
    {"event": "said", "text": "3 records were rejected"}
    {"event": "late"}
    {"event": "done", "report": {…}}

The parent process (the hub, the command line) depends on nothing else of the job.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import msgspec

from naksha.model import limits
from naksha.model.errors import NakshaError

MODULE: Final = "naksha.spark"
"""Module of the job process: `python -m naksha.spark`."""


class _BaseMessage(msgspec.Struct, frozen=True, tag_field="event"):
    """Base of all messages; the tag is the event."""


class PhaseMessage(_BaseMessage, frozen=True, tag="phase"):
    """A new phase begins; `total` is its number of items, if known."""

    name: str
    total: int | None = None


class ProgressMessage(_BaseMessage, frozen=True, tag="moved"):
    """Number of items of the phase that are done."""

    done: int


class LogMessage(_BaseMessage, frozen=True, tag="said"):
    """Log message for people."""

    text: str


class UncancellableMessage(_BaseMessage, frozen=True, tag="late"):
    """The job can no longer be cancelled: it begins a step that cannot be undone, and finishes."""


class DoneMessage(_BaseMessage, frozen=True, tag="done", omit_defaults=True):
    """The job succeeded.

    `exit_code` is that of the process, for scripts: a job that checks for errors may have found
    some.
    """

    report: dict[str, Any]
    exit_code: int = 0


class FailedMessage(_BaseMessage, frozen=True, tag="failed", omit_defaults=True):
    """The job failed; the code is that of an error of Naksha."""

    code: str
    message: str
    field: str | None = None
    feature_id: str | None = None
    collection_id: str | None = None

    @classmethod
    def of(cls, error: NakshaError) -> FailedMessage:
        """Build the message for an error."""
        message = error.message[: limits.JOB_MESSAGE_LENGTH_MAX]
        return cls(error.code, message, error.field, error.feature_id, error.collection_id)

    def error(self) -> NakshaError:
        """Rebuild the error from the message."""
        kind = errors_by_code().get(self.code, NakshaError)
        made = kind.__new__(kind)
        NakshaError.__init__(
            made,
            self.message,
            field=self.field,
            feature_id=self.feature_id,
            collection_id=self.collection_id,
        )
        return made


JobMessage: TypeAlias = (
    PhaseMessage | ProgressMessage | LogMessage | UncancellableMessage | DoneMessage | FailedMessage
)
_decoder: Final[msgspec.json.Decoder[JobMessage]] = msgspec.json.Decoder(JobMessage)


def read_message(text: bytes) -> JobMessage | None:
    """Parse a line; None for other output, which libraries may write."""
    try:
        return _decoder.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


class JobKind(msgspec.Struct, frozen=True, rename="camel"):
    """Available job, as described by `python -m naksha.spark describe`."""

    name: str
    about: str
    access: str
    """`read`, `write` or `manage`: the access that it needs to the features."""
    is_repeatable: bool
    """Whether it may be restarted after its process crashed."""
    files: dict[str, str]
    """Fields with names of files that the job reads (`read`) or writes (`write`)."""
    schema: dict[str, Any]
    """JSON Schema of its specification."""


def errors_by_code(kind: type[NakshaError] = NakshaError) -> dict[str, type[NakshaError]]:
    """Return the error classes of Naksha itself by their codes."""
    found = {kind.code: kind}
    for child in kind.__subclasses__():
        if child.__module__ == NakshaError.__module__:
            found |= errors_by_code(child)
    return found
