"""Plans of requests for tiles: what determines a tile, found once for many equal requests."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from typing import Final, NamedTuple
from weakref import WeakKeyDictionary

from starlette.requests import Request

from naksha.hub.auth.rights import Rights
from naksha.hub.pipeline.configuration import Configuration
from naksha.hub.pipeline.request_context import RequestContext
from naksha.hub.query_language.query_string import decoded, raw_pairs
from naksha.hub.query_language.tiles import MapTile
from naksha.hub.tiles.cell_tail import TileArea
from naksha.hub.tiles.changes_inside import LEVEL_MIN
from naksha.hub.tiles.tile_basis import basis_of, is_head_of_main
from naksha.hub.tiles.tile_key import tile_key
from naksha.hub.tiles.tile_service import TileSubject
from naksha.model import limits
from naksha.model.query import Bbox
from naksha.server.middleware.request_record import record_of
from naksha.server.openapi.feature_schemas import MVT
from naksha.server.requests.parameters import raw_query

_IN_BASIS: Final = frozenset({"versionRef", "version", "skipCache", "access_token"})
"""Parameters that do not belong to the key: the basis has what they mean."""
_MVT: Final = MVT.encode()
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
    varies: bool = False
    """Whether the format was selected by the header `Accept`."""
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


WantedTile = Callable[[], RequestedTile]
"""Function that parses the request for a tile."""


class TilePlan(NamedTuple):
    """A tile with its key and its dependencies, before it is rendered."""

    rights: Rights
    subject: TileSubject | None
    """None for a tile that depends on more than is known."""
    wanted: RequestedTile


class TilePlans:
    """The plans of the tiles that were requested last.

    A plan follows from the path, the query, the configuration and the rights, unless a version is
    named that has to be looked up.
    """

    def __init__(self, count_max: int = limits.TILE_PLANS_MAX) -> None:
        self._count_max = count_max
        self._known: WeakKeyDictionary[Configuration, dict[Hashable, TilePlan]]
        self._known = WeakKeyDictionary()

    def known(self, http: Request, context: RequestContext) -> TilePlan | None:
        """Return the plan of a request that is the same as an earlier one."""
        plans = self._known.get(context.configured)
        return None if plans is None else plans.get(_request_key(http, context.actor.rights))

    async def plan(
        self, http: Request, space_id: str, context: RequestContext, wanted: WantedTile
    ) -> TilePlan:
        """Return the plan of a request to a space."""
        rights = context.actor.rights
        plans = self._known.setdefault(context.configured, {})
        key = _request_key(http, rights)
        known = plans.get(key)
        if known is not None:
            return known
        requested = wanted()
        subject = await _subject(http, space_id, context, requested)
        made = TilePlan(rights, subject, requested)
        # What has no basis may have one later, when the version exists or the storage is back.
        if subject is not None and (subject.basis.is_lasting or is_head_of_main(requested.ref)):
            if len(plans) >= self._count_max:
                plans.clear()
            plans[key] = made
        return made


def _request_key(http: Request, rights: Rights) -> Hashable:
    """Return all parts of a request that its plan follows from, besides the configuration.

    The plan keeps the rights, so no other ones get their id.
    """
    scope = http.scope
    accepts_mvt = _MVT in record_of(scope).fields.get(b"accept", b"")
    return id(rights), scope["path"], scope["query_string"], accepts_mvt


async def _subject(
    http: Request, space_id: str, context: RequestContext, wanted: RequestedTile
) -> TileSubject | None:
    basis = None
    if wanted.is_cacheable:
        basis = await basis_of(context, space_id, wanted.ref, wanted.layers)
    if basis is None:
        return None
    tile = wanted.tile
    place = f"{tile.level}/{tile.x}/{tile.y}/{tile.mercator}/{wanted.margin}/{wanted.format}"
    key = tile_key(basis, (place, *_parameters(http)))
    return TileSubject(key, basis, wanted.area(), is_small=tile.level >= LEVEL_MIN)


def _parameters(http: Request) -> Iterator[str]:
    """Yield the parameters as they were sent, without those that the basis includes."""
    raw = raw_query(http)
    for pair in raw_pairs(raw) if raw else ():
        if decoded(pair.partition("=")[0], "query") not in _IN_BASIS:
            yield pair
