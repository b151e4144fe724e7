"""Files of rows and columns as tables of Spark, each row with the file and line it is from."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from functools import partial, reduce
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.parquet
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from naksha.model.errors import InvalidArgument
from naksha.spark.jobs.loading.files import PIECE_FEATURES, Piece
from naksha.spark.jobs.loading.layouts import Layout, columns_of
from naksha.spark.jobs.loading.references import LON_LAT

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
_ELSEWHERE: Final = (
    *("ADBC", "AmigoCloud", "CSW", "Carto", "EEDA", "Elasticsearch", "GDALG", "GPSBabel", "HTTP"),
    *("NGW", "OAPIF", "OGCAPI", "OGR_VRT", "PLSCENES", "WFS"),
)
"""Drivers of GDAL whose files only lead to other files, or to servers: whoever may name a file of a
directory has no right to those."""


class Table(msgspec.Struct, frozen=True):
    """The rows of files, with the columns of all of them, and what each of these says."""

    rows: DataFrame
    layouts: list[Layout]


Read = Callable[[Piece], Iterator[pa.RecordBatch]]
Broken = list[tuple[int, str, str]]
"""Lines that could not be read, what is wrong with them, and their texts."""


def with_own_fields(columns: StructType) -> pa.Schema:
    """What tasks give of files with such columns."""
    return pa.schema([*to_arrow_schema(columns), *_OWN_FIELDS])


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


def rows_of(
    schema: pa.Schema, table: pa.Table, source: str, lines: Sequence[int]
) -> Iterator[pa.RecordBatch]:
    """The rows of a file with where they are from, and with null in the columns that only other
    files have."""
    wanted = pa.schema([field for field in schema if field.name not in OWN])
    columns = [
        table.column(field.name).cast(field.type)
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
    own = [pa.array([source] * count), pa.array(lines, pa.int64()), nothing, nothing]
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


# ---- Parquet -------------------------------------------------------------------------------------


class _Geo(msgspec.Struct, frozen=True):
    """What a file says of its geometry, if it is GeoParquet."""

    column: str | None = None
    crs: str | None = None
    covering: str | None = None
    """The column with the boxes of geometries, which is no property."""


def of_parquet(spark: SparkSession, files: list[str]) -> Table:
    """Parquet and GeoParquet, by Spark's own reader, which knows the number of each row."""
    alike: dict[str, list[tuple[str, _Geo]]] = {}
    for path in files:
        schema = _parquet_schema(path)
        geo = _geo(path, schema)
        kind = schema.remove_metadata().to_string(show_field_metadata=False)
        alike.setdefault(f"{kind}\n{geo.covering}", []).append((path, geo))
    frames: list[DataFrame] = []
    layouts: list[Layout] = []
    for group in alike.values():
        frame = _parquet_rows(spark, [path for path, _ in group], group[0][1].covering)
        columns = StructType([field for field in frame.schema if field.name not in OWN])
        frames.append(frame)
        layouts += [Layout(path, columns, geo.column, geo.crs) for path, geo in group]
    layouts.sort(key=lambda layout: files.index(layout.path))
    columns = columns_of(layouts)
    return Table(reduce(DataFrame.union, [_with_all(frame, columns) for frame in frames]), layouts)


def _parquet_rows(spark: SparkSession, files: list[str], covering: str | None) -> DataFrame:
    """The rows of files that are alike."""
    rows = spark.read.parquet(*files)
    own = rows.select(
        *(column_of(name) for name in rows.columns),
        F.col("_metadata.file_path").alias(SOURCE),
        (F.col("_metadata.row_index") + 1).alias(LINE),
        F.lit(None).cast("string").alias(PROBLEM),
        F.lit(None).cast("string").alias(RECORD),
    )
    return own if covering is None else own.drop(covering)


def _with_all(rows: DataFrame, columns: StructType) -> DataFrame:
    """Rows with the columns of other files, too."""
    there = set(rows.columns)
    return rows.select(
        *(
            (column_of(field.name) if field.name in there else F.lit(None))
            .cast(field.dataType)
            .alias(field.name)
            for field in columns
        ),
        *map(column_of, OWN),
    )


def column_of(name: str) -> Column:
    """A column, whatever signs its name has."""
    return F.col("`" + name.replace("`", "``") + "`")


def _parquet_schema(path: str) -> pa.Schema:
    try:
        return pyarrow.parquet.read_schema(path)
    except pa.ArrowInvalid as error:
        raise InvalidArgument(f"{path} is no Parquet file: {error}", field="files") from error


def _geo(path: str, schema: pa.Schema) -> _Geo:
    found = (schema.metadata or {}).get(b"geo")
    if found is None:
        return _Geo()
    geo: dict[str, Any] = msgspec.json.decode(found)
    primary = str(geo["primary_column"])
    column = geo["columns"][primary]
    if column.get("encoding") != "WKB":
        raise InvalidArgument(
            f"{path}: geometries are encoded as {column.get('encoding')!r}, not as WKB",
            field="files",
        )
    covering = (column.get("covering") or {}).get("bbox")
    crs = _projection(column.get("crs", LON_LAT))
    return _Geo(primary, crs, None if covering is None else covering["xmin"][0])


def _projection(crs: object) -> str | None:
    """The reference system as a text that is understood; PROJJSON is one."""
    if crs is None or isinstance(crs, str):
        return crs
    return msgspec.json.encode(crs).decode()


# ---- What pyogrio reads --------------------------------------------------------------------------


def of_vector(spark: SparkSession, files: list[str], layer: str | None) -> Table:
    """Shapefile, GeoPackage and whatever else GDAL reads, a number of features at a time."""
    layouts: list[Layout] = []
    pieces: list[Piece] = []
    for path in files:
        info = _info(path, layer)
        geometry = _GEOMETRY if info["geometry_type"] else None
        layouts.append(Layout(path, _vector_columns(path, layer), geometry, info["crs"]))
        count = int(info["features"])
        pieces += [
            Piece(path, start, min(start + PIECE_FEATURES, count), start + 1, layer)
            for start in range(0, max(count, 1), PIECE_FEATURES)
        ]
    schema = with_own_fields(columns_of(layouts))
    rows = in_pieces(spark, pieces, from_arrow_schema(schema), partial(_read_vector, schema))
    return Table(rows, layouts)


def _gdal() -> Any:
    """The package that reads them. It takes longer to load than all the rest, and most loads go
    without it. GDAL knows a file by what is in it, whatever its name is, so drivers that lead
    elsewhere are left out when it starts."""
    os.environ.setdefault("GDAL_SKIP", ",".join(_ELSEWHERE))
    import pyogrio  # noqa: PLC0415

    return pyogrio


def _info(path: str, layer: str | None) -> dict[str, Any]:
    errors = _gdal().errors
    try:
        info: dict[str, Any] = _gdal().read_info(path, layer=layer, force_feature_count=True)
    except (errors.DataSourceError, errors.DataLayerError) as error:
        raise InvalidArgument(f"{path}: {error}", field="files") from error
    if info["driver"] in _ELSEWHERE:  # Somebody else has started GDAL before us.
        raise InvalidArgument(
            f"{path} has no features in it, it leads to others ({info['driver']}); name those",
            field="files",
        )
    return info


def _vector_columns(path: str, layer: str | None) -> StructType:
    found = _arrow(path, layer, 0, 0).schema
    fields = [
        pa.field(name, pa.string() if _is_odd(found.field(name).type) else found.field(name).type)
        for name in found.names
    ]
    return from_arrow_schema(pa.schema(fields))


def _is_odd(type_: pa.DataType) -> bool:
    """Types that Spark does not take from Arrow as they are."""
    tests = (pa.types.is_time, pa.types.is_dictionary, pa.types.is_null)
    return any(is_one(type_) for is_one in tests)


def _arrow(path: str, layer: str | None, start: int, count: int) -> pa.Table:
    """Features as a table whose geometry is called `geometry`."""
    meta, table = _gdal().raw.read_arrow(
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
    yield from rows_of(schema, table, piece.path, range(piece.line, piece.line + table.num_rows))
