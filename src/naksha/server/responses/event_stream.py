"""Server-Sent Events of a change feed.

A stream ends when the client disconnects, the server stops, the token expires, or the next changes
have expired. Each event has the position after it as its id, so that a client that reconnects
continues there. A client that does not read is disconnected by the timeout for response chunks.
While there are no changes, a stream holds nothing but its connection.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Final

import msgspec
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from naksha.hub.feed.transaction_json import published_json
from naksha.hub.pipeline.version_requests import ReadChanges
from naksha.hub.pipeline.version_responses import Changes
from naksha.model import limits
from naksha.model.errors import Expired, NakshaError
from naksha.server.errors import error_json
from naksha.server.middleware.gate import admission_key
from naksha.server.responses.feed_pages import FeedRequest
from naksha.versioning import FeedPosition, FeedTransaction

EVENTS: Final = "text/event-stream"
_HEADERS: Final = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
_RETRY: Final = b"retry: %d\n\n" % (limits.FEED_RETRY_SECONDS * 1000)


async def event_stream(feed: FeedRequest, request: ReadChanges) -> Response:
    """Respond with a stream.

    Errors of the request get an error response, as usual; expired history is reported by an event,
    because browsers show nothing else of a stream.
    """
    known = feed.request.headers.get("Last-Event-ID")
    request = msgspec.structs.replace(request, after=known or request.after, wait_seconds=0.0)
    return _EventStreamResponse(feed, request, await _first_page(feed, request))


class _EventStreamResponse(StreamingResponse):
    """A streaming response that counts as a waiting request while it is open."""

    def __init__(self, feed: FeedRequest, request: ReadChanges, first: Changes | Expired) -> None:
        super().__init__(_events(feed, request, first), media_type=EVENTS, headers=_HEADERS)
        self._feed = feed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        feed = self._feed
        with feed.server.long_polls.place(admission_key(feed.record)):
            feed.leave_turn()
            await super().__call__(scope, receive, send)


async def _first_page(feed: FeedRequest, request: ReadChanges) -> Changes | Expired:
    try:
        return await feed.now(request)
    except Expired as error:
        return error


async def _events(
    feed: FeedRequest, request: ReadChanges, first: Changes | Expired
) -> AsyncIterator[bytes]:
    yield _RETRY
    if isinstance(first, Expired):
        yield _error_event(feed, first)
        return
    page: Changes | None = first
    request = msgspec.structs.replace(request, wait_seconds=limits.FEED_HEARTBEAT_SECONDS)
    while page is not None:
        for event in _page_events(page):
            yield event
        try:
            page = await feed.server.long_polls.unless_ending(feed.later(request, page.position))
        except NakshaError as error:
            yield _error_event(feed, error)
            return


def _page_events(page: Changes) -> list[bytes]:
    """Build the events of a page; an empty page gives a heartbeat with the position."""
    if not page.items:
        return [b"id: %b\n:\n\n" % page.position.encode()]
    # A client that reconnects with the id of an event continues after it, without duplicates.
    positions = [_position_after(item) for item in page.items[:-1]] + [page.position]
    return [
        _event("changes", published_json(item, page.storage), position)
        for item, position in zip(page.items, positions, strict=True)
    ]


def _position_after(item: FeedTransaction) -> str:
    """Return the position after an item that is not the last one of its page.

    Its version is complete: only a page's last item can be followed by another part of the same
    version, and its position is that of the page.
    """
    return str(FeedPosition(item.changeset.version.seq_number))


def _error_event(feed: FeedRequest, error: NakshaError) -> bytes:
    _, body = error_json(error, feed.record.stream_id)
    return _event("expired" if isinstance(error, Expired) else "failed", _encode(body), None)


def _event(name: str, data: bytes, position: str | None) -> bytes:
    id_ = b"" if position is None else b"id: %b\n" % position.encode()
    # SSE data ends at a newline; in JSON, newlines occur only between tokens.
    lines = b"\ndata: ".join(data.split(b"\n"))
    return b"%bevent: %b\ndata: %b\n\n" % (id_, name.encode(), lines)


def _encode(body: dict[str, Any]) -> bytes:
    return msgspec.json.encode(body)
