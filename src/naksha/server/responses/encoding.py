"""Answers as bytes: what comes from the database is joined, not parsed.

An answer of any size is streamed. What is known only at the end (how to go on) stands at the end;
an error that comes when the answer has begun breaks the connection, so that nobody takes a part of
an answer for the whole. An answer that is in memory as a whole carries an `ETag` made from its
bytes, which is always true; a streamed one only if it is about a version, which never changes.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any, Final

import msgspec
from fastapi import Request, Response
from fastapi.responses import StreamingResponse

from naksha.hub.pipeline.responses import Deleted, Features, Written
from naksha.hub.render.projection import Shaping, shaped
from naksha.model.state import XYZ, State
from naksha.server.middleware.spool import unhurried

GEO_JSON: Final = "application/geo+json"
JSON: Final = "application/json"
NOTICES: Final = "Notices"
"""Header with the number of notices of a write."""
NO_BODY: Final = "application/x-empty"
FAILED: Final = "Failed-Features"
"""How many features were not written: also who looks at no body sees it."""

_BEGIN: Final = b'{"type":"FeatureCollection","features":[\n'
_ETAG_BYTES: Final = 16
ALL_OF_IT: Final = Shaping()


def feature_collection(
    features: Features,
    shaping: Shaping = ALL_OF_IT,
    *,
    etag: str | None = None,
    handle: Callable[[str], str] | None = None,
) -> Response:
    """A FeatureCollection of any size. With `handle` it tells how to go on, if there is more."""
    headers = {} if etag is None else {"ETag": etag}
    return streamed(_collection(features, shaping, handle), GEO_JSON, headers)


def streamed(
    body: AsyncIterator[bytes], media_type: str, headers: Mapping[str, str] | None = None
) -> Response:
    """An answer of any size, for readers of any speed."""
    return StreamingResponse(unhurried(body), media_type=media_type, headers=headers)


async def _collection(
    features: Features, shaping: Shaping, handle: Callable[[str], str] | None
) -> AsyncIterator[bytes]:
    begin = _BEGIN
    try:
        async for states in features:
            given = joined(shaped(states, shaping))
            if given:
                yield begin + given
                begin = b",\n"
    finally:
        await features.aclose()
    tail: dict[str, Any] = {}
    if handle is not None and features.cursor is not None:
        next_page = handle(features.cursor)
        tail = {"handle": next_page, "nextPageToken": next_page}
    yield (_BEGIN if begin is _BEGIN else b"") + _ended(tail)


def joined(states: Sequence[State]) -> bytes:
    """Features as the inside of an array."""
    return b",\n".join([state.raw for state in states])


def _ended(tail: Mapping[str, Any]) -> bytes:
    return b"\n]" + (b"," + msgspec.json.encode(tail)[1:] if tail else b"}")


def whole(
    request: Request, content: bytes, media_type: str, headers: Mapping[str, str] | None = None
) -> Response:
    """An answer that is in memory; 304 to who has it already."""
    etag = etag_of(content)
    if is_known(request, etag):
        return Response(status_code=304, headers={"ETag": etag})
    return Response(content, media_type=media_type, headers={**(headers or {}), "ETag": etag})


def json_answer(request: Request, value: Any) -> Response:
    """A document of JSON."""
    return whole(request, msgspec.json.encode(value), JSON)


def etag_of(*parts: bytes) -> str:
    """A tag that two answers share only if all these parts are equal. It is weak, because whoever
    compresses an answer on its way changes its bytes."""
    digest = hashlib.sha256()  # which processors help with
    for part in parts:
        digest.update(len(part).to_bytes(8, "big"))
        digest.update(part)
    return f'W/"{digest.hexdigest()[: 2 * _ETAG_BYTES]}"'


def is_known(request: Request, etag: str) -> bool:
    """Whether the client has the answer with this tag."""
    given = request.headers.get("If-None-Match")
    if given is None:
        return False
    known = {tag.strip().removeprefix("W/") for tag in given.split(",")}
    return "*" in known or etag.removeprefix("W/") in known


# ---- Writes --------------------------------------------------------------------------------------


def wants_no_body(request: Request) -> bool:
    """Whether a client says that it needs no answer."""
    return NO_BODY in request.headers.get("Accept", "")


def wants_json(request: Request) -> bool:
    """Whether a client asks for a document in so many words."""
    accepted = request.headers.get("Accept", "")
    return GEO_JSON in accepted or JSON in accepted


def written(result: Written, *, empty: bool) -> Response:
    """What a write did. Who wants no body gets one all the same when something failed."""
    headers = notices_header(result)
    if result.failed:
        headers[FAILED] = str(len(result.failed))
    if empty and not result.failed:
        return Response(status_code=204, headers=headers)
    states = () if empty else result.states
    body = _BEGIN + joined(states) + _ended(_envelope(result))
    return Response(body, media_type=GEO_JSON, headers=headers)


def notices_header(result: Written) -> dict[str, str]:
    """Tell clients that skip the body how many notices there are."""
    return {NOTICES: str(len(result.notices))} if result.notices else {}


def written_feature(result: Written) -> Response:
    """Return the feature of a write. Notices are in its namespace: a client that sends the feature
    again sends nothing new by that."""
    state = result.states[0]
    content = state.raw
    if result.notices:
        feature = dict(state.feature)
        notices = [notice.message for notice in result.notices]
        namespace = {**state.xyz, "notices": notices}
        feature["properties"] = {**feature["properties"], XYZ: namespace}
        content = msgspec.json.encode(feature)
    return Response(content, media_type=GEO_JSON, headers=notices_header(result))


def deleted(result: Deleted, *, empty: bool) -> Response:
    """What a deletion by query did; when it were very many, the first ids and their number."""
    if empty:
        return Response(status_code=204)
    told = Written(deleted=result.ids, version=result.version)
    count = {} if result.count == len(result.ids) else {"deletedCount": result.count}
    return Response(_BEGIN + _ended(_envelope(told) | count), media_type=GEO_JSON)


def _envelope(result: Written) -> dict[str, Any]:
    """Beside the features; what is empty is left out."""
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
