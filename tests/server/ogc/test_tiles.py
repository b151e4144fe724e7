"""OGC API – Tiles: grids, tilesets and tiles."""

from typing import Any

import httpx
import mapbox_vector_tile
import pytest

from naksha.testing.servers.hub_server import HubServer
from tests.server.towns import error, id_of, new_space, point, put

MVT = "application/vnd.mapbox-vector-tile"
CRS84 = "http://www.opengis.net/def/crs/OGC/1.3/CRS84"


@pytest.fixture(scope="module")
def town(client: httpx.Client) -> str:
    space = new_space(client, title="Towns")
    put(
        client,
        space,
        point("berlin", 13.4, 52.5, name="Berlin", tags=["capital"]),
        point("rio", -43.2, -22.9, name="Rio"),
        point("pole", 10.0, 89.0),
    )
    return id_of(space)


@pytest.fixture(scope="module")
def ogc(hub: HubServer) -> str:
    return f"{hub.url}/ogc"


def places(answer: httpx.Response) -> dict[str, list[int]]:
    """The features of a tile, with their positions from the upper left corner."""
    assert answer.status_code == 200, answer.text
    assert answer.headers["Content-Type"] == MVT
    if not answer.content:
        return {}
    ((name, layer),) = mapbox_vector_tile.decode(
        answer.content, default_options={"y_coord_down": True}
    ).items()
    assert name in str(answer.url)
    return {one["properties"]["id"]: one["geometry"]["coordinates"] for one in layer["features"]}


def by_rel(document: dict[str, Any], rel: str) -> list[dict[str, Any]]:
    return [one for one in document["links"] if one["rel"].endswith(rel)]


def test_the_links_lead_from_the_landing_page_to_a_tile(
    client: httpx.Client, ogc: str, town: str
) -> None:
    landing = client.get(ogc).json()
    assert client.get(f"{ogc}/").json() == landing
    (conformance,) = by_rel(landing, "conformance")
    classes = client.get(conformance["href"]).json()["conformsTo"]
    assert "http://www.opengis.net/spec/ogcapi-tiles-1/1.0/conf/core" in classes
    (schemes,) = by_rel(landing, "tiling-schemes")
    sets = client.get(schemes["href"]).json()["tileMatrixSets"]
    assert [one["id"] for one in sets] == ["WebMercatorQuad", "WorldCRS84Quad"]
    for one in sets:
        definition = client.get(one["links"][0]["href"]).json()
        assert definition["uri"] == one["uri"]
    found = client.get(f"{ogc}/collections/{town}/tiles").json()["tilesets"]
    assert [one["tileMatrixSetURI"] for one in found] == [one["uri"] for one in sets]
    for one in found:
        (self,) = by_rel(one, "self")
        tileset = client.get(self["href"]).json()
        assert {name: tileset[name] for name in one} == one
        item = by_rel(tileset, "item")[0]
        assert item["templated"]
        assert item["type"] == MVT
        level = one["tileMatrixSetLimits"][3]
        for row, column in ((0, 0), (level["maxTileRow"], level["maxTileCol"])):
            url = item["href"].format(tileMatrix=3, tileRow=row, tileCol=column)
            assert client.get(url).status_code == 200
        for row, column in ((level["maxTileRow"] + 1, 0), (0, level["maxTileCol"] + 1)):
            url = item["href"].format(tileMatrix=3, tileRow=row, tileCol=column)
            error(client.get(url), 404)


def test_grids_are_those_of_the_standard(client: httpx.Client, ogc: str) -> None:
    mercator = client.get(f"{ogc}/tileMatrixSets/WebMercatorQuad").json()
    assert mercator["crs"] == "http://www.opengis.net/def/crs/EPSG/0/3857"
    assert len(mercator["tileMatrices"]) == 25
    degrees = client.get(f"{ogc}/tileMatrixSets/WorldCRS84Quad").json()
    assert degrees["crs"] == CRS84
    assert len(degrees["tileMatrices"]) == 24
    for found, size, scale, origin, columns in (
        (mercator, 156543.033928041, 559082264.028717, [-20037508.3427892, 20037508.3427892], 1),
        (degrees, 0.703125, 279541132.014358, [-180, 90], 2),
    ):
        for level, matrix in enumerate(found["tileMatrices"]):
            assert matrix["id"] == str(level)
            assert matrix["cellSize"] == pytest.approx(size / 2**level)
            assert matrix["scaleDenominator"] == pytest.approx(scale / 2**level)
            assert matrix["pointOfOrigin"] == pytest.approx(origin)
            assert matrix["matrixWidth"] == columns * 2**level
            assert matrix["matrixHeight"] == 2**level
    error(client.get(f"{ogc}/tileMatrixSets/Mars"), 404, "tileMatrixSetId")


def test_tiles_of_web_mercator(client: httpx.Client, ogc: str, town: str) -> None:
    url = f"{ogc}/collections/{town}/tiles/WebMercatorQuad"
    assert places(client.get(f"{url}/0/0/0")).keys() == {"berlin", "rio"}  # no pole
    # The row comes before the column.
    assert places(client.get(f"{url}/10/335/550")).keys() == {"berlin"}
    assert places(client.get(f"{url}/10/550/335")) == {}
    same = client.get(f"/spaces/{town}/tile/web/10_550_335.mvt?margin=8")
    assert client.get(f"{url}/10/335/550").content == same.content


def test_tiles_of_degrees(client: httpx.Client, ogc: str, town: str) -> None:
    url = f"{ogc}/collections/{town}/tiles/WorldCRS84Quad"
    east = places(client.get(f"{url}/0/0/1"))
    assert east.keys() == {"berlin", "pole"}
    for id, (lon, lat) in {"berlin": (13.4, 52.5), "pole": (10.0, 89.0)}.items():
        wanted = [lon / 180 * 4096, (90 - lat) / 180 * 4096]
        assert east[id] == pytest.approx(wanted, abs=1)
    assert places(client.get(f"{url}/0/0/0")).keys() == {"rio"}
    # 256 × 128 tiles of 1.40625 degrees.
    assert places(client.get(f"{url}/7/26/137")).keys() == {"berlin"}
    answer = client.get(f"{url}/0/0/1?f=geojson&tags=capital")
    assert answer.headers["Content-Type"] == "application/geo+json"
    assert [one["id"] for one in answer.json()["features"]] == ["berlin"]


@pytest.mark.parametrize("grid", ["WebMercatorQuad", "WorldCRS84Quad"])
def test_tiles_are_validated(client: httpx.Client, ogc: str, grid: str) -> None:
    space = new_space(client)
    put(client, space, point("a", 13.4, 52.5))
    url = f"{ogc}/collections/{id_of(space)}/tiles/{grid}/1/0/1"
    first = client.get(url)
    known = {"If-None-Match": first.headers["ETag"]}
    put(client, space, point("far", -70, -30))
    assert client.get(url, headers=known).status_code == 304
    put(client, space, point("b", 13.4, 52.5, n=1), point("c", 100.0, 30.0))
    assert client.get(url, headers=known).status_code == 200


@pytest.mark.parametrize(
    ("path", "status", "field"),
    [
        ("WebMercatorQuad/25/0/0", 404, "tile"),
        ("WebMercatorQuad/1/2/0", 404, "tile"),
        ("WebMercatorQuad/1/0/-1", 404, "tile"),
        ("WebMercatorQuad/x/0/0", 404, "tile"),
        ("WebMercatorQuad/1/0/²", 404, "tile"),
        ("WorldCRS84Quad/0/0/2", 404, "tile"),
        ("WorldCRS84Quad/24/0/0", 404, "tile"),
        ("Mars/0/0/0", 404, "tileMatrixSetId"),
        ("Mars", 404, "tileMatrixSetId"),
        ("WorldCRS84Quad?f=tilejson", 400, "f"),
        ("WebMercatorQuad?f=xml", 400, "f"),
        ("WebMercatorQuad/0/0/0?f=png", 400, "f"),
        ("WebMercatorQuad/0/0/0?id=berlin", 400, "id"),
        ("WebMercatorQuad/0/0/0?west=1", 400, "west"),
        ("WebMercatorQuad?id=berlin", 400, "id"),
        ("?id=berlin", 400, "id"),
        ("WebMercatorQuad/0/0/0?versionRef=99", 404, None),
        ("WebMercatorQuad/0/0/0?versionRef=none", 404, None),
        ("?versionRef=99", 404, None),
    ],
)
def test_an_invalid_request_is_refused(
    client: httpx.Client, ogc: str, town: str, path: str, status: int, field: str | None
) -> None:
    error(client.get(f"{ogc}/collections/{town}/tiles/{path}".replace("/?", "?")), status, field)


def test_other_spaces_do_not_exist(client: httpx.Client, ogc: str) -> None:
    for path in ("tiles", "tiles/WebMercatorQuad", "tiles/WebMercatorQuad/0/0/0"):
        error(client.get(f"{ogc}/collections/nowhere/{path}"), 404, "space")
