"""What a job of the data pipeline tells while it runs in a process of its own: lines of JSON, the
last one being its end.

    {"event": "phase", "name": "reading", "total": 1000}
    {"event": "moved", "done": 250}
    {"event": "said", "text": "3 records were rejected"}
    {"event": "late"}
    {"event": "done", "report": {…}}

Whoever starts it (the hub, the command line) knows nothing else of it.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import msgspec

from naksha.model import limits
from naksha.model.errors import NakshaError

MODULE: Final = "naksha.spark"
"""What is run: `python -m naksha.spark`."""


class _Line(msgspec.Struct, frozen=True, tag_field="event"):
    """What all lines have: the name of what happened."""


class Phase(_Line, frozen=True, tag="phase"):
    """Something new begins; `total` things are to be done, if that is known."""

    name: str
    total: int | None = None


class Moved(_Line, frozen=True, tag="moved"):
    """So many things of the phase are done by now."""

    done: int


class Said(_Line, frozen=True, tag="said"):
    """Something that a person wants to read."""

    text: str


class Late(_Line, frozen=True, tag="late"):
    """It is too late to cancel it: it does what cannot be undone, and goes on to its end."""


class Done(_Line, frozen=True, tag="done", omit_defaults=True):
    """It ended well. `exit_code` is what the process ends with, for scripts: a job that looks for
    something wrong may have found it."""

    report: dict[str, Any]
    exit_code: int = 0


class Failed(_Line, frozen=True, tag="failed", omit_defaults=True):
    """It ended otherwise; the code is that of an error of Naksha."""

    code: str
    message: str
    field: str | None = None
    feature_id: str | None = None
    collection_id: str | None = None

    @classmethod
    def of(cls, error: NakshaError) -> Failed:
        """What is told of an error."""
        message = error.message[: limits.JOB_MESSAGE_LENGTH_MAX]
        return cls(error.code, message, error.field, error.feature_id, error.collection_id)

    def error(self) -> NakshaError:
        """The error that it was, as far as it was told."""
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


Line: TypeAlias = Phase | Moved | Said | Late | Done | Failed
_decoder: Final[msgspec.json.Decoder[Line]] = msgspec.json.Decoder(Line)


def read_line(text: bytes) -> Line | None:
    """A line, or None for what is none: nothing but ours should be there, but who knows."""
    try:
        return _decoder.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


class JobKind(msgspec.Struct, frozen=True, rename="camel"):
    """A job that can be run, as `python -m naksha.spark describe` tells of it."""

    name: str
    about: str
    access: str
    """`read`, `write` or `manage`: what it does with the features that it is about."""
    is_repeatable: bool
    """Whether it may begin again after its process has died in the middle."""
    files: dict[str, str]
    """Fields that name a file or several, which are read (`read`) or written (`write`)."""
    schema: dict[str, Any]
    """The JSON Schema of its specification."""


def errors_by_code(kind: type[NakshaError] = NakshaError) -> dict[str, type[NakshaError]]:
    """The errors of Naksha itself, by their codes."""
    found = {kind.code: kind}
    for child in kind.__subclasses__():
        if child.__module__ == NakshaError.__module__:
            found |= errors_by_code(child)
    return found
