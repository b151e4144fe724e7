"""Conversion of rows of the storage's own tables to model objects."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from naksha.model.collection import CollectionInfo
from naksha.model.identity.names import collection_not_found
from naksha.model.transaction import MAIN
from naksha.sqlite.sql import queries


@dataclass(frozen=True, slots=True)
class CollectionRow:
    """A row of the collection table."""

    id: str
    number: int
    txn: int
    floor_txn: int
    off_since: int | None
    next_i: int
    max_age: int
    id_prefix: str | None
    author: str | None
    optimal_partitioning: int
    points_only: int
    delete_at: int
    estimated_feature_count: int
    byte_size: int
    compressed_size: int
    created: int
    dropped_at: int
    t: int
    """Table number: the first key column of the collection's rows in the shared tables."""
    overlay: int = MAIN
    """The overlay whose rows `t` refers to."""

    @property
    def has_history(self) -> bool:
        return self.off_since is None

    @property
    def info(self) -> CollectionInfo:
        return CollectionInfo(
            id=self.id,
            number=self.number,
            max_age=self.max_age,
            history_enabled=self.has_history,
            id_prefix=self.id_prefix,
            author=self.author,
            optimal_partitioning=bool(self.optimal_partitioning),
            points_only=bool(self.points_only),
            delete_at=self.delete_at,
            dropped_at=self.dropped_at,
            estimated_feature_count=self.estimated_feature_count,
            byte_size=self.byte_size,
            compressed_size=self.compressed_size,
        )


def collection_of(
    connection: sqlite3.Connection, name: str, *, dropped: bool = False
) -> CollectionRow:
    """Return a collection.

    Raises:
        CollectionNotFound: It does not exist, or is dropped and `dropped` is not set.
    """
    row = connection.execute(queries()["collection"], (name,)).fetchone()
    found = None if row is None else CollectionRow(*row)
    if found is None or (found.dropped_at and not dropped):
        raise collection_not_found(name)
    return found


def dicts(cursor: sqlite3.Cursor) -> Iterable[dict[str, Any]]:
    """Return the rows of a cursor as dicts by column name."""
    names = [column[0] for column in cursor.description]
    return (dict(zip(names, row, strict=True)) for row in cursor)
