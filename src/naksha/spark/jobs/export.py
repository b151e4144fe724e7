"""The job `export`: a version of a collection as GeoParquet 1.1, cut by the optimal partitioning.

Each cell is a file in a directory of its own (`cell=q0213/…`), in which features lie in the order
of their places. Readers take such a name for a column: a text, because of the letter before the
quad key, which else would be a number without its leading zeros. Tasks write under names that no
other attempt has; those of the attempts that succeeded are what is put together at the end, and
then the whole directory appears at once.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from naksha.model import limits
from naksha.model.errors import InvalidArgument
from naksha.model.query import Query, States
from naksha.spark.jobs import typed_columns
from naksha.spark.jobs.cells import CellFinder, cells_of
from naksha.spark.jobs.collection_tables import changed, fixed, planned, table
from naksha.spark.jobs.frame import Job, OutputFile, Progress, Spec
from naksha.spark.jobs.geoparquet import (
    ABOUT,
    BBOX,
    BOX,
    GEOMETRY,
    About,
    GeoParquetFile,
    Properties,
    boxes_of,
    numbers_of,
    written_by_number,
)
from naksha.spark.jobs.publish_directory import MANIFEST, check_output, made_before, published, tell
from naksha.spark.jobs.watched_actions import watched
from naksha.spark.runtime.storage_cache import existing
from naksha.spark.source.options import HEAD
from naksha.spi.arrow import COLUMNS
from naksha.spi.partitioning import NOWHERE, features_max
from naksha.spi.storage import Split, Storage
from naksha.versioning.lines import Place

SUCCESS: Final = "_SUCCESS"
CELL: Final = "cell"
"""What readers call the column that they make of the names of directories."""
NO_CELL: Final = "none"
"""In the name of a directory, for features without geometry. (What Hive writes for null breaks
readers that take such names for texts.)"""
_EDGES: Final = ("west", "south", "east", "north")
_BEFORE: Final = ("id", GEOMETRY)
_AFTER: Final = (
    *("members", "tags", "crid", "uuid", "txn", "version", "author", "app_id"),
    *("created_at", "updated_at"),
)
_READ: Final = (*_BEFORE, "properties", *_AFTER, "qrid", *_EDGES)
_WRITTEN: Final = "path string, cell int, features bigint, bbox array<double>"


class Export(Spec, frozen=True, kw_only=True, tag="export"):
    """Write a version of a collection to a directory of GeoParquet files."""

    collection: str
    output: OutputFile
    version: str = HEAD
    query: Query = Query()
    """Only the features that it finds."""
    properties: Properties = Properties.JSON
    features_max: int | None = None
    """How many features a file may have; None for what the storage takes for a cell."""
    overwrite: bool = False
    """Replace a directory that is there; it is not touched before the new one is whole."""
    job_id: str = ""
    """A directory that this very job has made is its result."""


class ExportedFile(msgspec.Struct, frozen=True, rename="camel"):
    """A file of an export, by its path in the directory."""

    path: str
    qrid: str | None
    features: int
    bytes: int
    bbox: list[float] | None


class Exported(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What was exported; with all files this is the manifest, too."""

    output: str
    storage: str
    collection: str
    version: str
    seq_number: int
    txn: str
    published_at: int
    features: int
    bytes: int
    columns: list[str]
    file_count: int
    files: list[ExportedFile]
    """The first ones; all of them are in the manifest."""


def export(spark: SparkSession, spec: Export, progress: Progress) -> Exported:
    """See `Export`."""
    if spec.query.states is not States.LIVE:
        # Whoever loads the files would bring back to life what was deleted.
        raise InvalidArgument("Files cannot tell deleted features from others", field="query")
    if (before := made_before(spec.output, spec.job_id, Exported)) is not None:
        return before
    target = check_output(spec.output, overwrite=spec.overwrite)
    if spec.features_max is not None and spec.features_max < 1:
        raise InvalidArgument("A file has at least one feature", field="features_max")
    at, most, splits = existing(spec.place).call(lambda it: _plan(it, spec))
    qrids = table(spark, spec.place, splits, ["qrid"])
    cells = watched(spark, progress, "counting the cells", lambda: cells_of(qrids, most))
    columns = _typed_columns(spark, spec, splits, progress)
    with published(target, overwrite=spec.overwrite) as work:
        rows = _rows(spark, spec, splits, CellFinder(cells))
        parts = work / "parts"
        parts.mkdir()
        writer = _Writer(str(parts), columns, _about(spec, at))
        made = _typed(rows, columns).mapInArrow(writer, _WRITTEN)
        files = watched(spark, progress, "writing", made.collect)
        told = _arranged(work, parts, sorted(cells), files) or [_nothing(work, writer)]
        manifest = _manifest(spec, at, at.line.storage.id, writer.schema, told)
        (work / MANIFEST).write_bytes(msgspec.json.format(msgspec.json.encode(manifest), indent=1))
        report = msgspec.structs.replace(manifest, files=told[: limits.FILES_TOLD_MAX])
        tell(work, spec.job_id, report)
        (work / SUCCESS).touch()
    return report


async def _plan(storage: Storage, spec: Export) -> tuple[Place, int, list[Split]]:
    at = await fixed(storage, spec.version)
    splits = await planned(at, spec.collection, spec.query)
    if spec.features_max is not None:
        return at, spec.features_max, splits
    return at, features_max(await at.line.storage.feature_size(spec.collection)), splits


def _typed_columns(
    spark: SparkSession, spec: Export, splits: Sequence[Split], progress: Progress
) -> list[typed_columns.TypedColumn] | None:
    if spec.properties is Properties.JSON:
        return None
    properties = table(spark, spec.place, splits, ["properties"])
    taken = {*_BEFORE, BBOX, *_AFTER, CELL}
    return watched(
        spark,
        progress,
        "looking at the properties",
        lambda: typed_columns.typed_columns(properties, taken),
    )


def _rows(
    spark: SparkSession, spec: Export, splits: Sequence[Split], finder: CellFinder
) -> DataFrame:
    """What is to be written, each cell in one task, in the order of places."""
    schema = pa.schema([COLUMNS.field(name) for name in _READ])
    schema = schema.append(pa.field("cell", pa.int32()))

    def with_cell(number: int, batch: pa.RecordBatch) -> pa.RecordBatch:
        cells = pa.array(finder.numbers(batch.column("qrid")))
        return pa.RecordBatch.from_arrays([*batch.columns, cells], schema=schema)

    read = changed(spark, spec.place, splits, _READ, schema, with_cell)
    return read.repartition("cell").sortWithinPartitions("cell", "qrid", "id")


def _typed(rows: DataFrame, columns: Sequence[typed_columns.TypedColumn] | None) -> DataFrame:
    if columns is None:
        return rows
    others = [name for name in rows.columns if name != "properties"]
    return rows.select(*others, *typed_columns.values("properties", columns))


def _about(spec: Export, at: Place) -> About:
    version = at.version
    return About(spec.collection, version.seq_number, str(version.txn), spec.properties)


class _Writer:
    """A task: writes the cells that come to it, a file each, and tells of them."""

    def __init__(
        self, folder: str, columns: Sequence[typed_columns.TypedColumn] | None, about: About
    ) -> None:
        self._folder = folder
        fields = [COLUMNS.field(name) for name in _BEFORE]
        fields.append(pa.field(BBOX, BOX))
        names = [*_BEFORE, BBOX]
        if columns is None:
            fields.append(COLUMNS.field("properties"))
            names.append("properties")
        else:
            fields += [pa.field(c.name, typed_columns.arrow_type(c.kind)) for c in columns]
            names += [typed_columns.position(n) for n in range(len(columns))]
        fields += [_field(name) for name in _AFTER]
        self._names = [*names, *_AFTER]
        self._about = {ABOUT: msgspec.json.encode(about).decode()}
        self.schema = pa.schema(fields)

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        # Of two attempts at the same task each has its own files.
        attempt = uuid.uuid4().hex

        def file_of(cell: int) -> GeoParquetFile:
            return self.file(Path(self._folder) / f"{attempt}-{cell}.parquet")

        numbered = ((self._made(batch), numbers_of(batch, "cell")) for batch in batches)
        for cell, file in written_by_number(numbered, file_of):
            yield _told(file, cell)

    def file(self, path: Path) -> GeoParquetFile:
        """A file of this export."""
        return GeoParquetFile(path, self.schema, self._about)

    def _made(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        columns = [
            boxes_of(batch, _EDGES) if name == BBOX else batch.column(name) for name in self._names
        ]
        arrays = [
            column.cast(field.type) for column, field in zip(columns, self.schema, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)


def _field(name: str) -> pa.Field:
    """A column of a file; times are times there."""
    if name in ("created_at", "updated_at"):
        return pa.field(name, pa.timestamp("ms", "UTC"), nullable=False)
    return COLUMNS.field(name)


def _told(file: GeoParquetFile, cell: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [
            pa.array([file.path.name]),
            pa.array([cell], pa.int32()),
            pa.array([file.rows], pa.int64()),
            pa.array([file.bbox], pa.list_(pa.float64())),
        ],
        names=["path", "cell", "features", "bbox"],
    )


def _arranged(
    work: Path, parts: Path, cells: Sequence[str], files: Sequence[Any]
) -> list[ExportedFile]:
    """Put the files of successful attempts where they belong; what others left is removed."""
    told = []
    for row in sorted(files, key=lambda row: row.cell):
        cell = cells[row.cell]
        path = _path_of(cell)
        (work / path).parent.mkdir()
        moved = (parts / row.path).rename(work / path)
        size = moved.stat().st_size
        qrid = None if cell == NOWHERE else cell
        told.append(ExportedFile(str(path), qrid, row.features, size, row.bbox))
    for left in parts.iterdir():
        left.unlink()
    parts.rmdir()
    return told


def _nothing(work: Path, writer: _Writer) -> ExportedFile:
    """A file without features: of a directory without files nobody could tell what it is."""
    path = _path_of(NOWHERE)
    (work / path).parent.mkdir()
    writer.file(work / path).close()
    return ExportedFile(str(path), None, 0, (work / path).stat().st_size, None)


def _path_of(cell: str) -> Path:
    return Path(f"{CELL}={f'q{cell}' if cell else NO_CELL}") / "part-0.parquet"


def _manifest(
    spec: Export, at: Place, storage_id: str, schema: pa.Schema, files: list[ExportedFile]
) -> Exported:
    return Exported(
        output=str(Path(spec.output).absolute()),
        storage=storage_id,
        collection=spec.collection,
        version=spec.version,
        seq_number=at.version.seq_number,
        txn=str(at.version.txn),
        published_at=at.version.published_ms,
        features=sum(file.features for file in files),
        bytes=sum(file.bytes for file in files),
        columns=schema.names,
        file_count=len(files),
        files=files,
    )


JOB = Job(Export, export, "Write a version of a collection to GeoParquet files.")
