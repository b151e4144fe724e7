"""Maintenance rounds: remove what has expired and refresh estimates.

A round removes expired history, old days of the log, dropped collections and dropped overlays. It
works in small steps, so that writers can run between them.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Awaitable, Callable
from datetime import date
from functools import partial
from typing import Any, Final, Protocol, TypeVar

from naksha.model.errors import NakshaError
from naksha.model.identity.txn import first_kept, txn_of
from naksha.model.limits import INT8_MAX
from naksha.model.transaction import MAIN
from naksha.sqlite.read.rows import CollectionRow
from naksha.sqlite.read.versions import floor_of
from naksha.sqlite.schema.planner_statistics import is_changed, restore_statistics
from naksha.sqlite.sql import queries, sql
from naksha.sqlite.write import overlays
from naksha.sqlite.write.collections import remove
from naksha.sqlite.write.writer import WriterThread

T = TypeVar("T")
ROWS_MAX: Final = 10_000
"""Maximum number of rows deleted in one step."""
_TRASH: Final = {
    "naksha_head": ("naksha_box", "naksha_tag"),
    "naksha_del": (),
    "naksha_hst": ("naksha_past", "naksha_past_tag"),
}
"""Tables of rows, each with its dependent tables that no trigger empties."""
PAGES_MAX: Final = 2_000
"""Maximum number of free pages cut off the file in one step."""
_SAMPLE_MAX: Final = 20_000
"""Number of features whose sizes are sampled."""


class SnapshotRead(Protocol):
    """Function that runs a read on a snapshot."""

    def __call__(self, work: Callable[[sqlite3.Connection], T]) -> Awaitable[T]: ...


async def maintain(writer: WriterThread, read: SnapshotRead, now_ms: int) -> None:
    """See `Storage.maintain`. Errors of single steps are collected and raised at the end."""
    failures: list[tuple[str, NakshaError]] = []

    async def attempt(what: str, step: Awaitable[object]) -> None:
        try:
            await step
        except NakshaError as error:
            failures.append((what, error))

    await attempt("removal of overlays", writer.task(_forget_overlaid))
    for c in await read(_collections):
        if c.dropped_at and c.delete_at <= now_ms:
            remove_it = writer.task(partial(_remove, name=c.id, now_ms=now_ms))
            await attempt(f"removal of {c.id}", remove_it)
            continue
        for overlay in await read(partial(_overlays, name=c.id)):
            some = partial(_expire, name=c.id, overlay=overlay, now_ms=now_ms)
            await attempt(f"expiry of {c.id}", _repeat(writer, some))
        await attempt(f"statistics of {c.id}", _refresh(writer, read, c.id))
    await attempt("removal of rows", _repeat(writer, _empty_trash))
    await attempt("shrinking of the file", _repeat(writer, _shrink))
    await attempt("statistics of the planner", _restore_statistics(writer, read))
    expire_log = writer.task(lambda connection: _expire_log(connection, now_ms))
    await attempt("expiry of the log", expire_log)
    if failures:
        reasons = "; ".join(f"{what}: {error}" for what, error in failures)
        raise type(failures[0][1])(
            f"Maintenance of the storage is incomplete and continues in the next round: {reasons}"
        )


async def _restore_statistics(writer: WriterThread, read: SnapshotRead) -> None:
    """Undo ANALYZE; nothing is written if there was none."""
    if await read(is_changed):
        await writer.task(restore_statistics)


async def _repeat(writer: WriterThread, work: Callable[[sqlite3.Connection], bool]) -> None:
    """Call `work` until it returns False (no more to do)."""
    while await writer.task(work):
        pass


async def expire(writer: WriterThread, name: str, before: date) -> None:
    """See `Storage.expire`."""

    def some(connection: sqlite3.Connection) -> bool:
        c = _find(connection, name, MAIN)
        return c is not None and _expire_before(connection, c, txn_of(before, 0))

    await _repeat(writer, some)


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


def _expire(connection: sqlite3.Connection, name: str, overlay: int, now_ms: int) -> bool:
    """Delete a batch of expired history; return whether there may be more.

    Pins on main also protect overlays, because their branches began there.
    """
    c = _find(connection, name, overlay)
    return c is not None and _expire_before(connection, c, first_kept(now_ms, c.max_age))


def _expire_before(connection: sqlite3.Connection, c: CollectionRow, cutoff: int) -> bool:
    below = min(cutoff, _lowest_pin(connection, c.id) + 1)
    rows = connection.execute(queries()["history_too_old"], (c.t, below, ROWS_MAX)).fetchall()
    if not rows:
        return False
    floor = max(row[1] for row in rows)
    if c.overlay == MAIN:
        connection.execute(queries()["collection_raise_floor"], (floor, c.id))
    else:
        connection.execute(queries()["overlaid_raise_floor"], (floor, c.number, c.overlay))
    numbers = [(row[0],) for row in rows]
    for statement in ("history_delete", "past_delete", "past_tags_delete"):
        connection.executemany(queries()[statement], numbers)
    return len(rows) == ROWS_MAX


def _expire_log(connection: sqlite3.Connection, now_ms: int) -> None:
    """Delete old days of the log: published, below every pin, but never the last version.

    The floor of a collection without history is derived from the log, so it is stored in the
    collection's row first.
    """
    last, _, published = connection.execute(queries()["counters"]).fetchone()
    days = _value(connection, "log_days")
    below = min(first_kept(now_ms, days), _lowest_pin(connection, None), published)
    unpublished = _value(connection, "first_unpublished")
    if unpublished is not None:
        below = min(below, unpublished)
    if below <= 0 or last == 0:
        return
    for c in _collections(connection):
        if c.off_since is not None:
            connection.execute(queries()["collection_raise_floor"], (floor_of(connection, c), c.id))
    connection.execute(queries()["log_delete"], (below,))
    connection.execute(queries()["versions_delete"], (below,))


def _remove(connection: sqlite3.Connection, name: str, now_ms: int) -> None:
    """Remove a dropped collection that is due for deletion, unless it is pinned."""
    c = _find(connection, name, MAIN)
    if c is None or not c.dropped_at or c.delete_at > now_ms:
        return
    if _value(connection, "pinned", c.id, c.txn):
        return
    for each in overlays.of(connection, c):
        overlays.remove(connection, each)
    remove(connection, c)


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
