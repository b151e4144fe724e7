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
    AllRef,
    NamedRef,
    RangeRef,
    SingleRef,
    UuidRef,
    check_name,
    parse_ref,
)

UUID = "00000000-0001-4000-9a5b-1800000000ff"
NEW_YEAR_MS = 1_767_225_600_000


@pytest.mark.parametrize(
    ("text", "ref"),
    [
        ("", SingleRef("main", HEAD)),
        ("HEAD", SingleRef("main", HEAD)),
        ("main:HEAD", SingleRef("main", HEAD)),
        ("main", SingleRef("main", HEAD)),
        ("0", SingleRef("main", AtSeq(0))),
        ("999999999999999", SingleRef("main", AtSeq(10**15 - 1))),
        ("1000000000000000", SingleRef("main", AtTxn(10**15))),
        ("2026111600000000001", SingleRef("main", AtTxn(2026111600000000001))),
        ("*", AllRef("main")),
        ("fix:*", AllRef("fix")),
        ("3..9", RangeRef("main", AtSeq(3), AtSeq(9))),
        ("3..HEAD", RangeRef("main", AtSeq(3), HEAD)),
        ("summer..HEAD", RangeRef("main", NamedRef("summer"), HEAD)),
        ("summer", SingleRef("main", NamedRef("summer"))),
        ("Ärger/1.2", SingleRef("main", NamedRef("Ärger/1.2"))),
        ("fix:HEAD", SingleRef("fix", HEAD)),
        ("fix:12", SingleRef("fix", AtSeq(12))),
        ("fix:3..9", RangeRef("fix", AtSeq(3), AtSeq(9))),
        ("2026-01-01T00:00:00Z", SingleRef("main", AtTime(NEW_YEAR_MS))),
        ("2026-01-01T00:00", SingleRef("main", AtTime(NEW_YEAR_MS))),
        ("2026-01-01T01:00:00+01:00", SingleRef("main", AtTime(NEW_YEAR_MS))),
        ("2026-01-01T00:00:00.123Z", SingleRef("main", AtTime(NEW_YEAR_MS + 123))),
        ("fix:2026-01-01T00:00:00Z", SingleRef("fix", AtTime(NEW_YEAR_MS))),
        ("3..2026-01-01T00:00:00Z", RangeRef("main", AtSeq(3), AtTime(NEW_YEAR_MS))),
        (UUID, SingleRef("main", UuidRef(UUID))),
        (UUID.upper(), SingleRef("main", UuidRef(UUID))),
        ("abcdefab-0001-4000-9a5b-1800000000ff", SingleRef("main", UuidRef(
            "abcdefab-0001-4000-9a5b-1800000000ff"))),
    ],
)  # fmt: skip
def test_valid_version_references_are_parsed(text: str, ref: object) -> None:
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
        ("9223372036854775808", "above the maximum 9223372036854775807"),
        ("2026-13-01T00:00:00Z", "ISO 8601"),
        ("a:b:c", "is not a valid version"),
        ("a b:3", "not a valid branch name"),
        ("3..*", "is not a valid version"),
        ("x" * 51, "is not a valid version"),
    ],
)
def test_invalid_version_references_are_refused(text: str, reason: str | None) -> None:
    if reason is None:
        # A name may begin with anything but a digit.
        assert parse_ref(text) == SingleRef("main", NamedRef(text))
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
def test_every_valid_name_is_parsed_as_that_name(text: str) -> None:
    try:
        name = check_name(text)
    except InvalidArgument:
        return
    assert parse_ref(name) == SingleRef("main", NamedRef(name))
    assert parse_ref(f"{name}:HEAD") == SingleRef(name, HEAD)


@given(st.text(max_size=60))
def test_any_text_is_a_reference_or_an_error_with_a_reason(text: str) -> None:
    reason = ""
    try:
        parse_ref(text)
    except InvalidArgument as error:
        reason = str(error)
    assert not reason or "is not a valid version reference" in reason


@given(st.uuids(version=4))
def test_every_uuid_is_one(value: uuid.UUID) -> None:
    assert parse_ref(str(value)) == SingleRef("main", UuidRef(str(value)))


@given(st.datetimes())
def test_times_are_exact_to_the_millisecond(time: datetime) -> None:
    ref = parse_ref(time.isoformat())
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    expected = (time.replace(tzinfo=UTC) - epoch) // timedelta(milliseconds=1)
    assert ref == SingleRef("main", AtTime(expected))
