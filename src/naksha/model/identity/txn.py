"""Transaction numbers: year·10¹⁵ + month·10¹³ + day·10¹¹ + sequence, in UTC, as one int8.

The number tells the day on which it was drawn, hence the partition of the log, and numbers of
later days are greater.  In JSON a txn is a decimal string: it exceeds 2⁵³.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from typing import Final

from naksha.model.errors import InvalidArgument

YEAR_FACTOR: Final = 10**15
MONTH_FACTOR: Final = 10**13
DAY_FACTOR: Final = 10**11
SEQUENCE_MAX: Final = DAY_FACTOR - 1
YEAR_MAX: Final = 9223
"""The last year whose every day fits an int8."""

LAST_DAY: Final = date(YEAR_MAX, 12, 31)
FIRST_MS: Final = int(datetime(1, 1, 1, tzinfo=UTC).timestamp() * 1000)
LAST_MS: Final = int(datetime(YEAR_MAX + 1, 1, 1, tzinfo=UTC).timestamp() * 1000) - 1
"""The first and the last millisecond that a transaction can be of."""

_DECIMAL: Final = re.compile(r"[1-9][0-9]{0,18}")


def txn_of(day: date, sequence: int) -> int:
    """The number of a day and its sequence."""
    if day.year > YEAR_MAX:
        raise InvalidArgument(f"the year {day.year} does not fit a txn", field="txn")
    if not 0 <= sequence <= SEQUENCE_MAX:
        raise InvalidArgument(f"the sequence {sequence} is not in 0..{SEQUENCE_MAX}", field="txn")
    return day.year * YEAR_FACTOR + day.month * MONTH_FACTOR + day.day * DAY_FACTOR + sequence


def date_of(txn: int) -> date:
    """The day on which the number was drawn."""
    year, rest = divmod(txn, YEAR_FACTOR)
    month, rest = divmod(rest, MONTH_FACTOR)
    if not 1 <= year <= YEAR_MAX:
        raise InvalidArgument(f"{txn} is no transaction number", field="txn")
    try:
        return date(year, month, rest // DAY_FACTOR)
    except ValueError as error:
        raise InvalidArgument(f"{txn} is no transaction number", field="txn") from error


def sequence_of(txn: int) -> int:
    """The sequence within its day."""
    date_of(txn)
    return txn % DAY_FACTOR


def day_bounds(day: date) -> tuple[int, int]:
    """The first number of the day and the first one after it: the bounds of a day's partition."""
    first = txn_of(day, 0)
    if day == LAST_DAY:
        return first, first + DAY_FACTOR
    return first, txn_of(day + timedelta(days=1), 0)


def check_dated(at_ms: int, now_ms: int = LAST_MS) -> None:
    """Check the time of a transaction that is dated in the past."""
    if not FIRST_MS <= at_ms <= LAST_MS:
        raise InvalidArgument(
            f"{at_ms} is not a time from the year 1 to the year {YEAR_MAX}, in epoch milliseconds",
            field="at_ms",
        )
    if at_ms > now_ms:
        when = datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(" ", "milliseconds")
        raise InvalidArgument(
            f"The time {when} lies in the future: a transaction is dated in the past",
            field="at_ms",
        )


def first_kept(now_ms: int, days: int) -> int:
    """The first number of the first day that is kept at a time, of what is kept for so many days
    before the present one; 0: everything."""
    today = datetime.fromtimestamp(now_ms / 1000, UTC).date()
    try:
        return txn_of(today - timedelta(days=days), 0)
    except OverflowError:
        return 0


def parse_txn(value: str | int) -> int:
    """Reads a txn from JSON or a URL: a decimal string without sign, space or leading zero."""
    if isinstance(value, str) and _DECIMAL.fullmatch(value):
        number = int(value)
    elif isinstance(value, int):
        number = value
    else:
        raise InvalidArgument(f"{value!r:.64} is no transaction number", field="txn")
    date_of(number)
    return number
