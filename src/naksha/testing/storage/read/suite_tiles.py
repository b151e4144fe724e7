"""Conformance: vector tiles contain the same as the states, identically on every storage."""

from __future__ import annotations

import json
import math
from typing import Any

import mapbox_vector_tile
import msgspec
import pytest
import shapely
import shapely.affinity
from shapely.geometry import shape

from naksha.model import query as q
from naksha.model.errors import CollectionNotFound, InvalidArgument
from naksha.model.geo.tiles import VectorTile
from naksha.model.query import Query, States
from naksha.model.state import XYZ
from naksha.model.version import HEAD, VersionSelector
from naksha.spi.storage import Storage
from naksha.testing.storage.read.suite_query import Zoo
from naksha.testing.storage.suite_support import (
    Handle,
    feature,
    new_collection,
    point,
    seq,
    with_xyz,
)

GRID = 4096
WORLD = VectorTile.web(0, 0, 0)
NAMESPACED = VectorTile.web(0, 0, 0, namespace=True)
TOWN = VectorTile.web(12, 2144, 1389)
"""A tile small enough to be flat, around 8.5 east and 50.2 north."""

SQUARE = VectorTile.square(q.Bbox(-90, 45, -45, 90))
"""A square of degrees, up to the pole."""
HALF = VectorTile.square(q.Bbox(-180, -90, 0, 90), buffer=64)
PART = VectorTile(west=-9_000_123, south=-1e6, east=7_654_321, north=9_876_543, buffer=0)
"""A rectangle outside of the tile grid, at whose edges no feature ends."""


async def features(
    handle: Handle, query: Query, tile: VectorTile, at: VersionSelector = HEAD
) -> dict[str, dict[str, Any]]:
    """Decode a tile's features by id: properties and geometry (in units, y downwards)."""
    made = await handle.storage.tile(handle.name, query, at, tile)
    if not made:
        return {}
    layers = mapbox_vector_tile.decode(made, default_options={"y_coord_down": True})
    assert list(layers) == [tile.layer]
    assert layers[tile.layer]["extent"] == tile.extent
    found = layers[tile.layer]["features"]
    by_id = {f["properties"]["id"]: f for f in found}
    assert len(by_id) == len(found)
    return by_id


def place(tile: VectorTile, lon: float, lat: float) -> tuple[float, float]:
    """Return a position on the tile, by the formulas of the map."""
    if tile.degrees:
        return (
            (lon - tile.west) / (tile.east - tile.west) * tile.extent,
            (tile.north - lat) / (tile.north - tile.south) * tile.extent,
        )
    x = math.radians(lon) * 6_378_137.0
    y = math.log(math.tan(math.pi / 4 + math.radians(lat) / 2)) * 6_378_137.0
    return (
        (x - tile.west) / (tile.east - tile.west) * tile.extent,
        (tile.north - y) / (tile.north - tile.south) * tile.extent,
    )


def middle(tile: VectorTile) -> tuple[float, float]:
    box = tile.bounds()
    return (box.west + box.east) / 2, (box.south + box.north) / 2


class TestTilesOfPlaces:
    @pytest.mark.parametrize(
        "tile", [WORLD, TOWN, VectorTile.web(5, 16, 10, extent=512), SQUARE, HALF]
    )
    async def test_points_are_where_the_map_has_them(
        self, places: Handle, tile: VectorTile
    ) -> None:
        box = tile.bounds()
        wide, high = box.east - box.west, box.north - box.south
        positions = {
            f"{n}": (box.west + wide * (n % 7 + 0.5) / 7, box.south + high * (n + 0.5) / 30)
            for n in range(30)
        }
        await places.create(*(point(key, *at) for key, at in positions.items()))
        found = await features(places, Query(), tile)
        assert found.keys() == positions.keys()
        for key, position in positions.items():
            got = found[key]["geometry"]["coordinates"]
            for is_, wanted in zip(got, place(tile, *position), strict=True):
                assert is_ == pytest.approx(wanted, abs=1.6)

    async def test_shapes_keep_their_form(self, places: Handle) -> None:
        west, south, east, north = msgspec.structs.astuple(TOWN.bounds())

        def at(x: float, y: float) -> list[float]:
            return [west + (east - west) * x, south + (north - south) * y]

        ring = [at(0.2, 0.2), at(0.8, 0.2), at(0.8, 0.8), at(0.2, 0.8), at(0.2, 0.2)]
        hole = [at(0.4, 0.4), at(0.4, 0.6), at(0.6, 0.6), at(0.6, 0.4), at(0.4, 0.4)]
        line = [at(0.1, 0.1), at(0.5, 0.3), at(0.9, 0.1)]
        shapes: dict[str, dict[str, Any]] = {
            "line": {"type": "LineString", "coordinates": line},
            "lines": {"type": "MultiLineString", "coordinates": [line, ring]},
            "points": {"type": "MultiPoint", "coordinates": line},
            "area": {"type": "Polygon", "coordinates": [ring, hole]},
            "areas": {"type": "MultiPolygon", "coordinates": [[ring, hole], [hole]]},
            "high": {"type": "LineString", "coordinates": [[*p, 100.5] for p in line]},
        }
        shapes["mixed"] = {
            "type": "GeometryCollection",
            "geometries": [shapes["line"], {"type": "Point", "coordinates": at(0.5, 0.5)}],
        }
        await places.create(*(feature(key, s) for key, s in shapes.items()), feature("nowhere"))
        found = await features(places, Query(), TOWN)
        assert found.keys() == shapes.keys()
        shapes["mixed"] = shapes["line"]
        for key, wanted in shapes.items():
            expected = shapely.transform(
                shapely.force_2d(shape(wanted)),
                lambda xy: [place(TOWN, lon, lat) for lon, lat in xy],
            )
            got = shape(found[key]["geometry"])
            assert got.geom_type.removeprefix("Multi") == expected.geom_type.removeprefix("Multi")
            if key != "areas":  # overlapping areas are merged into one
                assert shapely.hausdorff_distance(got, expected) < 3
            assert got.is_valid
        assert shape(found["areas"]["geometry"]).area == pytest.approx((0.6 * GRID) ** 2, rel=0.01)

    async def test_geometries_are_clipped_at_the_buffer(self, places: Handle) -> None:
        lon, lat = middle(TOWN)
        line = {"type": "LineString", "coordinates": [[lon - 5, lat], [lon + 5, lat]]}
        area = shapely.geometry.mapping(shapely.box(lon - 5, lat - 5, lon + 5, lat + 5))
        await places.create(feature("line", line), feature("area", area))
        for buffer in (0, 64, 256):
            tile = msgspec.structs.replace(TOWN, buffer=buffer)
            for found in (await features(places, Query(), tile)).values():
                west, _, east, _ = shape(found["geometry"]).bounds
                assert (west, east) == (-buffer, GRID + buffer)
        whole = await features(places, Query(), msgspec.structs.replace(TOWN, clip=False))
        assert shape(whole["line"]["geometry"]).length > 50 * GRID

    async def test_a_buffer_takes_in_what_is_near(self, places: Handle) -> None:
        box = TOWN.bounds()
        wide = (box.east - box.west) / GRID
        lat = (box.south + box.north) / 2
        beside = {"in": 10, "edge": -30, "near": -100, "far": -400}
        await places.create(
            *(point(key, box.west + units * wide, lat) for key, units in beside.items())
        )
        for buffer, wanted in ((0, ["in"]), (64, ["edge", "in"]), (256, ["edge", "in", "near"])):
            tile = msgspec.structs.replace(TOWN, buffer=buffer)
            assert sorted(await features(places, Query(), tile)) == wanted

    async def test_invisibly_small_geometries_are_left_out(self, places: Handle) -> None:
        lon, lat = middle(TOWN)
        tiny = 1e-9
        area = shapely.geometry.mapping(shapely.box(lon, lat, lon + tiny, lat + tiny))
        line = {"type": "LineString", "coordinates": [[lon, lat], [lon + tiny, lat]]}
        await places.create(feature("area", area), feature("line", line), point("point", lon, lat))
        assert list(await features(places, Query(), TOWN)) == ["point"]

    async def test_poles_are_off_the_map(self, places: Handle) -> None:
        cap = shapely.geometry.mapping(shapely.box(-180, -90, 180, -60))
        await places.create(feature("cap", cap), point("north", 0, 90), point("here", 1, 1))
        found = await features(places, Query(), WORLD)
        assert sorted(found) == ["cap", "here"]
        south = await features(places, Query(), VectorTile.web(3, 4, 6))
        assert list(south) == ["cap"]

    async def test_poles_are_on_a_map_of_degrees(self, places: Handle) -> None:
        cap = shapely.geometry.mapping(shapely.box(-180, -90, 180, -60))
        await places.create(feature("cap", cap), point("north", -60, 90), point("here", -1, 1))
        found = await features(places, Query(), HALF)
        assert sorted(found) == ["cap", "here", "north"]
        assert shape(found["cap"]["geometry"]).bounds == (0, GRID * 5 // 6, GRID + 64, GRID)
        assert found["north"]["geometry"]["coordinates"] == [GRID * 2 // 3 + 1, 0]
        assert list(await features(places, Query(), SQUARE)) == ["north"]

    async def test_an_empty_tile_is_empty(self, places: Handle) -> None:
        await places.create(point("far", -100.0, -40.0))
        assert await places.storage.tile(places.name, Query(), HEAD, TOWN) == b""


class TestReducedTiles:
    async def test_a_tile_of_too_many_features_has_a_sample_by_id_hash(
        self, places: Handle
    ) -> None:
        lon, lat = middle(TOWN)
        await places.create(*(point(f"p{n}", lon, lat) for n in range(400)))
        kept: set[str] = {f"p{n}" for n in range(400)}
        for most in (200, 50, 10):
            tile = msgspec.structs.replace(TOWN, features_max=most, sample_max=most)
            sample = {*await features(places, Query(), tile)}
            assert 0 < len(sample) < 2 * most
            assert sample < kept
            part = max(n for n in (2, 4, 8, 16, 32, 64) if sample <= in_part(kept, n))
            assert sample == in_part(kept, part)
            kept = sample

    async def test_only_a_tile_of_too_many_features_has_a_sample(self, places: Handle) -> None:
        box = TOWN.bounds()
        lat = (box.south + box.north) / 2
        await places.create(*(point(f"p{n}", box.west + n * 1e-5, lat) for n in range(200)))
        limited = msgspec.structs.replace(TOWN, features_max=10, sample_max=10)
        beside = msgspec.structs.replace(
            VectorTile.web(12, 2150, 1389), features_max=10, sample_max=10
        )
        await places.create(*(point(f"q{n}", *middle(beside)) for n in range(3)))
        assert len(await features(places, Query(), limited)) < 40
        assert len(await features(places, Query(limit=150), limited)) == 150
        roomy = msgspec.structs.replace(TOWN, features_max=1000)
        assert len(await features(places, Query(), roomy)) == 200
        assert len(await features(places, Query(), beside)) == 3

    @pytest.mark.parametrize("tile", [WORLD, VectorTile.web(5, 17, 11), TOWN])
    async def test_lines_and_areas_are_simplified_alike_in_neighbouring_tiles(
        self, places: Handle, tile: VectorTile
    ) -> None:
        box = tile.bounds()
        wide, high = box.east - box.west, box.north - box.south
        unit = wide / GRID
        # A zigzag of half a unit around the eastern edge of the tile, which must not be that of
        # the world.
        centre = box.east if tile is not WORLD else 90.0
        steps = [(centre + (n - 500) * unit / 2, n % 2 * unit / 2) for n in range(1000)]
        north = box.south + high * 0.75
        zigzag = [[x, (box.south + north) / 2 + y] for x, y in steps]
        ring = [*zigzag, [zigzag[-1][0], north], [zigzag[0][0], north], zigzag[0]]
        area = {"type": "Polygon", "coordinates": [ring]}
        await places.create(
            feature("line", {"type": "LineString", "coordinates": zigzag}),
            feature("area", area),
            point("point", *zigzag[0]),
        )
        simpler = msgspec.structs.replace(tile, tolerance=unit, buffer=0)
        found = await features(places, Query(), simpler)
        assert found.keys() == {"line", "area", "point"}
        for key in ("line", "area"):
            assert len(shapely.get_coordinates(shape(found[key]["geometry"]))) < 20
        if tile is WORLD:  # it has no neighbour
            return
        size = tile.east - tile.west
        east = msgspec.structs.replace(simpler, west=tile.east, east=tile.east + size)
        beside = await features(places, Query(), east)
        for key in ("line", "area"):
            edge = shapely.LineString([(GRID, 0), (GRID, GRID)])
            here = shapely.intersection(shape(found[key]["geometry"]), edge)
            there = shapely.intersection(
                shapely.affinity.translate(shape(beside[key]["geometry"]), GRID), edge
            )
            assert shapely.hausdorff_distance(here, there) <= 1

    async def test_a_tolerance_must_be_a_number(self) -> None:
        for wrong in (-1.0, math.nan, math.inf):
            with pytest.raises(InvalidArgument, match="tolerance"):
                msgspec.structs.replace(TOWN, tolerance=wrong)


def in_part(ids: set[str], total: int) -> set[str]:
    """Return the ids of the first of so many parts."""
    return {id for id in ids if q.QueryPart(1, total).has(id)}


PROPERTIES: dict[str, Any] = {
    "text": 'a "word" {',
    "bracket": "[",
    "number": 5,
    "negative": -7,
    "float": 2.5,
    "large": 2**53 + 1,
    "huge": 1e22,
    "yes": True,
    "no": False,
    "null": None,
    "list": [1, "b", None],
    "empty": {},
    "none": [],
    "a": {"b": {"c": 1, "d": None, "e": {}}, "l": [{"x": 1}], "t": "x"},
    "a.t": "plain",
    "id": "not the feature's",
}


class TestTilesOfProperties:
    async def test_nested_properties_are_json(self, tiled: Handle) -> None:
        found = (await features(tiled, Query(), NAMESPACED))["x"]["properties"]
        state = await tiled.get("x")
        assert json.loads(found.pop(XYZ)) == state.xyz
        assert json.loads(found.pop("a")) == PROPERTIES["a"]
        assert json.loads(found.pop("list")) == PROPERTIES["list"]
        plain = {k: v for k, v in PROPERTIES.items() if not isinstance(v, dict | list)}
        del plain["null"]
        assert_same(found, plain | {"id": "x"})

    async def test_flattened(self, tiled: Handle) -> None:
        tile = msgspec.structs.replace(NAMESPACED, flattened=True)
        found = (await features(tiled, Query(), tile))["x"]["properties"]
        xyz = {k: v for k, v in (await tiled.get("x")).xyz.items() if v is not None}
        assert json.loads(found.pop(f"properties.{XYZ}.tags")) == xyz.pop("tags")
        for key, value in xyz.items():
            assert found.pop(f"properties.{XYZ}.{key}") == value
        assert json.loads(found.pop("properties.list")) == PROPERTIES["list"]
        assert json.loads(found.pop("properties.a.l")) == PROPERTIES["a"]["l"]
        plain = {
            f"properties.{k}": v for k, v in PROPERTIES.items() if not isinstance(v, dict | list)
        }
        del plain["properties.null"]
        assert_same(found, plain | {"id": "x", "properties.a.b.c": 1})

    @pytest.mark.parametrize("flattened", [False, True])
    async def test_the_namespace_is_returned_only_on_request(
        self, tiled: Handle, flattened: bool
    ) -> None:
        tile = msgspec.structs.replace(WORLD, flattened=flattened)
        found = await features(tiled, Query(), tile)
        assert found.keys() == {"x", "plain", "bare"}
        assert not any(XYZ in key for f in found.values() for key in f["properties"])
        speed = "properties.speed" if flattened else "speed"
        assert found["plain"]["properties"] == {"id": "plain", speed: 50}
        assert found["bare"]["properties"] == {"id": "bare"}

    async def test_layer_and_extent(self, tiled: Handle) -> None:
        tile = msgspec.structs.replace(WORLD, layer='my "layer" ü', extent=256)
        found = await features(tiled, Query(ids=("plain",)), tile)
        assert found["plain"]["geometry"]["coordinates"] == [128 + 1, 128 - 1]


def assert_same(found: dict[str, Any], wanted: dict[str, Any]) -> None:
    """Check for equal values of equal types: True is not 1."""
    assert found == wanted
    for key, value in wanted.items():
        assert isinstance(found[key], bool) == isinstance(value, bool), key


@pytest.fixture(scope="class")
async def tiled(storage: Storage) -> Handle:
    """A collection with three features: all kinds of properties, plain ones, and none."""
    handle = await new_collection(storage)
    full = point("x", 1.5, 1.5) | {"properties": PROPERTIES}
    bare = {"type": "Feature", "id": "bare", "geometry": full["geometry"], "properties": {}}
    await handle.create(
        with_xyz(full, tags=["a", "b"], crid="c"), point("plain", 1.5, 1.5, speed=50), bare
    )
    return handle


class TestTilesOfQueries:
    @pytest.mark.parametrize("kind", States)
    async def test_at_head_and_at_versions(self, zoo: Zoo, kind: States) -> None:
        """A tile of the world has what the query returns, with the same namespaces."""
        for at in zoo.versions:
            query = Query(states=kind)
            states = [
                s
                for s in await zoo.states(query, at)
                if s.feature["geometry"] is not None and kind is not States.ALL
            ]
            if kind is States.ALL:  # a feature has several; the last one is enough
                made = await zoo.storage.tile(zoo.name, query, at, NAMESPACED)
                layers = mapbox_vector_tile.decode(made)
                found = [f["properties"][XYZ] for f in layers["default"]["features"]]
                wanted = [s.xyz for s in await zoo.states(query, at) if s.feature["geometry"]]
                key = lambda xyz: xyz["uuid"]  # noqa: E731
                assert sorted(map(json.loads, found), key=key) == sorted(wanted, key=key)
                continue
            tile = await features(zoo, query, NAMESPACED, at)
            assert {k: json.loads(f["properties"][XYZ]) for k, f in tile.items()} == {
                s.id: s.xyz for s in states
            }

    async def test_filters_hold(self, zoo: Zoo) -> None:
        for query in (
            Query(ids=("f01", "f02", "f04")),
            Query(authors=("ann",)),
            Query(spatial=q.Bbox(-90, -45, 90, 45)),
            Query(spatial=q.Intersects(shapely.to_wkb(shapely.box(-90, -45, 90, 45)))),
        ):
            states = await zoo.states(query)
            wanted = [s.id for s in states if s.feature["geometry"]]
            assert sorted(await features(zoo, query, WORLD)) == wanted
            box = shapely.box(*msgspec.structs.astuple(PART.bounds()))
            inside = Query(ids=tuple(wanted), spatial=q.Intersects(shapely.to_wkb(box)))
            assert sorted(await features(zoo, query, PART)) == [
                s.id for s in await zoo.states(inside)
            ]

    async def test_a_limit_cuts_as_in_a_page(self, zoo: Zoo) -> None:
        """Of the features that meet the tile, the first ones by id are kept."""
        tile = msgspec.structs.replace(WORLD, buffer=0)
        whole = [s.id for s in await zoo.states(Query(spatial=tile.box()))]
        for limit in (1, 5, len(whole), 1000):
            assert sorted(await features(zoo, Query(limit=limit), tile)) == whole[:limit]

    async def test_cursor_and_space_are_ignored(self, zoo: Zoo) -> None:
        page = await zoo.storage.page(zoo.name, Query(limit=3))
        plain = await features(zoo, Query(), WORLD)
        assert await features(zoo, Query(cursor=page.cursor, space="x"), WORLD) == plain

    async def test_inside_a_session(self, places: Handle) -> None:
        async with places.storage.write("app") as session:
            await session.create(places.name, [point("x", 1, 1)])
            made = await session.tile(places.name, Query(limit=5), HEAD, WORLD)
            assert len(mapbox_vector_tile.decode(made)["default"]["features"]) == 1

    async def test_a_version_stays(self, places: Handle) -> None:
        await places.create(point("x", 1, 1, n=1))
        before = await places.published()
        await places.update(point("x", 1, 1, n=2))
        await places.create(point("y", 1, 1))
        found = await features(places, Query(), WORLD, seq(before))
        assert {key: f["properties"]["n"] for key, f in found.items()} == {"x": 1}

    async def test_unsupported_queries_are_refused(self, places: Handle) -> None:
        with pytest.raises(CollectionNotFound):
            await places.storage.tile("nobody", Query(), HEAD, WORLD)
        for wrong in (
            {"extent": 0},
            {"buffer": -1},
            {"layer": ""},
            {"west": math.nan},
            {"west": 1.0, "east": 0.0},
        ):
            with pytest.raises(InvalidArgument):
                VectorTile(**msgspec.structs.asdict(WORLD) | wrong)
        for level, column, row in ((-1, 0, 0), (31, 0, 0), (1, 2, 0), (1, 0, -1)):
            with pytest.raises(InvalidArgument):
                VectorTile.web(level, column, row)
