"""The log of a line: changesets in their order, found by who, when, what and where.

The log itself knows collections, authors, apps, times, texts and boxes. Filters on features are
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
from naksha.spi.support.query_parts import geometry_of
from naksha.versioning.change_filters import ALL, split
from naksha.versioning.changesets import Changeset, box_of, changeset_of
from naksha.versioning.feed.events import FeedFilter
from naksha.versioning.feed.state_reader import (
    CollectionFeed,
    TooMany,
    Touching,
    touched_in,
    touching,
)
from naksha.versioning.lines import Line, line_of_branch

CHANGES_AT_ONCE: Final = 10_000
"""Changed features that are held in memory while a page of the log is tested."""


class ChangesetPage(msgspec.Struct, frozen=True):
    """Some changesets and, when there may be more, the version to go on after."""

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
        line: Main or a branch, whose own transactions are given.
        area: A changed feature was or is there: short for a query with this spatial test.
        where: Collections, authors, apps, times and texts of the transactions; its box and
            overlays follow from `query` and `line`.
        query: A changed feature matched before or after the change. Authors, app ids, actions and
            times are those of the states that the change made (see `filters`).
        after: Go on after this version; 0 for the beginning, or the end when newest first.
        limit: At most so many.
        newest_first: Backwards.

    Raises:
        Expired: The states that a filter on features needs are gone. Of an area the box of a
            changeset is known all the same, and decides.
    """
    if not 1 <= limit <= limits.PAGE_MAX:
        raise InvalidArgument(f"limit must be between 1 and {limits.PAGE_MAX}", field="limit")
    asked = where or MAIN_LOG
    if asked.bbox is not None or asked.overlays != MAIN_LOG.overlays:
        raise InvalidArgument("A log is of one line; where, is said by its area", field="where")
    features = _with_area(query or ALL, area)
    if isinstance(features.spatial, Intersects) and shapely.is_empty(geometry_of(features.spatial)):
        return ChangesetPage([], None)
    found: list[Changeset] = []
    async for each in _read(line, features, asked, after, limit, newest_first):
        found.append(each)
        if len(found) == limit:
            return ChangesetPage(found, each.version.seq_number)
    return ChangesetPage(found, None)


def _with_area(query: Query, area: Spatial | None) -> Query:
    if area is None:
        return query
    if query.spatial is not None:
        raise InvalidArgument("Give one area: area, or that of the query", field="area")
    return msgspec.structs.replace(query, spatial=area)


async def _read(
    line: Line, query: Query, where: LogFilter, after: int, limit: int, newest_first: bool
) -> AsyncIterator[Changeset]:
    asked = _log_filter(line, query, where)
    while True:
        part = await line.storage.transactions(after, limit, asked, newest_first=newest_first)
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
    """The filter on the log, with what it can test of the query."""
    _, change = split(query)
    asked = msgspec.structs.replace(
        where,
        overlays=line.overlays,
        bbox=box_of(query.spatial),
        started_from=_latest(where.started_from, change.updated_from),
        started_to=_earliest(where.started_to, change.updated_to),
    )
    if asked.authors is None and change.authors is not None:
        asked = msgspec.structs.replace(asked, authors=change.authors, unsigned=True)
    if asked.app_ids is None:
        asked = msgspec.structs.replace(asked, app_ids=change.app_ids)
    return asked


def _latest(*bounds: int | None) -> int | None:
    return max((bound for bound in bounds if bound is not None), default=None)


def _earliest(*bounds: int | None) -> int | None:
    return min((bound for bound in bounds if bound is not None), default=None)


async def _hits(line: Line, page: Sequence[Changeset], where: FeedFilter) -> set[int]:
    """The transactions that changed a feature which is asked for."""
    hit: set[int] = set()
    for overlay, group in groupby(page, key=lambda each: each.overlay):
        own = line
        if line.branch is not None:
            # Written on the base that the branch had then.
            own = line_of_branch(line.root, line.branch, line.branch.epoch_on(overlay))
        by_collection: dict[str, list[Touching]] = {}
        for changeset in group:
            for each in touched_in(changeset, where):
                by_collection.setdefault(each.collection, []).append(touching(changeset, each))
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
    feed: CollectionFeed, transactions: Sequence[Touching]
) -> tuple[set[int], set[int]]:
    """The transactions with changes that are asked for, and those that nobody can tell this of."""
    try:
        changes, gone = await feed.changes(transactions, CHANGES_AT_ONCE)
        return {each.txn for each in changes}, gone
    except TooMany:
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
    """Expired for versions whose states are gone; a collection that was dropped has none."""
    for number in gone:
        try:
            await line.storage.collection(collection)
            await line.storage.resolve(AtSeq(number), collection)
        except CollectionNotFound:
            return
        # The version is there, but what it replaced is not.
        raise Expired(
            f"What version {number} replaced is gone",
            oldest=number + 1,
            collection_id=collection,
        )
