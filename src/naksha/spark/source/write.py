"""Writers: tasks stage features, and the driver applies them as one transaction.

Each attempt of a task stages separately; the driver applies exactly the parts that successful
attempts reported. See `naksha.spi.staging` for the reasons.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
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
from naksha.spark.runtime.failures import noting
from naksha.spark.runtime.storage_cache import OpenStorage, SharedStorage, shared_storage
from naksha.spark.source.input_columns import check_columns, feature_batch
from naksha.spark.source.write_options import WriteOptions
from naksha.spi.staging import (
    JOB,
    AppliedWrite,
    StagedPart,
    StagingAttempt,
    StagingStorage,
    applied_there,
)
from naksha.spi.storage import Storage
from naksha.versioning.lines import line_of
from naksha.versioning.version_refs import MAIN_BRANCH

_QUERY_ID: Final = "sql.streaming.queryId"
_BATCH_ID: Final = "streaming.sql.batchId"
"""Local properties with the id of the stream, which survives a restart from its checkpoint, and
the number of the batch."""
Messages = Sequence[WriterCommitMessage | None]


class StagedMessage(WriterCommitMessage):
    """Message to the driver: the part that one attempt has staged for a job, if any."""

    def __init__(self, job: str, part: StagedPart | None) -> None:
        self.job = job
        self.part = part


class FeatureWriter(DataSourceArrowWriter):
    """Writer of a DataFrame in one transaction, all or nothing."""

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        check_columns(schema)
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return StagedMessage(self._options.write.job, stage(self._options, iterator))

    def commit(self, messages: Messages) -> None:
        apply(self._options, parts_of(messages))

    def abort(self, messages: Messages) -> None:
        drop(self._options)


class FeatureStreamWriter(DataSourceStreamArrowWriter):
    """Writer of the batches of a stream, each like `FeatureWriter`.

    Spark creates one object to write a batch and another one to commit it; they share only the
    messages.
    """

    def __init__(self, options: WriteOptions, schema: StructType, name: str | None) -> None:
        """Create a writer; `name` precedes the id of the query in the job ids of the log."""
        check_columns(schema)
        self._options = options
        self._name = name

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        # A repeated batch is the same job in every run of the query. The name alone would not do:
        # another query with the same name would have its batches taken for repetitions.
        known_by = [
            *filter(None, [self._name]),
            _local_property(_QUERY_ID),
            _local_property(_BATCH_ID),
        ]
        job = "-".join(known_by)
        return StagedMessage(job, stage(self._options.of_job(job), iterator))

    def commit(self, messages: Messages, batch_id: int) -> None:
        # A single job, or none if there was no task. A batch without features is applied as well:
        # an empty mirror deletes features, and the job must be recorded as applied.
        for job in jobs_of(messages):
            apply(self._options.of_job(job), parts_of(messages))

    def abort(self, messages: Messages, batch_id: int) -> None:
        for job in jobs_of(messages):
            drop(self._options.of_job(job))


def _local_property(name: str) -> str:
    """Return a local property of the task; without it batches could not be told apart."""
    context = TaskContext.get()
    value = None if context is None else context.getLocalProperty(name)
    if value is None:
        raise NotSupported(
            f"This Spark does not provide the local property {name!r}, which streaming writes "
            "require; use a supported version of Spark",
            field="job",
        )
    return value


def parts_of(messages: Messages) -> list[StagedPart]:
    """Return the staged parts; failed tasks have no message, and some tasks staged nothing."""
    found = [message.part for message in messages if isinstance(message, StagedMessage)]
    return [part for part in found if part is not None]


def jobs_of(messages: Messages) -> set[str]:
    """Return the job ids of the tasks, with features or without."""
    return {message.job for message in messages if isinstance(message, StagedMessage)}


def stage(options: WriteOptions, batches: Iterator[pa.RecordBatch]) -> StagedPart | None:
    """Stage features in the process of a task, as one attempt.

    Returns None without features: tasks without any are frequent and do not need a table each.
    """
    write, chunks = options.write, _chunks(batches)
    first = next(chunks, None)
    if first is None:
        return None

    async def begin(found: Storage) -> StagingAttempt:
        return await (await _line(found, options)).stage(write.job, write.info)

    with noting(), shared_storage(options.place).using() as storage:
        begun = storage.call(begin)
        try:
            for some in chain([first], chunks):
                storage.wait(begun.add(feature_batch(some)))
            return storage.wait(begun.close())
        except BaseException:
            storage.wait(begun.abort())
            raise


def _chunks(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Split batches into chunks of the size that is staged at once."""
    for batch in batches:
        for start in range(0, batch.num_rows, STAGED_CHUNK_FEATURES):
            yield batch.slice(start, STAGED_CHUNK_FEATURES)


def apply(options: WriteOptions, parts: Sequence[StagedPart]) -> AppliedWrite:
    """Apply exactly these parts, in the process of the driver; idempotent."""

    async def do(found: Storage) -> AppliedWrite:
        write, line = options.write, await line_of(found, options.branch)
        record = await found.stored_object(JOB, write.job)
        if record is None:
            return await line.storage.apply_staged(write, parts)
        # The branch may have had another base then, so all its overlays count.
        before = applied_there(record.value, write.job, write.info.id, *line.overlays)
        await found.drop_staged(write.job)
        return before

    with noting():
        return shared_storage(options.place).call(do)


def applied_job(
    storage: OpenStorage | SharedStorage, job: str, collection: str, branch: str = MAIN_BRANCH
) -> AppliedWrite | None:
    """Return the recorded result of an applied job; None if it was not applied.

    Raises:
        Conflict: The job was applied to another collection or on another branch.
    """

    async def ask(found: Storage) -> AppliedWrite | None:
        record = await found.stored_object(JOB, job)
        if record is None:
            return None
        line = await line_of(found, branch)
        return applied_there(record.value, job, collection, *line.overlays)

    return storage.call(ask)


def drop(options: WriteOptions) -> None:
    """Drop the staged data of a job; tasks that are still staging fail, or are swept later."""
    with noting():
        shared_storage(options.place).call(lambda s: s.drop_staged(options.write.job))


async def _line(storage: Storage, options: WriteOptions) -> StagingStorage:
    return (await line_of(storage, options.branch)).storage
