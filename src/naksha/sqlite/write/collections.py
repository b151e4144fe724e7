"""Create, change, drop, restore and remove collections."""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from typing import Any

import msgspec

from naksha.model.collection import CollectionChange, CollectionInfo
from naksha.model.errors import CollectionExists, CollectionNotFound, InvalidArgument
from naksha.sqlite.maintenance.pins import check_unguarded
from naksha.sqlite.read.rows import CollectionRow, collection_of
from naksha.sqlite.schema.shell import drop_view
from naksha.sqlite.sql import queries
from naksha.sqlite.write.transaction import INT8_MAX, WriteTransaction


def create(transaction: WriteTransaction, info: CollectionInfo) -> CollectionInfo:
    """See `WriteSession.create_collection`."""
    connection = transaction.connection
    _check_max_age(info.max_age)
    _check_delete_at(info.delete_at)
    _check_partitions(info.partitions)
    if connection.execute(queries()["collection"], (info.id,)).fetchone() is not None:
        raise CollectionExists(
            f"The collection {info.id!r} already exists; choose another id", collection_id=info.id
        )
    txn = transaction.txn
    number = transaction.take_collection()
    connection.execute(
        queries()["collection_insert"],
        (
            info.id,
            number,
            txn,
            None if info.history_enabled else txn,
            info.max_age,
            info.id_prefix or None,
            info.author,
            int(info.optimal_partitioning),
            int(info.points_only),
            info.delete_at,
            transaction.take_table(),
        ),
    )
    transaction.collections[info.id] = None
    return collection_of(connection, info.id, dropped=True).info


def change(transaction: WriteTransaction, name: str, change: CollectionChange) -> CollectionInfo:
    """See `WriteSession.change_collection`."""
    c = _open_alone(transaction, name)
    if c.dropped_at:
        raise CollectionNotFound(
            f"The collection {name!r} is dropped; restore it to change it", collection_id=name
        )
    given: dict[str, Any] = {
        field: value
        for field in CollectionChange.__struct_fields__
        if (value := getattr(change, field)) is not msgspec.UNSET
    }
    _check_max_age(given.get("max_age", 0))
    _check_delete_at(given.get("delete_at", 0))
    _check_partitions(given.pop("partitions", 1))
    if given.get("delete_at"):
        check_unguarded(transaction.connection, c)
    on = given.pop("history_enabled", c.has_history)
    if "id_prefix" in given:
        given["id_prefix"] = given["id_prefix"] or None
    floor, off_since = c.floor_txn, c.off_since
    if on and off_since is not None:
        # The last state written while history was off is the oldest one that can be read.
        floor = max(floor, _last_write(transaction, name, off_since - 1))
        off_since = None
    elif not on and off_since is None:
        check_unguarded(transaction.connection, c)
        off_since = transaction.txn
    return _keep(transaction, replace(c, floor_txn=floor, off_since=off_since, **given))


def drop(transaction: WriteTransaction, name: str, delete_at: int | None) -> None:
    """See `WriteSession.drop_collection`."""
    c = _open_alone(transaction, name)
    if c.dropped_at:
        raise CollectionNotFound(f"The collection {name!r} is already dropped", collection_id=name)
    check_unguarded(transaction.connection, c)
    now_ms = max(transaction.started_ms, 1)
    at = now_ms if delete_at is None else max(delete_at, 1)
    _keep(transaction, replace(c, dropped_at=now_ms, delete_at=at))


def restore(transaction: WriteTransaction, name: str) -> CollectionInfo:
    """See `WriteSession.restore_collection`."""
    return _keep(transaction, replace(_open_alone(transaction, name), dropped_at=0, delete_at=0))


def remove(connection: sqlite3.Connection, c: CollectionRow) -> None:
    """Delete a collection's own row; maintenance removes the rows of its features later.

    Its number and its state ids are never used again.
    """
    drop_view(connection, c)
    connection.execute(queries()["trash"], (c.t,))
    connection.execute(queries()["collection_removed"], (c.id, c.next_i))
    connection.execute(queries()["collection_delete"], (c.id,))


def _check_max_age(days: int) -> None:
    if not 0 <= days <= INT8_MAX:
        raise InvalidArgument(
            f"maxAge must be a number of days, 0 or more, not {days}", field="maxAge"
        )


def _check_delete_at(time_ms: int) -> None:
    if not 0 <= time_ms <= INT8_MAX:
        raise InvalidArgument(
            f"deleteAt must be a time in milliseconds since 1970, or 0 for never, not {time_ms}",
            field="deleteAt",
        )


def _check_partitions(count: int) -> None:
    """Check the number of PostgreSQL tables, which has no effect here.

    It is accepted so that the settings of a collection fit every storage.
    """
    if count not in (1, 16):
        raise InvalidArgument(f"partitions must be 1 or 16, not {count}", field="partitions")


def _open_alone(transaction: WriteTransaction, name: str) -> CollectionRow:
    """Return a collection that is about to be changed.

    Raises:
        Retryable: A later transaction has written to the collection.
    """
    c = collection_of(transaction.connection, name, dropped=True)
    drawn = transaction.drawn
    if drawn is not None:
        last = transaction.connection.execute(queries()["last_write"], (name, drawn)).fetchone()[0]
        transaction.check_order(max(c.txn, last), name)
    return c


def _last_write(transaction: WriteTransaction, name: str, since: int) -> int:
    """Return the last transaction that wrote features, including this one."""
    last: int = transaction.connection.execute(queries()["last_write"], (name, since)).fetchone()[0]
    return max(last, transaction.txn) if name in transaction.changes else last


def _keep(transaction: WriteTransaction, c: CollectionRow) -> CollectionInfo:
    transaction.connection.execute(
        queries()["collection_change"],
        (
            transaction.txn,
            c.floor_txn,
            c.off_since,
            c.max_age,
            c.id_prefix,
            c.author,
            int(c.optimal_partitioning),
            c.delete_at,
            c.dropped_at,
            c.id,
        ),
    )
    transaction.collections[c.id] = None
    return collection_of(transaction.connection, c.id, dropped=True).info
