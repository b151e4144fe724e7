"""One transaction under way: its number, the numbers of its states, and what it did (the log)."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from typing import Final, Literal

from naksha.model import limits
from naksha.model.errors import InvalidArgument, LimitExceeded, NotSupported, Retryable
from naksha.model.identity.txn import date_of, txn_of
from naksha.model.identity.uuids import ROW_NUMBER_MAX
from naksha.sqlite.read.layers import MAIN_ONLY, Layers
from naksha.sqlite.read.rows import Collection
from naksha.sqlite.sql import queries

Box = tuple[float, float, float, float]
INT8_MAX: Final = limits.INT8_MAX
TABLE_NUMBER_MAX: Final = 2**22 - 1
"""The largest table number that the trees hold exactly, and half more of it."""


@dataclass(slots=True)
class Counters:
    """Numbers given out in this process, committed or not: none is given out twice."""

    txn: int = 0
    ord: int = 0
    collection: int = 0
    overlay: int = 0
    i: dict[int, int] = field(default_factory=dict)
    open: dict[int, Transaction] = field(default_factory=dict)
    """Transactions that have a number and may still commit, by it."""

    def keep(self, connection: sqlite3.Connection) -> None:
        """Write down what was given out, so that nobody else gives it out."""
        connection.execute(queries()["counters_set"], (self.txn, self.ord))
        connection.execute(queries()["collection_number_set"], (self.collection,))
        connection.execute(queries()["overlay_number_set"], (self.overlay,))
        connection.executemany(
            queries()["next_i_set"], [(i, number) for number, i in self.i.items()]
        )


@dataclass(slots=True)
class Changes:
    """What a transaction did to the features of one collection."""

    created: int = 0
    updated: int = 0
    deleted: int = 0
    purged: int = 0
    box: Box | None = None

    def grow(self, box: Box | None) -> None:
        """Cover another box."""
        if box is not None:
            mine = self.box or box
            self.box = (
                min(mine[0], box[0]),
                min(mine[1], box[1]),
                max(mine[2], box[2]),
                max(mine[3], box[3]),
            )


@dataclass(frozen=True, slots=True)
class Message:
    text: str | None
    json: str | None
    binary: bytes | None


class Transaction:
    """Bound to the writer's connection. It can be undone and done again, when another one was let
    in between: then it keeps its number, and its states keep theirs."""

    def __init__(
        self,
        storage_id: str,
        counters: Counters,
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
        self.changes: dict[str, Changes] = {}
        self.collections: dict[str, None] = {}
        self.messages: dict[str, Message] = {}
        self.connection: sqlite3.Connection

    def fresh(self) -> Transaction:
        """Another one by the same hand."""
        return Transaction(
            self.storage_id,
            self._counters,
            self.app_id,
            self.author,
            self.dated_ms,
            dated=self._is_import,
        )

    @property
    def overlay(self) -> int:
        """Where it writes to."""
        return self.layers[0].overlay

    # ---- Numbers -----------------------------------------------------------------------------

    @property
    def drawn(self) -> int | None:
        """The number, if there is one yet."""
        return self._txn

    @property
    def logged(self) -> int | None:
        """The number once there is something to tell: one that changed nothing has none."""
        return self._txn if self.changes or self.collections or self.messages else None

    @property
    def txn(self) -> int:
        """The number, drawn when first asked for."""
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
        # An import is as old as it says: what was given up today does not count.
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
            raise InvalidArgument(f"No time is {self.started_ms} ms", field="at_ms") from error

    def _keep_counters(self) -> None:
        self.connection.execute(queries()["counters_set"], (self._txn, self.ord))

    def _check_import(self, last: int) -> None:
        """A history import must come after everything that is there."""
        row = self.connection.execute(queries()["last_version"]).fetchone()
        day = self._day()
        if (row is not None and self.started_ms < row[2]) or (last and day < date_of(last)):
            raise NotSupported(
                "The storage has transactions later than the one to import", field="at_ms"
            )

    def take_collection(self) -> int:
        """The number for a new collection."""
        return self._take_number("collection")

    def take_overlay(self) -> int:
        """The number for a new overlay."""
        return self._take_number("overlay")

    def take_table(self) -> int:
        """The table number of a new collection, or of what an overlay has of one. Done again, it
        may be another: callers do not see it."""
        number: int = self.connection.execute(queries()["take_table"]).fetchone()[0]
        if number > TABLE_NUMBER_MAX:
            raise LimitExceeded(f"The file had {TABLE_NUMBER_MAX} collections and takes no more")
        return number

    def _take_number(self, what: Literal["collection", "overlay"]) -> int:
        if self._given_again == len(self._given):
            row = self.connection.execute(queries()[f"{what}_last"]).fetchone()
            number = max(row[0], getattr(self._counters, what)) + 1
            setattr(self._counters, what, number)
            self._given.append((what, number, 0))
        given, number, _ = self._given[self._given_again]
        if given != what:
            raise Retryable("Something else was written meanwhile")
        self._given_again += 1
        self.connection.execute(queries()[f"{what}_number_set"], (number,))
        return number

    def take(self, collection: Collection, count: int) -> int:
        """The first of so many numbers for states."""
        if self._given_again < len(self._given):
            given, start, taken = self._given[self._given_again]
            if (given, taken) != (collection.number, count):
                raise Retryable("Something else was written meanwhile", collection_id=collection.id)
        else:
            known = self._counters.i
            start = max(collection.next_i, known.get(collection.number, 1))
            if start + count > ROW_NUMBER_MAX:
                raise LimitExceeded("The collection has no state numbers left")
            known[collection.number] = start + count
            self._given.append((collection.number, start, count))
        self._given_again += 1
        self.connection.execute(queries()["collection_next_i"], (start + count, collection.id))
        return start

    def wall_ms(self) -> int:
        """The time on the wall; done again, it is what it was the first time."""
        if self._looks_again == len(self._looks):
            self._looks.append(time.time_ns() // 1_000_000)
        self._looks_again += 1
        return self._looks[self._looks_again - 1]

    def guid_prefix(self, collection: str) -> str:
        """What the GUIDs of this transaction's states begin with."""
        day = date_of(self.txn)
        return f"{self.storage_id}:{collection}:{day.year}:{day.month}:{day.day}:"

    # ---- Order -------------------------------------------------------------------------------

    def check_order(self, latest: int, collection: str) -> None:
        """A state, tombstone or collection change of a later transaction is in the way."""
        if self._txn is not None and latest > self._txn:
            raise Retryable(
                "A later transaction was here first; repeat the transaction",
                collection_id=collection,
            )

    def begin_again(self) -> None:
        """Everything is to be done once more, under the same numbers."""
        self.changes, self.collections, self.messages = {}, {}, {}
        self.layers = self._begins_on
        self._given_again = self._looks_again = 0
        if self._txn is not None:
            published = self.connection.execute(queries()["counters"]).fetchone()[2]
            # Another process may even have drawn the same number: it cannot know of ours.
            if published >= self._txn:
                raise Retryable("A later transaction is published already; repeat the transaction")
            self._keep_counters()

    def end(self) -> None:
        """Committed, or given up."""
        if self._txn is not None:
            self._counters.open.pop(self._txn, None)

    # ---- Log ---------------------------------------------------------------------------------

    def changes_of(self, collection: str) -> Changes:
        return self.changes.setdefault(collection, Changes())

    def add_message(self, name: str, message: Message) -> None:
        if name not in self.messages and len(self.messages) == limits.MESSAGES_MAX:
            raise LimitExceeded(f"More than {limits.MESSAGES_MAX} messages", field="message")
        self.messages[name] = message

    def write_log(self) -> None:
        """Write the signals, at the end of the transaction."""
        if self.logged is None and not (self.changes or self.collections or self.messages):
            return
        head = (self.overlay, self.started_ms, self.dated_ms, self.txn, self.ord)
        who = (self.app_id, self.author)
        no_message, no_counts, no_box = (None,) * 3, (0,) * 4, (None,) * 4
        nothing = (*no_message, *no_counts, *no_box)
        rows: list[tuple[object, ...]] = [
            (*head, "MODIFY_COLLECTION", name, *who, *nothing) for name in self.collections
        ]
        for name, c in self.changes.items():
            counts = (c.created, c.updated, c.deleted, c.purged)
            rows.append(
                (*head, "MODIFY_FEATURES", name, *who, *no_message, *counts, *(c.box or no_box))
            )
        for name, m in self.messages.items():
            message = (m.text, m.json, m.binary)
            rows.append((*head, "MESSAGE", name, *who, *message, *no_counts, *no_box))
        self.connection.executemany(queries()["log_insert"], rows)


Operation = Callable[[Transaction], object]
"""A step of a transaction."""


def publish(connection: sqlite3.Connection, below: int, now_ms: int) -> int:
    """Give numbers to committed transactions below a bound; tells the last one, 0 for none."""
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
