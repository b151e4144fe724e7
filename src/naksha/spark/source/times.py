"""Formatting of times with microseconds; Spark's own JSON truncates them to milliseconds."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql.types import DataType, TimestampNTZType, TimestampType

from naksha.spark.source.nested_columns import changed

_TIMES: Final = (TimestampType, TimestampNTZType)
_DIGITS_MIN: Final = 3


def with_texts_of_times(value: Column, type_: DataType) -> Column:
    """Replace every time in a value by text with three fractional digits, or up to six if needed.

    Instants are written with the offset of the session's time zone.
    """
    return changed(value, type_, _TIMES, _text_of)


def _text_of(time: Column, type_: DataType) -> Column:
    text = _text(time)
    return F.concat(text, F.date_format(time, "XXX")) if isinstance(type_, TimestampType) else text


def _text(time: Column) -> Column:
    """Format a time like `2020-01-02T03:04:05.678901`."""
    written = time.cast("string")  # without trailing zeros
    seconds = F.replace(F.split_part(written, F.lit("."), F.lit(1)), F.lit(" "), F.lit("T"))
    digits = F.split_part(written, F.lit("."), F.lit(2))
    enough = F.when(F.length(digits) < _DIGITS_MIN, F.rpad(digits, _DIGITS_MIN, "0"))
    return F.concat(seconds, F.lit("."), enough.otherwise(digits))
