"""What a task of a load does: records are checked and staged; what is wrong is told, not lost.

What comes out of a task is its only trace that counts: a row for what it staged, and one for each
record that it rejected. A task that is repeated stages anew, and its former rows are not seen.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec
import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from naksha.model.collection import CollectionInfo
from naksha.model.columns import check_columns
from naksha.model.errors import InvalidArgument, LimitExceeded
from naksha.model.write_checks import check_points
from naksha.spark.jobs.loading.shapes import shapes_of
from naksha.spark.opened import Opened, opened
from naksha.spark.options import Place
from naksha.spi.arrow import GIVEN
from naksha.spi.staging import Stage, StagedPart

OUTCOMES: Final = pa.schema(
    [
        pa.field("table", pa.string()),
        pa.field("features", pa.int64()),
        pa.field("adjusted", pa.int64()),
        pa.field("source", pa.string()),
        pa.field("line", pa.int64()),
        pa.field("id", pa.string()),
        pa.field("reason", pa.string()),
        pa.field("record", pa.string()),
    ]
)
"""What a task tells: a table with features, or a record that was rejected."""
OUTCOME_ROWS: Final[StructType] = from_arrow_schema(OUTCOMES)
_SMALL: Final = 256
"""Records that are looked at one after the other when one of them is wrong."""


class Staging(msgspec.Struct, frozen=True):
    """What tasks need to know: small and picklable."""

    place: Place
    job: str
    info: CollectionInfo
    crs: str | None

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Stage the records of a partition."""
        return _Task(self, opened(self.place)).run(batches)


class _Task:
    def __init__(self, staging: Staging, storage: Opened) -> None:
        self._staging = staging
        self._storage = storage
        self._adjusted = 0
        self._stage: Stage | None = None

    def run(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        try:
            for batch in batches:
                yield from self._add(batch)
        except BaseException:
            if self._stage is not None:
                stage = self._stage
                self._storage.call(lambda _: stage.abort())
            raise
        if self._stage is not None:
            stage = self._stage
            part = self._storage.call(lambda _: stage.close())
            yield _told(part, self._adjusted)

    def _add(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        shapes = shapes_of(batch, self._staging.crs)
        problems = dict(enumerate(batch.column("problem").to_pylist()))
        problems = {n: text for n, text in problems.items() if text is not None}
        problems = shapes.problems | problems
        given = _given(batch, shapes.wkb)
        good = self._good(given, [n for n in range(batch.num_rows) if n not in problems], problems)
        if problems:
            yield _rejected(batch, problems)
        if good:
            self._adjusted += int(shapes.adjusted[good].sum())
            self._adjusted += sum(filter(None, batch.column("adjusted").take(good).to_pylist()))
            self._put(given.take(pa.array(good, pa.int64())))

    def _good(self, given: pa.RecordBatch, rows: list[int], problems: dict[int, str]) -> list[int]:
        """Those of the rows that the storage takes; what is wrong with others is noted."""
        if not rows:
            return rows
        info = self._staging.info
        chosen = given if len(rows) == given.num_rows else given.take(pa.array(rows, pa.int64()))
        try:
            check_points(check_columns(chosen, id_prefix=info.id_prefix), info)
            return rows
        except (InvalidArgument, LimitExceeded) as error:
            broken = error
        if len(rows) > _SMALL:
            middle = len(rows) // 2
            first = self._good(given, rows[:middle], problems)
            return first + self._good(given, rows[middle:], problems)
        if broken.position is None:
            raise broken
        problems[rows[broken.position]] = _reason(broken)
        del rows[broken.position]
        return self._good(given, rows, problems)

    def _put(self, batch: pa.RecordBatch) -> None:
        staging = self._staging
        if self._stage is None:
            self._stage = self._storage.call(lambda s: s.stage(staging.job, staging.info))
        stage = self._stage
        self._storage.call(lambda _: stage.add(batch))


def parts_of(job: str, rows: list[Any]) -> list[StagedPart]:
    """What was staged, from what tasks told."""
    return [StagedPart(job, row.table, row.features) for row in rows if row.table is not None]


def _given(batch: pa.RecordBatch, wkb: list[bytes | None]) -> pa.RecordBatch:
    columns = [
        pa.array(wkb, pa.binary()) if name == "geometry" else batch.column(name)
        for name in GIVEN.names
    ]
    arrays = [column.cast(field.type) for column, field in zip(columns, GIVEN, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=GIVEN)


def _reason(error: InvalidArgument | LimitExceeded) -> str:
    return error.message if error.field is None else f"{error.field}: {error.message}"


def _told(part: StagedPart, adjusted: int) -> pa.RecordBatch:
    row = {"table": part.table, "features": part.features, "adjusted": adjusted}
    return pa.RecordBatch.from_pylist([row], schema=OUTCOMES)


def _rejected(batch: pa.RecordBatch, problems: dict[int, str]) -> pa.RecordBatch:
    rows = sorted(problems)
    names = ("source", "line", "id", "properties", "record")
    found = batch.select(names).take(pa.array(rows, pa.int64())).to_pylist()
    return pa.RecordBatch.from_pylist(
        [
            {
                "source": each["source"],
                "line": each["line"],
                "id": each["id"],
                "reason": problems[n],
                "record": each["record"] or each["properties"],
            }
            for n, each in zip(rows, found, strict=True)
        ],
        schema=OUTCOMES,
    )
