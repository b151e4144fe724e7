"""Transaction log, with the same columns in every storage: conversion of rows, query checks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from itertools import groupby
from typing import Any, Final

import msgspec

from naksha.model import limits
from naksha.model.errors import InvalidArgument, LimitExceeded
from naksha.model.identity.names import check_text
from naksha.model.identity.txn import txn_of
from naksha.model.transaction import LogFilter, Signal, Transaction
from naksha.spi.query.areas import Box, boxes_of

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def transactions_of(rows: Iterable[Mapping[str, Any]]) -> list[Transaction]:
    """Convert log rows that are ordered by txn, ascending or descending, to transactions."""
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
        overlay=first["overlay"],
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


def check_log_query(after: int, limit: int, where: LogFilter) -> list[Box]:
    """Check a query of the log.

    Returns the boxes of which the changes must meet one; none when there is no spatial test.
    """
    if not 1 <= limit <= limits.PAGE_MAX:
        raise InvalidArgument(
            f"The limit of a log page must be between 1 and {limits.PAGE_MAX}, not {limit}",
            field="limit",
        )
    if not 0 <= after <= limits.INT8_MAX:
        raise InvalidArgument(
            f"The parameter after must be a version from 0 to {limits.INT8_MAX}, not {after}",
            field="after",
        )
    for name in ("collections", "authors", "app_ids", "overlays"):
        among = getattr(where, name)
        if among is not None and len(among) > limits.QUERY_VALUES_MAX:
            raise LimitExceeded(
                f"The log filter {name!r} has {len(among)} values, but at most "
                f"{limits.QUERY_VALUES_MAX} are allowed",
                field=name,
            )
    for name in ("collections", "authors", "app_ids"):
        for text in getattr(where, name) or ():
            check_text(text, limits.MESSAGE_TEXT_BYTES_MAX, field=name)
    if where.text:
        check_text(where.text, limits.MESSAGE_TEXT_BYTES_MAX, field="text")
    return boxes_of(where.bbox)


def first_txn(where: LogFilter) -> int:
    """Return a lower bound of the transactions that started in the given time.

    A number is allocated on the day on which its transaction started, or later.
    """
    if where.started_from is None:
        return 0
    try:
        return txn_of((_EPOCH + timedelta(milliseconds=where.started_from)).date(), 0)
    except (OverflowError, InvalidArgument):
        return 0 if where.started_from < 0 else limits.INT8_MAX
