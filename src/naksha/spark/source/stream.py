"""Change stream: the changes of a collection's features, in batches.

Offsets are versions, `{"seq_number": 17, "txn": "…", "published_ms": …}`. A batch has the changes
of all versions after its start up to its end, so it is the same whenever it is read, or Expired.

`txn` and `published_ms` identify the storage: transactions are numbered the same way in every
storage, so another storage at the same location may have the same `txn`, but not published in the
same millisecond. Former releases wrote only `seq_number`.

The start of a stream may be a name or a time, which could resolve to another version tomorrow. As
Spark does not persist the start, only the end of every batch, the first batch is empty and ends
with the resolved version.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any, Final

import msgspec
import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxFiles,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from naksha.model import limits
from naksha.model.errors import Expired, NotSupported, NotYetPublished, VersionNotFound
from naksha.model.query import Query, States
from naksha.model.transaction import LogFilter, Transaction
from naksha.model.version import HEAD, AtSeq, Version
from naksha.spark.runtime.storage_cache import close, existing_storage
from naksha.spark.source.columns import CHANGES, Projection
from naksha.spark.source.read import place_at
from naksha.spark.source.read_options import StreamOptions, check_file_exists
from naksha.spi.storage import BranchLayer, Split, Storage
from naksha.versioning.lines import Line, line_of, line_of_branch
from naksha.versioning.version_refs import MAIN_BRANCH

NOW: Final = "now"
BEGINNING: Final = "beginning"
Offset = dict[str, Any]


class ChangeSplits(msgspec.Struct, frozen=True):
    """Changes by transactions of one overlay, to be read by one task.

    The history of these layers since the version `first` must be complete.
    """

    splits: tuple[Split, ...]
    layers: tuple[BranchLayer, ...]
    first: int


class ChangeSplitsPartition(InputPartition):
    """Partition of Spark with changes."""

    def __init__(self, changes: ChangeSplits) -> None:
        super().__init__(changes)
        self.changes = changes


class ChangeReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Stream reader of the changes of a collection on main or on a branch."""

    def __init__(self, options: StreamOptions, schema: StructType) -> None:
        self._options = options
        self._projection = Projection(schema, CHANGES)
        self._until: int | None = None

    # ---- Offsets -----------------------------------------------------------------------------

    def initialOffset(self) -> Offset:  # noqa: N802 - Spark's name
        if self._options.starting == BEGINNING:
            return {"seq_number": 0}
        return {"starting": self._options.starting}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Return the limit of a batch; Spark's limit on files is used to count transactions."""
        if self._options.rows_max is not None:
            return ReadMaxRows(self._options.rows_max)
        if self._options.transactions_max is not None:
            return ReadMaxFiles(self._options.transactions_max)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        self._until = existing_storage(self._options.place).call(_last).seq_number

    def reportLatestOffset(self) -> Offset | None:  # noqa: N802 - Spark's name
        return _offset(existing_storage(self._options.place).call(_last))

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802 - Spark's name
        return existing_storage(self._options.place).call(lambda s: self._latest(s, start, limit))

    async def _latest(self, storage: Storage, start: Offset, limit: ReadLimit) -> Offset:
        if "seq_number" not in start:
            return _offset(await self._start(storage, start["starting"]))
        position: int = start["seq_number"]
        last = self._until
        if last is None:
            last = await storage.wait_beyond(position, limits.SPARK_STREAM_WAIT_SECONDS)
        if last < position and (await _last(storage)).seq_number < position:
            raise _too_far(position, last)
        if last <= position:
            return start
        begin = await _checked(storage, start)
        is_limited = not isinstance(limit, ReadAllAvailable)
        end = await self._end(storage, position, last, is_limited)
        if end is None:
            if last - position < limits.SPARK_STREAM_IDLE_VERSIONS_MAX and not _is_old(begin):
                return start
            end = last
        return await _offset_at(storage, end)

    async def _start(self, storage: Storage, starting: str) -> Version:
        """Resolve the version after which the stream starts."""
        if starting == NOW:
            return await _last(storage)
        branch = self._options.branch
        ref = starting if branch == MAIN_BRANCH or ":" in starting else f"{branch}:{starting}"
        return (await place_at(storage, ref)).version

    async def _end(self, storage: Storage, after: int, last: int, is_limited: bool) -> int | None:
        """Determine the last version of the next batch; None if there are no changes."""
        where = self._log((await self._line(storage)).overlays)
        found = await storage.transactions(after, 1, where)
        if not found or _number(found[0]) > last:
            return None
        if not is_limited:
            return last
        rows, transactions, end = 0, 0, after
        while page := await storage.transactions(end, limits.LOG_PAGE_MAX, where):
            for each in page:
                rows += _rows(each, self._options.collection)
                transactions += 1
                if _number(each) > last:
                    return last
                # A transaction is never split.
                if transactions > 1 and self._is_enough(rows, transactions):
                    return end
                end = _number(each)
        return last

    def _is_enough(self, rows: int, transactions: int) -> bool:
        rows_max, transactions_max = self._options.rows_max, self._options.transactions_max
        return (rows_max is not None and rows > rows_max) or (
            transactions_max is not None and transactions > transactions_max
        )

    # ---- Reading -----------------------------------------------------------------------------

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        if "seq_number" not in start or start == end:
            return []
        found = existing_storage(self._options.place).call(lambda s: self._planned(s, start, end))
        return [ChangeSplitsPartition(changes) for changes in found]

    async def _planned(self, storage: Storage, start: Offset, end: Offset) -> list[ChangeSplits]:
        """Plan a batch; a branch is read with the base that it had at the time of the changes."""
        for offset in (start, end):
            await _checked(storage, offset)
        after, until = start["seq_number"], end["seq_number"]
        line = await self._line(storage)
        found: list[ChangeSplits] = []
        for overlay in line.overlays:
            where = self._log((overlay,))
            first = await storage.transactions(after, 1, where)
            if not first or _number(first[0]) > until:
                continue
            then = line
            if line.branch is not None:
                then = line_of_branch(storage, line.branch, line.branch.epoch_on(overlay))
            last = await storage.transactions(until + 1, 1, where, newest_first=True)
            found += await self._plan_range(then, first[0], last[0])
        return found

    async def _plan_range(
        self, line: Line, first: Transaction, last: Transaction
    ) -> list[ChangeSplits]:
        """Plan the changes by a range of transactions of one overlay."""
        collection, storage = self._options.collection, line.storage
        if not (await storage.collection(collection)).history_enabled:
            raise NotSupported(
                f"The collection {collection!r} keeps no history and cannot be streamed; enable its"
                " history first",
                collection_id=collection,
            )
        since, at = _number(first), AtSeq(_number(last))
        query = Query(states=States.ALL, txn_from=first.txn, txn_to=last.txn + 1)
        splits = await storage.plan(collection, query, at)
        rows = await storage.count(collection, query, at)
        await storage.resolve(AtSeq(since), collection)
        tasks = min(-(-rows // limits.SPARK_STREAM_TASK_ROWS), len(splits))
        return [ChangeSplits(tuple(splits[n::tasks]), line.layers, since) for n in range(tasks)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, ChangeSplitsPartition):
            return
        check_file_exists(self._options.place)
        place, changes = existing_storage(self._options.place), partition.changes
        columns = self._projection.columns

        async def read(storage: Storage) -> AsyncIterator[pa.RecordBatch]:
            for split in changes.splits:
                async for batch in storage.read(split, columns):
                    yield batch

        for batch in place.iterate(read):
            yield self._projection.shaped(batch)
        # Checked after reading, because history may have been dropped in the meantime.
        place.call(lambda s: self._check_kept(s, changes))

    async def _check_kept(self, storage: Storage, changes: ChangeSplits) -> None:
        line = storage if len(changes.layers) == 1 else storage.on_branch(changes.layers)
        await line.resolve(AtSeq(changes.first), self._options.collection)

    def stop(self) -> None:
        close(self._options.place)

    async def _line(self, storage: Storage) -> Line:
        return await line_of(storage, self._options.branch)

    def _log(self, overlays: tuple[int, ...]) -> LogFilter:
        return LogFilter(overlays=overlays, collections=(self._options.collection,))


def _offset(version: Version) -> Offset:
    """Build the offset of a version; `txn` is a string because it exceeds 2⁵³."""
    return {
        "seq_number": version.seq_number,
        "txn": str(version.txn),
        "published_ms": version.published_ms,
    }


async def _offset_at(storage: Storage, seq_number: int) -> Offset:
    version = await _known(storage, seq_number)
    return {"seq_number": seq_number} if version is None else _offset(version)


async def _checked(storage: Storage, offset: Offset) -> Version | None:
    """Resolve the version of an offset, and check that it belongs to this storage.

    Returns None if the log does not have it any more; reading reports whether changes are missing.

    Raises:
        NotYetPublished, VersionNotFound: The offset belongs to another storage.
    """
    number = offset["seq_number"]
    try:
        version = await _known(storage, number)
    except NotYetPublished:
        raise _too_far(number, (await _last(storage)).seq_number) from None
    here = {} if version is None else _offset(version)
    for name in here.keys() & offset.keys():
        if here[name] != offset[name]:
            raise VersionNotFound(
                f"The stream is at version {number} with {name} {offset[name]!r}, but the storage "
                f"has {here[name]!r}; the storage is a different one or was restored from an "
                "older copy, so start the stream again with a new checkpoint",
                field="storage",
            )
    return version


async def _known(storage: Storage, seq_number: int) -> Version | None:
    try:
        return await storage.resolve(AtSeq(seq_number))
    except Expired:
        return None


def _too_far(position: int, last: int) -> NotYetPublished:
    return NotYetPublished(
        f"The stream is at version {position}, but the last version of the storage is {last}; the "
        "storage is a different one or was restored from an older copy, so start the stream "
        "again with a new checkpoint",
        field="storage",
    )


def _is_old(version: Version | None) -> bool:
    """Whether the log may soon drop the entries after a version."""
    if version is None:
        return True
    age_ms = time.time_ns() // 1_000_000 - version.published_ms
    return age_ms >= limits.SPARK_STREAM_IDLE_SECONDS_MAX * 1000


async def _last(storage: Storage) -> Version:
    return await storage.resolve(HEAD)


def _number(transaction: Transaction) -> int:
    assert transaction.seq_number is not None
    return transaction.seq_number


def _rows(transaction: Transaction, collection: str) -> int:
    """Count the features of the collection that a transaction changed."""
    return sum(
        signal.created + signal.updated + signal.deleted
        for signal in transaction.signals
        if signal.action == "MODIFY_FEATURES" and signal.id == collection
    )
