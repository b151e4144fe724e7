"""Triggers of a collection's table, for writers without the library (`queries/triggers.sql`)."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from typing import Final

from naksha.sqlite.rows import Collection
from naksha.sqlite.sql import queries, sql, statements_of, text_literal

_EVENTS: Final = (
    ("insert", "created", "NEW"),
    ("update", "updated", "OLD"),
    ("delete", "deleted", "OLD"),
)
"""What a trigger is for, what it counts, and the row whose box it counts."""
_NO_GEOMETRY: Final = (
    "A geometry can be written only through Naksha: the index of boxes could not follow"
)


def create_triggers(connection: sqlite3.Connection, made: Collection) -> None:
    """Create the triggers of a collection, in place of those of an earlier release."""
    for script in _scripts(made):
        for statement in statements_of(script):
            connection.execute(statement)


def _scripts(made: Collection) -> Iterator[str]:
    """The scripts that make the triggers, put together from the parts they have in common."""
    slots = made.tables | {
        "columns": queries()["state_columns"],
        "id_literal": text_literal(made.id),
        "no_geometry": text_literal(_NO_GEOMETRY),
    }
    uuid = sql("shell_uuid", **slots)
    for event, what, row in _EVENTS:
        xyz = sql(f"{event}_xyz", uuid=uuid, **slots)
        parts = {
            "begin": queries()["shell_begin"] + ";",
            "log": sql("shell_log", what=what, row=row, **slots) + ";",
            "retire": sql("shell_retire", **slots) + ";",
            "end": sql("shell_end", **slots) + ";",
            "tags": sql("shell_tags", **slots) + ";",
            "refuse_collection": sql("shell_refuse_collection", **slots),
            "refuse_stale": sql(
                "shell_refuse_stale", identities=sql("shell_identities", **slots), **slots
            ),
            "refuse_document": sql("shell_refuse_document", **slots),
            "document": sql("shell_document", xyz=xyz, **slots),
            "xyz": xyz,
        }
        yield sql(f"{event}_triggers", **slots, **parts) + ";"
