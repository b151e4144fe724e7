"""The way from files where every collection had tables of its own (up to schema 6) to shared
tables, in one transaction."""

from __future__ import annotations

import logging
import shutil
import sqlite3
from pathlib import Path
from typing import Final

from naksha.model.errors import NotSupported, Unavailable
from naksha.model.transaction import MAIN
from naksha.sqlite.read.rows import Collection
from naksha.sqlite.schema.shell import add_view
from naksha.sqlite.sql import ident, queries, sql

_log: Final = logging.getLogger(__name__)
ROOM: Final = 3
"""How many times its size a file needs on the disk: old rows, new rows, and the vacuum."""
_COPIED: Final = ("head", "box", "tag", "del", "hst", "past", "past_tag", "meta")


def check_upgrade(path: Path, *, read_only: bool) -> None:
    """Refuse to upgrade a file that must not be written, or for which there is no room."""
    if read_only:
        raise NotSupported(
            f"{path} is of an older Naksha; open it once without read_only, which upgrades it",
            field="file",
        )
    needed, free = ROOM * path.stat().st_size, shutil.disk_usage(path.parent).free
    if free < needed:
        raise Unavailable(
            f"{path} is of an older Naksha, and its upgrade needs {needed} bytes on the disk, "
            f"which has {free}; free {needed - free} bytes and open it again"
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
        _log.info("Upgrade: moved %s, %d of %d, %d rows", name, t, len(found), rows)
    connection.execute(queries()["upgrade_last"], (len(found),))
    connection.execute(queries()["managed"], (0,))


def _tables(number: int, name: str, overlay: int) -> dict[str, str]:
    """The tables that a collection had, as they are quoted."""
    key, head = str(number), name
    if overlay != MAIN:
        key = f"o{overlay}_{number}"
        head = f"naksha_{key}"
    beside = {"head": head, "del": f"{head}_del", "hst": f"{head}_hst", "meta": f"{head}_meta"}
    indices = ("box", "past", "tag", "past_tag", "gone", "gone_tag")
    names = beside | {each: f"naksha_{each}_{key}" for each in indices} | {"mask": f"{head}_ids"}
    return {slot: ident(each) for slot, each in names.items()}


def add_views(connection: sqlite3.Connection) -> None:
    """Put a view in the place of each collection's table, but for names that the file has taken."""
    for row in connection.execute(queries()["collections"], (True,)).fetchall():
        c = Collection(*row)
        if not connection.execute(queries()["view_exists"], (c.id,)).fetchone()[0]:
            add_view(connection, c)


def shrink(connection: sqlite3.Connection) -> None:
    """Give the room of the old tables back, and let the file shrink from now on. A file that others
    read at the moment stays as large as it is."""
    connection.execute(queries()["auto_vacuum"])
    try:
        connection.execute(queries()["vacuum"])
    except sqlite3.OperationalError as error:
        _log.warning("The upgraded file is not shrunk: %s", error)
