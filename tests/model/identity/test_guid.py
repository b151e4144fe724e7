"""GUIDs, both directions."""

from __future__ import annotations

from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from naksha.model.errors import InvalidArgument
from naksha.model.identity.guid import Guid
from naksha.model.identity.txn import SEQUENCE_MAX, txn_of
from naksha.model.limits import INT8_MAX

STORAGE_IDS = st.from_regex(r"\A[a-z][a-z0-9_-]{0,31}\Z")
COLLECTION_IDS = st.from_regex(r"\A[a-z][a-z0-9_:-]{0,31}\Z")
DAYS = st.dates(max_value=date(9223, 12, 31))
ROWS = st.integers(0, INT8_MAX)


def guid(storage_id: str, collection_id: str, day: date, i: int) -> Guid:
    return Guid(storage_id, collection_id, day.year, day.month, day.day, i)


def test_the_example_of_the_document() -> None:
    assert str(Guid("stg", "roads", 2023, 1, 30, 0)) == "stg:roads:2023:1:30:0"


@given(STORAGE_IDS, COLLECTION_IDS, DAYS, ROWS)
def test_text_round_trips(storage_id: str, collection_id: str, day: date, i: int) -> None:
    value = guid(storage_id, collection_id, day, i)
    assert Guid.parse(str(value)) == value
    padded = f"{storage_id}:{collection_id}:{day.year:04}:{day.month:02}:{day.day:02}:{i}"
    assert Guid.parse(padded) == value


@given(STORAGE_IDS, COLLECTION_IDS, DAYS, st.integers(0, SEQUENCE_MAX), ROWS)
def test_the_day_is_that_of_the_txn(
    storage_id: str, collection_id: str, day: date, sequence: int, i: int
) -> None:
    txn = txn_of(day, sequence)
    value = Guid.of(storage_id, collection_id, txn, i)
    assert (value.date, value.i) == (day, i)
    assert value.txn_min == txn - sequence


@pytest.mark.parametrize(
    ("text", "collection_id"),
    [
        ("s:naksha:spaces:2023:1:30:7", "naksha:spaces"),
        ("s:a:1:2:3:4:2023:1:30:7", "a:1:2:3:4"),
        ("s:a::2023:01:30:7", "a:"),
        ("s:a:::2023:01:30:7", "a::"),
    ],
)
def test_collection_ids_may_contain_colons(text: str, collection_id: str) -> None:
    assert Guid.parse(text) == Guid("s", collection_id, 2023, 1, 30, 7)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "roads:2023:1:30:0",
        "s::2023:1:30:0",
        ":roads:2023:1:30:0",
        "S:roads:2023:1:30:0",
        "s:roads:2023:1:30",
        "s:roads:2023:1:30:",
        "s:roads:2023:1:30:-1",
        "s:roads:2023:1:30:01",
        "s:roads:2023:1:30:0 ",
        "s:roads:2023:1:30:0\n",
        "s:roads:2023:001:30:0",
        "s:roads:2023:13:30:0",
        "s:roads:2023:2:30:0",
        "s:roads:0:1:30:0",
        "s:roads:9224:1:30:0",
        "s:roads:2023:1:٣:0",
        f"s:roads:2023:1:30:{INT8_MAX + 1}",
        f"s:{'r' * 33}:2023:1:30:0",
        "s:" * 100_000,
    ],
)
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        Guid.parse(text)
    assert caught.value.field == "uuid"
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    "parts",
    [
        ("a:b", "c", 2023, 1, 30, 0),
        ("a", "C", 2023, 1, 30, 0),
        ("a", "c", 2023, 0, 30, 0),
        ("a", "c", 10_000, 1, 30, 0),
        ("a", "c", 2023, 1, 30, -1),
    ],
)
def test_a_guid_cannot_be_made_of_bad_parts(parts: tuple[str, str, int, int, int, int]) -> None:
    with pytest.raises(InvalidArgument):
        Guid(*parts)
