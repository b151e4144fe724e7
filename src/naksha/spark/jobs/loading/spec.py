"""What a load is told: files, how their records become features, and what becomes of those."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Protocol, TypeAlias

import msgspec

from naksha.model.collection import CollectionInfo
from naksha.model.limits import REJECTS_MAX
from naksha.spark.jobs.frame import InputFile, OutputFile, Spec
from naksha.spi.staging import WriteMode

RejectsMax: TypeAlias = Annotated[int, msgspec.Meta(ge=0)]
"""How many records may be rejected."""


class Format(StrEnum):
    """Kinds of files; AUTO tells them by their names and first bytes."""

    AUTO = "auto"
    GEOJSON = "geojson"
    LINES = "geojson-lines"
    PARQUET = "parquet"
    """GeoParquet is told by its metadata."""
    CSV = "csv"
    VECTOR = "vector"
    """What pyogrio reads: Shapefile, GeoPackage and others."""


class Dateline(StrEnum):
    """What becomes of geometries that reach over the date line."""

    CUT = "cut"
    """They are wrapped or split there."""
    KEEP = "keep"
    """They stay as they are; longitudes beyond 180 degrees are rejected."""


class Mapping(msgspec.Struct, frozen=True, kw_only=True):
    """How a record becomes a feature. Columns are those of a table, or the properties of GeoJSON.

    Unless told otherwise the id is that of GeoJSON or the column `id`, the geometry that of the
    format (or the columns `geometry`, `wkb`, `wkt`, or `lon` and `lat` with their usual longer
    names), and all other columns are properties of the same name.
    """

    id: str | None = None
    geometry: str | None = None
    """A column with WKB, in texts as hexadecimal digits, or WKT."""
    lon: str | None = None
    lat: str | None = None
    crs: str | None = None
    """The reference system of the coordinates; what the file says, else longitude and latitude."""
    tags: str | None = None
    """A column with tags: an array, or a text in which commas part them."""
    rename: dict[str, str] = {}
    """Properties by the names of their columns."""
    keep: tuple[str, ...] | None = None
    """Only these columns become properties."""
    drop: tuple[str, ...] = ()
    types: dict[str, str] = {}
    """Columns that are read as another type of Spark, for example `int`; what is not one is
    rejected."""
    constants: dict[str, Any] = {}
    """Properties that all features get."""


class Source(Protocol):
    """Files of which somebody wants the features."""

    @property
    def files(self) -> tuple[str, ...]: ...
    @property
    def format(self) -> Format: ...
    @property
    def layer(self) -> str | None: ...
    @property
    def encoding(self) -> str | None: ...
    @property
    def mapping(self) -> Mapping: ...
    @property
    def dateline(self) -> Dateline: ...
    @property
    def rejects(self) -> str | None: ...
    @property
    def rejects_max(self) -> int: ...


class Load(Spec, tag="load", frozen=True, kw_only=True):
    """Load files into a collection, as one transaction: all records but the rejected ones.

    A collection that is new is filled by the bulk path, otherwise only what really changed is
    written. With `history` the files are a dated edit history, one JSON object in a line for each
    step (`at`, `put`, `deleted`, `message`), and every step becomes a transaction of its time.
    """

    collection: str
    files: tuple[InputFile, ...]
    app_id: str
    author: str | None = None
    message: str | None = None
    format: Format = Format.AUTO
    layer: str | None = None
    encoding: str | None = None
    """How the texts of CSV files and Shapefiles are encoded, for example `cp1252`; UTF-8, or what a
    Shapefile says of itself, unless given."""
    mapping: Mapping = Mapping()
    dateline: Dateline = Dateline.CUT
    mode: WriteMode = WriteMode.UPSERT
    key: tuple[str, ...] | None = None
    rejects: OutputFile | None = None
    """The file that rejected records go to; beside the first file that is loaded unless given."""
    rejects_max: RejectsMax = REJECTS_MAX
    """More than so many rejected records end the load, and nothing is written."""
    delete_rejected: bool = False
    """Write although records were rejected, in a mode that deletes what is not loaded, hence
    features that are there and came as such records, too. Otherwise nothing is written then."""
    delete_all: bool = False
    """Write although no feature is loaded, in the mode that deletes all that is not. Otherwise
    nothing is written then: most files without features are such of which something went wrong."""
    history: bool = False
    info: CollectionInfo | None = None
    """The collection with the settings that it gets when it is new."""
    job_id: str = ""
    """Makes the load unique: what was loaded under the same one is not loaded again."""


class Loaded(msgspec.Struct, frozen=True, kw_only=True):
    """What a load did."""

    collection: str
    records: int
    rejected: int = 0
    rejects: str | None = None
    """The file with the rejected records and their reasons."""
    files: tuple[str, ...] = ()
    """Those that were read, the first ones of many."""
    file_count: int = 0
    left_out: tuple[str, ...] = ()
    """Files in the directories that were not read, for their names; the first ones of many."""
    left_out_count: int = 0
    adjusted: int = 0
    """Geometries that were wrapped or split at the date line."""
    without_geometry: int = 0
    """Features that are nowhere: their records had nothing that says where."""
    without_id: int = 0
    """Features whose ids the storage has made, so that a repeated load makes them again."""
    txn: int | None = None
    """Of the (last) transaction; None when nothing changed."""
    created: int = 0
    updated: int = 0
    deleted: int = 0
    unchanged: int = 0
    transactions: int = 0
    repeated: bool = False
    """It was done before. The counts are those that the storage knows: what was rejected then, and
    which files were read, is not among them."""
