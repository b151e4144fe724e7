"""Tiles of a space: features as GeoJSON or as a vector tile, and the difference of two versions."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import msgspec
import shapely
from starlette.responses import Response

from naksha.hub.pipeline.requests import ReadTile
from naksha.hub.pipeline.version_requests import ReadDiff
from naksha.hub.query_language.clustering import (
    Ensure,
    Sampling,
    Simplification,
    SimplificationAlgorithm,
)
from naksha.hub.query_language.tiles import TILE_PIXELS, MapTile, TileFormat
from naksha.hub.render.differences import difference_states
from naksha.hub.render.feature_shapes import with_shapes
from naksha.hub.render.projection import StateProjection, shaped
from naksha.hub.render.sampling import visual_thousands
from naksha.hub.tiles.tile_basis import TileBasis, is_range
from naksha.hub.write.conflicted_branches import is_for_solving
from naksha.model import limits
from naksha.model.errors import InvalidArgument, NotSupported
from naksha.model.geo.tiles import VectorTile, mercator
from naksha.model.state import XYZ, State
from naksha.server.openapi.feature_schemas import MVT
from naksha.server.requests.parameters import TileParameters, query_of
from naksha.server.requests.tile_plans import RequestedTile
from naksha.server.responses.area_features import AreaRequest
from naksha.server.responses.encoding import GEO_JSON
from naksha.server.responses.feature_collections import SpaceRequest, projection_of
from naksha.server.responses.tile_responses import body_of, tile_response
from naksha.spi.support.vector_tiles import tile_of

_EXTENT: Final = 4096
"""Resolution of the grid of a vector tile."""
LATITUDE_MAX: Final = 89.99
"""The Mercator projection has no poles."""
NAMESPACE: Final = ("properties", XYZ)


class TileName(NamedTuple):
    """A tile as the path of a request names it."""

    tile: MapTile
    format: TileFormat
    in_degrees: bool = False
    """Whether the grid of a vector tile is in degrees, too."""
    varies: bool = False
    """Whether the format was selected by the header `Accept`."""

    @property
    def is_flat(self) -> bool:
        """Whether keys of properties are paths."""
        return self.format is TileFormat.MVT_FLAT


async def space_tile(
    request: SpaceRequest, parse: Callable[[], TileName], parameters: TileParameters
) -> Response:
    """Return a tile of a space; `parse` is called only if the request is not known already."""
    ref = parameters.ref

    def wanted() -> RequestedTile:
        name = parse()
        return RequestedTile(
            name.tile,
            parameters.margin,
            ref,
            parameters.context,
            f"{name.format}/{name.in_degrees}",
            GEO_JSON if name.format is TileFormat.GEOJSON else MVT,
            varies=name.varies,
            # Cells reach beyond the tile, and their counts may be shares of all features.
            is_cacheable=parameters.clustering is None,
        )

    async def render(basis: TileBasis | None) -> bytes | Response:
        name = parse()
        if is_range(ref):
            fixed = ref if basis is None else basis.ref
            return await _difference_tile(request, name, parameters, fixed)
        return await _features_tile(request, name, parameters)

    return await tile_response(request, wanted, render)


async def _features_tile(
    request: SpaceRequest, name: TileName, parameters: TileParameters
) -> bytes | Response:
    tile, is_vector = name.tile, name.format is not TileFormat.GEOJSON
    area = AreaRequest(
        request,
        parameters,
        tile.search_box(parameters.margin),
        tile.level,
        clip=is_vector or parameters.mode == "viz",
        tweaks=_visual(parameters) if parameters.mode == "viz" else (),
    )
    if not is_vector:
        return body_of(await area.answer())
    return await _vector_tile(area, name, parameters)


async def _difference_tile(
    request: SpaceRequest, name: TileName, parameters: TileParameters, ref: str
) -> bytes:
    """Return the features that differ between two versions, with the kind of the difference."""
    if name.format is TileFormat.GEOJSON:
        raise InvalidArgument(
            "The difference of two versions is a vector tile; request it with the suffix .mvt",
            field="versionRef",
        )
    if parameters.clustering is not None or parameters.tweaks is not None:
        raise NotSupported(
            "The difference of two versions can be neither clustered nor reduced; omit "
            "clustering and tweaks",
            field="versionRef",
        )
    tile = _edges(name, parameters.margin, layer=request.space_id, flattened=name.is_flat)
    query = query_of(request.http, parameters, spatial=tile.box())
    found = await request.send(ReadDiff(ref=ref, query=query))
    states = await difference_states(found, parameters.limit)
    return await asyncio.to_thread(_encoded, states, tile)


def _visual(parameters: TileParameters) -> Sequence[Sampling | Simplification | Ensure]:
    """Return the reductions that `mode=viz` applies."""
    simpler = Simplification(algorithm=SimplificationAlgorithm.GRID_BY_TILE_LEVEL)
    thousands = visual_thousands(parameters.viz_sampling)
    return (simpler,) if thousands is None else (Ensure(thousands), simpler)


async def _vector_tile(area: AreaRequest, name: TileName, parameters: TileParameters) -> bytes:
    request, map_tile = area.request, name.tile
    shaping = projection_of(request.http, parameters)
    selection = shaping.selection
    is_limited = "limit" in request.http.query_params
    tile = _edges(
        name,
        parameters.margin,
        layer=request.space_id,
        clip=area.clip,
        flattened=name.is_flat,
        namespace=selection is not None and selection.has(NAMESPACE),
        tolerance=360.0 / (1 << map_tile.level) / _EXTENT,
        features_max=None if is_limited else limits.TILE_FEATURES_MAX,
        sample_max=limits.TILE_SAMPLE_MAX,
    )
    if selection is not None and selection.keeps_all:
        shaping = dataclasses.replace(shaping, selection=None)
    is_stored = (
        area.is_plain and shaping == StateProjection() and not is_for_solving(parameters.ref)
    )
    if is_stored and await request.is_plain():
        spatial = None if map_tile.mercator else area.box
        limit = parameters.limit if is_limited else None
        query = query_of(request.http, parameters, limit=limit, spatial=spatial)
        read = ReadTile(tile=tile, query=query, ref=parameters.ref)
        return (await request.send(read)).mvt
    if area.clustering is not None:
        found = [_state(cell) for cell in await area.cells(area.clustering)]
    else:
        found = shaped(await _states(area, tile), shaping)
    return await asyncio.to_thread(_encoded, found, tile)


async def _states(area: AreaRequest, tile: VectorTile) -> list[State]:
    """Return the features of a tile, or a sample of them if there are too many."""
    if tile.features_max is None or area.tweaks:
        return await (await area.features()).all()
    some = await (await area.part(None, tile.features_max + 1)).all()
    if len(some) <= tile.features_max:
        return some
    return await (await area.part(tile.sample_of(await area.count()), None)).all()


def _encoded(states: Sequence[State], tile: VectorTile) -> bytes:
    some, shapes = with_shapes(states)
    return tile_of(some, shapely.to_wkb(shapes).tolist(), tile) if some else b""


def _state(feature: dict[str, Any]) -> State:
    return State(feature["id"], msgspec.json.encode(feature))


def _edges(name: TileName, margin: int, **settings: Any) -> VectorTile:
    """Return the tile in Mercator coordinates, unless its grid is to be in degrees.

    A square of degrees of the scheme `here` is stretched to Mercator.
    """
    map_tile = name.tile
    settings |= {"extent": _EXTENT, "buffer": round(margin * _EXTENT / TILE_PIXELS)}
    if map_tile.mercator:
        return VectorTile.web(map_tile.level, map_tile.x, map_tile.y, **settings)
    box = map_tile.box()
    if name.in_degrees:
        return VectorTile.square(box, **settings)
    west, south = mercator(box.west, max(box.south, -LATITUDE_MAX))
    east, north = mercator(box.east, min(box.north, LATITUDE_MAX))
    return VectorTile(west=west, south=south, east=east, north=north, **settings)
