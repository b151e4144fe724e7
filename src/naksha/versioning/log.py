"""The log of a line: changesets in order, filtered by author, time, collection, text and area.

The log itself records collections, authors, apps, times, texts and boxes. Filters on features are
tested on the states that each changeset made and replaced, for a page of the log at once.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from itertools import groupby
from typing import Final

import msgspec
import shapely

from naksha.model import limits
from naksha.model.errors import CollectionNotFound, Expired, InvalidArgument
from naksha.model.query import Intersects, Query, Spatial
from naksha.model.transaction import MAIN_LOG, LogFilter
from naksha.model.version import AtSeq
from naksha.spi.query.areas import geometry_of
from naksha.versioning.change_filters import ALL, split_query
from naksha.versioning.changesets import Changeset, box_of, changeset_of
from naksha.versioning.feed.events import FeedFilter
from naksha.versioning.feed.state_reader import (
    CollectionFeed,
    CollectionTransaction,
    TooManyChanges,
    collection_transaction,
    touched_in,
)
from naksha.versioning.lines import Line, line_of_branch

CHANGES_AT_ONCE: Final = 10_000
"""Changed features held in memory while a page of the log is tested."""


class ChangesetPage(msgspec.Struct, frozen=True):
    """Some changesets and, if there may be more, the version to continue after."""

    changesets: list[Changeset]
    after: int | None


async def changesets(
    line: Line,
    *,
    area: Spatial | None = None,
    where: LogFilter | None = None,
    query: Query | None = None,
    after: int = 0,
    limit: int = 100,
    newest_first: bool = True,
) -> ChangesetPage:
    """Read a page of the log of a line.

    Args:
        line: Main or a branch; only its own transactions are returned.
        area: A changed feature was or is there: short for a query with this spatial test.
        where: Collections, authors, apps, times and texts of the transactions; its box and
            overlays follow from `query` and `line`.
        query: A changed feature matched before or after the change. Authors, app ids, actions and
            times are those of the states that the change made (see
            `naksha.versioning.change_filters`).
        after: Continue after this version; 0 for the beginning, or the end if newest first.
        limit: Return at most this many.
        newest_first: Whether to read backwards.

    Raises:
        Expired: The states that a filter on features needs are no longer kept. A filter that has
            only an area falls back to the boxes of the changesets instead.
    """
    if not 1 <= limit <= limits.PAGE_MAX:
        raise InvalidArgument(
            f"The limit of a log page must be between 1 and {limits.PAGE_MAX} changesets,"
            f" not {limit}",
            field="limit",
        )
    log_filter = where or MAIN_LOG
    if log_filter.bbox is not None or log_filter.overlays != MAIN_LOG.overlays:
        raise InvalidArgument(
            "The argument where must not contain a bbox or overlays; use area for the bbox and "
            "line for the overlays",
            field="where",
        )
    features = _with_area(query or ALL, area)
    if isinstance(features.spatial, Intersects) and shapely.is_empty(geometry_of(features.spatial)):
        return ChangesetPage([], None)
    found: list[Changeset] = []
    async for each in _read(line, features, log_filter, after, limit, newest_first):
        found.append(each)
        if len(found) == limit:
            return ChangesetPage(found, each.version.seq_number)
    return ChangesetPage(found, None)


def _with_area(query: Query, area: Spatial | None) -> Query:
    if area is None:
        return query
    if query.spatial is not None:
        raise InvalidArgument(
            "area and the spatial test of the query are mutually exclusive; give only one of them",
            field="area",
        )
    return msgspec.structs.replace(query, spatial=area)


async def _read(
    line: Line, query: Query, where: LogFilter, after: int, limit: int, newest_first: bool
) -> AsyncIterator[Changeset]:
    log_filter = _log_filter(line, query, where)
    while True:
        part = await line.storage.transactions(after, limit, log_filter, newest_first=newest_first)
        page = [changeset_of(each) for each in part]
        hit = {each.version.txn for each in page}
        if query != ALL:
            in_order = page[::-1] if newest_first else page
            hit = await _hits(line, in_order, FeedFilter.of(query, where.collections))
        for each in page:
            if each.version.txn in hit:
                yield each
        if len(page) < limit:
            return
        after = page[-1].version.seq_number


def _log_filter(line: Line, query: Query, where: LogFilter) -> LogFilter:
    """Return the filter on the log, including the parts of the query that the log can test."""
    _, change = split_query(query)
    log_filter = msgspec.structs.replace(
        where,
        overlays=line.overlays,
        bbox=box_of(query.spatial),
        started_from=_latest(where.started_from, change.updated_from),
        started_to=_earliest(where.started_to, change.updated_to),
    )
    if log_filter.authors is None and change.authors is not None:
        log_filter = msgspec.structs.replace(log_filter, authors=change.authors, unsigned=True)
    if log_filter.app_ids is None:
        log_filter = msgspec.structs.replace(log_filter, app_ids=change.app_ids)
    return log_filter


def _latest(*bounds: int | None) -> int | None:
    return max((bound for bound in bounds if bound is not None), default=None)


def _earliest(*bounds: int | None) -> int | None:
    return min((bound for bound in bounds if bound is not None), default=None)


async def _hits(line: Line, page: Sequence[Changeset], where: FeedFilter) -> set[int]:
    """Return the transactions that changed a matching feature."""
    hit: set[int] = set()
    for overlay, group in groupby(page, key=lambda each: each.overlay):
        own = line
        if line.branch is not None:
            # It was written on the base that the branch had at that time.
            own = line_of_branch(line.root, line.branch, line.branch.epoch_on(overlay))
        by_collection: dict[str, list[CollectionTransaction]] = {}
        for changeset in group:
            for each in touched_in(changeset, where):
                by_collection.setdefault(each.collection, []).append(
                    collection_transaction(changeset, each)
                )
        for name, transactions in by_collection.items():
            feed = CollectionFeed(own.storage, name, where, None)
            found, gone = await _found(feed, transactions)
            hit |= found
            if gone and where == FeedFilter(
                collections=where.collections, query=Query(spatial=where.query.spatial)
            ):
                hit |= gone
            elif gone:
                numbers = [each.seq_number for each in transactions if each.txn in gone]
                await check_kept(own, name, numbers)
    return hit


async def _found(
    feed: CollectionFeed, transactions: Sequence[CollectionTransaction]
) -> tuple[set[int], set[int]]:
    """Return the transactions with matching changes, and those whose changes are not known."""
    try:
        changes, gone = await feed.changes(transactions, CHANGES_AT_ONCE)
        return {each.txn for each in changes}, gone
    except TooManyChanges:
        pass
    if len(transactions) > 1:
        half = len(transactions) // 2
        parts = [await _found(feed, part) for part in (transactions[:half], transactions[half:])]
        return set().union(*(found for found, _ in parts)), set().union(*(g for _, g in parts))
    (only,) = transactions
    cursor: str | None = ""
    while cursor is not None:
        page = await feed.page(only, cursor, CHANGES_AT_ONCE)
        if page.found:
            return {only.txn}, set()
        cursor = page.cursor
    return set(), set()


async def check_kept(line: Line, collection: str, gone: Sequence[int]) -> None:
    """Raise Expired for versions whose states are gone; a dropped collection has none."""
    for number in gone:
        try:
            await line.storage.collection(collection)
            await line.storage.resolve(AtSeq(number), collection)
        except CollectionNotFound:
            return
        # The version itself is kept, but the states that it replaced are not.
        raise Expired(
            f"The states that version {number} of collection {collection!r} replaced have "
            "expired; use a later version",
            oldest=number + 1,
            collection_id=collection,
        )
