"""Upgrade of files in which each collection had its own tables (up to schema 6) to shared tables.

The upgrade is one transaction.
"""

from __future__ import annotations

import logging
import shutil
import sqlite3
from pathlib import Path
from typing import Final

from naksha.model.errors import NotSupported, Unavailable
from naksha.model.transaction import MAIN
from naksha.sqlite.read.rows import CollectionRow
from naksha.sqlite.schema.shell import add_view
from naksha.sqlite.sql import ident, queries, sql

_log: Final = logging.getLogger(__name__)
_ROOM: Final = 1
_ROOM_MOVED: Final = 3
"""Free disk space that an upgrade needs, as a multiple of the file size; the second includes moving
all collections, and VACUUM."""
_COPIED: Final = ("head", "box", "tag", "del", "hst", "past", "past_tag", "meta")


def check_upgrade(path: Path, *, moves: bool, read_only: bool) -> None:
    """Check that a file may be upgraded and that the disk has enough space for it.

    `moves` is set if the collections have to be moved to the shared tables.

    Raises:
        NotSupported: The file was opened read-only.
        Unavailable: The disk does not have enough free space.
    """
    if read_only:
        raise NotSupported(
            f"{path} was written by an older Naksha and must be upgraded; open it once without "
            "read_only",
            field="file",
        )
    needed = (_ROOM_MOVED if moves else _ROOM) * path.stat().st_size
    free = shutil.disk_usage(path.parent).free
    if free < needed:
        raise Unavailable(
            f"{path} was written by an older Naksha; its upgrade needs {needed} bytes of disk "
            f"space, but only {free} are free; free {needed - free} bytes and open it again"
        )


def move_collections(connection: sqlite3.Connection) -> None:
    """Move all collections and overlays to the shared tables."""
    connection.execute(queries()["managed"], (1,))
    found = connection.execute(queries()["upgrade_order"]).fetchall()
    for t, (number, name, overlay) in enumerate(found, 1):
        tables = _tables(number, name, overlay)
        if overlay == MAIN:
            connection.execute(queries()["upgrade_number"], (t, number))
        else:
            connection.execute(queries()["upgrade_overlaid"], (t, number, overlay))
        copied = (*_COPIED, *(() if overlay == MAIN else ("mask",)))
        rows = sum(
            connection.execute(sql(f"upgrade_{table}", **tables), (t,)).rowcount for table in copied
        )
        for table in tables.values():
            connection.execute(sql("upgrade_drop", table=table))
        _log.info("Upgrade: moved collection %s (%d of %d, %d rows)", name, t, len(found), rows)
    connection.execute(queries()["upgrade_last"], (len(found),))
    connection.execute(queries()["managed"], (0,))


def _tables(number: int, name: str, overlay: int) -> dict[str, str]:
    """Return the quoted names of the tables that a collection had."""
    key, head = str(number), name
    if overlay != MAIN:
        key = f"o{overlay}_{number}"
        head = f"naksha_{key}"
    beside = {"head": head, "del": f"{head}_del", "hst": f"{head}_hst", "meta": f"{head}_meta"}
    indices = ("box", "past", "tag", "past_tag", "gone", "gone_tag")
    names = beside | {each: f"naksha_{each}_{key}" for each in indices} | {"mask": f"{head}_ids"}
    return {slot: ident(each) for slot, each in names.items()}


def add_views(connection: sqlite3.Connection) -> None:
    """Create a view in place of each collection's table, except for names already in use."""
    for row in connection.execute(queries()["collections"], (True,)).fetchall():
        c = CollectionRow(*row)
        if not connection.execute(queries()["view_exists"], (c.id,)).fetchone()[0]:
            add_view(connection, c)


def shrink(connection: sqlite3.Connection) -> None:
    """Release the space of the old tables and enable automatic shrinking.

    A file that other processes are reading keeps its size.
    """
    connection.execute(queries()["auto_vacuum"])
    try:
        connection.execute(queries()["vacuum"])
    except sqlite3.OperationalError as error:
        _log.warning("The upgraded file could not be shrunk and keeps its size: %s", error)
