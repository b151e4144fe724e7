"""Change feed of a space or a storage: pages with optional long polling, and event streams."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated, Any, Final, Literal

from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from naksha.hub.feed.transaction_json import published_json
from naksha.hub.pipeline.version_requests import ReadChanges
from naksha.hub.pipeline.version_responses import Changes
from naksha.model import limits
from naksha.model.json_text import close_object
from naksha.model.query import Query as FeatureQuery
from naksha.server.openapi import version_schemas as documents
from naksha.server.requests.parameters import (
    PROPERTY_QUERY,
    EdgeParameters,
    NamespaceParameters,
    list_of,
    query_of,
)
from naksha.server.responses.encoding import JSON
from naksha.server.responses.event_stream import EVENTS, event_stream
from naksha.server.responses.feed_pages import FeedRequest, SpaceFeedRequest, StorageFeedRequest
from naksha.server.routing.declarations import QueryParam, Router
from naksha.versioning.feed.events import check_events

router = Router(tags=["changes"])
SPACE: Final = "/hub/spaces/{space_id}/changes"
STORAGE: Final = "/hub/storages/{storage_id}/changes"
Action = Literal[
    "CREATE", "UPDATE", "DELETE", "TxComment", "TxModifyFeatures", "TxModifyCollection"
]


class ChangesParameters(EdgeParameters, NamespaceParameters):
    """Filter and position in the change feed."""

    since: str = Field(
        "",
        max_length=limits.FEED_POSITION_LENGTH_MAX,
        description="Return changes after this version, or after the `next` of the previous page. "
        "Default: future changes.",
    )
    limit: int = Field(
        limits.FEED_TRANSACTIONS_DEFAULT,
        ge=1,
        le=limits.FEED_TRANSACTIONS_MAX,
        description="Maximum number of transactions to scan per page.",
    )
    wait: float = Field(
        0,
        ge=0,
        le=limits.FEED_WAIT_SECONDS_MAX,
        allow_inf_nan=False,
        description="Seconds to wait for a change if there is none yet.",
    )
    action: list[Action] = Field(
        [],
        description="Only these kinds of changes; repeated parameters combine with OR. "
        "`TxModifyFeatures` means any change of features; `TxComment` and `TxModifyCollection` "
        "mean transactions with a message, or that changed a collection itself.",
    )
    tags: list[str] = Field([], description="As in a search.")
    author: list[str] = Field([], description="As in a search.")

    def request(self, request: Request) -> ReadChanges:
        """Build the request for the feed."""
        query = query_of(request, self, spatial=self.box())
        on_features = query != FeatureQuery(authors=query.authors)
        check_events(self.action, on_features, field="action")
        return ReadChanges(
            after=self.since,
            query=query,
            actions=tuple(self.action) or None,
            limit=self.limit,
            wait_seconds=self.wait,
        )


class StorageChangesParameters(ChangesParameters):
    """Filter and position in the change feed of a storage."""

    collection: list[str] = Field(
        [], description="Only these collections, separated by commas or repeated."
    )


Changed = Annotated[ChangesParameters, QueryParam()]
ChangedInStorage = Annotated[StorageChangesParameters, QueryParam()]
LastEventId: Final = {
    "name": "Last-Event-ID",
    "in": "header",
    "description": "For a stream: the `id` of the last event received; overrides `since`.",
    "schema": {"type": "string"},
}
_DOCUMENT: Final[dict[str, Any]] = {"parameters": [*PROPERTY_QUERY["parameters"], LastEventId]}
_RETURNS: Final = documents.returns("The changes.", documents.CHANGE_FEED)
_RETURNS[200]["content"][EVENTS] = {
    "schema": {
        "type": "string",
        "description": "Endless Server-Sent Events: `changes`, each with one `Changes` as data and "
        "a position as id; the last may be `expired` or `failed`, with an `ErrorResponse`.",
    }
}


@router.get(SPACE, responses=_RETURNS, openapi_extra=_DOCUMENT)
async def space_changes(space_id: str, request: Request, parameters: Changed) -> Response:
    """Return the changes of a space in version order, including deletions.

    A change is included if the feature matches before or after it. With `Accept: text/event-stream`
    it is a stream.
    """
    return await _answer(SpaceFeedRequest(request, space_id), parameters.request(request))


@router.get(STORAGE, responses=_RETURNS, openapi_extra=_DOCUMENT)
async def storage_changes(
    storage_id: str, request: Request, parameters: ChangedInStorage
) -> Response:
    """Return the changes of a storage as stored, regardless of spaces.

    Requires the rights to use the storage and to read all features of it, or of the requested
    collections.
    """
    collections = list_of(request, "collection")
    return await _answer(
        StorageFeedRequest(request, storage_id, collections), parameters.request(request)
    )


async def _answer(feed: FeedRequest, read: ReadChanges) -> Response:
    if EVENTS in feed.request.headers.get("Accept", ""):
        return await event_stream(feed, read)
    page = await feed.page(read)
    return StreamingResponse(_page(page), media_type=JSON)


async def _page(page: Changes) -> AsyncIterator[bytes]:
    begin = b'{"type":"ChangeFeed","items":[\n'
    for item in page.items:
        yield begin + published_json(item, page.storage)
        begin = b",\n"
    tail = close_object({"next": page.position, "last": page.last})
    yield (b"" if page.items else begin) + b"\n]" + tail
