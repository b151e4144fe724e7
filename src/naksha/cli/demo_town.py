"""The town of the demonstration: a few dozen features on a small grid."""

from __future__ import annotations

from typing import Any, Final

WIDTH: Final = 34
HEIGHT: Final = 10
_WEST: Final = 11.0
_NORTH: Final = 48.0
CELL: Final = 0.001
"""Size of a grid cell in degrees, in both directions."""

LANE_X: Final = 17
_MAIN_STREET_Y: Final = 4
_NEW_ROAD_Y: Final = 7

Feature = dict[str, Any]


def place(id: str, kind: str, name: str, x: int, y: int) -> Feature:
    """Return a point feature in a cell."""
    return _feature(id, kind, name, {"type": "Point", "coordinates": _at(x, y)})


def street(id: str, name: str, start: tuple[int, int], end: tuple[int, int]) -> Feature:
    """Return a line feature between two cells."""
    return _feature(
        id, "street", name, {"type": "LineString", "coordinates": [_at(*start), _at(*end)]}
    )


def streets() -> list[Feature]:
    return [
        street("main-street", "Main Street", (0, _MAIN_STREET_Y), (WIDTH - 1, _MAIN_STREET_Y)),
        street("mill-lane", "Mill Lane", (LANE_X, 0), (LANE_X, HEIGHT - 1)),
    ]


def new_road() -> Feature:
    return street("new-road", "New Road", (0, _NEW_ROAD_Y), (WIDTH - 1, _NEW_ROAD_Y))


def houses() -> list[Feature]:
    """Return two rows of houses along Main Street."""
    cells = [(x, y) for y in (3, 5) for x in range(1, WIDTH, 3) if abs(x - LANE_X) > 2]
    return [place(f"house-{n}", "house", f"No. {n}", x, y) for n, (x, y) in enumerate(cells, 1)]


def town_hall() -> Feature:
    return place("town-hall", "hall", "Town Hall", LANE_X + 2, 2)


def trees() -> list[Feature]:
    """Return an avenue of trees, in the way of the new road."""
    cells = [x for x in range(2, WIDTH, 3) if abs(x - LANE_X) > 1]
    return [place(f"tree-{n}", "tree", "Lime", x, 8) for n, x in enumerate(cells, 1)]


def shops() -> list[Feature]:
    names = ("Bakery", "Books", "Bicycles", "Flowers")
    return [place(f"shop-{n}", "shop", name, 5 * n, 1) for n, name in enumerate(names, 1)]


def cells_of(feature: Feature) -> list[tuple[int, int]]:
    """Return the cells that a feature covers, as (column, row)."""
    geometry = feature["geometry"]
    if geometry["type"] == "Point":
        return [_cell(geometry["coordinates"])]
    (x0, y0), (x1, y1) = (_cell(position) for position in geometry["coordinates"])
    if y0 == y1:
        return [(x, y0) for x in range(x0, x1 + 1)]
    return [(x0, y) for y in range(y0, y1 + 1)]


def _feature(id: str, kind: str, name: str, geometry: Feature) -> Feature:
    properties = {"kind": kind, "name": name}
    return {"type": "Feature", "id": id, "geometry": geometry, "properties": properties}


def _at(x: int, y: int) -> list[float]:
    return [round(_WEST + x * CELL, 6), round(_NORTH - y * CELL, 6)]


def _cell(position: list[float]) -> tuple[int, int]:
    return round((position[0] - _WEST) / CELL), round((_NORTH - position[1]) / CELL)
