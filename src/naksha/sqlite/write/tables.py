"""The rows of one collection, as the steps of a transaction write them.

New rows are staged in a temporary table and then written with one statement per table: a statement
that may be refused by a trigger keeps copies of the pages it touches, so one for each row would
copy the same pages over and over.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal

from naksha.sqlite.read.rows import Collection
from naksha.sqlite.sql import queries, sql
from naksha.sqlite.write.states import Old, Signature, as_json
from naksha.sqlite.write.transaction import Box, Transaction


class Tables:
    """A collection that is being written to: on main, or in an overlay."""

    def __init__(self, transaction: Transaction, collection: Collection) -> None:
        self.transaction = transaction
        self.connection = transaction.connection
        self.collection = collection
        transaction.check_order(collection.txn, collection.id)

    def run_staged(self, name: str) -> None:
        """Run a statement on the staged rows alone: their numbers name the collection."""
        self.connection.execute(queries()[name])

    def run(self, name: str, *values: Any) -> None:
        """Run a statement on rows of the collection."""
        self.connection.execute(queries()[name], (self.collection.t, *values))

    def many(self, name: str, rows: Sequence[Sequence[Any]]) -> None:
        """Run a statement for each row."""
        if rows:
            self.connection.executemany(queries()[name], rows)

    def rows(self, name: str, *values: Any) -> list[tuple[Any, ...]]:
        """All rows that a statement gives."""
        return self.connection.execute(queries()[name], (self.collection.t, *values)).fetchall()

    def next_n(self) -> int:
        """The number for a new feature."""
        number: int = self.rows("next_n")[0][0]
        return number

    def old(self, name: str, ids: Iterable[str]) -> dict[str, Old]:
        """Rows of `heads` or `tombstones` by id; none may be of a later transaction."""
        text = sql(name, readable=queries()["geometry_readable"])
        rows = self.connection.execute(text, (self.collection.t, as_json([*ids])))
        found = {row[0]: Old(*row) for row in rows}
        if found:
            latest = max(old.txn for old in found.values())
            self.transaction.check_order(latest, self.collection.id)
        return found

    def geometries(
        self, name: Literal["head_geometries", "tombstone_geometries"], ids: Sequence[str]
    ) -> dict[str, str | None]:
        """The GeoJSON texts of some rows."""
        return dict(self.rows(name, as_json(ids)))

    def signature(self) -> Signature:
        """Draws the number of the transaction, if it has none yet."""
        t = self.transaction
        prefix, app = t.guid_prefix(self.collection.id), as_json(t.app_id)
        return Signature(t.txn, t.ord, prefix, t.app_id, app, t.started_ms, t.wall_ms())

    # ---- What is staged ----------------------------------------------------------------------

    def stage(self, rows: Sequence[Sequence[Any]]) -> None:
        """Stage rows: the number of the feature, then the columns of a state."""
        self.connection.execute(queries()["stage_clear"])
        self.connection.executemany(queries()["stage_insert"], rows)

    def retire_heads(self) -> None:
        """Copy the rows of HEAD that are staged to the history. Of those that this transaction
        made itself only the bare state is kept: nobody can ever have seen them."""
        if self.collection.has_history:
            txn, ord_ = self.transaction.txn, self.transaction.ord
            self.run("heads_to_history", txn)
            self.run("heads_to_past", ord_ - 1, txn)
            self.run("head_tags_to_past", txn)

    def update_heads(self) -> None:
        """Put what is staged in the place of the rows of HEAD."""
        for statement in ("update_heads", "update_heads_signed", "update_heads_moved"):
            self.run_staged(statement)

    def retire_tombs(self) -> None:
        """Move the tombstones of what is staged to the history, as [deleted, now)."""
        if self.collection.has_history:
            self.run("tombs_to_history", self.transaction.txn)
        self.run("delete_tombs")

    def insert_boxes(self, boxes: Iterable[tuple[int, Box | None]]) -> None:
        """Add boxes to the tree."""
        self.many("insert_box", [(n, b[0], b[2], b[1], b[3]) for n, b in boxes if b is not None])

    def move_boxes(self, moved: Iterable[tuple[int, Box | None, Box | None]]) -> None:
        """Change boxes in the tree: the number of the feature, its old box and its new one."""
        changed = [each for each in moved if each[1] != each[2]]
        both = [(n, b) for n, a, b in changed if a is not None and b is not None]
        self.many("move_box", [(b[0], b[2], b[1], b[3], n) for n, b in both])
        self.many("delete_box", [(n,) for n, _, b in changed if b is None])
        self.insert_boxes((n, b) for n, a, b in changed if a is None)
