"""Encode responses; features from the database are concatenated, not parsed.

Collections are streamed, unless they are small. A page token, known only at the end, is the last
member. An error after the response has begun closes the connection, so that the client does not
take a part for the whole. A response that is encoded at once has an `ETag` of its bytes, which is
always correct; a collection has an `ETag` only if it is of a fixed version, which never changes.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from naksha.hub.pipeline.responses import Deleted, Features, Written
from naksha.hub.render.projection import StateProjection, shaped
from naksha.model import limits
from naksha.model.json_text import close_object
from naksha.model.state import XYZ, State
from naksha.server.middleware.spool import unhurried

GEO_JSON: Final = "application/geo+json"
JSON: Final = "application/json"
_NOTICES: Final = "Notices"
"""Header with the number of notices of a write."""
_NO_BODY: Final = "application/x-empty"
FAILED: Final = "Failed-Features"
"""Header with the number of features that were not written, for clients that skip the body."""

_BEGIN: Final = b'{"type":"FeatureCollection","features":[\n'
_ETAG_BYTES: Final = 16
_UNCHANGED: Final = StateProjection()


async def feature_collection(
    features: Features,
    shaping: StateProjection = _UNCHANGED,
    *,
    etag: str | None = None,
    handle: Callable[[str], str] | None = None,
) -> Response:
    """Send a FeatureCollection of any size; `handle` formats the token of the next page.

    It is streamed unless it is small.
    """
    headers = {} if etag is None else {"ETag": etag}
    if not await features.is_small(limits.ANSWER_CHUNK_BYTES // 2):
        return streaming_response(_collection(features, shaping, handle), GEO_JSON, headers)
    states = shaped(await features.all(), shaping)
    body = _BEGIN + join_states(states) + _collection_end(_next_page(features, handle))
    return Response(body, media_type=GEO_JSON, headers=headers)


def streaming_response(
    body: AsyncIterator[bytes], media_type: str, headers: Mapping[str, str] | None = None
) -> Response:
    """Stream a response of any size, spooled for slow clients."""
    return StreamingResponse(unhurried(body), media_type=media_type, headers=headers)


async def _collection(
    features: Features, shaping: StateProjection, handle: Callable[[str], str] | None
) -> AsyncIterator[bytes]:
    begin = _BEGIN
    try:
        async for states in features:
            given = join_states(shaped(states, shaping))
            if given:
                yield begin + given
                begin = b",\n"
    finally:
        await features.aclose()
    tail = _next_page(features, handle)
    yield (_BEGIN if begin is _BEGIN else b"") + _collection_end(tail)


def _next_page(features: Features, handle: Callable[[str], str] | None) -> dict[str, Any]:
    """Return the members with the token of the next page; none after the last page."""
    if handle is None or features.cursor is None:
        return {}
    next_page = handle(features.cursor)
    return {"handle": next_page, "nextPageToken": next_page}


def join_states(states: Sequence[State]) -> bytes:
    """Join features into the content of a JSON array."""
    return b",\n".join([state.raw for state in states])


def _collection_end(tail: Mapping[str, Any]) -> bytes:
    return b"\n]" + close_object(tail)


def complete_response(
    request: Request, content: bytes, media_type: str, headers: Mapping[str, str] | None = None
) -> Response:
    """Build a response from memory, or 304 if the client's copy is current."""
    etag = etag_of(content)
    if is_current(request, etag):
        return Response(status_code=304, headers={"ETag": etag})
    return Response(content, media_type=media_type, headers={**(headers or {}), "ETag": etag})


def json_response(request: Request, value: Any) -> Response:
    """Build a JSON response with an ETag."""
    return complete_response(request, msgspec.json.encode(value), JSON)


def etag_of(*parts: bytes) -> str:
    """Return an entity tag, equal for two responses only if all these parts are equal.

    It is weak, because compression changes the bytes of a response.
    """
    digest = hashlib.sha256()  # hardware-accelerated
    for part in parts:
        digest.update(len(part).to_bytes(8, "big"))
        digest.update(part)
    return f'W/"{digest.hexdigest()[: 2 * _ETAG_BYTES]}"'


def is_current(request: Request, etag: str) -> bool:
    """Return whether `If-None-Match` contains the tag."""
    given = request.headers.get("If-None-Match")
    if given is None:
        return False
    known = {tag.strip().removeprefix("W/") for tag in given.split(",")}
    return "*" in known or etag.removeprefix("W/") in known


# ---- Writes --------------------------------------------------------------------------------------


def wants_no_body(request: Request) -> bool:
    """Return whether the client asks for an empty response to a write."""
    return _NO_BODY in request.headers.get("Accept", "")


def wants_json(request: Request) -> bool:
    """Return whether the client explicitly accepts JSON."""
    accepted = request.headers.get("Accept", "")
    return GEO_JSON in accepted or JSON in accepted


def write_response(result: Written, *, empty: bool) -> Response:
    """Build the response to a write. If something failed, it always has a body."""
    headers = notices_header(result)
    if result.failed:
        headers[FAILED] = str(len(result.failed))
    if empty and not result.failed:
        return Response(status_code=204, headers=headers)
    states = () if empty else result.states
    body = _BEGIN + join_states(states) + _collection_end(_envelope(result))
    return Response(body, media_type=GEO_JSON, headers=headers)


def notices_header(result: Written) -> dict[str, str]:
    """Return the header with the number of notices, for clients that skip the body."""
    return {_NOTICES: str(len(result.notices))} if result.notices else {}


def feature_response(result: Written) -> Response:
    """Return the written feature.

    Notices are in its namespace, so that a client that sends the feature back does not write them.
    """
    state = result.states[0]
    content = state.raw
    if result.notices:
        feature = dict(state.feature)
        notices = [notice.message for notice in result.notices]
        namespace = {**state.xyz, "notices": notices}
        feature["properties"] = {**feature["properties"], XYZ: namespace}
        content = msgspec.json.encode(feature)
    return Response(content, media_type=GEO_JSON, headers=notices_header(result))


def delete_response(result: Deleted, *, empty: bool) -> Response:
    """Build the response to a deletion by query; lists only the first ids of a very large one."""
    if empty:
        return Response(status_code=204)
    body = Written(deleted=result.ids, version=result.version)
    count = {} if result.count == len(result.ids) else {"deletedCount": result.count}
    return Response(_BEGIN + _collection_end(_envelope(body) | count), media_type=GEO_JSON)


def _envelope(result: Written) -> dict[str, Any]:
    """Return the members beside the features; empty ones are left out."""
    parts: dict[str, Any] = {
        "inserted": result.inserted,
        "updated": result.updated,
        "deleted": result.deleted,
        "failed": result.failed,
        "failedCount": len(result.failed),
        "notices": result.notices,
        "violations": result.violations,
    }
    envelope = {name: value for name, value in parts.items() if value}
    if result.version is not None:
        envelope["version"] = result.version
    return envelope
