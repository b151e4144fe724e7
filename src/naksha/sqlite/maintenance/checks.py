"""Consistency checks between redundant tables of a file; see `Storage.mismatches`."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from typing import Final

from naksha.model.damage import DAMAGED
from naksha.spi.storage import Mismatch
from naksha.sqlite.read.rows import collection_of
from naksha.sqlite.sql import sql, text_literal
from naksha.sqlite.write import overlays

_TREES: Final = (
    ("naksha_head", "naksha_box", "check_time_head"),
    ("naksha_del", "naksha_gone", "check_time_del"),
)
"""Tables, their trees, and the condition on the time in the tree."""
_TAGS: Final = (
    ("naksha_head", "naksha_tag", "check_tags_all"),
    ("naksha_del", "naksha_gone_tag", "check_tags_all"),
    ("naksha_hst", "naksha_past_tag", "check_tags_past"),
)
"""Tables, their tag tables, and the query for the rows that have tags there."""


def mismatches(connection: sqlite3.Connection, name: str, limit: int) -> list[Mismatch]:
    """Return mismatches of a collection, including its rows on branches."""
    c = collection_of(connection, name)
    found: list[Mismatch] = []
    for each in (c, *overlays.of(connection, c)):
        for statement in _statements():
            rows = connection.execute(statement, (limit, each.t))
            found += [Mismatch(each.overlay, *row) for row in rows]
    for check, values in (("check_log", (limit, name)), ("check_versions", (limit,))):
        rows = connection.execute(sql(check), values)
        found += [Mismatch(c.overlay, id_, txn, text, is_of_log=True) for id_, txn, text in rows]
    return found[:limit]


def _statements() -> Iterator[str]:
    for table, tree, time in _TREES:
        yield sql("check_tree", table=table, tree=tree, time=sql(time))
    yield sql("check_past")
    for table, tags, which in _TAGS:
        yield sql("check_tags", table=table, tags=tags, which=sql(which))
    for table in ("naksha_head", "naksha_del", "naksha_hst"):
        yield sql("check_rows", table=table, damaged=text_literal(f'$."{DAMAGED}"'))
