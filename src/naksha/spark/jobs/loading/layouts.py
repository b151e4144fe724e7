"""What several files have in common: all of their columns, one column with the geometry, and one
reference system. Where they do not agree, somebody would be misread: both files are named then."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec
from pyspark.sql.types import (
    ByteType,
    DataType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    NullType,
    ShortType,
    StructField,
    StructType,
)

from naksha.model.errors import InvalidArgument
from naksha.spark.jobs.loading import references

_WHOLE: Final = (ByteType, ShortType, IntegerType, LongType)
_EXACT: Final = (ByteType, ShortType, IntegerType, FloatType, DoubleType)
"""Whose values are all doubles."""


class Layout(msgspec.Struct, frozen=True):
    """A file: its columns, which of them has the geometry (WKB), and the reference system, where
    the file says so; and whether its outer rings are clockwise, against RFC 7946."""

    path: str
    columns: StructType
    geometry: str | None = None
    crs: str | None = None
    is_clockwise: bool = False


def columns_of(layouts: Sequence[Layout]) -> StructType:
    """The columns of all files, with types that hold the values of all.

    Raises:
        InvalidArgument: Two files have a column with types of which none holds both, or with names
            that Spark cannot tell apart.
    """
    found: dict[str, tuple[Layout, StructField]] = {}
    for layout in layouts:
        for field in layout.columns:
            other, known = found.setdefault(field.name.lower(), (layout, field))
            if known is field:
                continue
            if known.name != field.name or other is layout:
                raise InvalidArgument(
                    f"{other.path} has a column {known.name!r} and {layout.path} has "
                    f"{field.name!r}: names of columns must differ in more than capital letters",
                    field="files",
                )
            type_ = _wider(known.dataType, field.dataType)
            if type_ is None:
                raise InvalidArgument(
                    f"The column {field.name!r} is {known.dataType.simpleString()} in {other.path} "
                    f"and {field.dataType.simpleString()} in {layout.path}: load them apart",
                    field="files",
                )
            if type_ != known.dataType:
                found[field.name.lower()] = (layout, StructField(field.name, type_))
    return StructType([field for _, field in found.values()])


def _wider(one: DataType, other: DataType) -> DataType | None:
    """A type that has the values of both, as they are."""
    for first, second in ((one, other), (other, one)):
        if first == second or isinstance(second, NullType):
            return first
    if isinstance(one, _WHOLE) and isinstance(other, _WHOLE):
        return max(one, other, key=lambda type_: _WHOLE.index(type(type_)))
    if isinstance(one, _EXACT) and isinstance(other, _EXACT):
        return DoubleType()
    return None


def geometry_of(layouts: Sequence[Layout]) -> str | None:
    """The column with the geometry that all files name."""
    first = layouts[0]
    for layout in layouts:
        if layout.geometry != first.geometry:
            raise InvalidArgument(
                f"{first.path} has its geometry in {_column(first.geometry)}, and {layout.path} in "
                f"{_column(layout.geometry)}: load them apart, or name the column in the mapping",
                field="files",
            )
    return first.geometry


def _column(name: str | None) -> str:
    return "no column of that kind" if name is None else f"the column {name!r}"


def crs_of(layouts: Sequence[Layout]) -> str | None:
    """The reference system that all files name."""
    first = layouts[0]
    for layout in layouts:
        if layout.crs is not None:
            whose = f"{layout.path}: its reference system"
            references.check_known(layout.crs, whose=whose, field="files")
        if not references.are_same(layout.crs, first.crs):
            raise InvalidArgument(
                f"{first.path} has {references.shown(first.crs)} and {layout.path} has "
                f"{references.shown(layout.crs)}: load them apart, or name the reference system of "
                "all in the mapping",
                field="files",
            )
    return first.crs


def check_everywhere(layouts: Sequence[Layout], names: Iterable[str]) -> None:
    """Refuse files that lack a column without which a record is another one."""
    for name in sorted(names):
        having = [name in layout.columns.names for layout in layouts]
        if not all(having):
            lacks, has = layouts[having.index(False)], layouts[having.index(True)]
            raise InvalidArgument(
                f"{lacks.path} has no column {name!r}, and {has.path} has: load them apart",
                field="files",
            )
