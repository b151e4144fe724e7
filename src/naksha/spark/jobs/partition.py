"""The job `partition`: the optimal partitioning of a collection, computed on Spark.

The result is that of the storage itself (`Storage.partitioning`), for any version, and without
work for the storage beyond being read. It can be kept there, for those who ask the storage next.
"""

from __future__ import annotations

import msgspec
from pyspark.sql import SparkSession

from naksha.model.errors import InvalidArgument
from naksha.model.query import Query
from naksha.model.transaction import MAIN
from naksha.spark.jobs.cells import cells_of
from naksha.spark.jobs.frame import Job, Progress, Spec
from naksha.spark.jobs.reading import fixed, planned, table
from naksha.spark.opened import opened
from naksha.spark.options import HEAD
from naksha.spi.partitioning import Partitioning, features_max
from naksha.spi.storage import Storage
from naksha.versioning.places import Place


class Partition(Spec, frozen=True, kw_only=True, tag="partition"):
    """Find the optimal partitioning of a version."""

    collection: str
    version: str = HEAD
    features_max: int | None = None
    """How many features a cell may have; None for what the storage takes."""
    keep: bool = False
    """Keep it in the storage, which must be asked for HEAD then, on its own terms."""


class Partitioned(msgspec.Struct, frozen=True, rename="camel"):
    """The features by cell (key "" for those without geometry), and of what."""

    by_qrid: dict[str, int]
    features: int
    features_max: int
    feature_size: int
    seq_number: int
    txn: str
    kept: bool


def partition(spark: SparkSession, spec: Partition, progress: Progress) -> Partitioned:
    """See `Partition`."""
    if spec.features_max is not None and spec.features_max < 1:
        raise InvalidArgument("A cell has at least one feature", field="features_max")
    if spec.keep and (spec.version != HEAD or spec.features_max is not None):
        raise InvalidArgument("Only the partitioning of HEAD itself is kept", field="keep")
    storage = opened(spec.place)
    at, size = storage.call(lambda it: _place(it, spec))
    most = spec.features_max or features_max(size)
    splits = storage.call(lambda _: planned(at, spec.collection, Query()))
    progress.phase("counting the cells")
    cells = cells_of(table(spark, spec.place, splits, ["qrid"]), most)
    progress.advance(sum(cells.values()))
    kept = spec.keep and at.version.seq_number > 0
    if kept:
        found = Partitioning.of(cells, at.version, most, size)
        storage.call(lambda it: it.keep_partitioning(spec.collection, found))
    return Partitioned(
        by_qrid=cells,
        features=sum(cells.values()),
        features_max=most,
        feature_size=size,
        seq_number=at.version.seq_number,
        txn=str(at.version.txn),
        kept=kept,
    )


async def _place(storage: Storage, spec: Partition) -> tuple[Place, int]:
    at = await fixed(storage, spec.version)
    if spec.keep and at.line.overlay != MAIN:
        raise InvalidArgument("Nothing is kept for a branch", field="keep")
    return at, await at.line.storage.feature_size(spec.collection)


JOB = Job(Partition, partition, "Find the cells that divide a collection into parts of a size.")
