"""Equality of tile cells in SQL and Python."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from naksha.model.geo.tile_cells import cell_at, cover, covers, merged
from naksha.model.limits import TILE_CELLS_MAX
from naksha.psql.connection.driver import Direct
from naksha.testing.fixtures import DatabaseFactory
from tests.psql.support import connect_to

Box = tuple[float, float, float, float]
Ask = Callable[..., Any]
EDGES = [n * 360 / 4096 for n in range(-2048, 2049, 64)]
LONGITUDES = st.floats(-180, 180) | st.sampled_from(EDGES)
LATITUDES = st.floats(-90, 90) | st.sampled_from([edge / 2 for edge in EDGES])
COVER = """
SELECT naksha_cover(array_agg(naksha_corners(box)))
  FROM (SELECT ST_SetSRID(ST_Collect(ST_MakePoint(west, south, 0), ST_MakePoint(east, north, 5)),
                          4326)::box3d AS box
          FROM unnest($1::float8[], $2::float8[], $3::float8[], $4::float8[])
               AS b(west, south, east, north) OFFSET 0) AS boxes
"""


@st.composite
def boxes(draw: st.DrawFn) -> Box:
    west, east = sorted((draw(LONGITUDES), draw(LONGITUDES)))
    south, north = sorted((draw(LATITUDES), draw(LATITUDES)))
    size = draw(st.sampled_from((0.0, 0.01, 0.1, 1.0, 360.0)))
    return west, south, min(east, west + size), min(north, south + size)


@pytest.fixture(scope="module")
def ask(database_factory: DatabaseFactory, installed: str) -> Iterator[Ask]:
    """Asks a database for one value."""
    with database_factory.fresh(installed) as dsn, asyncio.Runner() as runner:
        connection: Direct = runner.run(connect_to(dsn))

        async def fetch(*query: Any) -> Any:
            return await connection.fetchval(*query)

        yield lambda *query: runner.run(fetch(*query))
        runner.run(connection.close())


@given(st.lists(boxes(), min_size=1, max_size=40))
@settings(deadline=None)
def test_the_cover_of_boxes(ask: Ask, given_boxes: list[Box]) -> None:
    found = ask(COVER, *(list(edge) for edge in zip(*given_boxes, strict=True)))
    assert len(found) == len({*found})
    assert {*found} == set().union(*(cover(*box) for box in given_boxes))


@given(st.integers(0, 2**32), st.sampled_from((501, 700, 2_500)))
@settings(deadline=None, max_examples=40)
def test_the_cover_of_many_boxes(ask: Ask, seed: int, count: int) -> None:
    """In areas of any size, with boxes of any size."""
    chance = np.random.default_rng(seed)
    extent, size = 10.0 ** chance.uniform(-1, 2.5, 2)
    west = np.clip(chance.uniform(-180, 180) + chance.uniform(0, extent, count), -180, 180)
    south = np.clip(chance.uniform(-90, 90) + chance.uniform(0, extent, count), -90, 90)
    sizes = np.where(chance.random(count) < chance.random(), 0, chance.uniform(0, size, count))
    bounds = np.column_stack([west, south, np.minimum(west + sizes, 180), south])
    found = ask(COVER, *(edge.tolist() for edge in bounds.T))
    assert {*ask("SELECT naksha_merged_cells($1)", found)} == covers(bounds)


def test_the_cover_of_nothing(ask: Ask) -> None:
    assert ask("SELECT naksha_cover(NULL)") == []
    assert ask("SELECT naksha_cover('{}')") == []


@given(st.integers(0, 2**32), st.integers(0, 2_000))
@settings(deadline=None)
def test_many_cells_are_merged(ask: Ask, seed: int, count: int) -> None:
    chance = np.random.default_rng(seed)
    cells = []
    for level in chance.integers(0, 13, count).tolist():
        column, row = chance.integers(0, 1 << level, 2).tolist()
        cells.append(cell_at(level, column, row))
    found = ask("SELECT naksha_merged_cells($1)", cells)
    assert len(found) == len({*found}) <= TILE_CELLS_MAX
    assert {*found} == merged(cells)
