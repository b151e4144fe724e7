"""Transactions as recorded in the transaction log."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from naksha.model.query import Bbox

MAIN: Final = 0
"""Overlay number of main, that is of transactions that are not on a branch."""


class Signal(msgspec.Struct, frozen=True, kw_only=True):
    """Entry of a transaction: features changed, a collection changed, or a message.

    `id` is the collection for MODIFY_FEATURES and MODIFY_COLLECTION, else the message's id. `bbox`
    (west, south, east, north) covers old and new geometries of the changed features.
    """

    action: str
    id: str
    created: int = 0
    updated: int = 0
    deleted: int = 0
    purged: int = 0
    bbox: tuple[float, float, float, float] | None = None
    text: str | None = None
    json: Any = None
    binary: bytes | None = None


class Transaction(msgspec.Struct, frozen=True, kw_only=True):
    """Committed transaction with all its signals; `seq_number` is None until published.

    `overlay` is the overlay that its features were written to, or MAIN.
    """

    txn: int
    started_ms: int
    seq_number: int | None
    published_ms: int | None
    app_id: str
    author: str | None
    signals: tuple[Signal, ...]
    overlay: int = MAIN


class LogFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Filter of transactions in the log; all given parts must hold.

    `collections`: one of them was changed (features or the collection itself). `from_ms` and
    `to_ms` (inclusive, exclusive; epoch milliseconds) test the time of publication, `started_from`
    and `started_to` the start of the transaction, which is the `updatedAt` of its states.
    `unsigned` adds the transactions without an author to those of `authors`. `text`: a message
    contains it, ignoring case. `bbox` meets the box around the changes of one of the collections
    (of `collections`, when given); transactions that changed no geometry have none. `overlays`: the
    overlays written to, None for all.
    """

    collections: tuple[str, ...] | None = None
    authors: tuple[str, ...] | None = None
    unsigned: bool = False
    app_ids: tuple[str, ...] | None = None
    from_ms: int | None = None
    to_ms: int | None = None
    started_from: int | None = None
    started_to: int | None = None
    text: str | None = None
    bbox: Bbox | None = None
    overlays: tuple[int, ...] | None = (MAIN,)


MAIN_LOG: Final = LogFilter()
"""All transactions on main."""


class PublicationStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Progress of publication, and what holds it back (None when nothing does)."""

    last_seq_number: int
    last_txn: int
    unpublished: int
    held_back_by: str | None = None
    held_back_since_ms: int | None = None
