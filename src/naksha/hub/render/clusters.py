"""Features counted in hexagons of H3 or in tiles, for maps of more than can be shown one by one.

All of it are functions of shapes and values; where these come from is of no interest here. Ids and
order of the answers depend on nothing but the cells, so that the same question has the same answer.
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
from naksha.spi.support.query_parts import grown

Feature = dict[str, Any]
Shapes = npt.NDArray[np.object_]
Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

_FLOAT_MAX: Final = sys.float_info.max
_RESOLUTIONS: Final = (2, 2, 2, 2, 3, 4, 4, 5, 6, 6, 7, 8, 9, 9, 10, 11, 11, 12, 13)
"""The resolution of hexagons at each level of tiles; at higher levels the last one."""
_FINER_MAX: Final = 2
"""How much finer than that they may be at most."""
_EDGES_AROUND: Final = 2.5
"""So many edges a hexagon may reach out of the place that is asked for, generously."""
_METRES_PER_DEGREE: Final = 111_320.0
_DIGITS: Final = 7
"""Decimals of coordinates: a centimetre."""
_BUFFER: Final = 1.0 / 1024.0
"""The part of a tile's width that is left free at its edges, so that neighbours can be told."""
_NARROW_DEGREES: Final = 90.0
"""H3 takes a polygon of more than half the earth for its opposite."""


# ---- Hexagons ------------------------------------------------------------------------------------


def hexagon_resolution(level: int, options: Hexbin) -> int:
    """The resolution that suits a level of tiles, or the one that is wanted if not too fine."""
    usual = _RESOLUTIONS[min(level, len(_RESOLUTIONS) - 1)]
    wanted = usual if options.resolution is None else options.resolution
    most = min(usual + _FINER_MAX, HEXAGON_RESOLUTION_MAX)
    return max(min(min(wanted, most) + options.relative, most), 0)


def hexbin_box(box: Bbox, resolution: int) -> Bbox:
    """The place where features must be looked for so that all hexagons in `box` are complete."""
    metres = _EDGES_AROUND * h3.average_hexagon_edge_length(resolution, unit="m")
    west, east = (box.west, box.east) if box.west <= box.east else (-180.0, 180.0)
    west, south, east, north = grown((west, box.south, east, box.north), metres)
    return Bbox(west, south, east, north)


def hexbins(
    shapes: Shapes, values: Floats | None, box: Bbox, level: int, options: Hexbin, *, clip: bool
) -> list[Feature]:
    """Hexagons that meet the box, with what is counted in them.

    Args:
        shapes: The geometries of the features, of all that meet `hexbin_box`.
        values: The property of each that is aggregated, NaN where there is none.
        box: The place that is asked for.
        level: The level of tiles that it is shown at.
        options: How it shall be clustered.
        clip: Whether hexagons are cut at the edges of the box.
    """
    resolution = hexagon_resolution(level, options)
    around = box_shape(hexbin_box(box, resolution))
    owners, cells = _counted(shapes, around, resolution, options.single_coordinate)
    found, groups = np.unique(cells, return_inverse=True)
    bins = np.array([hexagon(h3.int_to_str(int(cell))) for cell in found], dtype=object)
    places = np.flatnonzero(shapely.intersects(bins, box_shape(box)))
    aggregations = _aggregations(owners, groups, len(found), values, options.property)
    shown = clipped(bins[places], box_shape(box)) if clip else bins[places]
    facts = {"resolution": resolution, "level": level}
    return [
        _hexagon_feature(int(found[place]), shape, facts, aggregations[place], box, options, clip)
        for place, shape in zip(places, shown, strict=True)
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
    """Pairs of a feature and a hexagon that it is counted in, each once."""
    inside = clipped(shapely.force_2d(shapes), area)
    owners: list[int] = []
    cells: list[int] = []
    for owner in np.flatnonzero(~shapely.is_empty(inside)).tolist():
        mine = {*_cells_of(inside[owner], resolution, single)}
        cells += mine
        owners += [owner] * len(mine)
        if len(cells) > HEXAGON_COUNTS_MAX:
            raise LimitExceeded(
                f"features are counted more than {HEXAGON_COUNTS_MAX} times; ask for a smaller "
                "place, coarser hexagons, or clustering.singlecoord=true",
                field="clustering.absoluteResolution",
            )
    return np.array(owners, dtype=np.int64), np.array(cells, dtype=np.uint64)


def _cells_of(shape: shapely.Geometry, resolution: int, single: bool) -> Iterator[int]:
    """The hexagons that a shape touches, or the one of its first position; some repeatedly."""
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
    """The polygons of a shape, wide ones in several parts."""
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
    """Of each group of values; null for a group that has none."""
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
    """The numbers that features have at a path below their properties, NaN where there is none."""
    path = ("properties", *name.split("."))
    return np.fromiter((_number_at(feature, path) for feature in features), np.float64)


def _number_at(value: Any, path: Sequence[str]) -> float:
    for key in path:
        value = value.get(key) if isinstance(value, Mapping) else None
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number and abs(value) <= _FLOAT_MAX else math.nan


# ---- Tiles ---------------------------------------------------------------------------------------


def quadbin_levels(level: int, options: Quadbin) -> int:
    """How many levels deeper than the place that is asked for features are counted."""
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
    """Tiles in which there is something, with the number of features that meet each.

    Args:
        shapes: The geometries of features.
        cells: The tiles in which they are counted.
        options: How it shall be clustered.
        total_count: How many features there are elsewhere and here; by default, so many as here.
        weight: For how many features each of these stands, if they are a sample.
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
    counts = [_count(int(numbers[place]), weight, options.count_mode) for place in filled]
    return [
        _tile_feature(cells[place], shape, count, total, estimated=weight != 1.0)
        for place, shape, count in zip(filled, shown, counts, strict=True)
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
