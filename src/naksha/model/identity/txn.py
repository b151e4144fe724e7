"""Transaction numbers: year·10¹⁵ + month·10¹³ + day·10¹¹ + sequence, in UTC, as one int8.

The number contains the day on which it was allocated, hence the partition of the log; numbers of
later days are greater.  In JSON a txn is a decimal string, because it exceeds 2⁵³.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from typing import Final

from naksha.model.errors import InvalidArgument
from naksha.model.value_text import value_text

YEAR_FACTOR: Final = 10**15
MONTH_FACTOR: Final = 10**13
DAY_FACTOR: Final = 10**11
SEQUENCE_MAX: Final = DAY_FACTOR - 1
YEAR_MAX: Final = 9223
"""The last year whose every day fits an int8."""

FIRST_MS: Final = int(datetime(1, 1, 1, tzinfo=UTC).timestamp() * 1000)
LAST_MS: Final = int(datetime(YEAR_MAX + 1, 1, 1, tzinfo=UTC).timestamp() * 1000) - 1
"""The first and the last millisecond that a transaction can have."""

_DECIMAL: Final = re.compile(r"[1-9][0-9]{0,18}")


def txn_of(day: date, sequence: int) -> int:
    """Return the number of a day and a sequence."""
    if day.year > YEAR_MAX:
        raise InvalidArgument(
            f"The date {day} cannot be part of a transaction number, whose last year is "
            f"{YEAR_MAX}; correct the date, or the clock of this machine if it is the present one",
            field="txn",
        )
    if not 0 <= sequence <= SEQUENCE_MAX:
        raise InvalidArgument(
            "The sequence number of a transaction within its day must be between 0 and "
            f"{SEQUENCE_MAX}, not {sequence}",
            field="txn",
        )
    return day.year * YEAR_FACTOR + day.month * MONTH_FACTOR + day.day * DAY_FACTOR + sequence


def date_of(txn: int) -> date:
    """Return the day on which a number was allocated."""
    year, rest = divmod(txn, YEAR_FACTOR)
    month, rest = divmod(rest, MONTH_FACTOR)
    if not 1 <= year <= YEAR_MAX:
        raise _invalid_txn(txn)
    try:
        return date(year, month, rest // DAY_FACTOR)
    except ValueError as error:
        raise _invalid_txn(txn) from error


def _invalid_txn(value: object) -> InvalidArgument:
    return InvalidArgument(
        f"{value_text(value)} is not a transaction number; expected a day as YYYYMMDD, followed by "
        "a sequence of 11 digits",
        field="txn",
    )


def sequence_of(txn: int) -> int:
    """Return the sequence of a number within its day."""
    date_of(txn)
    return txn % DAY_FACTOR


def check_dated(at_ms: int, now_ms: int = LAST_MS) -> None:
    """Check the time of a backdated transaction."""
    if not FIRST_MS <= at_ms <= LAST_MS:
        raise InvalidArgument(
            f"The transaction time must be in milliseconds since 1970, between the years 1 and "
            f"{YEAR_MAX}, not {at_ms}",
            field="at_ms",
        )
    if at_ms > now_ms:
        when = datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(" ", "milliseconds")
        raise InvalidArgument(
            f"The transaction time {when} (UTC) is in the future; use a past time, or correct the "
            "clock of this machine",
            field="at_ms",
        )


def first_kept(now_ms: int, days: int) -> int:
    """Return the first number of the first day that is kept when `days` days before today are kept.

    0 means that everything is kept.
    """
    today = datetime.fromtimestamp(now_ms / 1000, UTC).date()
    try:
        return txn_of(today - timedelta(days=days), 0)
    except OverflowError:
        return 0


def parse_txn(value: str | int) -> int:
    """Parse a txn from JSON or a URL: a decimal string without sign, space or leading zero."""
    if isinstance(value, str) and _DECIMAL.fullmatch(value):
        number = int(value)
    elif isinstance(value, int):
        number = value
    else:
        raise _invalid_txn(value)
    date_of(number)
    return number
