"""Transaction numbers, both directions."""

from __future__ import annotations

from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from naksha.model.errors import InvalidArgument
from naksha.model.identity.txn import (
    SEQUENCE_MAX,
    date_of,
    parse_txn,
    sequence_of,
    txn_of,
)
from naksha.model.limits import INT8_MAX

DAYS = st.dates(max_value=date(9223, 12, 31))
SEQUENCES = st.integers(0, SEQUENCE_MAX)


def test_the_worked_example_of_the_document() -> None:
    assert txn_of(date(2023, 1, 30), 0) == 2_023_013_000_000_000_000


def test_the_last_number_fits_an_int8_and_the_next_year_does_not() -> None:
    assert txn_of(date(9223, 12, 31), SEQUENCE_MAX) == 9_223_123_199_999_999_999 <= INT8_MAX
    with pytest.raises(InvalidArgument, match="9224"):
        txn_of(date(9224, 1, 1), 0)


@given(DAYS, SEQUENCES)
def test_day_and_sequence_come_back(day: date, sequence: int) -> None:
    txn = txn_of(day, sequence)
    assert (date_of(txn), sequence_of(txn)) == (day, sequence)
    assert parse_txn(str(txn)) == parse_txn(txn) == txn


@given(DAYS, SEQUENCES, DAYS, SEQUENCES)
def test_numbers_sort_by_day_then_sequence(
    day: date, sequence: int, other_day: date, other_sequence: int
) -> None:
    before = (day, sequence) < (other_day, other_sequence)
    assert (txn_of(day, sequence) < txn_of(other_day, other_sequence)) is before


@pytest.mark.parametrize("sequence", [-1, SEQUENCE_MAX + 1])
def test_a_sequence_outside_its_day_is_refused(sequence: int) -> None:
    with pytest.raises(InvalidArgument, match="sequence"):
        txn_of(date(2023, 1, 30), sequence)


@pytest.mark.parametrize(
    "number",
    [
        0,
        -2_023_013_000_000_000_000,
        2_023_023_000_000_000_000,  # 30 February
        2_023_130_100_000_000_000,  # month 13
        2_023_010_000_000_000_000,  # day 0
        9_224_010_100_000_000_000,  # year 9224
        20_230_101_000_000_000,  # the 17 digits of the document's illustration: year 20
    ],
)
def test_a_number_without_a_day_is_refused(number: int) -> None:
    with pytest.raises(InvalidArgument):
        date_of(number)
    with pytest.raises(InvalidArgument):
        sequence_of(number)
    with pytest.raises(InvalidArgument):
        parse_txn(str(number))


@pytest.mark.parametrize(
    "value",
    [
        "",
        " 2023013000000000000",
        "2023013000000000000\n",
        "+2023013000000000000",
        "02023013000000000000",
        "2_023_013_000_000_000_000",
        "2023013000000000000.0",
        "٢٠٢٣٠١٣٠٠٠٠٠٠٠٠٠٠٠٠",
        "0x1c13",
        "9" * 1000,
        True,
        2023013000000000000.0,
        None,
    ],
)
def test_only_plain_decimal_numbers_are_parsed(value: object) -> None:
    with pytest.raises(InvalidArgument) as caught:
        parse_txn(value)  # type: ignore[arg-type]
    assert caught.value.field == "txn"
    assert len(str(caught.value)) < 200
