"""Reading: the splits of a storage are Spark's partitions, their batches go on as they are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from naksha.model.query import Query
from naksha.spark.columns import arrow_of
from naksha.spark.opened import opened
from naksha.spark.options import ReadOptions
from naksha.spi.storage import Split, Storage
from naksha.versioning.places import place_of


class SplitPartition(InputPartition):
    """A split on its way to an executor."""

    def __init__(self, split: Split) -> None:
        super().__init__(split)
        self.split = split


class FeatureReader(DataSourceReader):
    """Reads the features of a collection at a version."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._query = Query()

    def partitions(self) -> Sequence[InputPartition]:
        return [SplitPartition(split) for split in opened(self._options.place).call(self._plan)]

    async def _plan(self, storage: Storage) -> list[Split]:
        options = self._options
        place = await place_of(storage, options.version)
        return await place.line.storage.plan(options.collection, self._query, place.at)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, SplitPartition):
            return  # A plan without splits.
        schema = arrow_of(self._schema)
        for batch in opened(self._options.place).iterate(lambda s: s.read(partition.split)):
            yield pa.RecordBatch.from_arrays(batch.columns, schema=schema)
