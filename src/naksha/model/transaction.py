"""Transactions as the log tells them."""

from __future__ import annotations

from typing import Any

import msgspec


class Signal(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of a transaction: features changed, a collection changed, or a message.

    `id` is the collection for MODIFY_FEATURES and MODIFY_COLLECTION, else the message's id.
    `bbox` (west, south, east, north) covers old and new geometries of the changed features.
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
    """A committed transaction with all its signals; `seq_number` is None until published."""

    txn: int
    started_ms: int
    seq_number: int | None
    published_ms: int | None
    app_id: str
    author: str | None
    signals: tuple[Signal, ...]


class PublicationStatus(msgspec.Struct, frozen=True, kw_only=True):
    """How far publication is, and what holds it back (None when nothing does)."""

    last_seq_number: int
    last_txn: int
    unpublished: int
    held_back_by: str | None = None
    held_back_since_ms: int | None = None
