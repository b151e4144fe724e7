"""Pages of the change feed, with long polling."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

from naksha.hub.feed.log_tail import tail_of
from naksha.hub.pipeline.version_requests import ReadChanges
from naksha.hub.pipeline.version_responses import Changes
from naksha.model import limits
from naksha.model.errors import InvalidArgument
from naksha.model.version import HEAD
from naksha.versioning import FeedFilter, FeedPosition, Line, read_feed


class FeedSource(NamedTuple):
    """Source of a feed: a line of a storage, filtered."""

    storage_id: str
    """The storage's id in the realm."""
    line: Line
    where: FeedFilter
    space: str | None = None
    """The space that is set in returned features."""


async def next_changes(
    source: FeedSource, request: ReadChanges, check: Callable[[int], None] = lambda _: None
) -> Changes:
    """Return the next non-empty page, or an empty one when the request's wait time is over.

    `check` may raise to reject a position. While waiting, no database connection is held.
    """
    if not 1 <= request.limit <= limits.FEED_TRANSACTIONS_MAX:
        raise InvalidArgument(
            f'Parameter "limit" is {request.limit}; it must be in '
            f"1..{limits.FEED_TRANSACTIONS_MAX}",
            field="limit",
        )
    line = source.line
    deadline = time.monotonic() + min(request.wait_seconds, limits.FEED_WAIT_SECONDS_MAX)
    if request.after:
        position = FeedPosition.parse(request.after)
    else:
        position = FeedPosition((await line.storage.resolve(HEAD)).seq_number)
    while True:
        check(position.seq_number)
        page = await read_feed(
            line,
            position,
            source.where,
            transactions_max=request.limit,
            features_max=limits.FEED_FEATURES_MAX,
            space=source.space,
        )
        position = page.position
        left = deadline - time.monotonic()
        if page.items or left <= 0:
            return Changes(source.storage_id, page.items, str(position), page.last)
        if position == FeedPosition(page.last):
            position = await _next_position(source, page.last, deadline)


async def _next_position(source: FeedSource, last: int, deadline: float) -> FeedPosition:
    """Wait for a transaction that may contain matching changes.

    Returns the position before it, or the position reached when the deadline passes.
    """
    storage, collections = source.line.root, source.where.collections
    while (left := deadline - time.monotonic()) > 0:
        published = await storage.wait_beyond(last, left)
        if collections is None or source.line.branch is not None:
            break
        tail = tail_of(storage)
        before, last = last, await tail.untouched(storage, last, published, collections)
        if last < published or before == last:
            break
    return FeedPosition(last)
