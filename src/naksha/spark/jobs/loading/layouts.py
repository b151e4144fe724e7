"""Common layout of several files: columns, geometry column and coordinate reference system.

Files with incompatible layouts are rejected, because one of them would be misread; the message
names both.
"""

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
"""Types whose values are all exact as doubles."""


class Layout(msgspec.Struct, frozen=True):
    """Layout of a file: columns, geometry column (WKB) and reference system, as far as known.

    `is_clockwise` tells whether outer rings are clockwise, contrary to RFC 7946.
    """

    path: str
    columns: StructType
    geometry: str | None = None
    crs: str | None = None
    is_clockwise: bool = False


def columns_of(layouts: Sequence[Layout]) -> StructType:
    """Merge the columns of all files, with types that hold the values of all.

    Raises:
        InvalidArgument: Two files have a column with incompatible types, or with names that differ
            only in case, which Spark does not distinguish.
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
                    f"{field.name!r}; column names must not differ only in case",
                    field="files",
                )
            type_ = _wider(known.dataType, field.dataType)
            if type_ is None:
                raise InvalidArgument(
                    f"The column {field.name!r} is {known.dataType.simpleString()} in {other.path} "
                    f"and {field.dataType.simpleString()} in {layout.path}; load them separately",
                    field="files",
                )
            if type_ != known.dataType:
                found[field.name.lower()] = (layout, StructField(field.name, type_))
    return StructType([field for _, field in found.values()])


def _wider(one: DataType, other: DataType) -> DataType | None:
    """Return a type that holds the values of both types exactly, if there is one."""
    for first, second in ((one, other), (other, one)):
        if first == second or isinstance(second, NullType):
            return first
    if isinstance(one, _WHOLE) and isinstance(other, _WHOLE):
        return max(one, other, key=lambda type_: _WHOLE.index(type(type_)))
    if isinstance(one, _EXACT) and isinstance(other, _EXACT):
        return DoubleType()
    return None


def geometry_of(layouts: Sequence[Layout]) -> str | None:
    """Return the geometry column, which must be the same in all files."""
    first = layouts[0]
    for layout in layouts:
        if layout.geometry != first.geometry:
            raise InvalidArgument(
                f"{first.path} has its geometry in {_column(first.geometry)}, and {layout.path} in "
                f"{_column(layout.geometry)}; load them separately, or set it in the mapping",
                field="files",
            )
    return first.geometry


def _column(name: str | None) -> str:
    return "no geometry column" if name is None else f"the column {name!r}"


def crs_of(layouts: Sequence[Layout]) -> str | None:
    """Return the coordinate reference system, which must be the same in all files."""
    first = layouts[0]
    for layout in layouts:
        if layout.crs is not None:
            whose = f"{layout.path}: the reference system"
            references.check_known(layout.crs, whose=whose, field="files")
        if not references.are_same(layout.crs, first.crs):
            raise InvalidArgument(
                f"{first.path} has {references.shown(first.crs)} and {layout.path} has "
                f"{references.shown(layout.crs)}; load them separately, or set the reference "
                "system of all in the mapping",
                field="files",
            )
    return first.crs


def check_required(layouts: Sequence[Layout], names: Iterable[str]) -> None:
    """Reject files without columns that every record needs, such as the id and the geometry."""
    for name in sorted(names):
        having = [name in layout.columns.names for layout in layouts]
        if not all(having):
            lacks, has = layouts[having.index(False)], layouts[having.index(True)]
            raise InvalidArgument(
                f"{lacks.path} has no column {name!r}, but {has.path} has one; load them"
                " separately",
                field="files",
            )
