"""Pins: versions that must stay readable, and optionally collections that must not be dropped."""

from __future__ import annotations

import sqlite3

from naksha.model.errors import InUse
from naksha.model.version import Version
from naksha.sqlite.read import versions
from naksha.sqlite.read.layers import Layers, collection_on, readable
from naksha.sqlite.read.rows import CollectionRow
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
    """See `WriteSession.pin`.

    Raises:
        Expired: History that the layers need to read the collection at the version is gone.
    """
    if collection is not None:
        known = collection_on(connection, seen, collection)
        readable(connection, seen, known, at.txn)
    versions.check_log(connection, at.txn)
    connection.execute(queries()["pin"], (name, collection, at.txn, guards))


def unpin(connection: sqlite3.Connection, name: str) -> None:
    """See `WriteSession.unpin`."""
    connection.execute(queries()["unpin"], (name,))


def check_unguarded(connection: sqlite3.Connection, c: CollectionRow) -> None:
    """Check that no pin forbids dropping the collection or switching its history off.

    Raises:
        InUse: There is such a pin; the error names it.
    """
    row = connection.execute(queries()["guarding_pin"], (c.id, c.created)).fetchone()
    if row is not None:
        raise InUse(
            f"Collection {c.id!r} is protected by pin {row[0]!r}; remove the pin first",
            collection_id=c.id,
        )
