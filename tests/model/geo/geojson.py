"""Hypothesis strategies for GeoJSON geometries, valid and broken."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

Geometry = dict[str, Any]

LONS = st.floats(-180, 180) | st.integers(-180, 180)
LATS = st.floats(-90, 90) | st.integers(-90, 90)
HEIGHTS = st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(2**53), 2**53)


def positions(dimension: int) -> st.SearchStrategy[list[float]]:
    axes = (LONS, LATS, HEIGHTS)[:dimension]
    return st.tuples(*axes).map(list)


def rings(dimension: int) -> st.SearchStrategy[list[list[float]]]:
    some = st.lists(positions(dimension), min_size=3, max_size=5)
    return some.map(lambda ring: [*ring, list(ring[0])])


def lists(members: st.SearchStrategy[Any], least: int = 1) -> st.SearchStrategy[list[Any]]:
    return st.lists(members, min_size=least, max_size=least + 2)


def simple_geometries(dimension: int) -> st.SearchStrategy[Geometry]:
    position, ring = positions(dimension), rings(dimension)
    coordinates: dict[str, st.SearchStrategy[Any]] = {
        "Point": position,
        "MultiPoint": lists(position),
        "LineString": lists(position, 2),
        "Polygon": lists(ring),
        "MultiLineString": lists(lists(position, 2)),
        "MultiPolygon": lists(lists(ring)),
    }
    kinds: list[st.SearchStrategy[Geometry]] = [
        st.fixed_dictionaries({"type": st.just(name), "coordinates": each})
        for name, each in coordinates.items()
    ]
    return st.one_of(kinds)


def _geometries(dimension: int) -> st.SearchStrategy[Geometry]:
    return st.recursive(
        simple_geometries(dimension),
        lambda inner: st.fixed_dictionaries(
            {"type": st.just("GeometryCollection"), "geometries": lists(inner)}
        ),
        max_leaves=4,
    )


def geometries() -> st.SearchStrategy[Geometry]:
    """Any valid geometry, 2D or 3D."""
    return _geometries(2) | _geometries(3)


@st.composite
def broken_geometries(draw: st.DrawFn) -> object:
    """A valid geometry in which one value was removed or replaced, mostly by something wrong."""
    root: dict[str, Any] = {"root": draw(geometries())}
    holder: Any = root
    key: Any = "root"
    while isinstance(holder[key], dict | list) and len(holder[key]) and draw(st.integers(0, 5)):
        holder = holder[key]
        keys = sorted(holder) if isinstance(holder, dict) else range(len(holder))
        key = draw(st.sampled_from(keys))
    wrong: list[Any] = [
        None,
        True,
        "1.5",
        181,
        -90.5,
        1e400,
        10**400,
        float("nan"),
        [],
        {},
        [1, 2],
        [[1, 2]],
    ]
    if isinstance(holder, list) and draw(st.booleans()):
        del holder[key]
    else:
        holder[key] = draw(st.sampled_from([*wrong, {"type": "Point", "coordinates": [1, 2, 3]}]))
    return root["root"]
