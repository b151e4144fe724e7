"""Replacement of values nested in arrays, maps and structs of a column."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

Kinds: TypeAlias = tuple[type[DataType], ...]


def _has_kind(type_: DataType, kinds: Kinds) -> bool:
    """Whether a value of the type is of one of the kinds, or may contain such a value."""
    if isinstance(type_, kinds):
        return True
    if isinstance(type_, ArrayType):
        return _has_kind(type_.elementType, kinds)
    if isinstance(type_, MapType):
        return _has_kind(type_.valueType, kinds)
    return isinstance(type_, StructType) and any(_has_kind(each.dataType, kinds) for each in type_)


def changed(
    value: Column, type_: DataType, kinds: Kinds, change: Callable[[Column, DataType], Column]
) -> Column:
    """Apply `change` to all values of some kinds in a value, the innermost first.

    A value whose type cannot contain any of them is returned unchanged.
    """
    if not _has_kind(type_, kinds):
        return value
    rebuilt = _changed_inside(value, type_, kinds, change)
    return change(rebuilt, type_) if isinstance(type_, kinds) else rebuilt


def _changed_inside(
    value: Column, type_: DataType, kinds: Kinds, change: Callable[[Column, DataType], Column]
) -> Column:
    if isinstance(type_, ArrayType) and _has_kind(type_.elementType, kinds):
        element = type_.elementType
        return F.transform(value, lambda each: changed(each, element, kinds, change))
    if isinstance(type_, MapType) and _has_kind(type_.valueType, kinds):
        inside = type_.valueType
        return F.transform_values(value, lambda _, each: changed(each, inside, kinds, change))
    if isinstance(type_, StructType):
        fields = [
            changed(value.getField(each.name), each.dataType, kinds, change).alias(each.name)
            for each in type_
        ]
        return F.when(value.isNotNull(), F.struct(*fields))
    return value
