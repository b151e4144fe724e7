"""Pins: versions that must stay readable, and perhaps collections that must stay as they are."""

from __future__ import annotations

import sqlite3

from naksha.model.errors import InUse
from naksha.model.version import Version
from naksha.sqlite.read import versions
from naksha.sqlite.read.layers import Layers, collection_on, readable
from naksha.sqlite.read.rows import Collection
from naksha.sqlite.sql import queries


def pin(
    connection: sqlite3.Connection,
    seen: Layers,
    name: str,
    at: Version,
    collection: str | None,
    *,
    guards: bool,
) -> None:
    """See `WriteSession.pin`. Of a collection everything that the layers need must still be
    there."""
    if collection is not None:
        known = collection_on(connection, seen, collection)
        readable(connection, seen, known, at.txn)
    versions.check_log(connection, at.txn)
    connection.execute(queries()["pin"], (name, collection, at.txn, guards))


def unpin(connection: sqlite3.Connection, name: str) -> None:
    """See `WriteSession.unpin`."""
    connection.execute(queries()["unpin"], (name,))


def check_unguarded(connection: sqlite3.Connection, c: Collection) -> None:
    """InUse when a pin forbids to drop the collection and to switch its history off."""
    row = connection.execute(queries()["guarding_pin"], (c.id, c.created)).fetchone()
    if row is not None:
        raise InUse(f"The collection is in use by {row[0]!r}", collection_id=c.id)
