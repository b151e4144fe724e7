"""Counts of features in H3 hexagons or in tiles, for maps of many features.

All functions work on shapes and values, whatever their source. Ids and order of the results depend
only on the cells, so that equal requests have equal responses.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import h3.api.basic_int as h3
import msgspec
import numpy as np
import numpy.typing as npt
import shapely

from naksha.hub.query_language.clustering import HEXAGON_RESOLUTION_MAX, CountMode, Hexbin, Quadbin
from naksha.hub.query_language.tiles import MapTile, hexagon
from naksha.hub.render.projection import box_shape, clipped
from naksha.model.errors import LimitExceeded
from naksha.model.limits import HEXAGON_COUNTS_MAX, TILE_LEVEL_MAX
from naksha.model.query import Bbox
from naksha.spi.query.areas import grown

Feature = dict[str, Any]
Shapes = npt.NDArray[np.object_]
Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

_FLOAT_MAX: Final = sys.float_info.max
_RESOLUTIONS: Final = (2, 2, 2, 2, 3, 4, 4, 5, 6, 6, 7, 8, 9, 9, 10, 11, 11, 12, 13)
"""Resolution of hexagons at each tile level; higher levels use the last one."""
_FINER_MAX: Final = 2
"""Maximum number of resolutions that hexagons may be finer than that."""
_EDGES_AROUND: Final = 2.5
"""Upper bound, in edge lengths, of how far a hexagon reaches outside the requested area."""
_METRES_PER_DEGREE: Final = 111_320.0
_DIGITS: Final = 7
"""Decimals of coordinates: about a centimetre."""
_BUFFER: Final = 1.0 / 1024.0
"""Margin of a tile as a part of its width, so that neighbouring tiles are distinguishable."""
_NARROW_DEGREES: Final = 90.0
"""H3 interprets a polygon wider than half the earth as its complement."""


# ---- Hexagons ------------------------------------------------------------------------------------


def hexagon_resolution(level: int, options: Hexbin) -> int:
    """Return the resolution for a tile level, or the requested one if it is not too fine."""
    usual = _RESOLUTIONS[min(level, len(_RESOLUTIONS) - 1)]
    resolution = usual if options.resolution is None else options.resolution
    most = min(usual + _FINER_MAX, HEXAGON_RESOLUTION_MAX)
    return max(min(min(resolution, most) + options.relative, most), 0)


def hexbin_box(box: Bbox, resolution: int) -> Bbox:
    """Return the box to search for features so that all hexagons in `box` are complete."""
    metres = _EDGES_AROUND * h3.average_hexagon_edge_length(resolution, unit="m")
    west, east = (box.west, box.east) if box.west <= box.east else (-180.0, 180.0)
    west, south, east, north = grown((west, box.south, east, box.north), metres)
    return Bbox(west, south, east, north)


def hexbins(
    shapes: Shapes, values: Floats | None, box: Bbox, level: int, options: Hexbin, *, clip: bool
) -> list[Feature]:
    """Return the hexagons that intersect the box, with the counts of features in them.

    Args:
        shapes: The geometries of all features that intersect `hexbin_box`.
        values: The aggregated property of each feature, NaN where it is missing.
        box: The requested area.
        level: The tile level of the map.
        options: The clustering options.
        clip: Whether hexagons are cut at the edges of the box.
    """
    resolution = hexagon_resolution(level, options)
    around = box_shape(hexbin_box(box, resolution))
    owners, cells = _counted(shapes, around, resolution, options.single_coordinate)
    found, groups = np.unique(cells, return_inverse=True)
    bins = np.array([hexagon(h3.int_to_str(int(cell))) for cell in found], dtype=object)
    indices = np.flatnonzero(shapely.intersects(bins, box_shape(box)))
    aggregations = _aggregations(owners, groups, len(found), values, options.property)
    shown = clipped(bins[indices], box_shape(box)) if clip else bins[indices]
    facts = {"resolution": resolution, "level": level}
    return [
        _hexagon_feature(int(found[index]), shape, facts, aggregations[index], box, options, clip)
        for index, shape in zip(indices, shown, strict=True)
    ]


def _hexagon_feature(
    cell: int,
    shape: shapely.Geometry,
    facts: dict[str, Any],
    aggregation: dict[str, Any],
    box: Bbox,
    options: Hexbin,
    clip: bool,
) -> Feature:
    name = h3.int_to_str(cell)
    lat, lon = h3.cell_to_latlng(cell)
    polygon = _geojson(shape)
    centre = {"type": "Point", "coordinates": [round(lon, _DIGITS), round(lat, _DIGITS)]}
    geometry, other, other_name = (
        (centre, polygon, "hexagon") if options.point_mode else (polygon, centre, "centroid")
    )
    return {
        "type": "Feature",
        "id": f"{name}@{box.west:.7f},{box.south:.7f}" if clip else name,
        "geometry": geometry,
        "properties": {
            "kind": "H3",
            "kind_detail": name,
            **facts,
            "aggregation": aggregation,
            "pentagon": h3.is_pentagon(cell),
            other_name: other["coordinates"],
        },
    }


def _geojson(shape: shapely.Geometry) -> dict[str, Any]:
    rounded = shapely.transform(shape, lambda positions: np.round(positions, _DIGITS))
    geometry: dict[str, Any] = msgspec.json.decode(shapely.to_geojson(rounded))
    return geometry


def _counted(
    shapes: Shapes, area: shapely.Geometry, resolution: int, single: bool
) -> tuple[Integers, npt.NDArray[np.uint64]]:
    """Return pairs of a feature and a hexagon that it is counted in, each pair once."""
    inside = clipped(shapely.force_2d(shapes), area)
    owners: list[int] = []
    cells: list[int] = []
    for owner in np.flatnonzero(~shapely.is_empty(inside)).tolist():
        mine = {*_cells_of(inside[owner], resolution, single)}
        cells += mine
        owners += [owner] * len(mine)
        if len(cells) > HEXAGON_COUNTS_MAX:
            raise LimitExceeded(
                f"The features are in more than {HEXAGON_COUNTS_MAX} hexagons; use a smaller "
                "area, coarser hexagons, or clustering.singlecoord=true",
                field="clustering.absoluteResolution",
            )
    return np.array(owners, dtype=np.int64), np.array(cells, dtype=np.uint64)


def _cells_of(shape: shapely.Geometry, resolution: int, single: bool) -> Iterator[int]:
    """Yield the hexagons that a shape touches, or that of its first position; some repeatedly."""
    if single or shape.geom_type == "Point":
        lon, lat = shapely.get_coordinates(shape)[0].tolist()
        yield h3.latlng_to_cell(lat, lon, resolution)
        return
    degrees = h3.average_hexagon_edge_length(resolution, unit="m") / _METRES_PER_DEGREE
    for lon, lat in shapely.get_coordinates(shapely.segmentize(shape, degrees / 2.0)).tolist():
        yield h3.latlng_to_cell(lat, lon, resolution)
    for part in _polygons(shape):
        yield from h3.geo_to_cells(part, resolution)


def _polygons(shape: shapely.Geometry) -> Iterator[shapely.Geometry]:
    """Yield the polygons of a shape, wide ones in several parts."""
    for part in shapely.get_parts(shape):
        if part.geom_type in ("MultiPolygon", "GeometryCollection"):
            yield from _polygons(part)
        elif part.geom_type == "Polygon" and not part.is_empty:
            yield from _narrow(part)


def _narrow(polygon: shapely.Geometry) -> Iterator[shapely.Geometry]:
    west, south, east, north = polygon.bounds
    if east - west <= _NARROW_DEGREES:
        yield polygon
        return
    for left in np.arange(west, east, _NARROW_DEGREES).tolist():
        strip = shapely.box(left, south, min(left + _NARROW_DEGREES, east), north)
        yield from _polygons(shapely.intersection(polygon, strip))


def _aggregations(
    owners: Integers, groups: Integers, count: int, values: Floats | None, name: str | None
) -> list[dict[str, Any]]:
    quantities = np.bincount(groups, minlength=count).tolist()
    if values is None or name is None:
        return [{"qty": quantity} for quantity in quantities]
    statistics = _statistics(groups, values[owners], count)
    return [
        {name: {"qty": quantity, **statistic}}
        for quantity, statistic in zip(quantities, statistics, strict=True)
    ]


def _statistics(groups: Integers, values: Floats, count: int) -> list[dict[str, float | None]]:
    """Return statistics of each group of values; null for an empty group."""
    known = np.flatnonzero(np.isfinite(values))
    order = known[np.lexsort((values[known], groups[known]))]
    ordered, numbers = values[order], np.bincount(groups[order], minlength=count)
    ends = np.cumsum(numbers)
    result: list[dict[str, float | None]] = []
    for start, end in zip((ends - numbers).tolist(), ends.tolist(), strict=True):
        result.append(_statistic(ordered[start:end]))
    return result


def _statistic(values: Floats) -> dict[str, float | None]:
    if not len(values):
        return dict.fromkeys(("min", "max", "sum", "avg", "median"))
    total = float(values.sum())
    middle = float(values[(len(values) - 1) // 2] + values[len(values) // 2]) / 2.0
    return {
        "min": float(values[0]),
        "max": float(values[-1]),
        "sum": total,
        "avg": round(total / len(values), 5),
        "median": middle,
    }


def property_numbers(features: Iterable[Mapping[str, Any]], name: str) -> Floats:
    """Return the numbers at a path below the properties of features, NaN where missing."""
    path = ("properties", *name.split("."))
    return np.fromiter((_number_at(feature, path) for feature in features), np.float64)


def _number_at(value: Any, path: Sequence[str]) -> float:
    for key in path:
        value = value.get(key) if isinstance(value, Mapping) else None
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number and abs(value) <= _FLOAT_MAX else math.nan


# ---- Tiles ---------------------------------------------------------------------------------------


def quadbin_levels(level: int, options: Quadbin) -> int:
    """Return how many levels below the requested area features are counted."""
    deeper = options.relative
    if options.resolution is not None:
        deeper += max(options.resolution - level, 0)
    return min(deeper, 5, TILE_LEVEL_MAX - level)


def quadbins(
    shapes: Shapes,
    cells: Sequence[MapTile],
    options: Quadbin,
    *,
    total_count: int | None = None,
    weight: float = 1.0,
    clip: Bbox | None = None,
) -> list[Feature]:
    """Return non-empty tiles with the number of features that intersect each.

    Args:
        shapes: The geometries of features.
        cells: The tiles in which they are counted.
        options: The clustering options.
        total_count: The number of features in the whole space; by default, the number here.
        weight: The number of features that each of these stands for, if they are a sample.
        clip: A box at which tiles are cut.
    """
    boxes = np.array([box_shape(cell.box()) for cell in cells], dtype=object)
    _, hit = shapely.STRtree(boxes).query(shapes, predicate="intersects")
    numbers = np.bincount(hit, minlength=len(cells))
    filled = np.flatnonzero(numbers).tolist()
    total = round(len(shapes) * weight) if total_count is None else total_count
    shown = boxes[filled] if options.no_buffer else _shrunk(boxes[filled])
    if clip is not None:
        shown = clipped(shown, box_shape(clip))
    counts = [_count(int(numbers[index]), weight, options.count_mode) for index in filled]
    return [
        _tile_feature(cells[index], shape, count, total, estimated=weight != 1.0)
        for index, shape, count in zip(filled, shown, counts, strict=True)
        if not shape.is_empty
    ]


def _count(number: int, weight: float, mode: CountMode) -> int:
    return 1 if mode is CountMode.BOOL else max(round(number * weight), 1)


def _shrunk(boxes: Shapes) -> Shapes:
    west, south, east, north = shapely.bounds(boxes).reshape(-1, 4).T
    free = (east - west) * _BUFFER
    shrunk: Shapes = shapely.box(west + free, south + free, east - free, north - free)
    return shrunk


def _tile_feature(
    cell: MapTile, shape: shapely.Geometry, count: int, total: int, *, estimated: bool
) -> Feature:
    level, x, y = cell.level, cell.x, cell.y
    return {
        "type": "Feature",
        "id": f"{level}_{x}_{y}",
        "geometry": _geojson(shape),
        "properties": {
            "qk": cell.quadkey,
            "zxy": [level, x, y],
            "xyz": f"({y},{x},{level})",
            "count": count,
            "estimated": estimated,
            "total_count": total,
            "equipartition_count": total // 4**level,
        },
    }
