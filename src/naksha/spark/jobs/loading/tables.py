"""Files of rows and columns as tables of Spark, each row with the file and line it is from."""

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
from naksha.spark.jobs.loading.files import PIECE_BYTES, PIECE_FEATURES, Piece
from naksha.spark.jobs.loading.layouts import Layout, columns_of
from naksha.spark.runtime.failures import noting

SOURCE: Final = "naksha:source"
LINE: Final = "naksha:line"
PROBLEM: Final = "naksha:problem"
RECORD: Final = "naksha:record"
OWN: Final = (SOURCE, LINE, PROBLEM, RECORD)
"""Columns that say where a row is from, and what is wrong with it."""
_OWN_FIELDS: Final = [
    pa.field(SOURCE, pa.string()),
    pa.field(LINE, pa.int64()),
    pa.field(PROBLEM, pa.string()),
    pa.field(RECORD, pa.string()),
]
_GEOMETRY: Final = "geometry"
_SHAPEFILE: Final = "ESRI Shapefile"


class Table(msgspec.Struct, frozen=True):
    """The rows of files, with the columns of all of them, and what each of these says."""

    rows: DataFrame
    layouts: list[Layout]


Read = Callable[[Piece], Iterator[pa.RecordBatch]]
Broken = list[tuple[int, str, str]]
"""Lines that could not be read, what is wrong with them, and their texts."""


def with_own_fields(columns: StructType) -> pa.Schema:
    """What tasks give of files with such columns."""
    return pa.schema([*to_arrow_schema(columns, timezone="UTC"), *_OWN_FIELDS])


def in_pieces(
    spark: SparkSession, pieces: list[Piece], schema: StructType, read: Read
) -> DataFrame:
    """What is read from the pieces, each by a task of its own unless it is small."""
    tasks = packed(pieces)
    count = max(len(tasks), 1)
    # A number for each task. Hashed they would meet in some tasks, and others had nothing to do.
    return spark.range(0, len(tasks), 1, count).mapInArrow(
        partial(_read_tasks, read, tasks), schema
    )


def packed(pieces: list[Piece]) -> list[list[Piece]]:
    """Pieces that are read one after another by the same task."""
    tasks: list[list[Piece]] = []
    size = PIECE_BYTES
    for piece in pieces:
        if size + piece.size > PIECE_BYTES:
            tasks.append([])
            size = 0
        tasks[-1].append(piece)
        size += piece.size
    return tasks


def _read_tasks(
    read: Read, tasks: list[list[Piece]], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    with noting():
        for batch in batches:
            for number in batch.column(0).to_pylist():
                for piece in tasks[number]:
                    yield from read(piece)


def batch_rows_of(rows: int, size: int) -> int:
    """How many of the rows are read at once, when all of them have so many bytes."""
    return min(max(limits.LOAD_BATCH_BYTES * rows // max(size, 1), 1), limits.LOAD_BATCH_ROWS_MAX)


def rows_of(
    schema: pa.Schema, table: pa.Table, source: str, lines: Sequence[int]
) -> Iterator[pa.RecordBatch]:
    """The rows of a file with where they are from, and with null in the columns that only other
    files have."""
    wanted = pa.schema([field for field in schema if field.name not in OWN])
    columns = [
        # The type holds all values, but of times it has microseconds only: safe casts refuse that.
        table.column(field.name).cast(field.type, safe=False)
        if field.name in table.column_names
        else pa.nulls(table.num_rows, field.type)
        for field in wanted
    ]
    start = 0
    for batch in pa.table(columns, schema=wanted).to_batches():
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


def told(schema: pa.Schema, source: str, broken: Broken) -> Iterator[pa.RecordBatch]:
    """Rows that could not be read."""
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
    """A column, whatever signs its name has."""
    return F.col("`" + name.replace("`", "``") + "`")


# ---- What pyogrio reads --------------------------------------------------------------------------


def of_vector(
    spark: SparkSession, files: list[str], layer: str | None, encoding: str | None = None
) -> Table:
    """Shapefile, GeoPackage and a few more, a number of features at a time."""
    layouts: list[Layout] = []
    pieces: list[Piece] = []
    for path in files:
        info = _info(path, layer)
        is_shapefile = info["driver"] == _SHAPEFILE
        if encoding is not None and not is_shapefile:
            raise InvalidArgument(f"{path} says itself how it is encoded", field="encoding")
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
) -> Iterator[Piece]:
    # Features take about as much in memory as in the file.
    batch_rows = batch_rows_of(count, Path(path).stat().st_size)
    for start in range(0, max(count, 1), PIECE_FEATURES):
        end = start + PIECE_FEATURES
        # The last one ends with the file, whatever that says of its length.
        last = end if end < count else None
        yield Piece(path, start, last, start + 1, layer, encoding, batch_rows=batch_rows)


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
    return InvalidArgument(f"{path} is no {gdal.KINDS} file, or it is damaged", field="files")


def _only_layer(path: str, layers: Any) -> str | int:
    """The layer of a file that has one. Tables without places, as other programs put their styles
    beside it, are meant only when there is nothing else."""
    placed = [str(name) for name, geometry in layers if geometry is not None]
    names = placed or [str(name) for name, _ in layers]
    if len(names) > 1:
        raise InvalidArgument(
            f"{path} has several layers, name one of them: {', '.join(names)}", field="layer"
        )
    return names[0] if names else 0


def _vector_columns(path: str, layer: str, encoding: str | None = None) -> StructType:
    with _stream(Piece(path, layer=layer, encoding=encoding)) as (names, reader):
        types = [pa.string() if _is_odd(type_) else type_ for type_ in reader.schema.types]
    return from_arrow_schema(pa.schema(zip(names, types, strict=True)))


def _is_odd(type_: pa.DataType) -> bool:
    """Types that Spark does not take from Arrow as they are."""
    tests = (pa.types.is_time, pa.types.is_dictionary, pa.types.is_null)
    return any(is_one(type_) for is_one in tests)


@contextmanager
def _stream(piece: Piece) -> Iterator[tuple[list[str], pa.RecordBatchReader]]:
    """Features from one on, and the names of their columns, of which the geometry is `geometry`."""
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


def _names_in(piece: Piece, reader: pa.RecordBatchReader) -> list[str]:
    try:
        names: list[str] = reader.schema.names
    except UnicodeDecodeError as error:
        raise InvalidArgument(
            f"{piece.path}: the names of its columns cannot be read, name the `encoding`: {error}",
            field="encoding",
        ) from error
    return names


def _read_vector(schema: pa.Schema, piece: Piece) -> Iterator[pa.RecordBatch]:
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
    schema: pa.Schema, table: pa.Table, piece: Piece, lines: range
) -> Iterator[pa.RecordBatch]:
    """The rows, and those whose texts are none: who gets these would put other signs into them."""
    unfit = _unfit_texts(table)
    if not unfit:
        yield from rows_of(schema, table, piece.path, lines)
        return
    fit = [n for n in range(table.num_rows) if n not in unfit]
    yield from rows_of(schema, table.take(fit), piece.path, [lines[n] for n in fit])
    broken = [(lines[n], problem, _shown(table, n)) for n, problem in unfit.items()]
    yield from told(schema, piece.path, broken)


def _unfit_texts(table: pa.Table) -> dict[int, str]:
    """What is wrong with rows that have bytes which are no text. GDAL gives those of a Shapefile on
    as they are if nothing says how it is encoded."""
    found: dict[int, str] = {}
    for name, column in _texts_in(table):
        try:
            column.validate(full=True)
        except pa.ArrowInvalid:
            for n, text in enumerate(_bytes_of(column)):
                try:
                    text.decode()
                except UnicodeDecodeError as error:
                    found.setdefault(n, f"{name}: cannot be read, name the `encoding`: {error}")
    return found


def _texts_in(table: pa.Table) -> Iterator[tuple[str, pa.ChunkedArray]]:
    for name, column in zip(table.column_names, table.columns, strict=True):
        if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
            yield name, column


def _bytes_of(column: pa.ChunkedArray) -> list[bytes]:
    return [each or b"" for each in column.cast(pa.large_binary()).to_pylist()]


def _shown(table: pa.Table, n: int) -> str:
    """A row as a person can read it, with a sign for what is no text."""
    row = table.slice(n, 1)
    texts = {name: _bytes_of(column)[0].decode(errors="replace") for name, column in _texts_in(row)}
    others = row.drop_columns(list(texts)).to_pylist()[0]
    if _GEOMETRY in others:
        others[_GEOMETRY] = None if others[_GEOMETRY] is None else others[_GEOMETRY].hex()
    return msgspec.json.encode(texts | others, enc_hook=str).decode()
