"""Responses of tile endpoints: from the cache of tiles, with validators that are never wrong."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from naksha.hub.tiles.tile_basis import TileBasis
from naksha.hub.tiles.tile_service import TileAnswer
from naksha.model import limits
from naksha.server.middleware.request_record import record_of
from naksha.server.requests.state import server_of
from naksha.server.requests.tile_plans import WantedTile
from naksha.server.responses.encoding import etag_of, is_current
from naksha.server.responses.feature_collections import SpaceRequest

RenderTile = Callable[[TileBasis | None], Awaitable[bytes | Response]]
"""Function that renders a tile with its basis, if that is known: its bytes, or a response that is
too large to be cached."""
_REVALIDATED: Final = "no-cache"
_LASTING: Final = "max-age=31536000, immutable"


async def tile_response(request: SpaceRequest, wanted: WantedTile, render: RenderTile) -> Response:
    """Return a tile, or 304 if the client has it."""
    http, server = request.http, server_of(request.http)
    service = server.tiles
    plans = server.tile_plans
    _, subject, tile = await plans.plan(http, request.space_id, request.context, wanted)
    if subject is None:
        uncached = await service.uncached(partial(render, None))
        return _unkeyed(http, uncached, tile.media_type)
    rendered = partial(render, subject.basis)
    answer = await service.answer(subject, http.headers.get("If-None-Match"), rendered)
    if answer.validator is None:
        return _unkeyed(http, answer, tile.media_type)
    headers = {
        "ETag": answer.validator,
        "Cache-Control": _lifetime(http, subject.basis.is_lasting),
    }
    if answer.is_unmodified:
        return Response(status_code=304, headers=headers)
    if answer.other is not None:
        answer.other.headers.update(headers)
        return answer.other
    assert answer.tile is not None
    body = answer.tile.body
    if len(body) >= limits.GZIP_BYTES_MIN and _accepts_gzip(http):
        body = await service.zipped(subject.key, answer.tile)
        headers |= {"Content-Encoding": "gzip", "Vary": "Accept-Encoding"}
    return Response(body, media_type=tile.media_type, headers=headers)


def body_of(made: Response) -> bytes | Response:
    """Return the body of a response that is complete, else the response."""
    is_complete = type(made) is Response and made.status_code == 200
    return bytes(made.body) if is_complete else made


def _unkeyed(http: Request, answer: TileAnswer[Response], media_type: str) -> Response:
    """Return a tile that was rendered for this request alone, with a hash of its bytes."""
    if answer.other is not None:
        answer.other.headers.setdefault("Cache-Control", _lifetime(http, is_lasting=False))
        return answer.other
    assert answer.tile is not None
    body = answer.tile.body
    headers = {"ETag": etag_of(body), "Cache-Control": _lifetime(http, is_lasting=False)}
    if is_current(http, headers["ETag"]):
        return Response(status_code=304, headers=headers)
    return Response(body, media_type=media_type, headers=headers)


def _lifetime(http: Request, is_lasting: bool) -> str:
    """Return how long caches may keep a tile, and which of them may."""
    actor = record_of(http).actor
    is_public = actor is None or actor.is_anonymous
    if is_lasting:
        return f"{'public' if is_public else 'private'}, {_LASTING}"
    return _REVALIDATED if is_public else f"private, {_REVALIDATED}"


def _accepts_gzip(http: Request) -> bool:
    return b"gzip" in record_of(http).fields.get(b"accept-encoding", b"")
