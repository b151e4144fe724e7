"""Meta features of a collection; see `naksha.spi.meta`."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from typing import Any

import msgspec

from naksha.model import limits
from naksha.model.errors import LimitExceeded
from naksha.spi.meta import check_meta_id, encode_meta
from naksha.sqlite.read.rows import collection_of
from naksha.sqlite.sql import queries


def find(connection: sqlite3.Connection, collection: str, id: str) -> dict[str, Any] | None:
    """See `Storage.meta`."""
    c = collection_of(connection, collection)
    row = connection.execute(queries()["meta_get"], (c.t, id)).fetchone()
    return None if row is None else msgspec.json.decode(row[0])


def find_all(connection: sqlite3.Connection, collection: str) -> list[dict[str, Any]]:
    """See `Storage.all_meta`."""
    c = collection_of(connection, collection)
    rows = connection.execute(queries()["meta_all"], (c.t, limits.META_COUNT_MAX)).fetchall()
    return [msgspec.json.decode(row[0]) for row in rows]


def put(connection: sqlite3.Connection, collection: str, feature: Mapping[str, Any]) -> None:
    """See `Storage.put_meta`."""
    id, text = encode_meta(feature)
    c = collection_of(connection, collection)
    full = (c.t, limits.META_COUNT_MAX, id)
    if connection.execute(queries()["meta_is_full"], full).fetchone()[0]:
        raise LimitExceeded(
            f"Collection {collection!r} has {limits.META_COUNT_MAX} meta features, "
            "which is the maximum; delete one first",
            collection_id=collection,
        )
    connection.execute(queries()["meta_put"], (c.t, id, text))


def remove(connection: sqlite3.Connection, collection: str, id: str) -> bool:
    """See `Storage.remove_meta`."""
    c = collection_of(connection, collection)
    values = (c.t, check_meta_id(id))
    return connection.execute(queries()["meta_delete"], values).rowcount > 0
