"""Server-Sent Events of a change feed: without end, until the client goes, the server stops, the
token expires, or what comes next is gone.

Each event has the position behind it as its id, so that a client that comes again goes on there. A
client that does not read is cut off by the time that a part of an answer may take. While there is
nothing to tell, nothing is held but the connection of the client.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Final

import msgspec
from fastapi import Response
from fastapi.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from naksha.hub.feed.transaction_json import published_json
from naksha.hub.pipeline.version_requests import ReadChanges
from naksha.hub.pipeline.version_responses import Changes
from naksha.model import limits
from naksha.model.errors import Expired, NakshaError
from naksha.server.errors import error_json
from naksha.server.middleware.gate import line_of
from naksha.server.responses.feed_pages import Feed
from naksha.versioning import FeedPosition, Published

EVENTS: Final = "text/event-stream"
_HEADERS: Final = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
_RETRY: Final = b"retry: %d\n\n" % (limits.FEED_RETRY_SECONDS * 1000)


async def event_stream(feed: Feed, asked: ReadChanges) -> Response:
    """The answer to who wants a stream. What is wrong with the request itself is answered as it is
    always; what is gone is told by an event, which is all that a browser shows of it."""
    known = feed.request.headers.get("Last-Event-ID")
    asked = msgspec.structs.replace(asked, after=known or asked.after, wait_seconds=0.0)
    return _Stream(feed, asked, await _first(feed, asked))


class _Stream(StreamingResponse):
    """A stream, which is counted while it is open."""

    def __init__(self, feed: Feed, asked: ReadChanges, first: Changes | Expired) -> None:
        super().__init__(_events(feed, asked, first), media_type=EVENTS, headers=_HEADERS)
        self._feed = feed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        feed = self._feed
        with feed.server.watchers.place(line_of(feed.visit)):
            feed.leave_turn()
            await super().__call__(scope, receive, send)


async def _first(feed: Feed, asked: ReadChanges) -> Changes | Expired:
    try:
        return await feed.now(asked)
    except Expired as error:
        return error


async def _events(feed: Feed, asked: ReadChanges, first: Changes | Expired) -> AsyncIterator[bytes]:
    yield _RETRY
    if isinstance(first, Expired):
        yield _failure(feed, first)
        return
    page: Changes | None = first
    asked = msgspec.structs.replace(asked, wait_seconds=limits.FEED_HEARTBEAT_SECONDS)
    while page is not None:
        for event in _told(page):
            yield event
        try:
            page = await feed.server.watchers.unless_ending(feed.later(asked, page.position))
        except NakshaError as error:
            yield _failure(feed, error)
            return


def _told(page: Changes) -> list[bytes]:
    """The events of a page; of an empty one that we are still here, and how far."""
    if not page.items:
        return [b"id: %b\n:\n\n" % page.position.encode()]
    # Whoever comes again with the position of an event goes on behind it, and gets nothing twice.
    positions = [_behind(item) for item in page.items[:-1]] + [page.position]
    return [
        _event("changes", published_json(item, page.storage), position)
        for item, position in zip(page.items, positions, strict=True)
    ]


def _behind(item: Published) -> str:
    """Only the last item of a page may be followed by another part."""
    return str(FeedPosition(item.changeset.version.seq_number))


def _failure(feed: Feed, error: NakshaError) -> bytes:
    _, body = error_json(error, feed.visit.stream_id)
    return _event("expired" if isinstance(error, Expired) else "failed", _encode(body), None)


def _event(name: str, data: bytes, position: str | None) -> bytes:
    id_ = b"" if position is None else b"id: %b\n" % position.encode()
    # A line of data ends where a line ends; JSON has such ends between its parts only.
    lines = b"\ndata: ".join(data.split(b"\n"))
    return b"%bevent: %b\ndata: %b\n\n" % (id_, name.encode(), lines)


def _encode(body: dict[str, Any]) -> bytes:
    return msgspec.json.encode(body)
