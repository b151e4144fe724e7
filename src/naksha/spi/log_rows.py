"""Rows of the transaction log, which every storage keeps in the same columns, as transactions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import Any

import msgspec

from naksha.model.transaction import Signal, Transaction


def transactions_of(rows: Iterable[Mapping[str, Any]]) -> list[Transaction]:
    """Transactions from log rows that are ordered by txn."""
    return [_transaction(list(group)) for _, group in groupby(rows, key=lambda row: row["txn"])]


def _transaction(rows: list[Mapping[str, Any]]) -> Transaction:
    first = rows[0]
    return Transaction(
        txn=first["txn"],
        started_ms=first["ts_ms"],
        seq_number=first["seq_number"],
        published_ms=first["seq_ms"] if first["seq_number"] is not None else None,
        app_id=first["app_id"],
        author=first["author"],
        signals=tuple(_signal(row) for row in rows),
    )


def _signal(row: Mapping[str, Any]) -> Signal:
    box = (row["west"], row["south"], row["east"], row["north"])
    return Signal(
        action=row["action"],
        id=row["id"],
        created=row["created"],
        updated=row["updated"],
        deleted=row["deleted"],
        purged=row["purged"],
        bbox=None if box[0] is None else box,
        text=row["msg_text"],
        json=None if row["msg_json"] is None else msgspec.json.decode(row["msg_json"]),
        binary=row["msg_binary"],
    )
