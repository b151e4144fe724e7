"""Tile cells: recorded changes and look-ups meet whenever the boxes do."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from naksha.model.geo.quadkey import bounds, qrid
from naksha.model.geo.tile_cells import (
    TILE_CELL_LEVEL,
    WORLD_CELL,
    CellLookUp,
    ancestors,
    cell_at,
    cover,
    covers,
    level_of,
    look_up_cells,
    merged,
)
from naksha.model.limits import TILE_CELLS_MAX
from naksha.model.query import Bbox

ROUNDING = 1e-12
"""A position within the rounding error of an edge may belong to the cell on its other side."""
LONGITUDES = st.floats(-180, 180)
LATITUDES = st.floats(-90, 90)


@st.composite
def boxes(draw: st.DrawFn) -> tuple[float, float, float, float]:
    west, east = sorted((draw(LONGITUDES), draw(LONGITUDES)))
    south, north = sorted((draw(LATITUDES), draw(LATITUDES)))
    if draw(st.booleans()):
        east, north = min(west + 0.01, 180.0), min(south + 0.01, 90.0)
    return west, south, east, north


def quadkey(cell: int) -> str:
    return "".join(str(cell >> 2 * n & 3) for n in reversed(range(level_of(cell))))


def is_changed(recorded: set[int], box: Bbox) -> bool:
    """Whether a look-up of the box finds one of the recorded cells."""
    below = {parent for cell in recorded for parent in ancestors(cell)}
    return any(
        cell in recorded or cell in below or recorded & {*ancestors(cell)}
        for cell in look_up_cells(box)
    )


@given(LONGITUDES, LATITUDES)
def test_the_cell_of_a_position_is_a_prefix_of_its_quad_key(lon: float, lat: float) -> None:
    (cell,) = cover(lon, lat, lon, lat)
    assert quadkey(cell) == qrid(lon, lat)[:TILE_CELL_LEVEL]


@given(boxes())
def test_the_cover_of_a_box_contains_it_in_at_most_four_cells(
    box: tuple[float, float, float, float],
) -> None:
    cells = cover(*box)
    edges = [bounds(quadkey(cell)) for cell in cells]
    assert len(cells) <= 4
    assert len({level_of(cell) for cell in cells}) == 1
    assert min(edge[0] for edge in edges) <= box[0] + ROUNDING
    assert min(edge[1] for edge in edges) <= box[1] + ROUNDING
    assert max(edge[2] for edge in edges) >= box[2] - ROUNDING
    assert max(edge[3] for edge in edges) >= box[3] - ROUNDING


@given(st.lists(boxes(), min_size=1, max_size=20))
def test_boxes_are_covered_together_as_one_by_one(
    some: list[tuple[float, float, float, float]],
) -> None:
    nothing = [(np.nan,) * 4]
    assert covers(np.array([*some, *nothing])) == set().union(*(cover(*box) for box in some))


@given(boxes(), boxes())
def test_a_look_up_finds_a_change_in_a_box_that_it_meets(
    changed: tuple[float, float, float, float], asked: tuple[float, float, float, float]
) -> None:
    meet = (
        changed[0] <= asked[2]
        and asked[0] <= changed[2]
        and changed[1] <= asked[3]
        and asked[1] <= changed[3]
    )
    found = is_changed(cover(*changed), Bbox(*asked))
    assert found or not meet


@given(st.lists(boxes(), max_size=4), boxes())
def test_recorded_cells_meet_a_box_or_not(
    changed: list[tuple[float, float, float, float]], asked: tuple[float, float, float, float]
) -> None:
    recorded = set().union(*(cover(*box) for box in changed))
    assert CellLookUp(Bbox(*asked)).meets(recorded) == is_changed(recorded, Bbox(*asked))


def test_a_look_up_over_the_date_line_finds_both_sides_only() -> None:
    box = Bbox(179.9, 10.0, -179.9, 10.1)
    assert is_changed(cover(179.95, 10.05, 179.95, 10.05), box)
    assert is_changed(cover(-179.95, 10.05, -179.95, 10.05), box)
    assert not is_changed(cover(0.0, 10.05, 0.0, 10.05), box)


def test_a_look_up_finds_no_change_in_a_distant_cell() -> None:
    assert not is_changed(cover(8.0, 50.0, 8.0, 50.0), Bbox(8.2, 50.0, 8.3, 50.1))


def test_many_cells_are_merged_into_larger_ones() -> None:
    cells = {cell_at(TILE_CELL_LEVEL, column, row) for column in range(64) for row in range(64)}
    found = merged(cells)
    assert len(found) <= TILE_CELLS_MAX
    assert all(found & {cell, *ancestors(cell)} for cell in cells)
    assert [*ancestors(cell_at(2, 3, 3))] == [cell_at(1, 1, 1), WORLD_CELL]
