"""The change feed of a space or a storage: pages that may be waited for, and streams of events."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated, Any, Final, Literal

import msgspec
from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import StreamingResponse
from pydantic import Field

from naksha.hub.feed.transaction_json import published_json
from naksha.hub.pipeline.version_requests import ReadChanges
from naksha.hub.pipeline.version_responses import Changes
from naksha.model import limits
from naksha.model.query import Query as FeatureQuery
from naksha.server.openapi import version_schemas as documents
from naksha.server.requests.parameters import (
    PROPERTY_QUERY,
    EdgeParameters,
    list_of,
    query_of,
)
from naksha.server.responses.encoding import JSON
from naksha.server.responses.event_stream import EVENTS, event_stream
from naksha.server.responses.feed_pages import Feed, SpaceFeed, StorageFeed
from naksha.versioning.feed.events import check_events

router = APIRouter(tags=["changes"])
SPACE: Final = "/hub/spaces/{space_id}/changes"
STORAGE: Final = "/hub/storages/{storage_id}/changes"
_encode = msgspec.json.encode
Action = Literal[
    "CREATE", "UPDATE", "DELETE", "TxComment", "TxModifyFeatures", "TxModifyCollection"
]


class ChangesParameters(EdgeParameters):
    """Which changes."""

    since: str = Field(
        "",
        max_length=limits.FEED_POSITION_LENGTH_MAX,
        description="A version, or the `next` of the page before: what came after it. Nothing: "
        "from now on.",
    )
    limit: int = Field(
        limits.FEED_TRANSACTIONS_DEFAULT,
        ge=1,
        le=limits.FEED_TRANSACTIONS_MAX,
        description="How many transactions are looked at for one page, at most.",
    )
    wait: float = Field(
        0,
        ge=0,
        le=limits.FEED_WAIT_SECONDS_MAX,
        allow_inf_nan=False,
        description="Seconds to wait for something new, if there is nothing yet.",
    )
    action: list[Action] = Field(
        [],
        description="Only such changes; given several times, one of them. `TxModifyFeatures` means "
        "any change of features. `TxComment` and `TxModifyCollection` mean transactions with a "
        "message, or that changed a collection itself.",
    )
    tags: list[str] = Field([], description="As in a search.")
    author: list[str] = Field([], description="As in a search.")

    def request(self, request: Request) -> ReadChanges:
        """What is asked."""
        query = query_of(request, spatial=self.box())
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
    """Which changes, of which collections."""

    collection: list[str] = Field(
        [], description="Only these collections; repeated, or with commas between them."
    )


Changed = Annotated[ChangesParameters, Query()]
ChangedInStorage = Annotated[StorageChangesParameters, Query()]
LastEventId: Final = {
    "name": "Last-Event-ID",
    "in": "header",
    "description": "Of a stream: the `id` of the last event that was seen; it goes before `since`.",
    "schema": {"type": "string"},
}
_DOCUMENT: Final[dict[str, Any]] = {"parameters": [*PROPERTY_QUERY["parameters"], LastEventId]}
_ANSWERS: Final = documents.answers("What was changed.", documents.CHANGE_FEED)
_ANSWERS[200]["content"][EVENTS] = {
    "schema": {
        "type": "string",
        "description": "Server-Sent Events without end: `changes`, each with one `Changes` as data "
        "and a position as id; in the end perhaps `expired` or `failed`, with an `ErrorResponse`.",
    }
}


@router.get(SPACE, response_class=Response, responses=_ANSWERS, openapi_extra=_DOCUMENT)
async def space_changes(space_id: str, request: Request, parameters: Changed) -> Response:
    """The changes of a space, in the order of its versions, deletions included. A change is told if
    the feature matches, or did so before it. Who accepts `text/event-stream` gets a stream."""
    return await _answer(SpaceFeed(request, space_id), parameters.request(request))


@router.get(STORAGE, response_class=Response, responses=_ANSWERS, openapi_extra=_DOCUMENT)
async def storage_changes(
    storage_id: str, request: Request, parameters: ChangedInStorage
) -> Response:
    """The changes of a storage, as they are stored, whatever spaces make of them. It takes the
    right to use the storage, and to read all features of it, or of the collections asked for."""
    collections = list_of(request, "collection")
    return await _answer(StorageFeed(request, storage_id, collections), parameters.request(request))


async def _answer(feed: Feed, asked: ReadChanges) -> Response:
    if EVENTS in feed.request.headers.get("Accept", ""):
        return await event_stream(feed, asked)
    page = await feed.page(asked)
    return StreamingResponse(_page(page), media_type=JSON)


async def _page(page: Changes) -> AsyncIterator[bytes]:
    begin = b'{"type":"ChangeFeed","items":[\n'
    for item in page.items:
        yield begin + published_json(item, page.storage)
        begin = b",\n"
    tail = _encode({"next": page.position, "last": page.last})[1:]
    yield (b"" if page.items else begin) + b"\n]," + tail
