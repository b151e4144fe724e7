"""Job `export`: write a version as GeoParquet 1.1, partitioned by the optimal partitioning.

Each cell is a file in its own directory (`cell=q0213/…`), with features in spatial order. Readers
derive a column from the name of the directory. The letter before the quad key makes it a string; a
number would lose its leading zeros. Each attempt of a task writes files with unique names. Finally
the files of successful attempts are moved into place, and the whole directory is published at once.
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
from naksha.spark.jobs.collection_tables import fixed_position, planned, table, table_by_batch
from naksha.spark.jobs.frame import Job, JobProgress, JobSpec, OutputFile
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
from naksha.spark.jobs.publish_directory import (
    MANIFEST,
    check_output,
    earlier_report,
    published,
    write_report,
)
from naksha.spark.jobs.watched_actions import watched
from naksha.spark.runtime.storage_cache import existing_storage
from naksha.spark.source.options import HEAD
from naksha.spi.arrow import COLUMNS
from naksha.spi.partitioning import NOWHERE, features_max
from naksha.spi.storage import Split, Storage
from naksha.versioning.lines import Place

_SUCCESS: Final = "_SUCCESS"
CELL: Final = "cell"
"""Name of the column that readers derive from the names of directories."""
_NO_CELL: Final = "none"
"""Name of the cell of features without geometry. (Hive's name for null breaks readers that take
such columns for strings.)"""
_EDGES: Final = ("west", "south", "east", "north")
_BEFORE: Final = ("id", GEOMETRY)
_AFTER: Final = (
    *("members", "tags", "crid", "uuid", "txn", "version", "author", "app_id"),
    *("created_at", "updated_at"),
)
_READ: Final = (*_BEFORE, "properties", *_AFTER, "qrid", *_EDGES)
_WRITTEN: Final = "path string, cell int, features bigint, bbox array<double>"


class Export(JobSpec, frozen=True, kw_only=True, tag="export"):
    """Write a version of a collection to a directory of GeoParquet files."""

    collection: str
    output: OutputFile
    version: str = HEAD
    query: Query = Query()
    """Only export features that match it."""
    properties: Properties = Properties.JSON
    features_max: int | None = None
    """Maximum number of features per file; the default is the storage's cell size."""
    overwrite: bool = False
    """Replace an existing directory, once the new one is complete."""
    job_id: str = ""
    """Id of the job; an output directory that the same job has written is its result."""


class ExportedFile(msgspec.Struct, frozen=True, rename="camel"):
    """File of an export; `path` is relative to the directory."""

    path: str
    qrid: str | None
    features: int
    bytes: int
    bbox: list[float] | None


class Exported(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Report of the job `export`; with all files it is also the manifest."""

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
    """The first files; the manifest has all of them."""


def export(spark: SparkSession, spec: Export, progress: JobProgress) -> Exported:
    """Run the job; see `Export`."""
    if spec.query.states is not States.LIVE:
        # A load of the files would recreate deleted features.
        raise InvalidArgument(
            f"An export can only have live features; the states of the query must be"
            f" {States.LIVE.value!r}, not {spec.query.states.value!r}",
            field="query",
        )
    if (before := earlier_report(spec.output, spec.job_id, Exported)) is not None:
        return before
    target = check_output(spec.output, overwrite=spec.overwrite)
    if spec.features_max is not None and spec.features_max < 1:
        raise InvalidArgument(
            f"The option features_max must be at least 1, not {spec.features_max}",
            field="features_max",
        )
    at, most, splits = existing_storage(spec.place).call(lambda it: _plan(it, spec))
    qrids = table(spark, spec.place, splits, ["qrid"])
    cells = watched(spark, progress, "counting the cells", lambda: cells_of(qrids, most))
    columns = _typed_columns(spark, spec, splits, progress)
    with published(target, overwrite=spec.overwrite) as work:
        rows = _rows(spark, spec, splits, CellFinder(cells))
        parts = work / "parts"
        parts.mkdir()
        writer = _CellWriter(str(parts), columns, _about(spec, at))
        made = _typed(rows, columns).mapInArrow(writer, _WRITTEN)
        files = watched(spark, progress, "writing", made.collect)
        exported = _arranged(work, parts, sorted(cells), files) or [_empty_file(work, writer)]
        manifest = _manifest(spec, at, at.line.storage.id, writer.schema, exported)
        (work / MANIFEST).write_bytes(msgspec.json.format(msgspec.json.encode(manifest), indent=1))
        report = msgspec.structs.replace(manifest, files=exported[: limits.FILES_REPORTED_MAX])
        write_report(work, spec.job_id, report)
        (work / _SUCCESS).touch()
    return report


async def _plan(storage: Storage, spec: Export) -> tuple[Place, int, list[Split]]:
    at = await fixed_position(storage, spec.version)
    splits = await planned(at, spec.collection, spec.query)
    if spec.features_max is not None:
        return at, spec.features_max, splits
    return at, features_max(await at.line.storage.feature_size(spec.collection)), splits


def _typed_columns(
    spark: SparkSession, spec: Export, splits: Sequence[Split], progress: JobProgress
) -> list[typed_columns.TypedColumn] | None:
    if spec.properties is Properties.JSON:
        return None
    properties = table(spark, spec.place, splits, ["properties"])
    taken = {*_BEFORE, BBOX, *_AFTER, CELL}
    return watched(
        spark,
        progress,
        "inspecting the properties",
        lambda: typed_columns.typed_columns(properties, taken),
    )


def _rows(
    spark: SparkSession, spec: Export, splits: Sequence[Split], finder: CellFinder
) -> DataFrame:
    """Read the rows to write, each cell in one task and in spatial order."""
    schema = pa.schema([COLUMNS.field(name) for name in _READ])
    schema = schema.append(pa.field("cell", pa.int32()))

    def with_cell(number: int, batch: pa.RecordBatch) -> pa.RecordBatch:
        cells = pa.array(finder.numbers(batch.column("qrid")))
        return pa.RecordBatch.from_arrays([*batch.columns, cells], schema=schema)

    read = table_by_batch(spark, spec.place, splits, _READ, schema, with_cell)
    return read.repartition("cell").sortWithinPartitions("cell", "qrid", "id")


def _typed(rows: DataFrame, columns: Sequence[typed_columns.TypedColumn] | None) -> DataFrame:
    if columns is None:
        return rows
    others = [name for name in rows.columns if name != "properties"]
    return rows.select(*others, *typed_columns.values("properties", columns))


def _about(spec: Export, at: Place) -> About:
    version = at.version
    return About(spec.collection, version.seq_number, str(version.txn), spec.properties)


class _CellWriter:
    """Task that writes one file per cell and returns a row for each file."""

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
        # Attempts of the same task must not write to the same file.
        attempt = uuid.uuid4().hex

        def file_of(cell: int) -> GeoParquetFile:
            return self.file(Path(self._folder) / f"{attempt}-{cell}.parquet")

        numbered = ((self._file_batch(batch), numbers_of(batch, "cell")) for batch in batches)
        for cell, file in written_by_number(numbered, file_of):
            yield _file_row(file, cell)

    def file(self, path: Path) -> GeoParquetFile:
        """Create a file of this export."""
        return GeoParquetFile(path, self.schema, self._about)

    def _file_batch(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        columns = [
            boxes_of(batch, _EDGES) if name == BBOX else batch.column(name) for name in self._names
        ]
        arrays = [
            column.cast(field.type) for column, field in zip(columns, self.schema, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)


def _field(name: str) -> pa.Field:
    """Return the field of a column in the file, where times have the type timestamp."""
    if name in ("created_at", "updated_at"):
        return pa.field(name, pa.timestamp("ms", "UTC"), nullable=False)
    return COLUMNS.field(name)


def _file_row(file: GeoParquetFile, cell: int) -> pa.RecordBatch:
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
    """Move the files of successful attempts into place, and remove those of other attempts."""
    exported = []
    for row in sorted(files, key=lambda row: row.cell):
        cell = cells[row.cell]
        path = _path_of(cell)
        (work / path).parent.mkdir()
        moved = (parts / row.path).rename(work / path)
        size = moved.stat().st_size
        qrid = None if cell == NOWHERE else cell
        exported.append(ExportedFile(str(path), qrid, row.features, size, row.bbox))
    for left in parts.iterdir():
        left.unlink()
    parts.rmdir()
    return exported


def _empty_file(work: Path, writer: _CellWriter) -> ExportedFile:
    """Write a file without features, so that the directory has at least one file with a schema."""
    path = _path_of(NOWHERE)
    (work / path).parent.mkdir()
    writer.file(work / path).close()
    return ExportedFile(str(path), None, 0, (work / path).stat().st_size, None)


def _path_of(cell: str) -> Path:
    return Path(f"{CELL}={f'q{cell}' if cell else _NO_CELL}") / "part-0.parquet"


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
