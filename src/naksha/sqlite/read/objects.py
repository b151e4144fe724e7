"""Small objects that are stored beside the features; see `naksha.spi.storage.StoredObject`."""

from __future__ import annotations

import sqlite3

import msgspec

from naksha.model.errors import Conflict
from naksha.spi.query.values import end_of_prefix
from naksha.spi.storage import StoredObject
from naksha.sqlite.sql import queries


def find(connection: sqlite3.Connection, kind: str, id: str) -> StoredObject | None:
    """See `StorageReader.stored_object`."""
    row = connection.execute(queries()["kept"], (kind, id)).fetchone()
    return None if row is None else _object(*row)


def find_all(connection: sqlite3.Connection, kind: str, prefix: str) -> list[StoredObject]:
    """See `StorageReader.stored_objects`."""
    end = end_of_prefix(prefix)
    if end is None:
        rows = connection.execute(queries()["kept_from"], (kind, prefix))
    else:
        rows = connection.execute(queries()["kept_between"], (kind, prefix, end))
    return [_object(*row) for row in rows]


def keep(
    connection: sqlite3.Connection, kind: str, id: str, json: str, expected: int | None
) -> int:
    """See `WriteSession.store_object`; return the new revision."""
    revision = _checked(connection, kind, id, expected) + 1
    connection.execute(queries()["kept_put"], (kind, id, json, revision))
    return revision


def forget(connection: sqlite3.Connection, kind: str, id: str, expected: int | None) -> None:
    """See `WriteSession.remove_object`."""
    _checked(connection, kind, id, expected)
    connection.execute(queries()["kept_delete"], (kind, id))


def _checked(connection: sqlite3.Connection, kind: str, id: str, expected: int | None) -> int:
    """Return the current revision, 0 if the object does not exist.

    Raises:
        Conflict: It is not the expected revision.
    """
    known = find(connection, kind, id)
    revision = 0 if known is None else known.revision
    if expected is not None and expected != revision:
        raise Conflict(
            f"The {kind} {id!r} has revision {revision}, not {expected} as expected: another "
            "writer changed it; read it again and repeat the change",
            field="expected",
        )
    return revision


def _object(kind: str, id: str, json: str, revision: int) -> StoredObject:
    return StoredObject(kind, id, msgspec.json.decode(json), revision)
