"""Files of rows and columns as DataFrames, with the file and line of each row."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from naksha.model import limits
from naksha.model.errors import InvalidArgument
from naksha.spark.jobs.loading import gdal
from naksha.spark.jobs.loading.files import PIECE_BYTES, PIECE_FEATURES, FilePiece
from naksha.spark.jobs.loading.layouts import Layout, columns_of
from naksha.spark.runtime.failures import noting

SOURCE: Final = "naksha:source"
LINE: Final = "naksha:line"
PROBLEM: Final = "naksha:problem"
RECORD: Final = "naksha:record"
OWN: Final = (SOURCE, LINE, PROBLEM, RECORD)
"""Columns with the origin of a row, and its problem."""
_OWN_FIELDS: Final = [
    pa.field(SOURCE, pa.string()),
    pa.field(LINE, pa.int64()),
    pa.field(PROBLEM, pa.string()),
    pa.field(RECORD, pa.string()),
]
_GEOMETRY: Final = "geometry"
_SHAPEFILE: Final = "ESRI Shapefile"


class Table(msgspec.Struct, frozen=True):
    """Rows of files with the merged columns of all files, and the layout of each file."""

    rows: DataFrame
    layouts: list[Layout]


Read = Callable[[FilePiece], Iterator[pa.RecordBatch]]
Broken = list[tuple[int, str, str]]
"""Invalid lines: number, problem and text."""


def with_own_fields(columns: StructType) -> pa.Schema:
    """Return the schema of rows that tasks read from files with such columns."""
    return pa.schema([*to_arrow_schema(columns, timezone="UTC"), *_OWN_FIELDS])


def in_pieces(
    spark: SparkSession, pieces: list[FilePiece], schema: StructType, read: Read
) -> DataFrame:
    """Read pieces, each in its own task unless it is small."""
    tasks = packed(pieces)
    count = max(len(tasks), 1)
    # One row per task: its number. Hash partitioning would leave some tasks without a row.
    return spark.range(0, len(tasks), 1, count).mapInArrow(
        partial(_read_tasks, read, tasks), schema
    )


def packed(pieces: list[FilePiece]) -> list[list[FilePiece]]:
    """Group pieces that the same task reads one after another."""
    tasks: list[list[FilePiece]] = []
    size = PIECE_BYTES
    for piece in pieces:
        if size + piece.size > PIECE_BYTES:
            tasks.append([])
            size = 0
        tasks[-1].append(piece)
        size += piece.size
    return tasks


def _read_tasks(
    read: Read, tasks: list[list[FilePiece]], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    with noting():
        for batch in batches:
            for number in batch.column(0).to_pylist():
                for piece in tasks[number]:
                    yield from read(piece)


def batch_rows_of(rows: int, size: int) -> int:
    """Return the number of rows to read at once, given the total number and size of rows."""
    return min(max(limits.LOAD_BATCH_BYTES * rows // max(size, 1), 1), limits.LOAD_BATCH_ROWS_MAX)


def rows_of(
    schema: pa.Schema, table: pa.Table, source: str, lines: Sequence[int]
) -> Iterator[pa.RecordBatch]:
    """Convert rows of a file to the merged schema, with their origin and null if not available."""
    stored = pa.schema([field for field in schema if field.name not in OWN])
    columns = [
        # The type holds all values, except that times are truncated to microseconds, which safe
        # casts reject.
        table.column(field.name).cast(field.type, safe=False)
        if field.name in table.column_names
        else pa.nulls(table.num_rows, field.type)
        for field in stored
    ]
    start = 0
    for batch in pa.table(columns, schema=stored).to_batches():
        end = start + batch.num_rows
        yield _with_own(schema, batch, source, lines[start:end])
        start = end


def _with_own(
    schema: pa.Schema, batch: pa.RecordBatch, source: str, lines: Sequence[int]
) -> pa.RecordBatch:
    count = batch.num_rows
    nothing = pa.nulls(count, pa.string())
    own = [pa.repeat(source, count), pa.array(lines, pa.int64()), nothing, nothing]
    columns = [batch.column(name) for name in schema.names if name not in OWN]
    return pa.RecordBatch.from_arrays([*columns, *own], schema=schema)


def problem_rows(schema: pa.Schema, source: str, broken: Broken) -> Iterator[pa.RecordBatch]:
    """Convert invalid lines to rows with a problem."""
    if not broken:
        return
    count = len(broken)
    numbers, problems, texts = (list(column) for column in zip(*broken, strict=True))
    own = [
        pa.array([source] * count),
        pa.array(numbers, pa.int64()),
        pa.array(problems),
        pa.array(texts),
    ]
    nothing = [pa.nulls(count, field.type) for field in schema if field.name not in OWN]
    yield pa.RecordBatch.from_arrays([*nothing, *own], schema=schema)


def column_of(name: str) -> Column:
    """Return a column by its name, which may contain any characters."""
    return F.col("`" + name.replace("`", "``") + "`")


# ---- Files that pyogrio reads --------------------------------------------------------------------


def of_vector(
    spark: SparkSession, files: list[str], layer: str | None, encoding: str | None = None
) -> Table:
    """Read Shapefiles, GeoPackages and a few other formats, some features at a time."""
    layouts: list[Layout] = []
    pieces: list[FilePiece] = []
    for path in files:
        info = _info(path, layer)
        is_shapefile = info["driver"] == _SHAPEFILE
        if encoding is not None and not is_shapefile:
            raise InvalidArgument(
                f"The option encoding is not allowed for {path}, whose format defines its encoding;"
                " omit the option",
                field="encoding",
            )
        chosen = str(info["layer_name"])
        geometry = _GEOMETRY if info["geometry_type"] else None
        columns = _vector_columns(path, chosen, encoding)
        layouts.append(Layout(path, columns, geometry, info["crs"], is_clockwise=is_shapefile))
        pieces += _vector_pieces(path, int(info["features"]), chosen, encoding)
    schema = with_own_fields(columns_of(layouts))
    rows = in_pieces(spark, pieces, from_arrow_schema(schema), partial(_read_vector, schema))
    return Table(rows, layouts)


def _vector_pieces(
    path: str, count: int, layer: str, encoding: str | None = None
) -> Iterator[FilePiece]:
    # Features have about the same size in memory as in the file.
    batch_rows = batch_rows_of(count, Path(path).stat().st_size)
    for start in range(0, max(count, 1), PIECE_FEATURES):
        end = start + PIECE_FEATURES
        # The last piece ends with the file, because its feature count may be wrong.
        last = end if end < count else None
        yield FilePiece(path, start, last, start + 1, layer, encoding, batch_rows=batch_rows)


def _info(path: str, layer: str | None) -> dict[str, Any]:
    with gdal.opening() as pyogrio:
        try:
            chosen = layer or _only_layer(path, pyogrio.list_layers(path))
            info: dict[str, Any] = pyogrio.read_info(path, layer=chosen, force_feature_count=True)
        except pyogrio.errors.DataLayerError as error:
            raise InvalidArgument(f"{path}: {error}", field="files") from error
        except pyogrio.errors.DataSourceError as error:
            raise _of_no_kind(path) from error
    if info["driver"] not in gdal.DRIVERS:
        raise _of_no_kind(path)
    return info


def _of_no_kind(path: str) -> InvalidArgument:
    return InvalidArgument(f"The file {path} is not a valid {gdal.KINDS} file", field="files")


def _only_layer(path: str, layers: Any) -> str | int:
    """Return the single layer of a file.

    Tables without geometries, such as the styles that some programs add, only count if there is no
    other layer.
    """
    placed = [str(name) for name, geometry in layers if geometry is not None]
    names = placed or [str(name) for name, _ in layers]
    if len(names) > 1:
        raise InvalidArgument(
            f"The file {path} has several layers; set the option layer to one of"
            f" {', '.join(names)}",
            field="layer",
        )
    return names[0] if names else 0


def _vector_columns(path: str, layer: str, encoding: str | None = None) -> StructType:
    with _stream(FilePiece(path, layer=layer, encoding=encoding)) as (names, reader):
        types = [pa.string() if _is_odd(type_) else type_ for type_ in reader.schema.types]
    return from_arrow_schema(pa.schema(zip(names, types, strict=True)))


def _is_odd(type_: pa.DataType) -> bool:
    """Whether a type of Arrow must be converted for Spark."""
    tests = (pa.types.is_time, pa.types.is_dictionary, pa.types.is_null)
    return any(is_one(type_) for is_one in tests)


@contextmanager
def _stream(piece: FilePiece) -> Iterator[tuple[list[str], pa.RecordBatchReader]]:
    """Open a stream of the features of a piece; the geometry column is renamed to `geometry`."""
    with ExitStack() as stack:
        with gdal.opening() as pyogrio:
            opened = pyogrio.open_arrow(
                piece.path,
                layer=piece.layer,
                encoding=piece.encoding,
                skip_features=piece.start,
                batch_size=piece.batch_rows,
                datetime_as_string=True,
                use_pyarrow=True,
            )
            meta, reader = stack.enter_context(opened)
        name = meta["geometry_name"] or "wkb_geometry"
        yield [_GEOMETRY if each == name else each for each in _names_in(piece, reader)], reader


def _names_in(piece: FilePiece, reader: pa.RecordBatchReader) -> list[str]:
    try:
        names: list[str] = reader.schema.names
    except UnicodeDecodeError as error:
        raise InvalidArgument(
            f"{piece.path}: the column names are not in the encoding of the file; set the option "
            f"encoding: {error}",
            field="encoding",
        ) from error
    return names


def _read_vector(schema: pa.Schema, piece: FilePiece) -> Iterator[pa.RecordBatch]:
    line, end = piece.line, piece.end
    left = sys.maxsize if end is None else end - piece.start
    with _stream(piece) as (names, reader):
        for batch in reader:
            table = pa.table(batch.columns, names=names).slice(0, left)
            yield from _vector_rows(schema, table, piece, range(line, line + table.num_rows))
            line += table.num_rows
            left -= table.num_rows
            if left == 0:
                break


def _vector_rows(
    schema: pa.Schema, table: pa.Table, piece: FilePiece, lines: range
) -> Iterator[pa.RecordBatch]:
    """Yield valid rows, and rows with text that cannot be decoded as rows with a problem.

    Arrow consumers would replace the invalid bytes.
    """
    unfit = _unfit_texts(table)
    if not unfit:
        yield from rows_of(schema, table, piece.path, lines)
        return
    fit = [n for n in range(table.num_rows) if n not in unfit]
    yield from rows_of(schema, table.take(fit), piece.path, [lines[n] for n in fit])
    broken = [(lines[n], problem, _shown(table, n)) for n, problem in unfit.items()]
    yield from problem_rows(schema, piece.path, broken)


def _unfit_texts(table: pa.Table) -> dict[int, str]:
    """Find rows with text that is not valid UTF-8.

    GDAL passes the bytes of a Shapefile through if its encoding is unknown.
    """
    found: dict[int, str] = {}
    for name, column in _texts_in(table):
        try:
            column.validate(full=True)
        except pa.ArrowInvalid:
            for n, text in enumerate(_bytes_of(column)):
                try:
                    text.decode()
                except UnicodeDecodeError as error:
                    found.setdefault(
                        n, f"{name}: cannot be decoded; set the option encoding: {error}"
                    )
    return found


def _texts_in(table: pa.Table) -> Iterator[tuple[str, pa.ChunkedArray]]:
    for name, column in zip(table.column_names, table.columns, strict=True):
        if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
            yield name, column


def _bytes_of(column: pa.ChunkedArray) -> list[bytes]:
    return [each or b"" for each in column.cast(pa.large_binary()).to_pylist()]


def _shown(table: pa.Table, n: int) -> str:
    """Format a row for users, with a replacement character for invalid bytes."""
    row = table.slice(n, 1)
    texts = {name: _bytes_of(column)[0].decode(errors="replace") for name, column in _texts_in(row)}
    others = row.drop_columns(list(texts)).to_pylist()[0]
    if _GEOMETRY in others:
        others[_GEOMETRY] = None if others[_GEOMETRY] is None else others[_GEOMETRY].hex()
    return msgspec.json.encode(texts | others, enc_hook=str).decode()
