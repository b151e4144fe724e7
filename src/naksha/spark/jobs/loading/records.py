"""Records of files of any format, as a DataFrame."""

from __future__ import annotations

import codecs
from functools import partial
from typing import Final, NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from naksha.model.collection import CollectionInfo
from naksha.model.errors import CollectionNotFound, InvalidArgument
from naksha.spark.jobs.frame import JobProgress
from naksha.spark.jobs.geoparquet import holds_features
from naksha.spark.jobs.loading import delimited, geojson, parquet, references, tables
from naksha.spark.jobs.loading.check import RecordChecker, check_place
from naksha.spark.jobs.loading.files import FilePiece, FoundFiles, files_of, format_of, pieces_of
from naksha.spark.jobs.loading.layouts import Layout, crs_of
from naksha.spark.jobs.loading.mapping import (
    mapped_features,
    records_of_features,
    records_of_table,
)
from naksha.spark.jobs.loading.spec import DatelineHandling, FileFormat, FileSource, Mapping
from naksha.spi.storage import Storage

_SAID: Final = 5
"""Maximum number of files that a message names."""
_PLAIN: Final = "".join(map(chr, range(128)))


class FileRecords(NamedTuple):
    """Records of files, their coordinate reference system, if known, and clockwise files.

    The outer rings in `clockwise` files are clockwise.
    """

    rows: DataFrame
    crs: str | None
    clockwise: frozenset[str] = frozenset()


def report_left_out(found: FoundFiles, progress: JobProgress) -> None:
    """Report the files in directories that are not read."""
    if found.left_out:
        first = ", ".join(found.left_out[:_SAID])
        more = ", …" if len(found.left_out) > _SAID else ""
        progress.say(
            f"{len(found.left_out)} files were left out, because their names have an unknown "
            f"suffix, or start with _ or a dot: {first}{more}"
        )


def checker_of(spec: FileSource, info: CollectionInfo, records: FileRecords) -> RecordChecker:
    """Create the checker of the records."""
    is_cut = spec.dateline is DatelineHandling.CUT
    return RecordChecker(info, records.crs, records.clockwise, is_cut=is_cut)


def records_of(
    spark: SparkSession, spec: FileSource, files: list[str] | None = None
) -> FileRecords:
    """Read the records of the files of a load, or of `files`.

    The session should be one of `in_utc`, so that the result does not depend on the time zone.
    """
    if spec.mapping.crs is not None:
        references.check_known(spec.mapping.crs, whose="The reference system", field="mapping.crs")
    files = files if files is not None else files_of(spec)
    check_place(spec, files)
    format_ = format_of(spec, files)
    encoding = _encoding_of(spec, format_)
    if format_ in (FileFormat.GEOJSON, FileFormat.LINES):
        return _of_geojson(spark, spec, files, format_)
    if format_ is FileFormat.PARQUET:
        table = parquet.of_parquet(spark, files)
        if spec.mapping == Mapping() and _are_exported(files):
            return FileRecords(records_of_features(table), None)
    elif format_ is FileFormat.CSV:
        table = delimited.of_csv(spark, files, encoding)
    else:
        table = tables.of_vector(spark, files, spec.layer, encoding)
    crs = spec.mapping.crs or crs_of(table.layouts)
    clockwise = frozenset(layout.path for layout in table.layouts if layout.is_clockwise)
    return FileRecords(records_of_table(table, spec.mapping), crs, clockwise)


def _encoding_of(spec: FileSource, format_: FileFormat) -> str | None:
    """Return the encoding of texts by a name that GDAL knows, too."""
    if spec.encoding is None:
        return None
    if format_ not in (FileFormat.CSV, FileFormat.VECTOR):
        raise InvalidArgument(
            "The option encoding is only allowed for CSV and vector files; GeoJSON and Parquet are"
            " always UTF-8",
            field="encoding",
        )
    try:
        # Files are split at delimiters and line ends before their texts are decoded.
        is_alike = _PLAIN.encode().decode(spec.encoding) == _PLAIN
    except (LookupError, ValueError):
        is_alike = False
    if not is_alike:
        raise InvalidArgument(
            f"The encoding {spec.encoding!r:.64} is unknown, or not compatible with ASCII",
            field="encoding",
        )
    # Python accepts both, but GDAL knows some names only with a hyphen.
    return codecs.lookup(spec.encoding).name.replace("_", "-")


def _of_geojson(
    spark: SparkSession, spec: FileSource, files: list[str], format_: FileFormat
) -> FileRecords:
    crs = spec.mapping.crs
    if format_ is FileFormat.LINES:
        pieces = [piece for path in files for piece in _pieces_of(path)]
        read = geojson.read_lines
    else:
        pieces = [FilePiece(path) for path in files]
        read = geojson.read_document
        crs = crs or crs_of(
            [Layout(path, StructType(), crs=geojson.crs_in(path)) for path in files]
        )
    rows = from_arrow_schema(geojson.RECORDS)
    reading = partial(read, crs=crs, is_cut=spec.dateline is DatelineHandling.CUT)
    found = tables.in_pieces(spark, pieces, rows, reading)
    return FileRecords(mapped_features(found, spec.mapping), crs)


def _pieces_of(path: str) -> list[FilePiece]:
    pieces = list(pieces_of(path))
    if not pieces:
        raise InvalidArgument(f"The file {path} is empty", field="files")
    return pieces


def _are_exported(files: list[str]) -> bool:
    """Whether all files belong to exports, which have specific columns.

    Raises:
        InvalidArgument: Only some of them do.
    """
    kinds = {holds_features(path) for path in files}
    if len(kinds) > 1:
        raise InvalidArgument(
            "Only some of the files belong to an export; load them separately", field="files"
        )
    return kinds == {True}


async def collection_of(
    storage: Storage, collection: str, new: CollectionInfo | None = None
) -> CollectionInfo:
    """Return the settings of a collection; `new` or the defaults if it does not exist yet."""
    try:
        return await storage.collection(collection)
    except CollectionNotFound:
        return new or CollectionInfo(id=collection)
