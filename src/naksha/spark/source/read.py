"""Batch reader: each split of a storage becomes a partition of Spark."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec
import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from naksha.model.errors import InvalidArgument
from naksha.model.version import HEAD, AtSeq, Head, VersionSelector
from naksha.spark.runtime.storage_cache import existing_storage
from naksha.spark.source.columns import Projection
from naksha.spark.source.pushdown import pushed
from naksha.spark.source.read_options import ReadOptions, check_file_exists
from naksha.spi.arrow import COLUMNS
from naksha.spi.storage import BranchLayer, Split, Storage
from naksha.versioning.lines import Place, line_on, place_of
from naksha.versioning.version_refs import MAIN_BRANCH, SingleRef, parse_ref


class ResolvedVersion(msgspec.Struct, frozen=True):
    """Resolved version, which later writes, tags and renames do not change."""

    layers: tuple[BranchLayer, ...]
    at: VersionSelector


class SplitPartition(InputPartition):
    """Partition of Spark with a split of the storage."""

    def __init__(self, split: Split) -> None:
        super().__init__(split)
        self.split = split


class FeatureReader(DataSourceReader):
    """Reader of the features of a collection at a version."""

    def __init__(self, options: ReadOptions, schema: StructType, version: ResolvedVersion) -> None:
        self._options = options
        self._version = version
        self._query = options.query
        self._projection = Projection(schema, COLUMNS.names)

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        if not self._options.pushes_filters:
            return filters
        self._query, left = pushed(self._query, filters)
        return left

    def partitions(self) -> Sequence[InputPartition]:
        return [
            SplitPartition(split)
            for split in existing_storage(self._options.place).call(self._plan)
        ]

    async def _plan(self, storage: Storage) -> list[Split]:
        line = line_on(storage, MAIN_BRANCH, self._version.layers)
        return await line.storage.plan(self._options.collection, self._query, self._version.at)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, SplitPartition):
            return  # the plan has no splits
        check_file_exists(self._options.place)
        split, columns = partition.split, self._projection.columns
        for batch in existing_storage(self._options.place).iterate(
            lambda s: s.read(split, columns)
        ):
            yield self._projection.shaped(batch)


def resolved_version(options: ReadOptions) -> ResolvedVersion:
    """Resolve the version of the options.

    HEAD of a collection without history stays HEAD: its current version cannot be read any more
    after the next write.
    """

    async def find(storage: Storage) -> ResolvedVersion:
        place = await place_at(storage, options.version)
        info = await place.line.storage.collection(options.collection)
        is_kept = info.history_enabled or not isinstance(place.at, Head)
        at = AtSeq(place.version.seq_number) if is_kept else HEAD
        return ResolvedVersion(place.line.layers, at)

    return existing_storage(options.place).call(find)


async def place_at(storage: Storage, ref: str) -> Place:
    """Resolve a reference to a single version."""
    parsed = parse_ref(ref)
    if not isinstance(parsed, SingleRef):
        raise InvalidArgument(
            f"A table is read at a single version, not at the range {ref!r:.64}; for the changes"
            " between two versions use spark.readStream with startingVersion, or the job diff",
            field="version",
        )
    return await place_of(storage, parsed)
