"""Reader of Parquet and GeoParquet.

Spark's own reader is a little faster, but it interprets file names as patterns, and rejects files
that pandas writes by default. Such files are read by pyarrow, in tasks of some row groups each.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial, reduce
from itertools import accumulate
from typing import Annotated, Any, Final

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from naksha.model import limits
from naksha.model.errors import InvalidArgument
from naksha.spark.jobs.loading.files import PIECE_BYTES, FilePiece
from naksha.spark.jobs.loading.layouts import Layout, columns_of
from naksha.spark.jobs.loading.references import LON_LAT
from naksha.spark.jobs.loading.tables import (
    LINE,
    PROBLEM,
    RECORD,
    SOURCE,
    Table,
    batch_rows_of,
    column_of,
    in_pieces,
    rows_of,
    with_own_fields,
)

_OPEN_BYTES: Final = 4 * limits.MIB
"""Cost of opening a file, as the number of bytes that could be read in the same time."""
_BUFFER_BYTES: Final = 1 * limits.MIB
"""Buffer per column; without it all columns of a row group are in memory at once."""
_DIGITS_MAX: Final = 38
"""Maximum precision of Spark's decimals."""
_WIDER: Final = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
    pa.float16(): pa.float32(),
    pa.date64(): pa.date32(),
}
"""Types that Spark does not have, and types that hold their values."""
_PLAIN: Final = (
    *(pa.types.is_boolean, pa.types.is_signed_integer, pa.types.is_floating, pa.types.is_date32),
    pa.types.is_null,
)
_TEXTS: Final = (
    *(pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view),
    pa.types.is_time,
)
_BYTES: Final = (
    *(pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view),
    pa.types.is_fixed_size_binary,
)
_LISTS: Final = (
    *(pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list),
    *(pa.types.is_list_view, pa.types.is_large_list_view),
)
_ONLY_HERE: Final = ("TIME", "FLOAT16", "UUID", "NULL")
"""Logical types that Spark rejects or misinterprets."""
_SPARK_CODECS: Final = {"UNCOMPRESSED", "SNAPPY", "GZIP", "ZSTD", "LZ4"}
_PLAIN_PATH: Final = re.compile("[A-Za-z0-9_./=-]+")
"""Paths without characters that are special in patterns or URLs."""
_BROKEN: Final = (pa.ArrowException, OSError)


class _Geo(msgspec.Struct, frozen=True):
    """Geometry metadata of a file, if it is GeoParquet."""

    column: str | None = None
    crs: str | None = None
    covering: str | None = None
    """Column with the boxes of geometries, which does not become a property."""


class _Box(msgspec.Struct, frozen=True):
    xmin: Annotated[list[str], msgspec.Meta(min_length=1)]


class _Covering(msgspec.Struct, frozen=True):
    bbox: _Box | None = None


class _Column(msgspec.Struct, frozen=True):
    encoding: str | None = None
    crs: Any = LON_LAT
    covering: _Covering | None = None


class _Metadata(msgspec.Struct, frozen=True):
    """Value of the key `geo`, limited to the members that are used."""

    primary_column: str
    columns: dict[str, _Column]


def of_parquet(spark: SparkSession, files: list[str]) -> Table:
    """Read the rows of files."""
    layouts: list[Layout] = []
    pieces: list[FilePiece] = []
    alike: dict[str, list[str]] = {}
    for path in files:
        with _opened_files(path) as file:
            geo = _geo(path, file.schema_arrow)
            given = _columns(path, file, geo.covering)
            columns = from_arrow_schema(given)
            layouts.append(Layout(path, columns, geo.column, geo.crs))
            if _is_for_spark(path, file):
                alike.setdefault(given.to_string(), []).append(path)
            else:
                pieces += _pieces(path, file.metadata)
    columns = columns_of(layouts)
    frames = [_rows_by_spark(spark, group, columns) for group in alike.values()]
    if pieces or not frames:
        schema = with_own_fields(columns)
        frames.append(in_pieces(spark, pieces, from_arrow_schema(schema), partial(_read, schema)))
    return Table(reduce(DataFrame.union, frames), layouts)


# ---- By Spark ------------------------------------------------------------------------------------


def _is_for_spark(path: str, file: pq.ParquetFile) -> bool:
    """Whether Spark's own reader can read the file by this path."""
    leaves = [file.schema.column(n) for n in range(len(file.schema))]
    about = file.metadata
    groups = [about.row_group(n) for n in range(about.num_row_groups)]
    packed = {group.column(n).compression for group in groups for n in range(len(leaves))}
    return (
        _PLAIN_PATH.fullmatch(path) is not None
        and packed <= _SPARK_CODECS
        and not any(_is_only_here(leaf) for leaf in leaves)
    )


def _is_only_here(leaf: pq.ColumnSchema) -> bool:
    kind = leaf.logical_type.type
    return kind in _ONLY_HERE or "nanoseconds" in leaf.logical_type.to_json()


def _rows_by_spark(spark: SparkSession, files: list[str], columns: StructType) -> DataFrame:
    """Read files with the same schema, and add the columns that only other files have."""
    rows = spark.read.parquet(*files)
    present = set(rows.columns)
    return rows.select(
        *(
            (column_of(field.name) if field.name in present else F.lit(None))
            .cast(field.dataType)
            .alias(field.name)
            for field in columns
        ),
        F.regexp_replace("_metadata.file_path", "^file:/*", "/").alias(SOURCE),
        (F.col("_metadata.row_index") + 1).alias(LINE),
        F.lit(None).cast("string").alias(PROBLEM),
        F.lit(None).cast("string").alias(RECORD),
    )


# ---- By pyarrow ----------------------------------------------------------------------------------


def rows_of_parquet(spark: SparkSession, files: Iterable[str], schema: StructType) -> DataFrame:
    """Read columns of files that Naksha has written, so that all of them have these columns."""
    pieces: list[FilePiece] = []
    for path in files:
        with _opened_files(path) as file:
            pieces += _pieces(path, file.metadata)
    given = with_own_fields(schema)
    rows = in_pieces(spark, pieces, from_arrow_schema(given), partial(_read, given))
    return rows.select(schema.names)


@contextmanager
def _opened_files(path: str) -> Iterator[pq.ParquetFile]:
    try:
        with pq.ParquetFile(path) as file:
            yield file
    except _BROKEN as error:
        raise InvalidArgument(
            f"The file {path} is not a valid Parquet file: {error}", field="files"
        ) from error


def _pieces(path: str, about: pq.FileMetaData) -> Iterator[FilePiece]:
    """Divide a file into pieces of consecutive row groups, with the numbers of their first rows."""
    groups = [about.row_group(n) for n in range(about.num_row_groups)]
    lines = list(accumulate((group.num_rows for group in groups), initial=1))
    start, size = 0, _OPEN_BYTES
    for n, group in enumerate(groups, 1):
        size += group.total_byte_size
        if size >= PIECE_BYTES or n == len(groups):
            yield FilePiece(path, start, n, lines[start], size=size)
            start, size = n, _OPEN_BYTES


def _read(schema: pa.Schema, piece: FilePiece) -> Iterator[pa.RecordBatch]:
    line = piece.line
    try:
        with _opened(piece.path) as file:
            groups = range(piece.start, piece.end or piece.start)
            covering = _geo(piece.path, file.schema_arrow).covering
            names = [name for name in file.schema_arrow.names if name != covering]
            batches = file.iter_batches(
                _batch_rows(file.metadata, groups),
                row_groups=list(groups),
                columns=names,
                use_threads=False,
            )
            for batch in batches:
                columns = [_text_of_uuids(column) for column in batch.columns]
                table = pa.table(columns, names=batch.schema.names)
                lines = range(line, line + table.num_rows)
                yield from rows_of(schema, table, piece.path, lines)
                line += table.num_rows
    except _BROKEN as error:
        raise InvalidArgument(
            f"The file {piece.path} cannot be read after row {line - 1}: {error}", field="files"
        ) from error


def _opened(path: str) -> pq.ParquetFile:
    return pq.ParquetFile(
        path,
        buffer_size=_BUFFER_BYTES,
        pre_buffer=False,
        # The default is nanoseconds, which only cover the years 1677 to 2262.
        coerce_int96_timestamp_unit="us",
    )


def _batch_rows(about: pq.FileMetaData, groups: range) -> int:
    rows = sum(about.row_group(n).num_rows for n in groups)
    size = sum(about.row_group(n).total_byte_size for n in groups)
    return batch_rows_of(rows, size)


# ---- Types ---------------------------------------------------------------------------------------


def _columns(path: str, file: pq.ParquetFile, covering: str | None) -> pa.Schema:
    """Return the columns of a file with their types on Spark."""
    leaves = iter([file.schema.column(n) for n in range(len(file.schema))])
    fields = []
    for field in file.schema_arrow:
        try:
            type_ = _column_type(field.type, leaves)
            _text_of_uuids(pa.array([], field.type)).cast(type_)
        except NotImplementedError as error:
            raise InvalidArgument(
                f"{path}: the column {field.name!r} has an unsupported type: {error}",
                field="files",
            ) from error
        if field.name != covering:
            fields.append(pa.field(field.name, type_))
    return pa.schema(fields)


def _column_type(type_: pa.DataType, leaves: Iterator[pq.ColumnSchema]) -> pa.DataType:
    if not isinstance(type_, pa.UuidType):
        return _readable(type_, leaves)
    next(leaves)
    return pa.string()


def _readable(type_: pa.DataType, leaves: Iterator[pq.ColumnSchema]) -> pa.DataType:
    """Convert a type of Arrow to one that Spark supports.

    `leaves` are the remaining columns of Parquet, in the same order.
    """
    if isinstance(type_, pa.UuidType):
        raise NotImplementedError("a UUID nested in another type")
    if isinstance(type_, pa.BaseExtensionType):
        return _readable(type_.storage_type, leaves)
    if pa.types.is_struct(type_):
        return pa.struct([pa.field(each.name, _readable(each.type, leaves)) for each in type_])
    if pa.types.is_map(type_):
        key = _readable(type_.key_type, leaves)
        return pa.map_(key, _readable(type_.item_type, leaves))
    if _is_any(type_, _LISTS):
        return pa.list_(_readable(type_.value_type, leaves))
    leaf = next(leaves)
    return _readable_value(type_.value_type if pa.types.is_dictionary(type_) else type_, leaf)


def _readable_value(type_: pa.DataType, leaf: pq.ColumnSchema) -> pa.DataType:
    if _is_any(type_, _TEXTS):
        return pa.string()
    if _is_any(type_, _BYTES):
        return pa.binary()
    if pa.types.is_timestamp(type_):
        # Instants. INT96, the oldest type of timestamps, does not indicate that.
        is_moment = type_.tz is not None or leaf.physical_type == "INT96"
        return pa.timestamp("us", "UTC" if is_moment else None)
    if pa.types.is_duration(type_):
        return pa.int64()
    if pa.types.is_decimal(type_) and type_.precision <= _DIGITS_MAX:
        return pa.decimal128(type_.precision, type_.scale)
    found = _WIDER.get(type_, type_)
    if found == type_ and not _is_any(type_, _PLAIN):
        raise NotImplementedError(str(type_))
    return found


def _is_any(type_: pa.DataType, tests: Any) -> bool:
    return any(is_one(type_) for is_one in tests)


def _text_of_uuids(column: pa.Array) -> pa.Array:
    """Convert UUIDs to strings; Arrow would cast them as strings of 16 bytes."""
    if not isinstance(column.type, pa.UuidType):
        return column
    return pa.array([None if each is None else str(each) for each in column.to_pylist()])


# ---- GeoParquet ----------------------------------------------------------------------------------


def _geo(path: str, schema: pa.Schema) -> _Geo:
    found = (schema.metadata or {}).get(b"geo")
    if found is None:
        return _Geo()
    try:
        geo = msgspec.json.decode(found, type=_Metadata)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidArgument(
            f"{path}: invalid GeoParquet metadata (key 'geo'): {error}", field="files"
        ) from error
    column = geo.columns.get(geo.primary_column)
    if column is None or geo.primary_column not in schema.names:
        raise InvalidArgument(
            f"{path}: the metadata (key 'geo') names {geo.primary_column!r:.64} as the primary "
            "geometry column, but does not describe it, or the file lacks it; correct the metadata",
            field="files",
        )
    if column.encoding != "WKB":
        raise InvalidArgument(
            f"{path}: the encoding of geometries must be WKB, not {column.encoding!r:.64}",
            field="files",
        )
    covering = None if column.covering is None else column.covering.bbox
    crs = _projection(column.crs)
    return _Geo(geo.primary_column, crs, None if covering is None else covering.xmin[0])


def _projection(crs: object) -> str | None:
    """Return the coordinate reference system as a string, PROJJSON as its JSON."""
    if crs is None or isinstance(crs, str):
        return crs
    return msgspec.json.encode(crs).decode()
