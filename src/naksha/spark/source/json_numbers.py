"""Handling of values that JSON cannot represent: NaN (a missing number), infinity, null entries."""

from __future__ import annotations

import math
from functools import reduce
from operator import or_
from typing import Any, Final

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DoubleType,
    FloatType,
    MapType,
    StructType,
    VariantType,
    VariantVal,
)

from naksha.spark.source.nested_columns import changed

INFINITE: Final = "The value is infinite, which JSON cannot represent"
NO_JSON: Final = "The value contains NaN or infinity, which JSON cannot represent"
_SUSPICIOUS: Final = '"(NaN|-?Infinity)"'
"""How Spark writes such numbers; a string with the same text is written the same way."""
_FLOATS: Final = (FloatType, DoubleType)
_INFINITIES: Final = (float("inf"), float("-inf"))


def without_nan(value: Column, type_: DataType) -> Column:
    """Replace every NaN in a value by null."""
    return changed(value, type_, _FLOATS, lambda each, _: F.when(~F.isnan(each), each))


def without_null_entries(value: Column, type_: DataType) -> Column:
    """Remove null entries from all maps in a value.

    Spark itself omits null fields of structs from JSON.
    """

    def kept(map_: Column, _: DataType) -> Column:
        return F.map_filter(map_, lambda _, each: each.isNotNull())

    return changed(value, type_, (MapType,), kept)


def is_infinite(value: Column, type_: DataType) -> Column | None:
    """Test whether a value contains an infinite number; None if its type cannot contain one."""
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
        return F.exists(value, lambda each: is_certainly_infinite(each, element))
    return None


def is_certainly_infinite(value: Column, type_: DataType) -> Column:
    """Test like `is_infinite`, with a result that is never null."""
    found = is_infinite(value, type_)
    return F.lit(False) if found is None else F.coalesce(found, F.lit(False))


def has_variant(type_: DataType) -> bool:
    """Whether a value of the type may contain variants, whose content is only known at runtime."""
    if isinstance(type_, ArrayType):
        return has_variant(type_.elementType)
    if isinstance(type_, MapType):
        return has_variant(type_.valueType)
    if isinstance(type_, StructType):
        return any(has_variant(field.dataType) for field in type_)
    return isinstance(type_, VariantType)


def has_no_json(value: Column, text: Column) -> Column:
    """Test whether the variants in a value, whose JSON is `text`, contain NaN or infinity.

    Spark has no function that traverses variants, so Python does it, but only for values whose JSON
    text looks suspicious.
    """
    find = F.udf(_has_no_json, BooleanType(), useArrow=True)
    return find(F.when(text.rlike(_SUSPICIOUS), value))


def _has_no_json(value: Any) -> bool:
    if isinstance(value, VariantVal):
        value = value.toPython()
    if isinstance(value, float):
        return not math.isfinite(value)
    if isinstance(value, dict):
        value = list(value.values())
    return isinstance(value, list | tuple) and any(map(_has_no_json, value))
