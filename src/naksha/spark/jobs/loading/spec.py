"""Specification and report of the job `load`."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Protocol, TypeAlias

import msgspec

from naksha.model.collection import CollectionInfo
from naksha.model.limits import REJECTS_MAX
from naksha.spark.jobs.frame import InputFile, JobSpec, OutputFile
from naksha.spi.staging import WriteMode

RejectsMax: TypeAlias = Annotated[int, msgspec.Meta(ge=0)]
"""Maximum number of rejected records."""


class FileFormat(StrEnum):
    """Format of files; AUTO detects it by suffix and first bytes."""

    AUTO = "auto"
    GEOJSON = "geojson"
    LINES = "geojson-lines"
    PARQUET = "parquet"
    """Parquet, or GeoParquet, which is detected by its metadata."""
    CSV = "csv"
    VECTOR = "vector"
    """Formats that pyogrio reads: Shapefile, GeoPackage and others."""


class DatelineHandling(StrEnum):
    """Treatment of geometries that cross the date line."""

    CUT = "cut"
    """Wrap or split them at the date line."""
    KEEP = "keep"
    """Do not change them; longitudes beyond 180 degrees are rejected."""


class Mapping(msgspec.Struct, frozen=True, kw_only=True):
    """Mapping from records to features; columns are those of a table, or GeoJSON's properties.

    By default the id is that of GeoJSON or the column `id`, the geometry is that of the format (or
    the column `geometry`, `wkb` or `wkt`, or the columns `lon` and `lat`, including their usual
    longer names), and all other columns become properties of the same name.
    """

    id: str | None = None
    geometry: str | None = None
    """Column with WKB, binary or in hexadecimal digits, or with WKT."""
    lon: str | None = None
    lat: str | None = None
    crs: str | None = None
    """Coordinate reference system; the default is that of the file, else longitude and latitude."""
    tags: str | None = None
    """Column with tags: an array, or a string with tags separated by commas."""
    rename: dict[str, str] = {}
    """Names of properties by the names of their columns."""
    keep: tuple[str, ...] | None = None
    """Only these columns become properties."""
    drop: tuple[str, ...] = ()
    types: dict[str, str] = {}
    """Types of Spark that columns are read as, for example `int`; records with other values are
    rejected."""
    constants: dict[str, Any] = {}
    """Properties to add to all features."""


class FileSource(Protocol):
    """Options of a job that reads features from files."""

    @property
    def files(self) -> tuple[str, ...]: ...
    @property
    def format(self) -> FileFormat: ...
    @property
    def layer(self) -> str | None: ...
    @property
    def encoding(self) -> str | None: ...
    @property
    def mapping(self) -> Mapping: ...
    @property
    def dateline(self) -> DatelineHandling: ...
    @property
    def rejects(self) -> str | None: ...
    @property
    def rejects_max(self) -> int: ...


class Load(JobSpec, tag="load", frozen=True, kw_only=True):
    """Load all records of files, except for rejected ones, into a collection in one transaction.

    A new collection is written by the bulk path; in an existing one only changed features are
    written. With `history` the files are a dated edit history with one step per line, a JSON object
    with `at`, `put`, `deleted` and `message`. Each step becomes a transaction at its time.
    """

    collection: str
    files: tuple[InputFile, ...]
    app_id: str
    author: str | None = None
    message: str | None = None
    format: FileFormat = FileFormat.AUTO
    layer: str | None = None
    encoding: str | None = None
    """Encoding of CSV files and Shapefiles, for example `cp1252`; the default is that of the
    Shapefile, else UTF-8."""
    mapping: Mapping = Mapping()
    dateline: DatelineHandling = DatelineHandling.CUT
    mode: WriteMode = WriteMode.UPSERT
    key: tuple[str, ...] | None = None
    rejects: OutputFile | None = None
    """File for rejected records; the default is next to the first input file."""
    rejects_max: RejectsMax = REJECTS_MAX
    """Maximum number of rejected records; with more of them nothing is written."""
    delete_rejected: bool = False
    """Allow rejected records in modes that delete features which are not loaded, although existing
    features of rejected records are deleted, too. By default nothing is written in this case."""
    delete_all: bool = False
    """Allow files without features in the mode that deletes all features which are not loaded. By
    default nothing is written in this case, because the files are probably wrong."""
    history: bool = False
    info: CollectionInfo | None = None
    """Settings of the collection if the load creates it."""
    job_id: str = ""
    """Id of the load; a load with the same id is not written again."""


class Loaded(msgspec.Struct, frozen=True, kw_only=True):
    """Report of the job `load`."""

    collection: str
    records: int
    rejected: int = 0
    rejects: str | None = None
    """File with the rejected records and their reasons."""
    files: tuple[str, ...] = ()
    """Files that were read; only the first ones."""
    file_count: int = 0
    left_out: tuple[str, ...] = ()
    """Files in the directories that were left out because of their names; only the first ones."""
    left_out_count: int = 0
    adjusted: int = 0
    """Number of geometries that were wrapped or split at the date line."""
    without_geometry: int = 0
    """Number of features without a geometry."""
    without_id: int = 0
    """Number of features with generated ids; a repeated load creates them again."""
    txn: int | None = None
    """Number of the (last) transaction; None if nothing changed."""
    created: int = 0
    updated: int = 0
    deleted: int = 0
    unchanged: int = 0
    transactions: int = 0
    repeated: bool = False
    """The load was done before. The storage records only the counts of features, not rejected
    records or files."""
