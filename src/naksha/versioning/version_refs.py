"""Version references in text form: `HEAD`, `17`, `3..9`, `*`, `summer`, `fix:HEAD`, a time, a UUID.

    ref      = [branch ":"] (range | "*" | point)
    range    = point ".." point                 the first one excluded, the last one included
    point    = "HEAD" | number | time | uuid | name

A number below 10^15 counts versions (0 is the empty storage), a larger one is a `txn`. A time is
ISO 8601 with a `T`; without a zone it is UTC. A bare name is a tag or a branch, including `main`.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Final, TypeAlias

import msgspec

from naksha.model.errors import InvalidArgument
from naksha.model.identity.uuids import is_uuid
from naksha.model.limits import INT8_MAX
from naksha.model.version import HEAD, AtTime, VersionSelector, selector_of

MAIN_BRANCH: Final = "main"
_RESERVED: Final = frozenset({MAIN_BRANCH, "HEAD", "*"})
SOLVING: Final = "!"
"""Prefix of the name of a branch on which the conflicts of another branch are resolved."""
_DIGITS: Final = "0123456789"
_NAME: Final = re.compile(r"!?[^0-9\s:][^\s:]{0,49}")
_NUMBER: Final = re.compile(r"[0-9]{1,19}")
_TIME: Final = re.compile(r"[0-9][^\s]*T[^\s]*")


class NamedRef(msgspec.Struct, frozen=True, tag="named"):
    """A tag, or the head of a branch."""

    name: str


class UuidRef(msgspec.Struct, frozen=True, tag="uuid"):
    """The version made by the transaction or the state with this UUID."""

    uuid: str


Point: TypeAlias = VersionSelector | NamedRef | UuidRef


class SingleRef(msgspec.Struct, frozen=True, tag="one"):
    """One version of a branch."""

    branch: str
    point: Point


class RangeRef(msgspec.Struct, frozen=True, tag="range"):
    """The versions after `first`, up to and including `last`."""

    branch: str
    first: Point
    last: Point


class AllRef(msgspec.Struct, frozen=True, tag="all"):
    """All versions of a branch."""

    branch: str


Ref: TypeAlias = SingleRef | RangeRef | AllRef
_MAIN_HEAD: Final = SingleRef(MAIN_BRANCH, HEAD)


def parse_ref(text: str) -> Ref:
    """Parse a version reference; an empty text is `main:HEAD`."""
    if not text:
        return _MAIN_HEAD
    if text == MAIN_BRANCH:
        return _MAIN_HEAD
    branch, rest = _split_branch(text)
    if rest == "*":
        return AllRef(branch)
    first, dots, last = rest.partition("..")
    if not dots:
        return SingleRef(branch, _point(text, rest))
    if first == "HEAD":
        raise _invalid_ref(text, "a range cannot start at HEAD; start it at an older version")
    return RangeRef(branch, _point(text, first), _point(text, last))


def check_name(name: str) -> str:
    """Return the name if a tag or a branch may have it, else raise InvalidArgument."""
    is_reserved = name.startswith(SOLVING) or name in _RESERVED or is_uuid(name)
    if not _NAME.fullmatch(name) or ".." in name or is_reserved:
        raise InvalidArgument(
            f"{name!r:.64} is not a valid tag or branch name: use 1 to 50 characters without"
            " spaces, colons and '..', not starting with a digit or '!'; main, HEAD, * and UUIDs"
            " are reserved",
            field="name",
        )
    return name


def _split_branch(text: str) -> tuple[str, str]:
    branch, colon, rest = text.partition(":")
    # The colons of a time do not separate a branch; branch names never begin with a digit.
    if not colon or not branch or branch[0] in _DIGITS:
        return MAIN_BRANCH, text
    if branch != MAIN_BRANCH and not _NAME.fullmatch(branch):
        raise _invalid_ref(text, f"{branch!r:.64} is not a valid branch name")
    return branch, rest


def _point(text: str, part: str) -> Point:
    if part == "HEAD":
        return HEAD
    if _NUMBER.fullmatch(part):
        number = int(part)
        if number > INT8_MAX:
            raise _invalid_ref(text, f"its version number is above the maximum {INT8_MAX}")
        return selector_of(number)
    if is_uuid(part):
        return UuidRef(part.lower())
    if _TIME.fullmatch(part):
        return AtTime(_epoch_ms(text, part))
    if not _NAME.fullmatch(part) or ".." in part or part == "*":
        raise _invalid_ref(text, _KNOWN)
    return NamedRef(part)


def _epoch_ms(text: str, part: str) -> int:
    try:
        time = datetime.fromisoformat(part)
    except ValueError:
        raise _invalid_ref(
            text,
            f"{part!r:.64} is not a valid time; write it in ISO 8601, such as 2026-01-31T12:00",
        ) from None
    aware = time if time.tzinfo is not None else time.replace(tzinfo=UTC)
    whole = aware.replace(microsecond=0)
    # Avoid a float, which could round whole milliseconds.
    return int(whole.timestamp()) * 1000 + aware.microsecond // 1000


_KNOWN: Final = (
    "use HEAD, a number, a tag, a UUID, or a time such as 2026-01-31T12:00, optionally after a"
    " branch name and a colon"
)


def _invalid_ref(text: str, reason: str) -> InvalidArgument:
    return InvalidArgument(
        f"{text!r:.64} is not a valid version reference: {reason}", field="versionRef"
    )
