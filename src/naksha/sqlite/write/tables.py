"""Writes to the rows of one collection within a transaction.

New rows are staged in a temporary table and then written with one statement per table. A statement
that a trigger may abort keeps copies of the pages it touches, so one statement per row would copy
the same pages over and over.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal

from naksha.sqlite.read.rows import CollectionRow
from naksha.sqlite.sql import queries, sql
from naksha.sqlite.write.states import OldState, TransactionStamp, as_json
from naksha.sqlite.write.transaction import Box, WriteTransaction


class CollectionTables:
    """A collection opened for writing, on main or in an overlay."""

    def __init__(self, transaction: WriteTransaction, collection: CollectionRow) -> None:
        self.transaction = transaction
        self.connection = transaction.connection
        self.collection = collection
        transaction.check_order(collection.txn, collection.id)

    def run_staged(self, name: str) -> None:
        """Run a statement on the staged rows alone; their row numbers imply the collection."""
        self.connection.execute(queries()[name])

    def run(self, name: str, *values: Any) -> None:
        """Run a statement on rows of the collection."""
        self.connection.execute(queries()[name], (self.collection.t, *values))

    def many(self, name: str, rows: Sequence[Sequence[Any]]) -> None:
        """Run a statement for each row."""
        if rows:
            self.connection.executemany(queries()[name], rows)

    def rows(self, name: str, *values: Any) -> list[tuple[Any, ...]]:
        """Run a statement on the collection; return all rows."""
        return self.connection.execute(queries()[name], (self.collection.t, *values)).fetchall()

    def next_n(self) -> int:
        """Return the next free row number."""
        number: int = self.rows("next_n")[0][0]
        return number

    def old(self, name: str, ids: Iterable[str]) -> dict[str, OldState]:
        """Return rows of `heads` or `tombstones` by id.

        Raises:
            Retryable: One of them was written by a later transaction.
        """
        text = sql(name, readable=queries()["geometry_readable"])
        rows = self.connection.execute(text, (self.collection.t, as_json([*ids])))
        found = {row[0]: OldState(*row) for row in rows}
        if found:
            latest = max(old.txn for old in found.values())
            self.transaction.check_order(latest, self.collection.id)
        return found

    def geometries(
        self, name: Literal["head_geometries", "tombstone_geometries"], ids: Sequence[str]
    ) -> dict[str, str | None]:
        """Return the GeoJSON texts of some rows by id."""
        return dict(self.rows(name, as_json(ids)))

    def signature(self) -> TransactionStamp:
        """Return the values shared by new states; draws the txn if there is none yet."""
        t = self.transaction
        prefix, app = t.guid_prefix(self.collection.id), as_json(t.app_id)
        return TransactionStamp(t.txn, t.ord, prefix, t.app_id, app, t.started_ms, t.wall_ms())

    # ---- Staged rows -------------------------------------------------------------------------

    def stage(self, rows: Sequence[Sequence[Any]]) -> None:
        """Stage rows: the row number of the feature, then the columns of a state."""
        self.connection.execute(queries()["stage_clear"])
        self.connection.executemany(queries()["stage_insert"], rows)

    def retire_heads(self) -> None:
        """Copy the HEAD rows of the staged features to the history.

        Rows that this transaction itself wrote are kept there without boxes and tags, because they
        were never visible.
        """
        if self.collection.has_history:
            txn, ord_ = self.transaction.txn, self.transaction.ord
            self.run("heads_to_history", txn)
            self.run("heads_to_past", ord_ - 1, txn)
            self.run("head_tags_to_past", txn)

    def update_heads(self) -> None:
        """Replace the HEAD rows of the staged features with the staged rows."""
        for statement in ("update_heads", "update_heads_signed", "update_heads_moved"):
            self.run_staged(statement)

    def retire_tombs(self) -> None:
        """Move the tombstones of the staged features to the history, as [deleted, now)."""
        if self.collection.has_history:
            self.run("tombs_to_history", self.transaction.txn)
        self.run("delete_tombs")

    def insert_boxes(self, boxes: Iterable[tuple[int, Box | None]]) -> None:
        """Add boxes of states of this transaction to the R*Tree."""
        self.many("insert_box", [self._box_row(n, b) for n, b in boxes if b is not None])

    def move_boxes(self, moved: Iterable[tuple[int, Box | None, Box | None]]) -> None:
        """Change boxes in the R*Tree; takes row number, old box and new box of each feature."""
        changed = [each for each in moved if each[1] != each[2]]
        both = [(n, b) for n, a, b in changed if a is not None and b is not None]
        self.many("move_box", [self._box_row(n, b) for n, b in both])
        self.many("delete_box", [(n,) for n, _, b in changed if b is None])
        self.insert_boxes((n, b) for n, a, b in changed if a is None)

    def _box_row(self, n: int, box: Box) -> tuple[float, ...]:
        west, south, east, north = box
        return n, west, east, south, north, self.transaction.ord
