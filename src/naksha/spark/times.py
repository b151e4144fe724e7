"""Times as texts: with all of their digits, where Spark's own JSON ends with milliseconds."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql.types import (
    ArrayType,
    DataType,
    MapType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

_DIGITS_MIN: Final = 3


def has_times(type_: DataType) -> bool:
    """Whether a value of the type may have times in it."""
    if isinstance(type_, ArrayType):
        return has_times(type_.elementType)
    if isinstance(type_, MapType):
        return has_times(type_.valueType)
    if isinstance(type_, StructType):
        return any(has_times(field.dataType) for field in type_)
    return isinstance(type_, TimestampType | TimestampNTZType)


def with_texts_of_times(value: Column, type_: DataType) -> Column:
    """The value with a text in place of every time in it: three digits of a second, up to six where
    it has them. Moments are told with the zone of the session."""
    if not has_times(type_):
        return value
    if isinstance(type_, ArrayType):
        element = type_.elementType
        return F.transform(value, lambda each: with_texts_of_times(each, element))
    if isinstance(type_, MapType):
        each_value = type_.valueType
        return F.transform_values(value, lambda _, each: with_texts_of_times(each, each_value))
    if isinstance(type_, StructType):
        fields = [
            with_texts_of_times(value.getField(field.name), field.dataType).alias(field.name)
            for field in type_
        ]
        return F.when(value.isNotNull(), F.struct(*fields))
    text = _text(value)
    return F.concat(text, F.date_format(value, "XXX")) if isinstance(type_, TimestampType) else text


def _text(time: Column) -> Column:
    """As `2020-01-02T03:04:05.678901`."""
    written = time.cast("string")  # with as many digits as it takes
    seconds = F.replace(F.split_part(written, F.lit("."), F.lit(1)), F.lit(" "), F.lit("T"))
    digits = F.split_part(written, F.lit("."), F.lit(2))
    enough = F.when(F.length(digits) < _DIGITS_MIN, F.rpad(digits, _DIGITS_MIN, "0"))
    return F.concat(seconds, F.lit("."), enough.otherwise(digits))
