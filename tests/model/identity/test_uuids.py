"""The 128-bit form of ids, both directions."""

from __future__ import annotations

import uuid
from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from naksha.model.errors import InvalidArgument
from naksha.model.identity.guid import Guid
from naksha.model.identity.txn import SEQUENCE_MAX, txn_of
from naksha.model.identity.uuids import (
    COLLECTION_NUMBER_MAX,
    OBJECT_ID_MAX,
    ROW_NUMBER_MAX,
    STORAGE_NUMBER_MAX,
    TYPE_FEATURE,
    TYPE_TRANSACTION,
    Uuid,
    parse_state_id,
)

DAYS = st.dates(date(2000, 1, 1), date(3023, 12, 31))
TXNS = st.builds(txn_of, DAYS, st.integers(0, SEQUENCE_MAX))
STORAGES = st.integers(0, STORAGE_NUMBER_MAX)
COLLECTIONS = st.integers(0, COLLECTION_NUMBER_MAX)
ROWS = st.integers(0, ROW_NUMBER_MAX)


def test_the_sample_of_the_document_decoded_by_hand() -> None:
    # 123e4567-e89b-[4]2d3: the object id without the version nibble
    # a456: 10 | 1001000101 (581) | 0110;  42: 01000 | 010;  6614174000: the storage
    assert Uuid.parse("123e4567-e89b-42d3-a456-426614174000") == Uuid(
        object_id=0x123E4567E89B2D3,
        year=2581,
        month=6,
        day=8,
        type=2,
        storage_number=0x6614174000,
    )


def test_a_transaction_worked_out_by_hand() -> None:
    # 2023-01-30: year 23 = 0000010111, month 0001, day 11110, type 000
    # 10 0000010111 0001 = 1000 0001 0111 0001 = 8171; 11110 000 = f0
    value = Uuid.of_txn(txn_of(date(2023, 1, 30), 5), 1)
    assert str(value) == "00000000-0000-4005-8171-f00000000001"
    assert value.txn == 2_023_013_000_000_000_005


def test_a_state_worked_out_by_hand() -> None:
    # collection 3, row 0x123: object id 0x00003_0000000123; 12 low bits behind the version
    value = Uuid.of_state(txn_of(date(2023, 1, 30), 5), 3, 0x123, 1)
    assert str(value) == "00003000-0000-4123-8171-f10000000001"
    assert (value.collection_number, value.i, value.storage_number) == (3, 0x123, 1)


@given(
    st.integers(0, OBJECT_ID_MAX),
    DAYS,
    st.integers(0, 7),
    STORAGES,
)
def test_parts_come_back(object_id: int, day: date, type_: int, storage: int) -> None:
    value = Uuid(object_id, day.year, day.month, day.day, type_, storage)
    bits = value.to_uuid()
    assert (bits.version, bits.variant) == (4, uuid.RFC_4122)
    assert Uuid.of_uuid(bits) == Uuid.parse(str(value)) == Uuid.parse(str(value).upper()) == value


@given(st.integers(0, 2**128 - 1))
def test_any_128_bits_are_refused_or_come_back(bits: int) -> None:
    value = uuid.UUID(int=bits)
    try:
        decoded = Uuid.of_uuid(value)
    except InvalidArgument:
        return
    assert decoded.to_uuid() == value


@given(st.uuids(version=4))
def test_random_uuids_are_refused_only_when_their_date_is_none(value: uuid.UUID) -> None:
    month, day = value.int >> 48 & 0xF, value.int >> 43 & 0x1F
    if 1 <= month <= 12 and 1 <= day <= 28:
        assert Uuid.of_uuid(value).to_uuid() == value
    elif not (1 <= month <= 12 and 1 <= day <= 31):
        with pytest.raises(InvalidArgument, match=r"The date .* of a UUID does not exist"):
            Uuid.of_uuid(value)


@given(TXNS, STORAGES)
def test_a_transaction_round_trips(txn: int, storage: int) -> None:
    value = Uuid.parse(str(Uuid.of_txn(txn, storage)))
    assert (value.txn, value.type, value.storage_number) == (txn, TYPE_TRANSACTION, storage)
    with pytest.raises(
        InvalidArgument, match="must be that of a state of a feature, not of a transaction"
    ):
        _ = value.i


@given(TXNS, COLLECTIONS, ROWS, STORAGES)
def test_a_state_round_trips(txn: int, collection: int, i: int, storage: int) -> None:
    value = Uuid.parse(str(Uuid.of_state(txn, collection, i, storage)))
    assert (value.collection_number, value.i, value.type) == (collection, i, TYPE_FEATURE)
    assert value.storage_number == storage
    assert 0 <= txn - value.txn_min <= SEQUENCE_MAX
    with pytest.raises(
        InvalidArgument, match="must be that of a transaction, not of a state of a feature"
    ):
        _ = value.txn


@pytest.mark.parametrize(
    "text",
    [
        "123e4567-e89b-12d3-a456-426614174000",  # version 1
        "123e4567-e89b-42d3-c456-426614174000",  # variant 2
        "123e4567-e89b-42d3-a450-426614174000",  # month 0
        "123e4567-e89b-42d3-a45d-426614174000",  # month 13
        "123e4567-e89b-42d3-a456-026614174000",  # day 0
        "123e4567-e89b-42d3-a456-fa6614174000",  # 31 June
        "123e4567e89b42d3a456426614174000",
        "{123e4567-e89b-42d3-a456-426614174000}",
        "123e4567-e89b-42d3-a456-42661417400",
        "urn:uuid:123e4567-e89b-42d3-a456-426614174000",
        "",
    ],
)
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        Uuid.parse(text)
    assert caught.value.field == "uuid"


@pytest.mark.parametrize(
    ("day", "collection", "i", "storage"),
    [
        (date(1999, 12, 31), 0, 0, 0),
        (date(3024, 1, 1), 0, 0, 0),
        (date(2023, 1, 30), COLLECTION_NUMBER_MAX + 1, 0, 0),
        (date(2023, 1, 30), 0, ROW_NUMBER_MAX + 1, 0),
        (date(2023, 1, 30), 0, 0, STORAGE_NUMBER_MAX + 1),
        (date(2023, 1, 30), 0, -1, 0),
    ],
)
def test_parts_that_do_not_fit_are_refused(
    day: date, collection: int, i: int, storage: int
) -> None:
    with pytest.raises(InvalidArgument):
        Uuid.of_state(txn_of(day, 0), collection, i, storage)


def test_a_state_id_is_read_in_either_form() -> None:
    assert parse_state_id("s:roads:2023:01:30:7") == Guid("s", "roads", 2023, 1, 30, 7)
    state = Uuid.of_state(txn_of(date(2023, 1, 30), 5), 3, 7, 1)
    assert parse_state_id(str(state)) == state


@pytest.mark.parametrize(
    "text",
    [
        str(Uuid.of_txn(txn_of(date(2023, 1, 30), 5), 1)),
        "123e4567-e89b-42d3-a456-426614174000",
        "nonsense",
        "",
    ],
)
def test_a_uuid_that_names_no_state_is_not_a_state_id(text: str) -> None:
    with pytest.raises(InvalidArgument):
        parse_state_id(text)
