"""Resolve version selectors to published versions."""

from __future__ import annotations

import sqlite3
from typing import Any

from naksha.model.errors import Expired, NotYetPublished, VersionNotFound
from naksha.model.limits import INT8_MAX
from naksha.model.version import AtSeq, AtTime, AtTxn, Version, VersionSelector
from naksha.sqlite.read.rows import CollectionRow
from naksha.sqlite.sql import queries

BEGINNING = Version(0, 0, 0)
"""The version before the first transaction."""


def resolve(
    connection: sqlite3.Connection, at: VersionSelector, collection: CollectionRow | None = None
) -> Version:
    """Resolve a version selector; see `Storage.resolve`."""
    last = find(connection, "last_version") or BEGINNING
    match at:
        case AtSeq(seq_number):
            version = _by_seq(connection, seq_number, last)
        case AtTxn(txn):
            version = _by_txn(connection, txn, last)
        case AtTime(epoch_ms):
            version = _by_time(connection, epoch_ms, last)
        case _:
            version = last
    if collection is not None:
        check_history(connection, collection, version.txn)
    return version


def find(connection: sqlite3.Connection, query: str, *values: Any) -> Version | None:
    """Return the version that a named query finds, None if it finds none."""
    row = connection.execute(queries()[query], values).fetchone()
    return None if row is None else Version(*row)


def floor_of(connection: sqlite3.Connection, c: CollectionRow) -> int:
    """Return the oldest transaction that a collection can be read at."""
    if c.off_since is None:
        return c.floor_txn
    row = connection.execute(queries()["last_write"], (c.id, c.off_since - 1)).fetchone()
    last: int = row[0]
    return max(c.floor_txn, last)


def check_history(connection: sqlite3.Connection, collection: CollectionRow, txn: int) -> None:
    """Check that the history that a version needs is still there.

    Raises:
        Expired: It is gone; the error names the oldest version.
    """
    floor = floor_of(connection, collection)
    if txn < floor:
        oldest = find(connection, "version_from_txn", floor)
        number = None if oldest is None else oldest.seq_number
        raise Expired(
            f"History before version {number} of {collection.id!r} has expired; read version "
            f"{number} or a later one",
            oldest=number,
            collection_id=collection.id,
        )


def check_log(connection: sqlite3.Connection, txn: int) -> None:
    """Check that a transaction is not older than the log.

    Raises:
        Expired: It is older.
    """
    first = find(connection, "first_version")
    if first is not None and first.seq_number > 1 and txn < first.txn:
        _gone(connection, f"Transaction {txn}")


def check_log_window(connection: sqlite3.Connection, after: int, *, newest_first: bool) -> None:
    """Check that the log goes back to the start of a page.

    Raises:
        Expired: It does not.
    """
    wanted = (after or INT8_MAX) if newest_first else after + 1
    first = find(connection, "first_version")
    if first is not None and wanted < first.seq_number:
        _gone(connection, f"Version {wanted}")


def _by_seq(connection: sqlite3.Connection, seq_number: int, last: Version) -> Version:
    if seq_number == 0:
        return BEGINNING
    if seq_number < 0:
        raise VersionNotFound(f"Version {seq_number} does not exist; versions are numbered from 0")
    if seq_number > last.seq_number:
        raise NotYetPublished(
            f"Version {seq_number} is not published yet; the last one is {last.seq_number}; retry "
            "later, or use an earlier version"
        )
    version = find(connection, "version_by_seq", seq_number)
    return version or _gone(connection, f"Version {seq_number}")


def _by_txn(connection: sqlite3.Connection, txn: int, last: Version) -> Version:
    if txn > last.txn:
        raise NotYetPublished(
            f"Transaction {txn} is not published yet; the last published one is {last.txn}; retry "
            "later, or use an earlier transaction"
        )
    version = find(connection, "version_by_txn", txn)
    if version is not None:
        return version
    check_log(connection, txn)
    raise VersionNotFound(f"Transaction {txn} does not exist; correct its number")


def _by_time(connection: sqlite3.Connection, epoch_ms: int, last: Version) -> Version:
    if epoch_ms > last.published_ms:
        raise NotYetPublished(
            f"The version at {epoch_ms} ms is not published yet; the last version was published at "
            f"{last.published_ms} ms; use a time up to that, or retry later"
        )
    version = find(connection, "version_by_time", epoch_ms)
    if version is not None:
        return version
    first = find(connection, "first_version")
    if first is not None and first.seq_number > 1:
        return _gone(connection, f"The version at {epoch_ms}")
    return BEGINNING


def _gone(connection: sqlite3.Connection, what: str) -> Version:
    first = find(connection, "first_version")
    oldest = None if first is None else first.seq_number
    raise Expired(f"{what} has expired; the oldest version kept is {oldest}", oldest=oldest)
