"""Open the file of a storage; refuse files that are neither a storage nor empty."""

from __future__ import annotations

import logging
import sqlite3
import time
from pathlib import Path
from typing import Final

from naksha.model.errors import Conflict, InvalidArgument, NotFound, NotSupported
from naksha.model.identity.storage_identity import StorageIdentity, check_fork, parse_identity
from naksha.sqlite.connection.errors import is_busy, translated
from naksha.sqlite.connection.functions import add_functions
from naksha.sqlite.connection.tolerant_cursor import TolerantConnection
from naksha.sqlite.schema.planner_statistics import is_changed, restore_statistics
from naksha.sqlite.schema.upgrade import add_views, check_upgrade, move_collections, shrink
from naksha.sqlite.sql import ident, queries, schema_files, sql, statements_of, text_literal

_log: Final = logging.getLogger(__name__)
APPLICATION_ID: Final = 0x4E616B73
"""`Naks`, in the header of every storage file, so that tools such as `file` can recognize it."""
SCHEMA_VERSION: Final = 10
"""Number of schema files that have been run on a current storage file."""
_SHARED_VERSION: Final = 7
"""The first schema version in which all collections share their tables."""
_CACHED_STATEMENTS: Final = 512
BUSY_S: Final = 30.0
"""How long a writer waits for the write lock of another process."""
_WAL_RETRY_S: Final = 0.01
"""Pause between attempts to switch a file to WAL while other processes read it."""
FORK_BUSY_S: Final = 2.0
"""How long a fork waits for other processes to close the file."""
WRITES: Final = ("INSERT", "UPDATE", "DELETE")
_PRAGMAS: Final = (
    "connection_synchronous",
    "connection_overwrite",
    "connection_cache",
    "connection_map",
)
_NUMBERS: Final = (
    "one, id, number, former, last_collection, last_overlay, last_table, last_txn, last_ord, "
    "cells_txn"
)
_GUARDED: Final = {
    "naksha_tx": WRITES,
    "naksha_version": WRITES,
    "naksha_collection": WRITES,
    "naksha_removed": WRITES,
    "naksha_pin": WRITES,
    "naksha_kept": WRITES,
    "naksha_overlay": WRITES,
    "naksha_overlaid": WRITES,
    "naksha_trash": WRITES,
    "naksha_head": WRITES,
    "naksha_del": WRITES,
    "naksha_hst": WRITES,
    "naksha_meta": WRITES,
    "naksha_ids": WRITES,
    "naksha_incomplete": WRITES,
    "naksha_edited": WRITES,
    "naksha_edited_box": WRITES,
    "naksha_cell": WRITES,
    "naksha_storage": (
        "INSERT",
        f"UPDATE OF {_NUMBERS}",
        "DELETE",
    ),
}
"""Tables that only the storage may write, each with the statements that are refused."""
_ELSEWHERE: Final = "write to the view feature"


def connect(path: Path, busy_s: float = BUSY_S, *, read_only: bool = False) -> sqlite3.Connection:
    """Open a connection, to be used by one thread at a time."""
    connection = sqlite3.connect(
        f"{path.absolute().as_uri()}?mode={'ro' if read_only else 'rwc'}",
        uri=True,
        timeout=busy_s,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=_CACHED_STATEMENTS,
        factory=TolerantConnection,
    )
    try:
        for pragma in _PRAGMAS:
            connection.execute(queries()[pragma])
        add_functions(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def open_file(
    path: Path,
    storage_id: str | None,
    made: tuple[str, int],
    busy_s: float,
    *,
    must_exist: bool = False,
    read_only: bool = False,
) -> tuple[sqlite3.Connection, StorageIdentity]:
    """Open a storage file; return the connection and the identity of the storage.

    A new file is created and an older schema is upgraded. With `must_exist` a missing file or
    storage is NotFound; `read_only` implies that, and a file that needs an upgrade is refused.

    Args:
        path: The file.
        storage_id: The id that the storage must have; None for any.
        made: Id and number for a new storage.
        busy_s: How long to wait for other processes.
        must_exist: Do not create a file or a storage.
        read_only: Write nothing.
    """
    must_exist = must_exist or read_only
    if must_exist and not path.exists():
        raise NotFound(f"The storage file {path} does not exist; correct the path", field="storage")
    with translated():
        connection = connect(path, busy_s, read_only=read_only)
        try:
            found = _owner_of(connection, path)
            if found is None:
                if must_exist:
                    raise NotFound(
                        f"The file {path} is empty and holds no storage; correct its path",
                        field="storage",
                    )
                connection.execute(queries()["auto_vacuum"])
                _use_wal(connection, busy_s)
                found = _create(connection, path, made)
            if storage_id is not None and found != storage_id:
                raise InvalidArgument(
                    f"The file {path} holds storage {found!r}, not {storage_id!r}; "
                    "correct the location or the id",
                    field="storage_id",
                )
            if not read_only:
                _use_wal(connection, busy_s)
            known = _version_of(connection)
            if known < SCHEMA_VERSION:
                moves = known < _SHARED_VERSION
                check_upgrade(path, moves=moves, read_only=read_only)
                if _upgrade(connection) and moves:
                    shrink(connection)
            if not read_only:
                _restore_statistics(connection, path)
            identity = _identity_of(connection)
        except BaseException:
            connection.close()
            raise
    return connection, identity


def _use_wal(connection: sqlite3.Connection, busy_s: float) -> None:
    """Switch the file to WAL, which a copy made by VACUUM INTO is not in.

    This needs exclusive access to the file, for which SQLite does not wait, so it is retried here.
    """
    deadline = time.monotonic() + busy_s
    while connection.execute(queries()["journal_mode"]).fetchone() != ("wal",):
        try:
            connection.execute(queries()["wal"])
        except sqlite3.OperationalError as error:
            if not is_busy(error) or time.monotonic() > deadline:
                raise
            time.sleep(_WAL_RETRY_S)


def fork_file(path: Path, made: tuple[str, int], busy_s: float) -> StorageIdentity:
    """Give the storage in a file another id and number; return its new identity.

    Raises:
        Conflict: The file is open elsewhere.
    """
    connection, identity = open_file(path, None, made, busy_s, must_exist=True)
    try:
        check_fork(identity, made[0])
        try:
            connection.execute(queries()["no_wal"])
        except sqlite3.OperationalError as error:
            raise Conflict(
                f"The storage in {path} is open and cannot be forked; close it everywhere first",
                field="storage",
            ) from error
        with translated():
            connection.execute(queries()["begin"])
            try:
                connection.execute(queries()["managed"], (1,))
                connection.execute(queries()["storage_fork"], made)
                connection.execute(queries()["managed"], (0,))
                connection.execute(queries()["commit"])
            except BaseException:
                connection.execute(queries()["rollback"])
                raise
            connection.execute(queries()["wal"])
            return _identity_of(connection)
    finally:
        connection.close()


def _restore_statistics(connection: sqlite3.Connection, path: Path) -> None:
    """Restore the planner's statistics; while another process writes, maintenance does it later."""
    if not is_changed(connection):
        return
    try:
        connection.execute(queries()["begin"])
    except sqlite3.OperationalError as error:
        if not is_busy(error):
            raise
        _log.info("The planner's statistics of %s are left to maintenance: %s", path, error)
        return
    try:
        restore_statistics(connection)
        connection.execute(queries()["commit"])
    except BaseException:
        connection.execute(queries()["rollback"])
        raise


def _version_of(connection: sqlite3.Connection) -> int:
    version: int = connection.execute(queries()["schema_version"]).fetchone()[0]
    return version


def _identity_of(connection: sqlite3.Connection) -> StorageIdentity:
    return parse_identity(*connection.execute(queries()["storage_identity"]).fetchone())


def _owner_of(connection: sqlite3.Connection, path: Path) -> str | None:
    """Return the id of the storage in the file; None if the file is empty.

    Raises:
        NotSupported: The file is something else, or was written by a newer version.
    """
    (application,) = connection.execute(queries()["application_id"]).fetchone()
    version = _version_of(connection)
    (tables,) = connection.execute(queries()["table_count"]).fetchone()
    if tables == 0 and application in (0, APPLICATION_ID):
        return None
    if application != APPLICATION_ID:
        raise NotSupported(
            f"{path} is an SQLite file but not a Naksha storage; choose another path", field="file"
        )
    if version > SCHEMA_VERSION:
        raise NotSupported(
            f"{path} was written by a newer Naksha (schema {version}, this version supports up to "
            f"{SCHEMA_VERSION}); upgrade Naksha",
            field="file",
        )
    (found,) = connection.execute(queries()["storage_id"]).fetchone()
    return str(found)


def _create(connection: sqlite3.Connection, path: Path, made: tuple[str, int]) -> str:
    """Create the schema unless another process has just created it; return the storage id."""
    connection.execute(queries()["begin"])
    try:
        found = _owner_of(connection, path)
        if found is None:
            _run_schema(connection, 0)
            connection.execute(queries()["storage_insert"], made)
            _guard_all(connection)
            connection.execute(sql("application_id_set", value=str(APPLICATION_ID)))
            found = made[0]
        connection.execute(queries()["commit"])
    except BaseException:
        connection.execute(queries()["rollback"])
        raise
    return found


def _upgrade(connection: sqlite3.Connection) -> bool:
    """Upgrade a file to the current schema; return False if another process already did."""
    connection.execute(queries()["begin"])
    try:
        known = _version_of(connection)
        _run_schema(connection, known)
        _guard_all(connection)
        connection.execute(queries()["commit"])
    except BaseException:
        connection.execute(queries()["rollback"])
        raise
    return known < SCHEMA_VERSION


def _run_schema(connection: sqlite3.Connection, known: int) -> None:
    """Run the schema files that come after the version `known`."""
    for number, (_, script) in enumerate(schema_files(), 1):
        if number > known:
            for statement in statements_of(script):
                connection.execute(statement)
        if number == _SHARED_VERSION > known:
            move_collections(connection)
    if 0 < known < _SHARED_VERSION:
        add_views(connection)
    connection.execute(sql("schema_version_set", value=str(SCHEMA_VERSION)))


def _guard_all(connection: sqlite3.Connection) -> None:
    for table, operations in _GUARDED.items():
        guard(connection, table, operations)


def guard(
    connection: sqlite3.Connection,
    table: str,
    operations: tuple[str, ...],
    instead: str = _ELSEWHERE,
) -> None:
    """Add triggers that refuse direct writes to a table."""
    for operation in operations:
        verb = operation.split()[0]
        message = f"{verb} on table {table} is not allowed; {instead}"
        trigger = ident(f"{table}_no_{verb.lower()}")
        connection.execute(sql("guard_drop", trigger=trigger))
        connection.execute(
            sql(
                "guard",
                trigger=trigger,
                operation=operation,
                table=ident(table),
                message=text_literal(message),
            )
        )
