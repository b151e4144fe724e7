"""Maintenance rounds: remove what has expired and refresh estimates.

A round removes expired history, old days of the log, dropped collections and dropped overlays, cuts
free pages off the file and truncates its write-ahead log. It works in small steps, so that writers
can run between them. It does not run `PRAGMA optimize`, which would replace the statistics of the
planner (`naksha.sqlite.schema.planner_statistics`).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing
from datetime import UTC, date, datetime, time
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

from naksha.model.identity.txn import date_of, first_kept, txn_of
from naksha.model.limits import INT8_MAX
from naksha.model.transaction import MAIN
from naksha.spi.maintenance import StepPostponed, StorageRound, StorageVitals
from naksha.sqlite.connection.errors import translated
from naksha.sqlite.maintenance import cells
from naksha.sqlite.read.rows import CollectionRow
from naksha.sqlite.read.versions import floor_of
from naksha.sqlite.schema.planner_statistics import is_changed, restore_statistics
from naksha.sqlite.sql import queries, sql
from naksha.sqlite.write import overlays
from naksha.sqlite.write.collections import remove
from naksha.sqlite.write.writer import WriterThread

T = TypeVar("T")
ROWS_MAX: Final = 2_000
"""Maximum number of rows deleted in one step, for which writers wait."""
_TRASH: Final = {
    "naksha_head": ("naksha_box", "naksha_tag"),
    "naksha_del": (),
    "naksha_hst": ("naksha_past", "naksha_past_tag"),
}
"""Tables of rows, each with its dependent tables that no trigger empties."""
PAGES_MAX: Final = 2_000
"""Maximum number of free pages cut off the file in one step."""
_CHECKPOINT_WAIT_S: Final = 1.0
"""Longest wait for readers when the write-ahead log is truncated."""
_SAMPLE_MAX: Final = 20_000
"""Number of features whose sizes are sampled."""


class SnapshotRead(Protocol):
    """Function that runs a read on a snapshot."""

    def __call__(self, work: Callable[[sqlite3.Connection], T]) -> Awaitable[T]: ...


async def maintain(
    writer: WriterThread, read: SnapshotRead, now_ms: int, record: StorageRound
) -> None:
    """See `Storage.maintain`."""
    work = _SqliteRound(writer, read, now_ms, record)
    await record.attempt("removal of overlays", lambda: writer.task(_forget_overlaid))
    collections = await read(_collections)
    for c in sorted(collections, key=lambda c: f"expiry of {c.id}" not in record.memory.late):
        if c.dropped_at and c.delete_at <= now_ms:
            await record.attempt(f"removal of {c.id}", partial(work.remove, c.id))
            continue
        await record.attempt(f"expiry of {c.id}", partial(work.expire, c.id))
        await record.attempt(f"statistics of {c.id}", partial(_refresh, writer, read, c.id))
    await record.attempt("removal of rows", lambda: work.repeat("removal of rows", _empty_trash))
    await record.attempt("tile cells", work.fold_cells)
    await record.attempt("expiry of the log", work.expire_log)
    await record.attempt("shrinking of the file", lambda: work.repeat("shrinking", _shrink))
    await record.attempt("statistics of the planner", lambda: _restore_statistics(writer, read))
    record.vitals = await read(_vitals)


async def preview(read: SnapshotRead, now_ms: int, record: StorageRound) -> None:
    """Record what a round would remove."""
    for c in await read(_collections):
        if not c.dropped_at and 0 < c.delete_at <= now_ms:
            record.did("scheduled drop of the collection %s", c.id)
        for text in await read(partial(_due, name=c.id, now_ms=now_ms)):
            record.did("%s", text)
    log_rows = await read(partial(_expired_log_rows, now_ms=now_ms))
    if log_rows:
        record.did("expiry of %d transactions of the log", log_rows)
    record.vitals = await read(_vitals)


class _SqliteRound:
    """The steps of a round that consist of many transactions."""

    def __init__(
        self, writer: WriterThread, read: SnapshotRead, now_ms: int, record: StorageRound
    ) -> None:
        self._writer = writer
        self._read = read
        self._now_ms = now_ms
        self._record = record

    async def remove(self, name: str) -> None:
        work = partial(_remove, name=name, now_ms=self._now_ms)
        if await self._writer.task(work):
            self._record.did("removal of the collection %s", name)

    async def expire(self, name: str) -> None:
        step, count = f"expiry of {name}", 0
        for overlay in await self._read(partial(_overlays, name=name)):
            some = partial(_expire, name=name, overlay=overlay, now_ms=self._now_ms)
            count += await self.repeat(step, some)
        if count:
            self._record.did("expiry of %d states of %s", count, name)

    async def fold_cells(self) -> None:
        await self.repeat("tile cells", cells.fold)
        await self.repeat("tile cells", cells.forget)

    async def expire_log(self) -> None:
        work = partial(_expire_log, now_ms=self._now_ms)
        if count := await self._writer.task(work):
            self._record.did("expiry of %d transactions of the log", count)

    async def repeat(self, step: str, work: Callable[[sqlite3.Connection], int]) -> int:
        """Call `work` until it has nothing more to do or the time is up; return the sum."""
        total = 0
        while count := await self._writer.task(work):
            total += count
            if not self._record.has_time:
                self._record.late(step)
                break
        return total


async def _restore_statistics(writer: WriterThread, read: SnapshotRead) -> None:
    """Undo ANALYZE; nothing is written if there was none."""
    if await read(is_changed):
        await writer.task(restore_statistics)


async def expire(writer: WriterThread, name: str, before: date) -> None:
    """See `Storage.expire`."""

    def some(connection: sqlite3.Connection) -> int:
        c = _find(connection, name, MAIN)
        return 0 if c is None else _expire_before(connection, c, txn_of(before, 0))

    while await writer.task(some):
        pass


def _collections(connection: sqlite3.Connection) -> list[CollectionRow]:
    return [CollectionRow(*row) for row in connection.execute(queries()["collections"], (True,))]


def _overlays(connection: sqlite3.Connection, name: str) -> list[int]:
    """Return the overlays that have rows of a collection, including main."""
    c = _find(connection, name, MAIN)
    return [] if c is None else [MAIN, *(each.overlay for each in overlays.of(connection, c))]


def _find(connection: sqlite3.Connection, name: str, overlay: int) -> CollectionRow | None:
    row = connection.execute(queries()["collection"], (name,)).fetchone()
    c = None if row is None else CollectionRow(*row)
    if c is None or overlay == MAIN:
        return c
    return next((each for each in overlays.of(connection, c) if each.overlay == overlay), None)


def _value(connection: sqlite3.Connection, name: str, *values: Any) -> Any:
    return connection.execute(queries()[name], values).fetchone()[0]


def _lowest_pin(connection: sqlite3.Connection, collection: str | None) -> int:
    pin = _value(connection, "lowest_pin", collection)
    return INT8_MAX if pin is None else pin


def _expire(connection: sqlite3.Connection, name: str, overlay: int, now_ms: int) -> int:
    """Delete a batch of expired history; return the number of states.

    Pins on main also protect overlays, because their branches began there.
    """
    c = _find(connection, name, overlay)
    return 0 if c is None else _expire_before(connection, c, first_kept(now_ms, c.max_age))


def _expire_before(connection: sqlite3.Connection, c: CollectionRow, cutoff: int) -> int:
    below = min(cutoff, _lowest_pin(connection, c.id) + 1)
    rows = connection.execute(queries()["history_too_old"], (c.t, below, ROWS_MAX)).fetchall()
    if not rows:
        return 0
    floor = max(row[1] for row in rows)
    if c.overlay == MAIN:
        connection.execute(queries()["collection_raise_floor"], (floor, c.id))
    else:
        connection.execute(queries()["overlaid_raise_floor"], (floor, c.number, c.overlay))
    numbers = [(row[0],) for row in rows]
    for statement in ("history_delete", "past_delete", "past_tags_delete"):
        connection.executemany(queries()[statement], numbers)
    return len(rows)


def _log_cutoff(connection: sqlite3.Connection, now_ms: int) -> int:
    """Return the first transaction that the log keeps; 0 if it keeps all.

    Older ones are published and below every pin; the last version always stays.
    """
    last, _, published = connection.execute(queries()["counters"]).fetchone()
    days = _value(connection, "log_days")
    below = min(first_kept(now_ms, days), _lowest_pin(connection, None), published)
    unpublished = _value(connection, "first_unpublished")
    if unpublished is not None:
        below = min(below, unpublished)
    return 0 if last == 0 else max(below, 0)


def _expire_log(connection: sqlite3.Connection, now_ms: int) -> int:
    """Delete old days of the log; return the number of transactions.

    The floor of a collection without history is derived from the log, so it is stored in the
    collection's row first.
    """
    below = min(_log_cutoff(connection, now_ms), cells.folded_txn(connection) + 1)
    count: int = _value(connection, "transactions_before", below)
    if count == 0:
        return 0
    for c in _collections(connection):
        if c.off_since is not None:
            connection.execute(queries()["collection_raise_floor"], (floor_of(connection, c), c.id))
    connection.execute(queries()["log_delete"], (below,))
    connection.execute(queries()["versions_delete"], (below,))
    return count


def _is_removable(connection: sqlite3.Connection, c: CollectionRow, now_ms: int) -> bool:
    is_due = bool(c.dropped_at) and c.delete_at <= now_ms
    return is_due and not _value(connection, "pinned", c.id, c.txn)


def _remove(connection: sqlite3.Connection, name: str, now_ms: int) -> bool:
    """Remove a dropped collection that is due for deletion, unless it is pinned."""
    c = _find(connection, name, MAIN)
    if c is None or not _is_removable(connection, c, now_ms):
        return False
    for each in overlays.of(connection, c):
        overlays.remove(connection, each)
    remove(connection, c)
    return True


def _due(connection: sqlite3.Connection, name: str, now_ms: int) -> list[str]:
    """Return what a round would remove of a collection."""
    c = _find(connection, name, MAIN)
    if c is None:
        return []
    if _is_removable(connection, c, now_ms):
        return [f"removal of the collection {name}"]
    below = min(first_kept(now_ms, c.max_age), _lowest_pin(connection, c.id) + 1)
    of_all = (c, *overlays.of(connection, c))
    count = sum(_value(connection, "history_before", each.t, below) for each in of_all)
    return [f"expiry of {count} states of {name}"] if count else []


def _expired_log_rows(connection: sqlite3.Connection, now_ms: int) -> int:
    count: int = _value(connection, "transactions_before", _log_cutoff(connection, now_ms))
    return count


def _vitals(connection: sqlite3.Connection) -> StorageVitals:
    """Measure the oldest pin; there are no partitions in a file."""
    row = connection.execute(queries()["oldest_pin"]).fetchone()
    if row is None:
        return StorageVitals()
    if not row[1]:  # it keeps everything, and has no day
        return StorageVitals(oldest_pin=row[0])
    day = datetime.combine(date_of(row[1]), time.min, UTC)
    return StorageVitals(oldest_pin=row[0], oldest_pin_ms=int(day.timestamp() * 1_000))


def _forget_overlaid(connection: sqlite3.Connection) -> None:
    """Hand the rows of dropped overlays over to `_empty_trash`."""
    connection.execute(queries()["overlaid_trash"])
    connection.execute(queries()["overlaid_forget"])


def _empty_trash(connection: sqlite3.Connection) -> bool:
    """Delete a batch of rows of an unused table number; return whether there may be more."""
    row = connection.execute(queries()["trash_next"]).fetchone()
    if row is None:
        return False
    for table, also in _TRASH.items():
        found = sql("trash_rows", table=table)
        numbers = connection.execute(found, (row[0], ROWS_MAX)).fetchall()
        if numbers:
            for each in (*also, table):
                connection.executemany(sql("trash_delete", table=each), numbers)
            return True
    connection.execute(queries()["trash_meta"], row)
    connection.execute(queries()["trash_ids"], row)
    connection.execute(queries()["trash_forget"], row)
    return True


def _shrink(connection: sqlite3.Connection) -> bool:
    """Cut some free pages off the file; return whether there are more.

    A file of an older release that was never rebuilt keeps its free pages.
    """
    before: int = _value(connection, "free_pages")
    if before > 0:
        connection.execute(sql("free_pages_cut", pages=str(PAGES_MAX))).fetchall()
    left: int = _value(connection, "free_pages")
    return 0 < left < before


async def _refresh(writer: WriterThread, read: SnapshotRead, name: str) -> None:
    """Refresh the estimates of a collection; they are computed on a snapshot, beside the writer."""
    found = await read(partial(_estimates, name=name))
    if found is not None:

        def keep(connection: sqlite3.Connection) -> None:
            connection.execute(queries()["collection_statistics"], (*found, name))

        await writer.task(keep)


def _estimates(connection: sqlite3.Connection, name: str) -> tuple[int, int, int] | None:
    """Return the number of features and the sizes of the largest; None if they are unchanged."""
    c = _find(connection, name, MAIN)
    if c is None or c.dropped_at:
        return None
    count = _value(connection, "feature_count", c.t)
    raw, stored = connection.execute(queries()["feature_sizes"], (c.t, _SAMPLE_MAX)).fetchone()
    if count > _SAMPLE_MAX:
        raw, stored = max(raw or 0, c.byte_size), max(stored or 0, c.compressed_size)
    estimates = (count, raw or 0, stored or 0)
    known = (c.estimated_feature_count, c.byte_size, c.compressed_size)
    return None if estimates == known else estimates


def checkpoint(path: Path) -> None:
    """Copy the write-ahead log into the file, and truncate it.

    Raises:
        StepPostponed: A reader or writer uses the log.
    """
    with translated(), closing(sqlite3.connect(path, timeout=_CHECKPOINT_WAIT_S)) as connection:
        is_busy, _, _ = connection.execute(sql("checkpoint")).fetchone()
    if is_busy:
        raise StepPostponed("a reader or writer uses the write-ahead log")
