"""The records of files of any kind, as a table of Spark."""

from __future__ import annotations

from functools import partial

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from naksha.model.collection import CollectionInfo
from naksha.model.errors import CollectionNotFound, InvalidArgument
from naksha.spark.jobs.geoparquet import holds_features
from naksha.spark.jobs.loading import delimited, geojson, parquet, references, tables
from naksha.spark.jobs.loading.files import Piece, files_of, format_of, pieces_of
from naksha.spark.jobs.loading.layouts import Layout, crs_of
from naksha.spark.jobs.loading.mapping import (
    mapped_features,
    records_of_features,
    records_of_table,
)
from naksha.spark.jobs.loading.spec import Format, Mapping, Source
from naksha.spark.sessions import in_utc
from naksha.spi.storage import Storage


def records_of(spark: SparkSession, spec: Source) -> tuple[DataFrame, str | None]:
    """The records of the files, and the reference system of their coordinates, where somebody
    names it."""
    # What is loaded is the same in every session.
    spark = in_utc(spark)
    if spec.mapping.crs is not None:
        references.check_known(spec.mapping.crs, whose="The reference system", field="mapping.crs")
    files = files_of(spec)
    format_ = format_of(spec, files)
    if format_ in (Format.GEOJSON, Format.LINES):
        return _of_geojson(spark, spec, files, format_)
    if format_ is Format.PARQUET:
        table = parquet.of_parquet(spark, files)
        if spec.mapping == Mapping() and _are_exported(files):
            return records_of_features(table), None
    elif format_ is Format.CSV:
        table = delimited.of_csv(spark, files)
    else:
        table = tables.of_vector(spark, files, spec.layer)
    return records_of_table(table, spec.mapping), spec.mapping.crs or crs_of(table.layouts)


def _of_geojson(
    spark: SparkSession, spec: Source, files: list[str], format_: Format
) -> tuple[DataFrame, str | None]:
    crs = spec.mapping.crs
    if format_ is Format.LINES:
        pieces = [piece for path in files for piece in _pieces_of(path)]
        read = geojson.read_lines
    else:
        pieces = [Piece(path) for path in files]
        read = geojson.read_document
        crs = crs or crs_of(
            [Layout(path, StructType(), crs=geojson.crs_in(path)) for path in files]
        )
    rows = from_arrow_schema(geojson.RECORDS)
    reading = partial(read, crs=crs)
    return mapped_features(tables.in_pieces(spark, pieces, rows, reading), spec.mapping), crs


def _pieces_of(path: str) -> list[Piece]:
    pieces = list(pieces_of(path))
    if not pieces:
        raise InvalidArgument(f"{path} is empty", field="files")
    return pieces


def _are_exported(files: list[str]) -> bool:
    """Whether they are our own, with columns of their own, which no others have."""
    kinds = {holds_features(path) for path in files}
    if len(kinds) > 1:
        raise InvalidArgument(
            "Some of the files are of an export and some are not: load them apart", field="files"
        )
    return kinds == {True}


async def collection_of(
    storage: Storage, collection: str, new: CollectionInfo | None = None
) -> CollectionInfo:
    """The collection that features are for, whether it is there or will be made: as `new` says."""
    try:
        return await storage.collection(collection)
    except CollectionNotFound:
        return new or CollectionInfo(id=collection)
