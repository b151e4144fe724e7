"""Open the file of a catalog; refuse files that are neither a catalog nor empty."""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path
from typing import Final

from naksha.model.errors import NotSupported
from naksha.sqlite.catalog.sql import FILES, sql
from naksha.sqlite.connection.errors import is_busy, translated
from naksha.sqlite.sql import statements_of

APPLICATION_ID: Final = 0x4E616B43
"""`NakC`, in the header of every catalog file."""
SCHEMA_VERSION: Final = 1
RETRY_S: Final = 0.01
"""Pause between attempts to open a file that other processes are just creating."""


def connect(path: Path, busy_s: float) -> sqlite3.Connection:
    """Open a connection, to be used by one thread at a time."""
    connection = sqlite3.connect(
        path, timeout=busy_s, isolation_level=None, check_same_thread=False
    )
    try:
        for pragma in ("synchronous", "overwrite"):
            connection.execute(sql(pragma))
    except BaseException:
        connection.close()
        raise
    return connection


def open_file(path: Path, busy_s: float) -> sqlite3.Connection:
    """Open a connection to the file; create its tables if it is new."""
    deadline = time.monotonic() + busy_s
    with translated():
        while True:
            try:
                return _open(path, busy_s)
            except sqlite3.OperationalError as error:
                # Switching a file to WAL needs exclusive access, for which SQLite does not wait.
                if not is_busy(error) or time.monotonic() > deadline:
                    raise
            time.sleep(RETRY_S)


def _open(path: Path, busy_s: float) -> sqlite3.Connection:
    connection = connect(path, busy_s)
    try:
        is_ours = _is_ours(connection, path)
        # A copy made by VACUUM INTO is not in WAL mode.
        if connection.execute(sql("journal_mode")).fetchone() != ("wal",):
            connection.execute(sql("wal"))
        if not is_ours:
            _create(connection, path)
    except BaseException:
        connection.close()
        raise
    return connection


def _is_ours(connection: sqlite3.Connection, path: Path) -> bool:
    """Return whether the file is a catalog; False if it is empty.

    Raises:
        NotSupported: The file is something else, or was written by a newer version.
    """
    begins = not connection.in_transaction
    if begins:  # All three values must come from one snapshot.
        connection.execute(sql("begin_reading"))
    try:
        (tables,) = connection.execute(sql("table_count")).fetchone()
        (application,) = connection.execute(sql("application_id")).fetchone()
        (version,) = connection.execute(sql("schema_version")).fetchone()
    finally:
        if begins and connection.in_transaction:
            connection.execute(sql("rollback"))
    if tables == 0 and application == 0:
        return False
    if application != APPLICATION_ID:
        raise NotSupported(
            f"{path} is an SQLite file but not a Naksha catalog; give the catalog its own file",
            field="location",
        )
    if version > SCHEMA_VERSION:
        raise NotSupported(
            f"{path} was written by a newer Naksha (schema {version}, this version supports up to "
            f"{SCHEMA_VERSION}); upgrade Naksha",
            field="location",
        )
    return True


def _create(connection: sqlite3.Connection, path: Path) -> None:
    """Create the tables unless another process has just created them."""
    connection.execute(sql("begin"))
    try:
        if not _is_ours(connection, path):
            for _, script in FILES.schema:
                for statement in statements_of(script):
                    connection.execute(statement)
            connection.execute(sql("schema_version_set", value=str(SCHEMA_VERSION)))
            connection.execute(sql("application_id_set", value=str(APPLICATION_ID)))
        connection.execute(sql("commit"))
    except BaseException:
        if connection.in_transaction:
            connection.execute(sql("rollback"))
        raise
