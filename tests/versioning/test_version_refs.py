"""The grammar of version references."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from naksha.model.errors import InvalidArgument
from naksha.model.version import HEAD, AtSeq, AtTime, AtTxn
from naksha.versioning.version_refs import (
    AtUuid,
    Everything,
    Named,
    One,
    Range,
    check_name,
    parse_ref,
)

UUID = "00000000-0001-4000-9a5b-1800000000ff"
NEW_YEAR_MS = 1_767_225_600_000


@pytest.mark.parametrize(
    ("text", "ref"),
    [
        ("", One("main", HEAD)),
        ("HEAD", One("main", HEAD)),
        ("main:HEAD", One("main", HEAD)),
        ("main", One("main", HEAD)),
        ("0", One("main", AtSeq(0))),
        ("999999999999999", One("main", AtSeq(10**15 - 1))),
        ("1000000000000000", One("main", AtTxn(10**15))),
        ("2026111600000000001", One("main", AtTxn(2026111600000000001))),
        ("*", Everything("main")),
        ("fix:*", Everything("fix")),
        ("3..9", Range("main", AtSeq(3), AtSeq(9))),
        ("3..HEAD", Range("main", AtSeq(3), HEAD)),
        ("summer..HEAD", Range("main", Named("summer"), HEAD)),
        ("summer", One("main", Named("summer"))),
        ("Ärger/1.2", One("main", Named("Ärger/1.2"))),
        ("fix:HEAD", One("fix", HEAD)),
        ("fix:12", One("fix", AtSeq(12))),
        ("fix:3..9", Range("fix", AtSeq(3), AtSeq(9))),
        ("2026-01-01T00:00:00Z", One("main", AtTime(NEW_YEAR_MS))),
        ("2026-01-01T00:00", One("main", AtTime(NEW_YEAR_MS))),
        ("2026-01-01T01:00:00+01:00", One("main", AtTime(NEW_YEAR_MS))),
        ("2026-01-01T00:00:00.123Z", One("main", AtTime(NEW_YEAR_MS + 123))),
        ("fix:2026-01-01T00:00:00Z", One("fix", AtTime(NEW_YEAR_MS))),
        ("3..2026-01-01T00:00:00Z", Range("main", AtSeq(3), AtTime(NEW_YEAR_MS))),
        (UUID, One("main", AtUuid(UUID))),
        (UUID.upper(), One("main", AtUuid(UUID))),
        ("abcdefab-0001-4000-9a5b-1800000000ff", One("main", AtUuid(
            "abcdefab-0001-4000-9a5b-1800000000ff"))),
    ],
)  # fmt: skip
def test_what_is_meant(text: str, ref: object) -> None:
    assert parse_ref(text) == ref


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("HEAD..9", "cannot start at HEAD"),
        ("..9", "is not a valid version"),
        ("3..", "is not a valid version"),
        ("3..9..12", "is not a valid version"),
        ("a..b..c", "is not a valid version"),
        ("a b", "is not a valid version"),
        ("1x", "is not a valid version"),
        ("-1", None),
        ("99999999999999999999", "is not a valid version"),
        ("9223372036854775808", "too large"),
        ("2026-13-01T00:00:00Z", "ISO 8601"),
        ("a:b:c", "is not a valid version"),
        ("a b:3", "not a valid branch name"),
        ("3..*", "is not a valid version"),
        ("x" * 51, "is not a valid version"),
    ],
)
def test_what_is_not(text: str, reason: str | None) -> None:
    if reason is None:
        # A name may begin with anything but a digit.
        assert parse_ref(text) == One("main", Named(text))
        return
    with pytest.raises(InvalidArgument, match=reason) as caught:
        parse_ref(text)
    assert caught.value.field == "versionRef"


@pytest.mark.parametrize(
    "name", ["main", "HEAD", "*", "", "1a", "a b", "a:b", "a..b", "x" * 51, UUID, "a\n"]
)
def test_names_that_nothing_can_have(name: str) -> None:
    with pytest.raises(InvalidArgument, match="is not a valid tag or branch name"):
        check_name(name)


@given(st.text(max_size=60))
def test_whatever_is_a_name_is_read_as_that_name(text: str) -> None:
    try:
        name = check_name(text)
    except InvalidArgument:
        return
    assert parse_ref(name) == One("main", Named(name))
    assert parse_ref(f"{name}:HEAD") == One(name, HEAD)


@given(st.text(max_size=60))
def test_any_text_is_a_reference_or_an_error_that_says_why(text: str) -> None:
    reason = ""
    try:
        parse_ref(text)
    except InvalidArgument as error:
        reason = str(error)
    assert not reason or "is not a valid version reference" in reason


@given(st.uuids(version=4))
def test_every_uuid_is_one(value: uuid.UUID) -> None:
    assert parse_ref(str(value)) == One("main", AtUuid(str(value)))


@given(st.datetimes())
def test_times_are_exact_to_the_millisecond(time: datetime) -> None:
    ref = parse_ref(time.isoformat())
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    expected = (time.replace(tzinfo=UTC) - epoch) // timedelta(milliseconds=1)
    assert ref == One("main", AtTime(expected))
