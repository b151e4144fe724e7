"""Reading: the splits of a storage are Spark's partitions, their batches go on as they are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from naksha.model.errors import InvalidArgument
from naksha.spark.columns import Projection
from naksha.spark.opened import existing
from naksha.spark.pushing import pushed
from naksha.spark.read_options import ReadOptions, check_there
from naksha.spi.arrow import COLUMNS
from naksha.spi.storage import Split, Storage
from naksha.versioning.places import Place, place_of
from naksha.versioning.refs import One, parse_ref


class SplitPartition(InputPartition):
    """A split on its way to an executor."""

    def __init__(self, split: Split) -> None:
        super().__init__(split)
        self.split = split


class FeatureReader(DataSourceReader):
    """Reads the features of a collection at a version."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._query = options.query
        self._projection = Projection(schema, COLUMNS.names)

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        self._query, left = pushed(self._query, filters)
        return left

    def partitions(self) -> Sequence[InputPartition]:
        return [SplitPartition(split) for split in existing(self._options.place).call(self._plan)]

    async def _plan(self, storage: Storage) -> list[Split]:
        place = await place_at(storage, self._options.version)
        return await place.line.storage.plan(self._options.collection, self._query, place.at)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, SplitPartition):
            return  # A plan without splits.
        check_there(self._options.place)
        split, columns = partition.split, self._projection.columns
        for batch in existing(self._options.place).iterate(lambda s: s.read(split, columns)):
            yield self._projection.shaped(batch)


async def place_at(storage: Storage, ref: str) -> Place:
    """The version that is meant."""
    parsed = parse_ref(ref)
    if not isinstance(parsed, One):
        raise InvalidArgument(
            f"{ref!r:.64} means several versions, and a table is read at one: name its last one;"
            " what changed between two is read by spark.readStream with startingVersion, or"
            " compared by the job diff",
            field="version",
        )
    return await place_of(storage, parsed)
