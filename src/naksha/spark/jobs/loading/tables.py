"""Files of rows and columns as tables of Spark, each row with the file and line it is from."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from naksha.model.errors import InvalidArgument
from naksha.spark.jobs.loading.files import PIECE_FEATURES, Piece

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
_CRS84: Final = ("OGC:CRS84", "EPSG:4326")


class Table(msgspec.Struct, frozen=True):
    """Rows, the column that has the geometry (WKB), and the reference system that the file names,
    where the format has such."""

    rows: DataFrame
    geometry: str | None = None
    crs: str | None = None


Read = Callable[[Piece], Iterator[pa.RecordBatch]]


def in_pieces(
    spark: SparkSession, pieces: list[Piece], schema: StructType, read: Read
) -> DataFrame:
    """What is read from the pieces, each by a task of its own."""
    texts = [(msgspec.json.encode(piece).decode(),) for piece in pieces]
    table = spark.createDataFrame(texts, "piece string").repartition(max(len(texts), 1), "piece")
    return table.mapInArrow(partial(_read_pieces, read), schema)


def _read_pieces(read: Read, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for text in batch.column(0).to_pylist():
            yield from read(msgspec.json.decode(text, type=Piece))


# ---- Parquet -------------------------------------------------------------------------------------


def of_parquet(spark: SparkSession, files: list[str]) -> Table:
    """Parquet and GeoParquet, by Spark's own reader, which knows the number of each row."""
    rows = spark.read.parquet(*files)
    own = rows.select(
        *(F.col(f"`{name}`") for name in rows.columns),
        F.col("_metadata.file_path").alias(SOURCE),
        (F.col("_metadata.row_index") + 1).alias(LINE),
        F.lit(None).cast("string").alias(PROBLEM),
        F.lit(None).cast("string").alias(RECORD),
    )
    geo = _geo_metadata(files)
    if geo is None:
        return Table(own)
    primary = str(geo["primary_column"])
    column = geo["columns"][primary]
    if column.get("encoding") != "WKB":
        raise InvalidArgument(
            f"{files[0]}: geometries are encoded as {column.get('encoding')!r}, not as WKB",
            field="files",
        )
    covering = (column.get("covering") or {}).get("bbox")
    if covering is not None:
        own = own.drop(covering["xmin"][0])
    return Table(own, primary, _projection(column.get("crs", _CRS84[0])))


def _geo_metadata(files: list[str]) -> dict[str, Any] | None:
    path = Path(files[0])
    metadata = pyarrow.parquet.read_schema(path).metadata or {}
    found = metadata.get(b"geo")
    return None if found is None else msgspec.json.decode(found)


def _projection(crs: object) -> str | None:
    """The reference system as a text that is understood; PROJJSON is one."""
    if crs is None or isinstance(crs, str):
        return crs
    return msgspec.json.encode(crs).decode()


# ---- CSV -----------------------------------------------------------------------------------------


def of_csv(spark: SparkSession, files: list[str]) -> Table:
    """Rows of texts; the first line has the names of the columns."""
    names = _csv_names(files[0])
    schema = pa.schema([*(pa.field(name, pa.string()) for name in names), *_OWN_FIELDS])
    pieces = [Piece(path) for path in files]
    return Table(in_pieces(spark, pieces, from_arrow_schema(schema), partial(_read_csv, schema)))


def _delimiter(path: str) -> str:
    with Path(path).open("rb") as file:
        first = file.readline()
    return max((",", ";", "\t", "|"), key=lambda sign: first.count(sign.encode()))


def _csv_names(path: str) -> list[str]:
    with Path(path).open(newline="", encoding="utf-8-sig") as file:
        try:
            names = next(csv.reader(file, delimiter=_delimiter(path)), [])
        except (csv.Error, UnicodeDecodeError) as error:
            raise InvalidArgument(f"{path} is no CSV file: {error}", field="files") from error
    doubled = [name for name in names if names.count(name) > 1]
    if doubled or not names:
        problem = f"the column {doubled[0]!r} twice" if doubled else "no names of columns"
        raise InvalidArgument(f"{path} has {problem}", field="files")
    return names


def _read_csv(schema: pa.Schema, piece: Piece) -> Iterator[pa.RecordBatch]:
    """Rows that do not fit are told apart by their numbers, which only one thread knows."""
    names = [field.name for field in schema if field.name not in OWN]
    broken: list[tuple[int | None, str, str]] = []

    def unfit(row: Any) -> str:
        problem = f"has {row.actual_columns} columns, not {row.expected_columns}"
        broken.append((row.number, problem, row.text or ""))
        return "skip"

    delimiter = _delimiter(piece.path)
    with pyarrow.csv.open_csv(
        piece.path,
        read_options=pyarrow.csv.ReadOptions(use_threads=False),
        parse_options=pyarrow.csv.ParseOptions(
            delimiter=delimiter, invalid_row_handler=unfit, newlines_in_values=True
        ),
        convert_options=pyarrow.csv.ConvertOptions(
            column_types=dict.fromkeys(names, pa.string()),
            include_columns=names,
            include_missing_columns=True,
            strings_can_be_null=True,
            null_values=[""],
            quoted_strings_can_be_null=False,
        ),
    ) as reader:
        line = 2  # After the names.
        for batch in reader:
            lines, line = _lines(line, batch.num_rows, [row[0] for row in broken])
            yield _with_own(schema, batch, piece.path, lines)
            yield from _told(schema, piece.path, broken)
            broken.clear()
        yield from _told(schema, piece.path, broken)


def _lines(first: int, count: int, skipped: list[int | None]) -> tuple[list[int], int]:
    """The numbers of the rows of a batch, among which some were skipped, and the next one."""
    gone = set(skipped)
    found: list[int] = []
    line = first
    while len(found) < count:
        if line not in gone:
            found.append(line)
        line += 1
    while line in gone:
        line += 1
    return found, line


def _with_own(
    schema: pa.Schema, batch: pa.RecordBatch, source: str, lines: list[int]
) -> pa.RecordBatch:
    count = batch.num_rows
    nothing = pa.nulls(count, pa.string())
    own = [pa.array([source] * count), pa.array(lines, pa.int64()), nothing, nothing]
    columns = [batch.column(name) for name in schema.names if name not in OWN]
    return pa.RecordBatch.from_arrays([*columns, *own], schema=schema)


def _told(
    schema: pa.Schema, source: str, broken: list[tuple[int | None, str, str]]
) -> Iterator[pa.RecordBatch]:
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


# ---- What pyogrio reads --------------------------------------------------------------------------


def of_vector(spark: SparkSession, files: list[str], layer: str | None) -> Table:
    """Shapefile, GeoPackage and whatever else GDAL reads, a number of features at a time."""
    info = _info(files[0], layer)
    schema = _vector_schema(files[0], layer)
    pieces = [
        Piece(path, start, min(start + PIECE_FEATURES, count), start + 1, layer)
        for path in files
        for count in [int(_info(path, layer)["features"])]
        for start in range(0, max(count, 1), PIECE_FEATURES)
    ]
    rows = in_pieces(spark, pieces, from_arrow_schema(schema), partial(_read_vector, schema))
    return Table(rows, _GEOMETRY if info["geometry_type"] else None, info["crs"])


# What is needed here takes longer to load than all the rest; most loads go without it.


def _info(path: str, layer: str | None) -> dict[str, Any]:
    import pyogrio  # noqa: PLC0415

    try:
        info: dict[str, Any] = pyogrio.read_info(path, layer=layer, force_feature_count=True)
    except (pyogrio.errors.DataSourceError, pyogrio.errors.DataLayerError) as error:
        raise InvalidArgument(f"{path}: {error}", field="files") from error
    return info


def _vector_schema(path: str, layer: str | None) -> pa.Schema:
    found = _arrow(path, layer, 0, 0).schema
    fields = [
        pa.field(name, pa.string() if _is_odd(found.field(name).type) else found.field(name).type)
        for name in found.names
    ]
    return pa.schema([*fields, *_OWN_FIELDS])


def _is_odd(type_: pa.DataType) -> bool:
    """Types that Spark does not take from Arrow as they are."""
    tests = (pa.types.is_time, pa.types.is_dictionary, pa.types.is_null)
    return any(is_one(type_) for is_one in tests)


def _arrow(path: str, layer: str | None, start: int, count: int) -> pa.Table:
    """Features as a table whose geometry is called `geometry`."""
    import pyogrio  # noqa: PLC0415

    meta, table = pyogrio.raw.read_arrow(
        path, layer=layer, skip_features=start, max_features=count, datetime_as_string=True
    )
    name = meta["geometry_name"] or "wkb_geometry"
    names = [_GEOMETRY if each == name else each for each in table.column_names]
    return table.rename_columns(names)


def _read_vector(schema: pa.Schema, piece: Piece) -> Iterator[pa.RecordBatch]:
    end = piece.start if piece.end is None else piece.end
    if end == piece.start:
        return
    table = _arrow(piece.path, piece.layer, piece.start, end - piece.start)
    wanted = pa.schema([field for field in schema if field.name not in OWN])
    line = piece.line
    for batch in table.select(wanted.names).cast(wanted).to_batches():
        yield _with_own(schema, batch, piece.path, list(range(line, line + batch.num_rows)))
        line += batch.num_rows
