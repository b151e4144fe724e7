"""What a file keeps twice, compared; see `Storage.mismatches`."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from typing import Final

from naksha.spi.storage import Mismatch
from naksha.sqlite import overlays
from naksha.sqlite.rows import Collection, collection_of
from naksha.sqlite.sql import sql

_TREES: Final = (("head", "box"), ("del", "gone"))
_TAGS: Final = (
    ("head", "tag", "n", "check_tags_all"),
    ("del", "gone_tag", "n", "check_tags_all"),
    ("hst", "past_tag", "i", "check_tags_past"),
)
"""Tables, those of their tags, the number that a row is known by there, and which rows are."""


def mismatches(connection: sqlite3.Connection, name: str, limit: int) -> list[Mismatch]:
    """What is different, of a collection and of all that branches have of it."""
    c = collection_of(connection, name)
    found: list[Mismatch] = []
    for each in (c, *overlays.of(connection, c)):
        for statement in _statements(each):
            rows = connection.execute(statement, (limit,))
            found += [Mismatch(each.overlay, *row) for row in rows]
    for check, values in (("check_log", (limit, name)), ("check_versions", (limit,))):
        rows = connection.execute(sql(check), values)
        found += [Mismatch(c.overlay, id_, txn, text, is_of_log=True) for id_, txn, text in rows]
    return found[:limit]


def _statements(c: Collection) -> Iterator[str]:
    names = c.tables
    for table, tree in _TREES:
        yield sql("check_tree", table=names[table], tree=names[tree])
    yield sql("check_past", **names)
    for table, tags, key, which in _TAGS:
        slots = {"table": names[table], "tags": names[tags], "key": key, "which": sql(which)}
        yield sql("check_tags", **slots)
    for table in ("head", "del", "hst"):
        yield sql("check_rows", table=names[table])
