"""Vector tiles built from states, for storages whose database cannot build them.

All geometries pass each step together: projection, scaling to the tile's grid, rounding, clipping;
only the encoding is done one by one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import mapbox_vector_tile
import msgspec
import numpy as np
import numpy.typing as npt
import shapely

from naksha.model.geo.tiles import EARTH_RADIUS_M, LATITUDE_MAX, VectorTile
from naksha.model.geo.wkb_rules import stored_shapes
from naksha.model.limits import INT8_MAX
from naksha.model.state import XYZ, State

Shapes = npt.NDArray[Any]
Floats = npt.NDArray[np.float64]
_COLLECTION: Final = 7
_AREAS: Final = (3, 6)
"""Type ids of polygons and multipolygons in shapely."""


def tile_of(states: Sequence[State], wkbs: Sequence[bytes | None], tile: VectorTile) -> bytes:
    """Build the tile of states and their geometries; empty when no feature remains."""
    shapes = on_grid(stored_shapes(wkbs), tile)
    features = [
        {"geometry": shape, "properties": dict(properties_of(state, tile))}
        for state, shape in zip(states, shapes, strict=True)
        if shape is not None
    ]
    if not features:
        return b""
    # `on_grid` has oriented the rings already.
    options = {"extents": tile.extent, "y_coord_down": True, "check_winding_order": False}
    layers = [{"name": tile.layer, "features": features}]
    made: bytes = mapbox_vector_tile.encode(layers, default_options=options)
    return made


# ---- Geometries ------------------------------------------------------------------------------


def on_grid(shapes: Shapes, tile: VectorTile) -> Shapes:
    """Convert geometries to the tile's grid; None where nothing remains."""
    if not len(shapes):
        return shapes
    # A tile feature has points, lines or areas: keep the parts with the most dimensions.
    basic = _basic(shapely.force_2d(shapes))
    if tile.tolerance:
        basic = shapely.simplify(basic, tile.tolerance, preserve_topology=False)
    areas = np.isin(shapely.get_type_id(basic), _AREAS)
    found = _rounded(shapely.transform(basic, lambda places: _scaled(places, tile)), areas)
    if tile.clip:
        low, high = -tile.buffer, tile.extent + tile.buffer
        inside = shapely.box(low, low, high, high)
        crossing = ~shapely.covered_by(found, inside)
        clipped = shapely.clip_by_rect(found[crossing], low, low, high, high)
        found[crossing] = _rounded(_basic(clipped), areas[crossing])
    # An area that collapsed to a line is invisible, as is a line that collapsed to a point.
    lost = shapely.get_dimensions(found) != shapely.get_dimensions(basic)
    found[lost | shapely.is_empty(found)] = None
    found[areas] = shapely.orient_polygons(found[areas])
    return found


def _scaled(places: Floats, tile: VectorTile) -> Floats:
    """Convert degrees to units of the tile, from its upper left corner."""
    if tile.degrees:
        return _in_units(places[:, 0], places[:, 1], tile)
    # A pole would be at infinity: clip to a latitude far outside of the map.
    latitude = np.radians(np.clip(places[:, 1], -LATITUDE_MAX - 4, LATITUDE_MAX + 4))
    x = np.radians(places[:, 0]) * EARTH_RADIUS_M
    y = np.log(np.tan(np.pi / 4 + latitude / 2)) * EARTH_RADIUS_M
    return _in_units(x, y, tile)


def _in_units(x: Floats, y: Floats, tile: VectorTile) -> Floats:
    across = (x - tile.west) * tile.extent / (tile.east - tile.west)
    down = (tile.north - y) * tile.extent / (tile.north - tile.south)
    return np.column_stack([across, down])


def _rounded(shapes: Shapes, areas: npt.NDArray[np.bool_]) -> Shapes:
    """Round to whole numbers; areas are made valid, and repeated points of lines removed."""
    found: Shapes = shapely.transform(shapes, np.rint)
    valid = shapely.make_valid(shapes[areas], method="structure", keep_collapsed=False)
    found[areas] = _basic(shapely.set_precision(valid, 1.0))
    lines = ~areas
    found[lines] = shapely.simplify(found[lines], 0)
    # Drop lines that collapsed to a point.
    gone = (shapely.get_dimensions(found) == 1) & (shapely.length(found) == 0)
    found[gone] = None
    return found


def _basic(shapes: Shapes) -> Shapes:
    """Replace collections by their parts with the most dimensions."""
    mixed = np.flatnonzero(shapely.get_type_id(shapes) == _COLLECTION)
    found: Shapes = shapes.copy()
    for n in mixed:
        found[n] = _largest(shapes[n])
    return found


def _largest(collection: Any) -> Any:
    parts = np.array(list(_parts(collection)), dtype=object)
    if not len(parts):
        return None
    dimensions = shapely.get_dimensions(parts)
    most = parts[dimensions == dimensions.max()]
    make = (shapely.multipoints, shapely.multilinestrings, shapely.multipolygons)
    return make[dimensions.max()](most) if len(most) > 1 else most[0]


def _parts(shape: Any) -> Iterator[Any]:
    """Yield the single geometries of a collection, including nested ones."""
    for part in shapely.get_parts(shape):
        if part.geom_type.startswith("Multi") or part.geom_type == "GeometryCollection":
            yield from _parts(part)
        elif not part.is_empty:
            yield part


# ---- Properties ------------------------------------------------------------------------------


def properties_of(state: State, tile: VectorTile) -> Iterable[tuple[str, Any]]:
    """Yield the properties of a tile feature."""
    content: dict[str, Any] = state.feature["properties"]
    own = {key: value for key, value in content.items() if key != XYZ}
    if tile.flattened:
        own = _flattened({"properties": own})
    own.pop("id", None)
    if tile.namespace and XYZ in content:
        xyz = {XYZ: content[XYZ]}
        own |= _flattened({"properties": xyz}) if tile.flattened else xyz
    yield "id", state.id
    for key, value in own.items():
        if isinstance(value, list | dict):
            if value:
                yield key, msgspec.json.encode(value).decode()
        elif isinstance(value, int) and abs(value) > INT8_MAX:
            yield key, float(value)
        elif value is not None:
            yield key, value


def _flattened(nested: dict[str, Any]) -> dict[str, Any]:
    """Flatten nested objects to paths; of equal paths the one nested less takes precedence."""
    found: list[tuple[str, Any]] = []
    level = list(nested.items())
    while level:
        found += ((key, value) for key, value in level if not isinstance(value, dict))
        level = [
            (f"{key}.{inner}", value)
            for key, outer in level
            if isinstance(outer, dict)
            for inner, value in outer.items()
        ]
    return dict(reversed(found))
