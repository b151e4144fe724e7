"""Responses of tile endpoints: from the cache of tiles, with validators that are never wrong."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from typing import Final, NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from naksha.hub.query_language.query_string import decoded, raw_pairs
from naksha.hub.query_language.tiles import MapTile
from naksha.hub.tiles.cell_tail import TileArea
from naksha.hub.tiles.changes_inside import LEVEL_MIN
from naksha.hub.tiles.tile_basis import basis_of
from naksha.hub.tiles.tile_key import tile_key
from naksha.hub.tiles.tile_service import TileAnswer, TileSubject
from naksha.model import limits
from naksha.model.query import Bbox
from naksha.server.middleware.request_record import record_of
from naksha.server.requests.parameters import raw_query
from naksha.server.requests.state import server_of
from naksha.server.responses.encoding import etag_of, is_current
from naksha.server.responses.feature_collections import SpaceRequest

RenderTile = Callable[[], Awaitable[bytes | Response]]
"""Function that renders a tile: its bytes, or a response that is too large to be cached."""
_IN_BASIS: Final = frozenset({"versionRef", "version", "skipCache", "access_token"})
"""Parameters that do not belong to the key: the basis has what they mean."""
_REVALIDATED: Final = "no-cache"
_LASTING: Final = "max-age=31536000, immutable"
_EDGE_DEGREES: Final = 1e-9
"""Tolerated error of the edges of a tile: much more than those of their calculation."""


class RequestedTile(NamedTuple):
    """A tile as a request describes it."""

    tile: MapTile
    margin: int
    ref: str
    layers: str
    """The part of a composite space."""
    format: str
    media_type: str
    is_cacheable: bool = True
    """Whether it shows features inside the tile and its margin only."""

    def area(self) -> TileArea:
        """Return the area of all features that the tile may show."""
        box, edge = self.tile.box(self.margin), _EDGE_DEGREES
        return TileArea(
            Bbox(
                max(box.west - edge, -180.0),
                max(box.south - edge, -90.0),
                min(box.east + edge, 180.0),
                min(box.north + edge, 90.0),
            )
        )


async def tile_response(
    request: SpaceRequest, wanted: RequestedTile, render: RenderTile
) -> Response:
    """Return a tile, or 304 if the client has it."""
    http, service = request.http, server_of(request.http).tiles
    basis = None
    if wanted.is_cacheable:
        basis = await basis_of(request.context, request.space_id, wanted.ref, wanted.layers)
    if basis is None:
        return _unkeyed(http, await service.uncached(render), wanted.media_type)
    tile = wanted.tile
    place = f"{tile.level}/{tile.x}/{tile.y}/{tile.mercator}/{wanted.format}"
    key = tile_key(basis, (place, *_parameters(http)))
    subject = TileSubject(key, basis, wanted.area(), is_small=tile.level >= LEVEL_MIN)
    answer = await service.answer(subject, http.headers.get("If-None-Match"), render)
    if answer.validator is None:
        return _unkeyed(http, answer, wanted.media_type)
    headers = {"ETag": answer.validator, "Cache-Control": _lifetime(http, basis.is_lasting)}
    if answer.is_unmodified:
        return Response(status_code=304, headers=headers)
    if answer.other is not None:
        answer.other.headers.update(headers)
        return answer.other
    assert answer.tile is not None
    body = answer.tile.body
    if len(body) >= limits.GZIP_BYTES_MIN and _accepts_gzip(http):
        body = await service.zipped(key, answer.tile)
        headers |= {"Content-Encoding": "gzip", "Vary": "Accept-Encoding"}
    return Response(body, media_type=wanted.media_type, headers=headers)


def body_of(made: Response) -> bytes | Response:
    """Return the body of a response that is complete, else the response."""
    is_complete = type(made) is Response and made.status_code == 200
    return bytes(made.body) if is_complete else made


def _parameters(http: Request) -> Iterator[str]:
    """Yield the parameters as they were sent, without those that the basis includes."""
    raw = raw_query(http)
    for pair in raw_pairs(raw) if raw else ():
        if decoded(pair.partition("=")[0], "query") not in _IN_BASIS:
            yield pair


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
