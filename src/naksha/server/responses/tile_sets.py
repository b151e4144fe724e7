"""Descriptions of the tiles of a space: TileJSON 3.0 and a MapLibre style."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final, NamedTuple
from urllib.parse import quote, urlencode

import msgspec
from starlette.requests import Request

from naksha.hub.config.objects import Space
from naksha.hub.pipeline.requests import GetStatistics, GetVersion, ReadFeatures
from naksha.hub.query_language.query_string import raw_pairs
from naksha.hub.render.differences import CHANGE, CHANGED, CREATED, DELETED, OLD
from naksha.hub.render.space_counts import StatisticsCounter
from naksha.hub.tiles.cell_tail import WORLD
from naksha.hub.tiles.tile_basis import is_range
from naksha.model import limits
from naksha.model.errors import Forbidden, NotImplementedHere
from naksha.model.geo.tiles import LATITUDE_MAX
from naksha.model.query import Bbox, Query
from naksha.model.statistics import Figure, Statistics
from naksha.server.requests.parameters import ReadParameters, raw_query
from naksha.server.responses.feature_collections import SpaceRequest
from naksha.versioning.version_refs import RangeRef, parse_ref

_LEVEL_MAX: Final = 18
"""Clients enlarge tiles of this level: their grid has units of 4 cm."""
MARGIN: Final = 8
"""Margin of tiles in pixels, so that lines do not end at the edges of tiles."""
_SAMPLE: Final = 1_000
"""Features by which the properties of a view are found."""
_OWN: Final = frozenset({"f", "versionRef", "version"})
"""Parameters that are not passed on to tiles, or with another value."""
_COLOURS: Final = {CREATED: "#2e9e44", CHANGED: "#d98000", DELETED: "#d02f3a"}
_COLOUR: Final = "#2b6cb0"
# Releases of MapLibre differ in whether they tell the types apart.
_LINES: Final = ("LineString", "MultiLineString")
_AREAS: Final = ("Polygon", "MultiPolygon")


class TileSet(NamedTuple):
    """The tiles of a space at a version."""

    space: Space
    ref: str
    """The version, by its number if the client named a fixed one."""
    bounds: Bbox
    fields: Mapping[str, str]
    is_difference: bool


async def tile_set(request: SpaceRequest, parameters: ReadParameters) -> TileSet:
    """Find out what the tiles of a space contain."""
    ref, is_difference = parameters.ref, is_range(parameters.ref)
    last = ref
    if is_difference:
        parsed = parse_ref(ref)
        assert isinstance(parsed, RangeRef)
        last = f"{parsed.branch}:{ref.rpartition('..')[2]}"
    found = await _statistics(request, last, parameters.context)
    fields = {one.key: f"in {one.count} features" for one in found.properties.value}
    bounds = None if found.bbox.estimated else found.bbox.value
    if is_difference:
        fields |= {CHANGE: f"{CREATED}, {CHANGED} or {DELETED}", OLD: "whether it is as it was"}
        bounds = None  # deleted features are elsewhere
    elif ref:
        with suppress(NotImplementedHere):
            fixed = await request.send(GetVersion(ref=ref))
            ref = ref if fixed is None else fixed.ref
    space = await request.realm.registry.get(Space, request.space_id)
    return TileSet(space, ref, bounds or WORLD, {"id": "the feature's id"} | fields, is_difference)


async def _statistics(request: SpaceRequest, ref: str, context: str) -> Statistics:
    """Return statistics of a space, or of some features that the actor may read."""
    if await request.is_plain():
        with suppress(Forbidden):
            return (await request.send(GetStatistics(ref=ref, fast=True))).statistics
    counter = StatisticsCounter()
    read = ReadFeatures(query=Query(limit=_SAMPLE), ref=ref, context=context)
    await counter.read(await request.send(read))
    found = counter.statistics()
    return msgspec.structs.replace(found, bbox=Figure(None, estimated=True))


def tile_url(http: Request, tiles: TileSet, path: str, *more: str) -> str:
    """Return the absolute URL of a path, with the version and the parameters of the request."""
    given = [pair for pair in raw_pairs(raw_query(http)) if pair.partition("=")[0] not in _OWN]
    if tiles.ref:
        given.append(urlencode({"versionRef": tiles.ref}, safe=":.", quote_via=quote))
    given += more
    query = "?" + "&".join(given) if given else ""
    return f"{str(http.base_url).rstrip('/')}{path}{query}"


def path_id(tiles: TileSet) -> str:
    """Return the id of the space as a segment of a path."""
    return quote(tiles.space.id, safe="")


def tile_json(http: Request, tiles: TileSet) -> dict[str, Any]:
    """Return the TileJSON document of the tiles of Web Mercator."""
    box = tiles.bounds
    west, east = box.west, box.east
    south, north = max(box.south, -LATITUDE_MAX), min(box.north, LATITUDE_MAX)
    path = f"/ogc/collections/{path_id(tiles)}/tiles/WebMercatorQuad/{{z}}/{{y}}/{{x}}"
    space = tiles.space
    return {
        "tilejson": "3.0.0",
        "name": space.title or space.id,
        **({"description": space.description} if space.description else {}),
        "scheme": "xyz",
        "tiles": [tile_url(http, tiles, path)],
        "minzoom": 0,
        "maxzoom": _LEVEL_MAX,
        "bounds": [west, south, east, north],
        "sample": {"above": limits.TILE_FEATURES_MAX, "features": limits.TILE_SAMPLE_MAX},
        "center": [(west + east) / 2, (south + north) / 2, 0],
        "vector_layers": [
            {
                "id": space.id,
                "description": space.description,
                "fields": dict(tiles.fields),
                "minzoom": 0,
                "maxzoom": _LEVEL_MAX,
            }
        ],
    }


def map_style(http: Request, tiles: TileSet) -> dict[str, Any]:
    """Return a MapLibre style; it has no text, so that it needs no glyphs."""
    id = tiles.space.id
    url = tile_url(http, tiles, f"/hub/spaces/{path_id(tiles)}/tilejson")
    colour = _colour(tiles)
    opacity: Any = ["case", ["==", ["get", OLD], True], 0.4, 1.0] if tiles.is_difference else 1.0
    paints = {
        "fill": {"fill-color": colour, "fill-opacity": 0.25},
        "line": {"line-color": colour, "line-width": 1.5, "line-opacity": opacity},
        "circle": {
            "circle-color": colour,
            "circle-radius": 4,
            "circle-opacity": opacity,
            "circle-stroke-color": "#ffffff",
            "circle-stroke-width": 1,
        },
    }
    shown = {"fill": _AREAS, "line": [*_LINES, *_AREAS], "circle": ["Point", "MultiPoint"]}
    return {
        "version": 8,
        "name": tiles.space.title or id,
        "sources": {id: {"type": "vector", "url": url, "promoteId": {id: "id"}}},
        "layers": [
            {
                "id": f"{id}-{kind}",
                "type": kind,
                "source": id,
                "source-layer": id,
                "filter": ["in", ["geometry-type"], ["literal", shown[kind]]],
                "paint": paint,
            }
            for kind, paint in paints.items()
        ],
    }


def _colour(tiles: TileSet) -> Any:
    """Return the colour of features: of a difference, one for each kind of change."""
    if not tiles.is_difference:
        return _COLOUR
    cases = [part for pair in _COLOURS.items() for part in pair]
    return ["match", ["get", CHANGE], *cases, _COLOUR]
