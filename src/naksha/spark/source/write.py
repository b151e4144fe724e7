"""Writing: tasks stage features, each attempt by itself; the driver applies what they say they
staged, as one transaction. See `naksha.spi.staging` for why."""

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
from naksha.spark.runtime.storage_cache import Opened, Shared, opened
from naksha.spark.source.input_columns import check_columns, given_of
from naksha.spark.source.write_options import WriteOptions
from naksha.spi.staging import JOB, Applied, Stage, StagedPart, Staging, applied_there
from naksha.spi.storage import Storage
from naksha.versioning.lines import line_of
from naksha.versioning.version_refs import MAIN_BRANCH

QUERY_ID: Final = "sql.streaming.queryId"
BATCH_ID: Final = "streaming.sql.batchId"
"""How Spark tells a task which stream it is of (that stays when it goes on from its checkpoint),
and which batch."""
Messages = Sequence[WriterCommitMessage | None]


class Staged(WriterCommitMessage):
    """What one attempt has staged for a job, if anything, on its way to the driver."""

    def __init__(self, job: str, part: StagedPart | None) -> None:
        self.job = job
        self.part = part


class FeatureWriter(DataSourceArrowWriter):
    """Writes a DataFrame: all of it with one transaction, or nothing."""

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        check_columns(schema)
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return Staged(self._options.write.job, stage(self._options, iterator))

    def commit(self, messages: Messages) -> None:
        apply(self._options, parts_of(messages))

    def abort(self, messages: Messages) -> None:
        drop(self._options)


class FeatureStreamWriter(DataSourceStreamArrowWriter):
    """Writes each batch of a stream as `FeatureWriter` does. Spark makes one for every batch and
    another one to commit it; what they have in common is in the messages."""

    def __init__(self, options: WriteOptions, schema: StructType, name: str | None) -> None:
        """`name` is what the stream is called in the log, beside the id of its query."""
        check_columns(schema)
        self._options = options
        self._name = name

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        # A batch that is repeated is the same job, of whichever run of the query. Not by its name:
        # another query may have that too, and what has its numbers would count as repeated.
        known_by = [*filter(None, [self._name]), _told(QUERY_ID), _told(BATCH_ID)]
        job = "-".join(known_by)
        return Staged(job, stage(self._options.of_job(job), iterator))

    def commit(self, messages: Messages, batch_id: int) -> None:
        # One, unless there was no task at all. A batch without features is done, too: a mirror of
        # nothing deletes, and what is done is not done again.
        for job in jobs_of(messages):
            apply(self._options.of_job(job), parts_of(messages))

    def abort(self, messages: Messages, batch_id: int) -> None:
        for job in jobs_of(messages):
            drop(self._options.of_job(job))


def _told(name: str) -> str:
    """What Spark has told the task. Without it batches would take each other for repeated."""
    context = TaskContext.get()
    value = None if context is None else context.getLocalProperty(name)
    if value is None:
        raise NotSupported(f"Spark does not tell its tasks {name!r}", field="job")
    return value


def parts_of(messages: Messages) -> list[StagedPart]:
    """What was staged; tasks that failed have no message, and some have staged nothing."""
    found = [message.part for message in messages if isinstance(message, Staged)]
    return [part for part in found if part is not None]


def jobs_of(messages: Messages) -> set[str]:
    """The jobs that tasks worked for, with features or without."""
    return {message.job for message in messages if isinstance(message, Staged)}


def stage(options: WriteOptions, batches: Iterator[pa.RecordBatch]) -> StagedPart | None:
    """One attempt to stage features, in the process of a task. Many tasks have none, and are not
    worth a table each: then it is None."""
    write, chunks = options.write, _chunks(batches)
    first = next(chunks, None)
    if first is None:
        return None

    async def begin(found: Storage) -> Stage:
        return await (await _line(found, options)).stage(write.job, write.info)

    with noting(), opened(options.place).using() as storage:
        begun = storage.call(begin)
        try:
            for some in chain([first], chunks):
                storage.wait(begun.add(given_of(some)))
            return storage.wait(begun.close())
        except BaseException:
            storage.wait(begun.abort())
            raise


def _chunks(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Rows, so many as are staged at once."""
    for batch in batches:
        for start in range(0, batch.num_rows, STAGED_CHUNK_FEATURES):
            yield batch.slice(start, STAGED_CHUNK_FEATURES)


def apply(options: WriteOptions, parts: Sequence[StagedPart]) -> Applied:
    """Apply exactly these parts, in a process of the driver; once, however often it is called."""

    async def do(found: Storage) -> Applied:
        write, line = options.write, await line_of(found, options.branch)
        record = await found.kept(JOB, write.job)
        if record is None:
            return await line.storage.apply_staged(write, parts)
        # On whatever base the branch was then.
        before = applied_there(record.value, write.job, write.info.id, *line.overlays)
        await found.drop_staged(write.job)
        return before

    with noting():
        return opened(options.place).call(do)


def applied_job(
    storage: Opened | Shared, job: str, collection: str, branch: str = MAIN_BRANCH
) -> Applied | None:
    """What became of a job that was applied, as the storage remembers it; None if it was not.

    Raises:
        Conflict: It was applied to another collection, or on another branch.
    """

    async def ask(found: Storage) -> Applied | None:
        record = await found.kept(JOB, job)
        if record is None:
            return None
        line = await line_of(found, branch)
        return applied_there(record.value, job, collection, *line.overlays)

    return storage.call(ask)


def drop(options: WriteOptions) -> None:
    """Forget what a job has staged. Tasks that are still at it are told so, or swept in time."""
    with noting():
        opened(options.place).call(lambda s: s.drop_staged(options.write.job))


async def _line(storage: Storage, options: WriteOptions) -> Staging:
    return (await line_of(storage, options.branch)).storage
