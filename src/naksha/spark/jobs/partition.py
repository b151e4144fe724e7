"""Job `partition`: compute the optimal partitioning of a collection on Spark.

The result is the same as that of the storage itself (`Storage.partitioning`), but for any version,
and the storage only has to read the features. It can be stored there for later requests.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from naksha.model import limits
from naksha.model.errors import InvalidArgument
from naksha.model.query import Query
from naksha.model.transaction import MAIN
from naksha.spark.jobs.cells import cells_of
from naksha.spark.jobs.collection_tables import fixed_position, planned, table
from naksha.spark.jobs.frame import Job, JobProgress, JobSpec, OutputFile
from naksha.spark.jobs.publish_directory import (
    OutputFormat,
    check_output,
    earlier_report,
    published,
    write_report,
)
from naksha.spark.runtime.storage_cache import existing_storage
from naksha.spark.source.options import HEAD
from naksha.spi.partitioning import Partitioning, features_max
from naksha.spi.storage import Split, Storage
from naksha.versioning.lines import Place

_CELLS: Final = pa.schema([pa.field("qrid", pa.string()), pa.field("features", pa.int64())])


class Partition(JobSpec, frozen=True, kw_only=True, tag="partition"):
    """Compute the optimal partitioning of a version."""

    collection: str
    version: str = HEAD
    features_max: int | None = None
    """Maximum number of features per cell; the default is the storage's cell size."""
    keep: bool = False
    """Store the result in the storage; only for HEAD with the default features_max."""
    output: OutputFile | None = None
    """Directory for all cells, with their quad keys (`qrid`) and numbers of features."""
    output_format: OutputFormat = OutputFormat.PARQUET
    overwrite: bool = False
    job_id: str = ""
    """Id of the job; an output directory that the same job has written is its result."""


class Partitioned(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Report of the job `partition`: features by cell (key "" for those without geometry)."""

    by_qrid: dict[str, int]
    """The first cells; the output has all of them."""
    cells: int
    """Total number of cells."""
    features: int
    features_max: int
    feature_size: int
    seq_number: int
    txn: str
    kept: bool
    output: str | None


def partition(spark: SparkSession, spec: Partition, progress: JobProgress) -> Partitioned:
    """Run the job; see `Partition`."""
    if spec.features_max is not None and spec.features_max < 1:
        raise InvalidArgument(
            f"The option features_max must be at least 1, not {spec.features_max}",
            field="features_max",
        )
    if spec.keep and (spec.version != HEAD or spec.features_max is not None):
        raise InvalidArgument(
            "The option keep requires HEAD and the storage's own cell size; omit version and"
            " features_max",
            field="keep",
        )
    target = None
    if spec.output is not None:
        if (made := earlier_report(spec.output, spec.job_id, Partitioned)) is not None:
            return made
        target = check_output(spec.output, overwrite=spec.overwrite)
    storage = existing_storage(spec.place)
    at, size, splits = storage.call(lambda it: _plan(it, spec))
    most = spec.features_max or features_max(size)
    progress.phase("counting the cells")
    cells = cells_of(table(spark, spec.place, splits, ["qrid"]), most)
    progress.advance(sum(cells.values()))
    kept = spec.keep and at.version.seq_number > 0
    if kept:
        found = Partitioning.of(cells, at.version, most, size)
        storage.call(lambda it: it.store_partitioning(spec.collection, found))
    report = Partitioned(
        by_qrid=dict(islice(cells.items(), limits.CELLS_REPORTED_MAX)),
        cells=len(cells),
        features=sum(cells.values()),
        features_max=most,
        feature_size=size,
        seq_number=at.version.seq_number,
        txn=str(at.version.txn),
        kept=kept,
        output=None if target is None else str(target),
    )
    if target is not None:
        with published(target, overwrite=spec.overwrite) as work:
            _save(cells, work, spec.output_format)
            write_report(work, spec.job_id, report)
    return report


def _save(cells: Mapping[str, int], work: Path, format_: OutputFormat) -> None:
    if format_ is OutputFormat.PARQUET:
        columns = {"qrid": list(cells), "features": list(cells.values())}
        pq.write_table(pa.table(columns, _CELLS), work / "part-0.parquet")
        return
    encoder = msgspec.json.Encoder()
    lines = ({"qrid": qrid, "features": features} for qrid, features in cells.items())
    (work / "part-0.jsonl").write_bytes(encoder.encode_lines(lines))


async def _plan(storage: Storage, spec: Partition) -> tuple[Place, int, list[Split]]:
    at = await fixed_position(storage, spec.version)
    if spec.keep and at.line.overlay != MAIN:
        raise InvalidArgument(
            "The option keep is not supported for branches; use a version of main", field="keep"
        )
    size = await at.line.storage.feature_size(spec.collection)
    return at, size, await planned(at, spec.collection, Query())


JOB = Job(
    Partition,
    partition,
    "Compute the cells that divide a collection into partitions of similar size.",
)
