"""Writing: tasks stage features, each attempt by itself; the driver applies what they say they
staged, as one transaction. See `naksha.spi.staging` for why."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from naksha.model.errors import NotSupported
from naksha.model.limits import STAGED_CHUNK_FEATURES
from naksha.spark.given import check_columns, given_of
from naksha.spark.opened import opened
from naksha.spark.options import Place
from naksha.spark.write_options import WriteOptions
from naksha.spi.staging import Applied, Stage, StagedPart, StagedWrite, Staging
from naksha.spi.storage import Storage

QUERY_ID: Final = "sql.streaming.queryId"
BATCH_ID: Final = "streaming.sql.batch_id"
"""How Spark tells a task which stream it is of (that stays when it goes on from its checkpoint),
and which batch."""
Messages = Sequence[WriterCommitMessage | None]


class Staged(WriterCommitMessage):
    """What one attempt has staged, on its way to the driver."""

    def __init__(self, part: StagedPart) -> None:
        self.part = part


class FeatureWriter(DataSourceArrowWriter):
    """Writes a DataFrame: all of it with one transaction, or nothing."""

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        check_columns(schema)
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return Staged(stage(self._options.place, self._options.write, iterator))

    def commit(self, messages: Messages) -> None:
        apply(self._options.place, self._options.write, parts_of(messages))

    def abort(self, messages: Messages) -> None:
        drop(self._options.place, self._options.write.job)


class FeatureStreamWriter(DataSourceStreamArrowWriter):
    """Writes each batch of a stream as `FeatureWriter` does. Spark makes one for every batch and
    another one to commit it; what they have in common is in the messages."""

    def __init__(self, options: WriteOptions, schema: StructType, name: str | None) -> None:
        """`name` tells the stream from others; that of the query when there is none."""
        check_columns(schema)
        self._options = options
        self._name = name

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        context = TaskContext.get()
        assert context is not None
        name = self._name or context.getLocalProperty(QUERY_ID)
        # A batch that is repeated is the same job, of whichever run of the query.
        job = f"{name}-{context.getLocalProperty(BATCH_ID)}"
        return Staged(stage(self._options.place, self._options.of_job(job), iterator))

    def commit(self, messages: Messages, batch_id: int) -> None:
        parts = parts_of(messages)
        if parts:
            apply(self._options.place, self._options.of_job(parts[0].job), parts)

    def abort(self, messages: Messages, batch_id: int) -> None:
        for job in {part.job for part in parts_of(messages)}:
            drop(self._options.place, job)


def parts_of(messages: Messages) -> list[StagedPart]:
    """What was staged; tasks that failed have no message."""
    return [message.part for message in messages if isinstance(message, Staged)]


def stage(place: Place, write: StagedWrite, batches: Iterator[pa.RecordBatch]) -> StagedPart:
    """One attempt to stage features, in the process of a task."""
    storage = opened(place)
    begun = storage.call(lambda s: staging_of(s).stage(write.job, write.info))
    try:
        for batch in batches:
            for start in range(0, batch.num_rows, STAGED_CHUNK_FEATURES):
                some = given_of(batch.slice(start, STAGED_CHUNK_FEATURES))
                storage.call(partial(_add, begun, some))
        return storage.call(lambda _: begun.close())
    except BaseException:
        storage.call(lambda _: begun.abort())
        raise


async def _add(begun: Stage, batch: pa.RecordBatch, _: Storage) -> None:
    await begun.add(batch)


def apply(place: Place, write: StagedWrite, parts: Sequence[StagedPart]) -> Applied:
    """Apply exactly these parts, in a process of the driver; once, however often it is called."""
    return opened(place).call(lambda s: staging_of(s).apply_staged(write, parts))


def drop(place: Place, job: str) -> None:
    """Forget what a job has staged. Tasks that are still at it are swept in time."""
    opened(place).call(lambda s: staging_of(s).drop_staged(job))


def staging_of(storage: Storage) -> Staging:
    """The storage as one that takes staged writes."""
    if not isinstance(storage, Staging):
        raise NotSupported("The storage takes no staged writes", field="storage")
    return storage
