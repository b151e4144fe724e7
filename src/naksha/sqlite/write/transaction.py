"""An open transaction: its number, the numbers of its states, and its log entries."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from itertools import chain
from typing import Final, Literal

import numpy as np

from naksha.model import limits
from naksha.model.errors import InvalidArgument, LimitExceeded, NotSupported, Retryable
from naksha.model.geo.tile_cells import cover, covers, merged
from naksha.model.identity.txn import date_of, txn_of
from naksha.model.identity.uuids import ROW_NUMBER_MAX
from naksha.spi.support.write_input import TransactionMessage
from naksha.sqlite.read.layers import MAIN_ONLY, Layers
from naksha.sqlite.read.rows import CollectionRow
from naksha.sqlite.sql import queries

Box = tuple[float, float, float, float]
INT8_MAX: Final = limits.INT8_MAX
_FEW_BOXES: Final = 32
"""Number of boxes up to which their cells are computed one by one, without arrays."""
_TABLE_NUMBER_MAX: Final = 2**22 - 1
"""Largest table number: the float32 R*Trees store it exactly, and also with half a number added."""


@dataclass(slots=True)
class AllocatedNumbers:
    """Numbers allocated in this process, committed or not; none is allocated twice."""

    txn: int = 0
    ord: int = 0
    collection: int = 0
    overlay: int = 0
    i: dict[int, int] = field(default_factory=dict)
    open: dict[int, WriteTransaction] = field(default_factory=dict)
    """Transactions that have a number and may still commit, by their number."""

    def keep(self, connection: sqlite3.Connection) -> None:
        """Store the counters in the file, so that no other process allocates the same numbers."""
        connection.execute(queries()["counters_set"], (self.txn, self.ord))
        connection.execute(queries()["collection_number_set"], (self.collection,))
        connection.execute(queries()["overlay_number_set"], (self.overlay,))
        connection.executemany(
            queries()["next_i_set"], [(i, number) for number, i in self.i.items()]
        )


@dataclass(slots=True)
class CollectionCounts:
    """Changes of a transaction to the features of one collection."""

    created: int = 0
    updated: int = 0
    deleted: int = 0
    purged: int = 0
    box: Box | None = None
    cells: set[int] = field(default_factory=set)
    """Tile cells of all former and new geometries."""

    def grow(self, boxes: Iterable[Box | None]) -> None:
        """Add the boxes of former and new geometries."""
        present = [box for box in boxes if box is not None]
        if len(present) > _FEW_BOXES:
            flat = np.fromiter(chain.from_iterable(present), np.float64, 4 * len(present))
            edges = flat.reshape(-1, 4)
            self.cells = merged(self.cells | covers(edges))
            west, south = edges[:, :2].min(axis=0).tolist()
            east, north = edges[:, 2:].max(axis=0).tolist()
            present = [(west, south, east, north)]
        elif present:
            self.cells = merged(self.cells.union(*(cover(*box) for box in {*present})))
        if self.box is not None:
            present.append(self.box)
        if present:
            wests, souths, easts, norths = zip(*present, strict=True)
            self.box = (min(wests), min(souths), max(easts), max(norths))


class WriteTransaction:
    """A transaction on the writer's connection.

    It can be undone and repeated after another transaction ran in between; it then keeps its
    number, and its states keep theirs.
    """

    def __init__(
        self,
        storage_id: str,
        counters: AllocatedNumbers,
        app_id: str,
        author: str | None,
        at_ms: int | None,
        *,
        dated: bool,
        layers: Layers = MAIN_ONLY,
    ) -> None:
        self.storage_id = storage_id
        self.layers = self._begins_on = layers
        self.app_id = app_id
        self.author = author
        self.started_ms = time.time_ns() // 1_000_000 if at_ms is None else at_ms
        self.dated_ms = at_ms
        self._is_import = dated
        self._counters = counters
        self._txn: int | None = None
        self.ord = 0
        self._given: list[tuple[int | str, int, int]] = []
        self._given_again = 0
        self._looks: list[int] = []
        self._looks_again = 0
        self.changes: dict[str, CollectionCounts] = {}
        self.collections: dict[str, None] = {}
        self.messages: dict[str, TransactionMessage] = {}
        self.connection: sqlite3.Connection

    def fresh(self) -> WriteTransaction:
        """Return a new transaction with the same app id, author and start time."""
        return WriteTransaction(
            self.storage_id,
            self._counters,
            self.app_id,
            self.author,
            self.dated_ms,
            dated=self._is_import,
        )

    @property
    def overlay(self) -> int:
        """The overlay that the transaction writes to."""
        return self.layers[0].overlay

    # ---- Numbers -----------------------------------------------------------------------------

    @property
    def drawn(self) -> int | None:
        """The txn if it is already drawn, else None."""
        return self._txn

    @property
    def logged(self) -> int | None:
        """The txn once there is something to log; None if the transaction changed nothing."""
        return self._txn if self.changes or self.collections or self.messages else None

    @property
    def txn(self) -> int:
        """The txn, drawn at first access."""
        if self._txn is None:
            self._draw()
        assert self._txn is not None
        return self._txn

    def _draw(self) -> None:
        last, last_ord, _ = self.connection.execute(queries()["counters"]).fetchone()
        day = self._day()
        if self._is_import:
            self._check_import(last)
        counters = self._counters
        # An import has its own date, so numbers that were drawn today and rolled back do not count.
        taken = max(counters.open, default=0) if self._is_import else counters.txn
        self._txn = max(last + 1, taken + 1, txn_of(day, 1))
        self.ord = max(last_ord, counters.ord) + 1
        counters.txn, counters.ord = max(counters.txn, self._txn), self.ord
        counters.open[self._txn] = self
        self._keep_counters()

    def _day(self) -> date:
        try:
            return datetime.fromtimestamp(self.started_ms / 1000, UTC).date()
        except (OverflowError, OSError, ValueError) as error:
            raise InvalidArgument(
                f"The start time of a transaction must be in milliseconds since 1970 and before "
                f"the year 10000, not {self.started_ms}",
                field="at_ms",
            ) from error

    def _keep_counters(self) -> None:
        self.connection.execute(queries()["counters_set"], (self._txn, self.ord))

    def _check_import(self, last: int) -> None:
        """Check that a history import comes after all existing transactions."""
        row = self.connection.execute(queries()["last_version"]).fetchone()
        day = self._day()
        if (row is not None and self.started_ms < row[2]) or (last and day < date_of(last)):
            raise NotSupported(
                "The storage has transactions that are later than the one to import; import "
                "history in chronological order or into a new storage",
                field="at_ms",
            )

    def take_collection(self) -> int:
        """Allocate the number of a new collection."""
        return self._take_number("collection")

    def take_overlay(self) -> int:
        """Allocate the number of a new overlay."""
        return self._take_number("overlay")

    def take_table(self) -> int:
        """Allocate the table number of a new collection, on main or in an overlay.

        A repeated transaction may get another one, because callers do not see it.
        """
        number: int = self.connection.execute(queries()["take_table"]).fetchone()[0]
        if number > _TABLE_NUMBER_MAX:
            raise LimitExceeded(
                f"All {_TABLE_NUMBER_MAX} table numbers of the file are used, including those of "
                "deleted collections; use another file"
            )
        return number

    def _take_number(self, what: Literal["collection", "overlay"]) -> int:
        if self._given_again == len(self._given):
            row = self.connection.execute(queries()[f"{what}_last"]).fetchone()
            number = max(row[0], getattr(self._counters, what)) + 1
            setattr(self._counters, what, number)
            self._given.append((what, number, 0))
        given, number, _ = self._given[self._given_again]
        if given != what:
            raise Retryable(
                "Another transaction changed the storage in the meantime; repeat this transaction"
            )
        self._given_again += 1
        self.connection.execute(queries()[f"{what}_number_set"], (number,))
        return number

    def take(self, collection: CollectionRow, count: int) -> int:
        """Allocate `count` consecutive state numbers; return the first."""
        if self._given_again < len(self._given):
            given, start, taken = self._given[self._given_again]
            if (given, taken) != (collection.number, count):
                raise Retryable(
                    f"Another transaction changed collection {collection.id!r} in the meantime; "
                    "repeat this transaction",
                    collection_id=collection.id,
                )
        else:
            known = self._counters.i
            start = max(collection.next_i, known.get(collection.number, 1))
            if start + count > ROW_NUMBER_MAX:
                raise LimitExceeded(
                    f"Collection {collection.id!r} has used all of its {ROW_NUMBER_MAX} state "
                    "numbers; copy it to a new collection and write there"
                )
            known[collection.number] = start + count
            self._given.append((collection.number, start, count))
        self._given_again += 1
        self.connection.execute(queries()["collection_next_i"], (start + count, collection.id))
        return start

    def wall_ms(self) -> int:
        """Return the wall-clock time; a repeated transaction gets the same times again."""
        if self._looks_again == len(self._looks):
            self._looks.append(time.time_ns() // 1_000_000)
        self._looks_again += 1
        return self._looks[self._looks_again - 1]

    def guid_prefix(self, collection: str) -> str:
        """Return the prefix of the GUIDs of this transaction's states in a collection."""
        day = date_of(self.txn)
        return f"{self.storage_id}:{collection}:{day.year}:{day.month}:{day.day}:"

    # ---- Order -------------------------------------------------------------------------------

    def check_order(self, latest: int, collection: str) -> None:
        """Check that no later transaction wrote the state, tombstone or collection.

        Raises:
            Retryable: `latest` is a later transaction.
        """
        if self._txn is not None and latest > self._txn:
            raise Retryable(
                f"A later transaction already wrote to collection {collection!r}; repeat this "
                "transaction",
                collection_id=collection,
            )

    def begin_again(self) -> None:
        """Reset the transaction so that its steps can be repeated with the same numbers."""
        self.changes, self.collections, self.messages = {}, {}, {}
        self.layers = self._begins_on
        self._given_again = self._looks_again = 0
        if self._txn is not None:
            published = self.connection.execute(queries()["counters"]).fetchone()[2]
            # Another process, which does not know this number, may even have drawn it as well.
            if published >= self._txn:
                raise Retryable("A later transaction is already published; repeat this transaction")
            self._keep_counters()

    def end(self) -> None:
        """Mark the transaction as committed or rolled back."""
        if self._txn is not None:
            self._counters.open.pop(self._txn, None)

    # ---- Log ---------------------------------------------------------------------------------

    def changes_of(self, collection: str) -> CollectionCounts:
        return self.changes.setdefault(collection, CollectionCounts())

    def add_message(self, name: str, message: TransactionMessage) -> None:
        if name not in self.messages and len(self.messages) == limits.MESSAGES_MAX:
            raise LimitExceeded(
                f"The transaction already has {limits.MESSAGES_MAX} messages, the maximum; omit "
                f"the message {name!r:.64}",
                field="message",
            )
        self.messages[name] = message

    def write_log(self) -> None:
        """Write the log entries, at the end of the transaction."""
        if self.logged is None and not (self.changes or self.collections or self.messages):
            return
        head = (self.overlay, self.started_ms, self.dated_ms, self.txn, self.ord)
        who = (self.app_id, self.author)
        no_message, no_counts, no_box = (None,) * 3, (0,) * 4, (None,) * 4
        nothing = (*no_message, *no_counts, *no_box, None)
        rows: list[tuple[object, ...]] = [
            (*head, "MODIFY_COLLECTION", name, *who, *nothing) for name in self.collections
        ]
        for name, c in self.changes.items():
            counts = (c.created, c.updated, c.deleted, c.purged)
            cells = str(sorted(c.cells))
            rows.append((
                *head, "MODIFY_FEATURES", name, *who, *no_message, *counts, *(c.box or no_box),
                cells,
            ))  # fmt: skip
        for name, m in self.messages.items():
            message = (m.text, m.json, m.binary)
            rows.append((*head, "MESSAGE", name, *who, *message, *no_counts, *no_box, None))
        self.connection.executemany(queries()["log_insert"], rows)


Operation = Callable[[WriteTransaction], object]
"""A step of a transaction."""


def publish(connection: sqlite3.Connection, below: int, now_ms: int) -> int:
    """Publish the committed transactions below a bound; return the last seq_number, 0 for none."""
    due = connection.execute(queries()["due"], (below,)).fetchall()
    if not due:
        return 0
    last = connection.execute(queries()["last_version"]).fetchone()
    number, last_ms = (0, None) if last is None else (last[0], last[2])
    for txn, ord_, dated in due:
        number += 1
        own_ms = now_ms if dated is None else dated
        last_ms = own_ms if last_ms is None else max(last_ms, own_ms)
        connection.execute(queries()["version_insert"], (number, txn, last_ms, ord_))
        connection.execute(queries()["log_publish"], (number, last_ms, txn))
    return int(number)
