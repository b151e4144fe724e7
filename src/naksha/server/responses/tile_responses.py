"""Responses of tile endpoints: from the cache of tiles, with validators that are never wrong."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from naksha.hub.tiles.tile_basis import TileBasis
from naksha.hub.tiles.tile_service import TileAnswer, TileSubject
from naksha.model import limits
from naksha.server.middleware.request_record import record_of
from naksha.server.requests.state import context_of, realm_of, server_of
from naksha.server.requests.tile_plans import RequestedTile, WantedTile
from naksha.server.responses.encoding import etag_of, is_current
from naksha.server.responses.feature_collections import SpaceRequest
from naksha.server.routing.declarations import Results

RenderTile = Callable[[TileBasis | None], Awaitable[bytes | Response]]
"""Function that renders a tile with its basis, if that is known: its bytes, or a response that is
too large to be cached."""
_REVALIDATED: Final = "no-cache"
_LASTING: Final = "max-age=31536000, immutable"


async def tile_response(request: SpaceRequest, wanted: WantedTile, render: RenderTile) -> Response:
    """Return a tile, or 304 if the client has it."""
    http, server = request.http, server_of(request.http)
    plan = await server.tile_plans.plan(http, request.space_id, request.context, wanted)
    if plan.subject is None:
        return _unkeyed(http, await server.tiles.uncached(partial(render, None)), plan.wanted)
    rendered = partial(render, plan.subject.basis)
    answer = await server.tiles.answer(plan.subject, http.headers.get("If-None-Match"), rendered)
    return await _response_of(http, plan.wanted, plan.subject, answer)


async def known_tile(http: Request, results: Results) -> Response | None:
    """Return the tile of a request like an earlier one, if it is in the cache or at the client.

    Its parameters were parsed and checked then. The rights are those that determined its plan.
    """
    server = server_of(http)
    realm = results[realm_of] = await realm_of(http)
    context = results[context_of] = await context_of(http, realm)
    plan = server.tile_plans.known(http, context)
    if plan is None or plan.subject is None:
        return None
    answer: TileAnswer[Response] | None
    answer = await server.tiles.known(plan.subject, http.headers.get("If-None-Match"))
    if answer is None:
        return None
    return await _response_of(http, plan.wanted, plan.subject, answer)


async def _response_of(
    http: Request, wanted: RequestedTile, subject: TileSubject, answer: TileAnswer[Response]
) -> Response:
    """Return the response with the answer of the cache."""
    if answer.validator is None:
        return _unkeyed(http, answer, wanted)
    headers = {
        "ETag": answer.validator,
        "Cache-Control": _lifetime(http, subject.basis.is_lasting),
    }
    varies = ["Accept"] if wanted.varies else []
    if answer.other is not None:
        answer.other.headers.update(headers)
        return _varying(answer.other, wanted)
    body = b""
    if answer.tile is not None:
        body = answer.tile.body
        if len(body) >= limits.GZIP_BYTES_MIN and _accepts_gzip(http):
            body = await server_of(http).tiles.zipped(subject.key, answer.tile)
            headers["Content-Encoding"] = "gzip"
            varies.append("Accept-Encoding")
    if varies:
        headers["Vary"] = ", ".join(varies)
    if answer.is_unmodified:
        return Response(status_code=304, headers=headers)
    return Response(body, media_type=wanted.media_type, headers=headers)


def body_of(made: Response) -> bytes | Response:
    """Return the body of a response that is complete, else the response."""
    is_complete = type(made) is Response and made.status_code == 200
    return bytes(made.body) if is_complete else made


def _unkeyed(http: Request, answer: TileAnswer[Response], wanted: RequestedTile) -> Response:
    """Return a tile that was rendered for this request alone, with a hash of its bytes."""
    if answer.other is not None:
        answer.other.headers.setdefault("Cache-Control", _lifetime(http, is_lasting=False))
        return _varying(answer.other, wanted)
    assert answer.tile is not None
    body = answer.tile.body
    headers = {"ETag": etag_of(body), "Cache-Control": _lifetime(http, is_lasting=False)}
    if is_current(http, headers["ETag"]):
        return _varying(Response(status_code=304, headers=headers), wanted)
    return _varying(Response(body, media_type=wanted.media_type, headers=headers), wanted)


def _varying(made: Response, wanted: RequestedTile) -> Response:
    if wanted.varies:
        made.headers.add_vary_header("Accept")
    return made


def _lifetime(http: Request, is_lasting: bool) -> str:
    """Return how long caches may keep a tile, and which of them may."""
    actor = record_of(http).actor
    is_public = actor is None or actor.is_anonymous
    if is_lasting:
        return f"{'public' if is_public else 'private'}, {_LASTING}"
    return _REVALIDATED if is_public else f"private, {_REVALIDATED}"


def _accepts_gzip(http: Request) -> bool:
    return b"gzip" in record_of(http).fields.get(b"accept-encoding", b"")
