"""Changesets: published transactions with author, time, message and touched collections."""

from __future__ import annotations

from typing import Final

import msgspec

from naksha.model.errors import InvalidArgument
from naksha.model.query import Bbox, Spatial
from naksha.model.transaction import Signal, Transaction
from naksha.model.version import Version
from naksha.spi.query.areas import boxes_of
from naksha.versioning.lines import Line

MESSAGE: Final = "message"
"""The id of the signal that holds the commit message."""
Box = tuple[float, float, float, float]


class CollectionEffect(msgspec.Struct, frozen=True):
    """The effect of a changeset on one collection."""

    collection: str
    created: int
    updated: int
    deleted: int
    purged: int
    bbox: Box | None


class Changeset(msgspec.Struct, frozen=True, kw_only=True):
    """A published transaction."""

    version: Version
    author: str | None
    app_id: str
    started_ms: int
    message: str | None
    touched: tuple[CollectionEffect, ...]
    collections_changed: tuple[str, ...]
    """Collections that were themselves created, changed, dropped or restored."""
    attachments: tuple[Signal, ...]
    """All messages, including the commit message."""
    overlay: int

    @property
    def bbox(self) -> Box | None:
        """The box around all old and new geometries, None without any."""
        boxes = [each.bbox for each in self.touched if each.bbox is not None]
        if not boxes:
            return None
        wests, souths, easts, norths = zip(*boxes, strict=True)
        return (min(wests), min(souths), max(easts), max(norths))


async def changeset(line: Line, version: Version) -> Changeset:
    """Return the changeset that made a version."""
    return changeset_of(await line.storage.transaction(version.txn))


def changeset_of(transaction: Transaction) -> Changeset:
    """Return the changeset of a transaction from the log.

    Raises:
        InvalidArgument: The transaction is not published.
    """
    if transaction.seq_number is None or transaction.published_ms is None:
        raise InvalidArgument(
            f"Transaction {transaction.txn} is not published yet, so it has no version; retry "
            "later",
            field="txn",
        )
    signals = transaction.signals
    messages = tuple(s for s in signals if s.action == "MESSAGE")
    return Changeset(
        version=Version(transaction.seq_number, transaction.txn, transaction.published_ms),
        author=transaction.author,
        app_id=transaction.app_id,
        started_ms=transaction.started_ms,
        message=next((s.text for s in messages if s.id == MESSAGE), None),
        touched=tuple(
            CollectionEffect(s.id, s.created, s.updated, s.deleted, s.purged, s.bbox)
            for s in signals
            if s.action == "MODIFY_FEATURES"
        ),
        collections_changed=tuple(s.id for s in signals if s.action == "MODIFY_COLLECTION"),
        attachments=messages,
        overlay=transaction.overlay,
    )


def box_of(area: Spatial | None) -> Bbox | None:
    """Return the box that changes must intersect; a `Bbox` may cross the antimeridian."""
    if area is None or isinstance(area, Bbox):
        return area
    (box,) = boxes_of(area)
    return Bbox(*box)
