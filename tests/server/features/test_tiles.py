"""Features of a tile, as GeoJSON and as vector tiles."""

import json
from typing import Any

import httpx
import mapbox_vector_tile
import pytest

from naksha.model.query import QueryPart
from tests.server.towns import XYZ, error, found, id_of, new_space, point, put

MVT = "application/vnd.mapbox-vector-tile"


@pytest.fixture(scope="module")
def town(client: httpx.Client) -> str:
    space = new_space(client)
    put(
        client,
        space,
        point("berlin", 13.4, 52.5, name="Berlin", size={"people": 3_700_000}, tags=["capital"]),
        point("rome", 12.5, 41.9, name="Rome"),
        point("rio", -43.2, -22.9, name="Rio"),
    )
    return space


def vector_tile(answer: httpx.Response, space: str) -> dict[str, dict[str, Any]]:
    """The features of a vector tile, by id."""
    assert answer.status_code == 200, answer.text
    assert answer.headers["Content-Type"] == MVT
    layers = mapbox_vector_tile.decode(answer.content)
    assert set(layers) <= {id_of(space)}
    features = [feature for layer in layers.values() for feature in layer["features"]]
    return {feature["properties"]["id"]: feature for feature in features}


@pytest.mark.parametrize(
    ("path", "ids"),
    [
        ("web/0_0_0", ["berlin", "rio", "rome"]),
        ("web/1_1_0", ["berlin", "rome"]),
        ("tms/1_1_1", ["berlin", "rome"]),
        ("tms/1_0_0", ["rio"]),
        ("quadkey/1", ["berlin", "rome"]),
        ("quadkeys/2", ["rio"]),
        ("quadkey/120", ["berlin", "rome"]),
        ("here/1_1_0", ["berlin", "rome"]),
        ("here/1_0_0", ["rio"]),
        ("web/10_550_335", ["berlin"]),
        ("web/10_550_336", []),
        ("web/10_550_336?margin=256", ["berlin"]),
        ("web/0_0_0?tags=capital", ["berlin"]),
        ("web/0_0_0?p.name=Rome&limit=10", ["rome"]),
        ("web/0_0_0?mode=viz", ["berlin", "rio", "rome"]),
        ("web/0_0_0?mode=viz&vizSampling=off", ["berlin", "rio", "rome"]),
    ],
)
def test_features_of_a_tile(client: httpx.Client, town: str, path: str, ids: list[str]) -> None:
    assert found(client.get(f"{town}/tile/{path}")) == ids
    tile, _, query = path.partition("?")
    vector = vector_tile(client.get(f"{town}/tile/{tile}.mvt?{query}"), town)
    assert sorted(vector) == ids


def test_ways_to_request_a_vector_tile(client: httpx.Client, town: str) -> None:
    nested = vector_tile(client.get(f"{town}/tile/web/1_1_0.mvt"), town)
    assert json.loads(nested["berlin"]["properties"]["size"]) == {"people": 3_700_000}
    for answer in (
        client.get(f"{town}/tile/web/1_1_0.mvt2"),
        client.get(f"{town}/tile/web/1_1_0", headers={"Accept": MVT}),
    ):
        assert vector_tile(answer, town) == nested
    for suffix in ("mvtf", "mvtf2"):
        flat = vector_tile(client.get(f"{town}/tile/quadkey/1.{suffix}"), town)
        assert flat["berlin"]["properties"]["properties.size.people"] == 3_700_000
        assert flat["berlin"]["properties"]["properties.name"] == "Berlin"


def test_a_vector_tile_applies_the_selection(client: httpx.Client, town: str) -> None:
    url = f"{town}/tile/web/1_1_0.mvt?selection=p.name"
    berlin = vector_tile(client.get(url), town)["berlin"]
    assert berlin["properties"] == {"id": "berlin", "name": "Berlin"}
    assert berlin["geometry"]["type"] == "Point"


def test_a_vector_tile_has_the_namespace_on_request(client: httpx.Client, town: str) -> None:
    """By the database for a space that is what its storage has, by the hub for a view."""
    view = new_space(client, extends={"spaceId": id_of(town)})
    for space in (town, view):
        url = f"{space}/tile/web/1_1_0.mvt"
        plain = vector_tile(client.get(url), space)["berlin"]["properties"]
        assert plain.keys() == {"id", "name", "size"}
        whole = vector_tile(client.get(f"{url}?selection=*"), space)["berlin"]["properties"]
        assert json.loads(whole.pop(XYZ))["tags"] == ["capital"]
        assert whole == plain
        flat = vector_tile(client.get(f"{url}f?selection=f.tags,p.name"), space)["berlin"]
        tags = {f"properties.{XYZ}.tags": '["capital"]'}
        assert flat["properties"] == {"id": "berlin", "properties.name": "Berlin", **tags}


def test_a_square_of_degrees_is_a_vector_tile_too(client: httpx.Client, town: str) -> None:
    tile = vector_tile(client.get(f"{town}/tile/here/1_1_0.mvt"), town)
    x, y = tile["berlin"]["geometry"]["coordinates"]
    assert x == pytest.approx(13.4 / 180 * 4096, abs=1)
    assert 0 < y < 4096


def test_a_tile_that_is_known_is_not_sent_again(client: httpx.Client, town: str) -> None:
    for path in ("web/1_1_0.mvt", "web/0_0_0?clustering=quadbin"):
        etag = client.get(f"{town}/tile/{path}").headers["ETag"]
        again = client.get(f"{town}/tile/{path}", headers={"If-None-Match": f'"x", {etag}'})
        assert (again.status_code, again.content) == (304, b"")


def test_tiles_are_clipped(client: httpx.Client) -> None:
    space = new_space(client)
    line = {"type": "LineString", "coordinates": [[-10, 10], [10, 10]]}
    put(client, space, point("way") | {"geometry": line})

    def west(query: str) -> float:
        (way,) = client.get(f"{space}/tile/web/1_1_0?{query}").json()["features"]
        return float(min(x for x, _ in way["geometry"]["coordinates"]))

    assert west("") == -10
    assert west("clip=true") == pytest.approx(0)
    assert west("mode=viz") >= -0.1
    assert west("mode=viz&clip=false") == pytest.approx(-10, abs=0.1)
    vector = vector_tile(client.get(f"{space}/tile/web/1_1_0.mvt"), space)
    assert min(x for x, _ in vector["way"]["geometry"]["coordinates"]) == 0
    wide = vector_tile(client.get(f"{space}/tile/web/1_1_0.mvt?margin=16"), space)
    assert min(x for x, _ in wide["way"]["geometry"]["coordinates"]) < -200


@pytest.mark.parametrize("suffix", ["", ".mvt"])
def test_cells_in_a_tile(client: httpx.Client, suffix: str) -> None:
    space = new_space(client)
    put(client, space, *(point(f"{n}", 10 + n % 10 / 10, 10 + n // 10 / 10) for n in range(100)))
    for query, kind in (
        ("clustering=hexbin&clustering.absoluteResolution=3", "H3"),
        ("clustering=quadbin&clustering.relativeResolution=3", None),
    ):
        answer = client.get(f"{space}/tile/web/5_16_15{suffix}?{query}")
        read = vector_tile(answer, space).values() if suffix else answer.json()["features"]
        features = [*read]
        assert features
        assert {feature["properties"].get("kind") for feature in features} == {kind}
        assert {feature["geometry"]["type"] for feature in features} <= {"Polygon", "MultiPolygon"}


def test_a_tile_of_a_version(client: httpx.Client) -> None:
    space = new_space(client)
    first = put(client, space, point("a", 1, 1))["version"]
    put(client, space, point("b", 2, 2))
    for query in ({}, {"selection": "p.x"}):
        url = f"{space}/tile/web/0_0_0.mvt"
        assert set(vector_tile(client.get(url, params=query), space)) == {"a", "b"}
        then = client.get(url, params={**query, "versionRef": first})
        assert set(vector_tile(then, space)) == {"a"}


def test_a_tile_of_nothing_is_empty(client: httpx.Client) -> None:
    space = new_space(client)
    for query in ("", "?selection=p.a", "?clustering=hexbin"):
        answer = client.get(f"{space}/tile/web/3_1_1.mvt{query}")
        assert (answer.status_code, answer.content) == (200, b"")
    assert found(client.get(f"{space}/tile/web/3_1_1")) == []


@pytest.mark.parametrize(
    ("path", "field"),
    [
        ("square/1", "type"),
        ("web/1_2_0", "tileId"),
        ("web/x", "tileId"),
        ("quadkey/4", "tileId"),
        ("quadkey/1.png", "tileId"),
        ("web/1_1_0?margin=-1", "margin"),
        ("web/1_1_0?mode=3d", "mode"),
        ("web/1_1_0?vizSampling=x", "vizSampling"),
        ("web/99_1_0", "tileId"),
    ],
)
def test_a_tile_must_be_one(client: httpx.Client, town: str, path: str, field: str) -> None:
    error(client.get(f"{town}/tile/{path}"), 400, field)


# ---- What there is -------------------------------------------------------------------------------


def test_statistics(client: httpx.Client, town: str) -> None:
    answer = client.get(f"{town}/statistics?clientId=x")
    assert answer.status_code == 200
    body = answer.json()
    assert body["type"] == "StatisticsResponse"
    assert body["count"] == {"value": 3, "estimated": False}
    assert body["bbox"]["value"] == [-43.2, -22.9, 13.4, 52.5]
    assert body["geometryTypes"]["value"] == ["Point"]
    assert body["properties"]["value"][0] == {"key": "name", "count": 3, "searchable": True}
    assert body["properties"]["searchable"] == "ALL"
    assert body["tags"]["value"] == [{"key": "capital", "count": 1}]
    assert body["byteSize"]["value"] == body["dataSize"]["value"] > 500
    assert body["contentUpdatedAt"]["value"] > 1_600_000_000_000
    assert body["maxVersion"]["value"] >= 1
    assert body["minVersion"]["value"] == 0
    again = client.get(
        f"{town}/statistics?clientId=x", headers={"If-None-Match": answer.headers["ETag"]}
    )
    assert again.status_code == 304
    assert client.get(f"{town}/statistics?fastMode=true").json()["count"]["value"] == 3


def test_statistics_of_a_version_and_of_nothing(client: httpx.Client) -> None:
    space = new_space(client)
    nothing = client.get(f"{space}/statistics").json()
    assert nothing["count"]["value"] == 0
    assert nothing["bbox"]["value"] is None
    first = put(client, space, point("a"))["version"]
    put(client, space, point("b", 5, 5))
    then = client.get(f"{space}/statistics?versionRef={first}").json()
    assert (then["count"]["value"], then["maxVersion"]["value"]) == (1, first)


def test_a_view_is_counted_and_drawn_from_its_features(client: httpx.Client, town: str) -> None:
    below = id_of(town)
    space = new_space(client, extends={"spaceId": below})
    put(client, space, point("berlin", 13.4, 52.5, name="Renamed"), point("new", 1, 1, kind="x"))
    body = client.get(f"{space}/statistics").json()
    assert body["count"]["value"] == 4
    assert body["bbox"]["value"] == [-43.2, -22.9, 13.4, 52.5]
    keys = {one["key"]: one["count"] for one in body["properties"]["value"]}
    assert keys == {"name": 3, "kind": 1}
    assert body["tags"]["value"] == []
    vector = vector_tile(client.get(f"{space}/tile/web/1_1_0.mvt"), space)
    assert vector["berlin"]["properties"]["name"] == "Renamed"
    assert set(vector) == {"berlin", "rome", "new"}
    only = client.get(f"{space}/statistics?context=extension").json()
    assert only["count"]["value"] == 2
    assert XYZ not in keys


def test_a_crowded_tile_has_a_sample_which_views_share(client: httpx.Client) -> None:
    space = new_space(client)
    view = new_space(client, extends={"spaceId": id_of(space)})
    count = 52_000
    for start in range(0, count, 13_000):
        some = (
            point(f"p{n}", n % 360 - 179.5, n // 360 % 160 - 79.5)
            for n in range(start, start + 13_000)
        )
        put(client, space, *some)
    tiles = {
        path: vector_tile(client.get(f"{path}/tile/web/0_0_0.mvt"), path) for path in (space, view)
    }
    sample = {id for id in (f"p{n}" for n in range(count)) if QueryPart(1, 8).has(id)}
    for tile in tiles.values():
        assert tile.keys() == sample
    quarter = vector_tile(client.get(f"{space}/tile/web/1_0_0.mvt"), space)
    assert len(quarter) > 10_000, "a tile with fewer features has all of them"
    limited = vector_tile(client.get(f"{space}/tile/web/0_0_0.mvt?limit=20000"), space)
    assert len(limited) == 20_000
    about = client.get(f"{space}/tilejson").json()
    assert about["sample"] == {"above": 50_000, "features": 8_000}
