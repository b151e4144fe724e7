"""Times as texts: with all of their digits, where Spark's own JSON ends with milliseconds."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql.types import DataType, TimestampNTZType, TimestampType

from naksha.spark.source.nested_columns import changed

_TIMES: Final = (TimestampType, TimestampNTZType)
_DIGITS_MIN: Final = 3


def with_texts_of_times(value: Column, type_: DataType) -> Column:
    """The value with a text in place of every time in it: three digits of a second, up to six where
    it has them. Moments are told with the zone of the session."""
    return changed(value, type_, _TIMES, _text_of)


def _text_of(time: Column, type_: DataType) -> Column:
    text = _text(time)
    return F.concat(text, F.date_format(time, "XXX")) if isinstance(type_, TimestampType) else text


def _text(time: Column) -> Column:
    """As `2020-01-02T03:04:05.678901`."""
    written = time.cast("string")  # with as many digits as it takes
    seconds = F.replace(F.split_part(written, F.lit("."), F.lit(1)), F.lit(" "), F.lit("T"))
    digits = F.split_part(written, F.lit("."), F.lit(2))
    enough = F.when(F.length(digits) < _DIGITS_MIN, F.rpad(digits, _DIGITS_MIN, "0"))
    return F.concat(seconds, F.lit("."), enough.otherwise(digits))
