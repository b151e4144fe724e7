"""Tasks of a load, which check and stage records and report rejected ones.

The rows that a task returns are its only result: one for each rejected record, and a final one with
counts and the staged table. A repeated task stages its records again, and the rows of the former
attempt are ignored.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

import msgspec
import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from naksha.model.features import PreparedFeatures
from naksha.spark.jobs.loading.check import REJECTED, RecordChecker
from naksha.spark.runtime.storage_cache import OpenStorage, shared_storage
from naksha.spark.source.options import StorageRef
from naksha.spi.staging import StagedPart, StagingAttempt

_OUTCOMES: Final = pa.schema(
    [
        pa.field("records", pa.int64()),
        pa.field("table", pa.string()),
        pa.field("features", pa.int64()),
        pa.field("adjusted", pa.int64()),
        pa.field("without_geometry", pa.int64()),
        pa.field("without_id", pa.int64()),
        *REJECTED,
    ]
)
"""Schema of the rows that a task returns. The final row has the number of records, and the table
with their features, if there are any; other rows have a rejected record. The number of records is
null if the task stopped early."""
OUTCOME_ROWS: Final[StructType] = from_arrow_schema(_OUTCOMES)


class StagingTask(msgspec.Struct, frozen=True):
    """Parameters of tasks that stage records; small and picklable."""

    place: StorageRef
    job: str
    checker: RecordChecker
    rejects_max: int
    """A task stops after more rejected records, since the load fails in any case."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Stage the records of a partition."""
        with shared_storage(self.place).using() as storage:
            yield from _StagingRun(self, storage).run(batches)


class _StagingRun:
    def __init__(self, staging: StagingTask, storage: OpenStorage) -> None:
        self._staging = staging
        self._storage = storage
        self._read = 0
        self._counts: Counter[str] = Counter()
        self._rejected = 0
        self._stage: StagingAttempt | None = None

    def run(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        is_whole = True
        try:
            for batch in batches:
                yield from self._add(batch)
                if self._rejected > self._staging.rejects_max:
                    is_whole = False
                    break
        except BaseException:
            if self._stage is not None:
                stage = self._stage
                self._storage.call(lambda _: stage.abort())
            raise
        yield self._end(is_whole=is_whole)

    def _end(self, *, is_whole: bool) -> pa.RecordBatch:
        row: dict[str, Any] = {"records": self._read if is_whole else None, **self._counts}
        if self._stage is not None:
            stage = self._stage
            part = self._storage.call(lambda _: stage.close())
            row |= {"table": part.table, "features": part.features}
        return pa.RecordBatch.from_pylist([row], schema=_OUTCOMES)

    def _add(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        self._read += batch.num_rows
        found = self._staging.checker.check(batch)
        self._rejected += found.rejected.num_rows
        if found.rejected.num_rows:
            yield _aligned(found.rejected)
        self._counts["adjusted"] += found.adjusted
        for part in found.given:
            self._counts["without_geometry"] += part.column("geometry").null_count
            self._counts["without_id"] += part.column("id").null_count
        for features in found.features:
            self._put(features)

    def _put(self, features: PreparedFeatures) -> None:
        staging = self._staging
        if self._stage is None:
            self._stage = self._storage.call(lambda s: s.stage(staging.job, staging.checker.info))
        stage = self._stage
        self._storage.call(lambda _: stage.add(features))


def parts_of(job: str, rows: list[Any]) -> list[StagedPart]:
    """Return the staged parts from the rows of tasks."""
    return [StagedPart(job, row.table, row.features) for row in rows if row.table is not None]


def _aligned(rejected: pa.RecordBatch) -> pa.RecordBatch:
    own = [field for field in _OUTCOMES if field.name not in REJECTED.names]
    nothing = [pa.nulls(len(rejected), field.type) for field in own]
    return pa.RecordBatch.from_arrays([*nothing, *rejected.columns], schema=_OUTCOMES)
