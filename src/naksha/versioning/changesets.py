"""The log as people read it: who changed what, where, when and why."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from typing import Any, Final

import msgspec
import shapely

from naksha.model import limits
from naksha.model.errors import CollectionNotFound, Expired, InvalidArgument
from naksha.model.query import Bbox, Intersects, Query, Spatial, States
from naksha.model.transaction import MAIN_LOG, LogFilter, Signal, Transaction
from naksha.model.version import AtSeq, Version
from naksha.spi.query_parts import boxes_of, geometry_of
from naksha.versioning.places import Line, line_of_branch

CHUNK: Final = 10_000
"""Features looked up at once."""
MESSAGE: Final = "message"
"""The id of the message that is the commit message."""
Box = tuple[float, float, float, float]


class Touched(msgspec.Struct, frozen=True):
    """What a changeset did to a collection."""

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
    touched: tuple[Touched, ...]
    collections_changed: tuple[str, ...]
    """Collections that were created, changed, dropped or restored themselves."""
    attachments: tuple[Signal, ...]
    """All messages, the commit message among them."""
    overlay: int

    @property
    def bbox(self) -> Box | None:
        """Around all changes, old and new."""
        boxes = [each.bbox for each in self.touched if each.bbox is not None]
        if not boxes:
            return None
        wests, souths, easts, norths = zip(*boxes, strict=True)
        return (min(wests), min(souths), max(easts), max(norths))


class ChangesetPage(msgspec.Struct, frozen=True):
    """Some changesets and, when there may be more, the version to go on after."""

    changesets: list[Changeset]
    after: int | None


async def changesets(
    line: Line,
    *,
    area: Spatial | None = None,
    where: LogFilter | None = None,
    after: int = 0,
    limit: int = 100,
    newest_first: bool = True,
) -> ChangesetPage:
    """A page of the log of a line.

    Args:
        line: Main or a branch, whose own transactions are given.
        area: A changed feature was or is there. Tested on the features, not only on the box
            around all of them.
        where: Collections, authors, apps, times and texts; its box and overlays follow from
            `area` and `line`.
        after: Go on after this version; 0 for the beginning, or the end when newest first.
        limit: At most so many.
        newest_first: Backwards.
    """
    if not 1 <= limit <= limits.PAGE_MAX:
        raise InvalidArgument(f"limit must be between 1 and {limits.PAGE_MAX}", field="limit")
    asked = where or MAIN_LOG
    if asked.bbox is not None or asked.overlays != MAIN_LOG.overlays:
        raise InvalidArgument("A log is of one line; where, is said by its area", field="where")
    if isinstance(area, Intersects) and shapely.is_empty(geometry_of(area)):
        return ChangesetPage([], None)
    found: list[Changeset] = []
    async for each in _read(line, area, asked, after, limit, newest_first):
        found.append(each)
        if len(found) == limit:
            return ChangesetPage(found, each.version.seq_number)
    return ChangesetPage(found, None)


async def changeset(line: Line, version: Version) -> Changeset:
    """The one that made a version."""
    return changeset_of(await line.storage.transaction(version.txn))


def changeset_of(transaction: Transaction) -> Changeset:
    """A transaction of the log; it must be published."""
    if transaction.seq_number is None or transaction.published_ms is None:
        raise InvalidArgument(f"Transaction {transaction.txn} is not published", field="txn")
    signals = transaction.signals
    messages = tuple(s for s in signals if s.action == "MESSAGE")
    return Changeset(
        version=Version(transaction.seq_number, transaction.txn, transaction.published_ms),
        author=transaction.author,
        app_id=transaction.app_id,
        started_ms=transaction.started_ms,
        message=next((s.text for s in messages if s.id == MESSAGE), None),
        touched=tuple(
            Touched(s.id, s.created, s.updated, s.deleted, s.purged, s.bbox)
            for s in signals
            if s.action == "MODIFY_FEATURES"
        ),
        collections_changed=tuple(s.id for s in signals if s.action == "MODIFY_COLLECTION"),
        attachments=messages,
        overlay=transaction.overlay,
    )


async def _read(
    line: Line,
    area: Spatial | None,
    where: LogFilter,
    after: int,
    limit: int,
    newest_first: bool,
) -> AsyncIterator[Changeset]:
    asked = msgspec.structs.replace(where, overlays=line.overlays, bbox=box_of(area))
    while True:
        part = await line.storage.transactions(after, limit, asked, newest_first=newest_first)
        page = [changeset_of(each) for each in part]
        hit = {each.version.txn for each in page}
        if area is not None:
            hit = await _in_area(line, page, area, where.collections)
        for each in page:
            if each.version.txn in hit:
                yield each
        if len(page) < limit:
            return
        after = page[-1].version.seq_number


def box_of(area: Spatial | None) -> Bbox | None:
    """The box that the changes must meet; that of a box may cross the date line."""
    if area is None or isinstance(area, Bbox):
        return area
    (box,) = boxes_of(area)
    return Bbox(*box)


async def _in_area(
    line: Line,
    page: Iterable[Changeset],
    area: Spatial,
    collections: tuple[str, ...] | None,
) -> set[int]:
    """The transactions that changed a feature which is in the area, or was there before."""
    hit: set[int] = set()
    for each in page:
        for touched in each.touched:
            if collections is not None and touched.collection not in collections:
                continue
            where = line
            if line.branch is not None:
                # Written on the base that the branch had then.
                where = line_of_branch(line.root, line.branch, line.branch.epoch_on(each.overlay))
            if each.version.txn not in hit and await _touches(where, each.version, touched, area):
                hit.add(each.version.txn)
    return hit


async def _touches(line: Line, version: Version, touched: Touched, area: Spatial) -> bool:
    storage, name = line.storage, touched.collection
    own: dict[str, Any] = {
        "states": States.ALL,
        "txn_from": version.txn,
        "txn_to": version.txn + 1,
    }
    at = AtSeq(version.seq_number)
    try:
        if await storage.count(name, Query(spatial=area, **own), at):
            return True
        is_replaced = touched.created > 0 and touched.deleted > 0
        if (touched.updated == 0 and not is_replaced) or version.seq_number == 1:
            # What was created had no place before, and what was deleted has it still; unless it is
            # one feature that was both.
            return False
        ids = [state.id async for state in storage.states(name, Query(**own), at)]
        before = AtSeq(version.seq_number - 1)
        for start in range(0, len(ids), CHUNK):
            part = tuple(ids[start : start + CHUNK])
            if await storage.count(name, Query(spatial=area, ids=part), before):
                return True
        return False
    except (CollectionNotFound, Expired):
        # What cannot be looked at any more is known by its box only, which does meet the area.
        return True
