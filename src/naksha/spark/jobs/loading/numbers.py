"""Numbers that JSON has not: NaN, by which programs mean that there is none, and infinity."""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql.types import ArrayType, DataType, DoubleType, FloatType, MapType, StructType

INFINITE: Final = "is infinite, which no number of JSON is"
_INFINITIES: Final = (float("inf"), float("-inf"))


def without_nan(value: Column, type_: DataType) -> Column:
    """The value with null in place of every NaN in it."""
    if is_infinite(value, type_) is None:
        return value  # There is no number of that kind in it.
    if isinstance(type_, ArrayType):
        element = type_.elementType
        return F.transform(value, lambda each: without_nan(each, element))
    if isinstance(type_, MapType):
        each_value = type_.valueType
        return F.transform_values(value, lambda _, each: without_nan(each, each_value))
    if isinstance(type_, StructType):
        fields = [
            without_nan(value.getField(field.name), field.dataType).alias(field.name)
            for field in type_
        ]
        return F.when(value.isNotNull(), F.struct(*fields))
    return F.when(~F.isnan(value), value)


def is_infinite(value: Column, type_: DataType) -> Column | None:
    """Whether the value has an infinite number in it; None where its type has no such."""
    if isinstance(type_, FloatType | DoubleType):
        return value.isin(*_INFINITIES)
    if isinstance(type_, StructType):
        found = [is_infinite(value.getField(field.name), field.dataType) for field in type_]
        tests = [F.coalesce(each, F.lit(False)) for each in found if each is not None]
        return reduce(or_, tests) if tests else None
    if isinstance(type_, MapType):
        return is_infinite(F.map_values(value), ArrayType(type_.valueType))
    if isinstance(type_, ArrayType) and is_infinite(value, type_.elementType) is not None:
        element = type_.elementType
        return F.exists(value, lambda each: _certain(each, element))
    return None


def _certain(value: Column, type_: DataType) -> Column:
    found = is_infinite(value, type_)
    return F.lit(False) if found is None else F.coalesce(found, F.lit(False))
