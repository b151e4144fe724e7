"""Features around a location."""

import httpx
import pytest

from tests.server.towns import error, found, id_of, ids_of, new_space, point, put


@pytest.fixture(scope="module")
def town(client: httpx.Client) -> str:
    """Four points, some 111 km from each other on the equator, and one on the date line."""
    space = new_space(client)
    put(client, space, *(point(f"{n}", n, 0, size=n) for n in range(4)), point("far", 180, 10))
    return space


def test_around_a_point(client: httpx.Client, town: str) -> None:
    assert found(client.get(f"{town}/spatial?lat=0&lon=1")) == ["1"]
    assert found(client.get(f"{town}/spatial?lat=0&lon=1&radius=112000")) == ["0", "1", "2"]
    near = f"{town}/spatial?lat=0&lon=1&radius=112000"
    assert found(client.get(f"{near}&p.size>0")) == ["1", "2"]
    assert len(found(client.get(f"{near}&limit=2"))) == 2


def test_around_a_feature_of_another_space(client: httpx.Client, town: str) -> None:
    other = new_space(client)
    put(client, other, point("here", 2.1, 0), point("nowhere") | {"geometry": None})
    query = f"refSpaceId={id_of(other)}&refFeatureId=here&radius=20000"
    assert found(client.get(f"{town}/spatial?{query}")) == ["2"]
    query = f"refSpaceId={id_of(other)}&refFeatureId=nowhere"
    error(client.get(f"{town}/spatial?{query}"), 400, "refFeatureId")
    query = f"refSpaceId={id_of(other)}&refFeatureId=nobody"
    error(client.get(f"{town}/spatial?{query}"), 404, "refFeatureId")
    error(client.get(f"{town}/spatial?refSpaceId=nothing&refFeatureId=x"), 404)


def test_in_a_hexagon(client: httpx.Client, town: str) -> None:
    assert found(client.get(f"{town}/spatial?h3Index=84754a9ffffffff")) == ["0"]
    error(client.get(f"{town}/spatial?h3Index=banana"), 400, "h3Index")


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("", "lat"),
        ("lat=1", "lon"),
        ("lon=1", "lat"),
        ("refSpaceId=a", "refFeatureId"),
        ("lat=1&lon=1&h3Index=84754a9ffffffff", "lat"),
        ("lat=1&lon=1&refSpaceId=a&refFeatureId=b", "lat"),
        ("lat=91&lon=1", "lat"),
        ("lat=1&lon=1&radius=-1", "radius"),
        ("lat=1&lon=1&lon=2", "lon"),
    ],
)
def test_exactly_one_place_is_required(
    client: httpx.Client, town: str, query: str, field: str
) -> None:
    error(client.get(f"{town}/spatial?{query}"), 400, field)


def test_in_a_geometry(client: httpx.Client, town: str) -> None:
    square = {
        "type": "Polygon",
        "coordinates": [[[0.5, -1], [2.5, -1], [2.5, 1], [0.5, 1], [0.5, -1]]],
    }
    assert found(client.post(f"{town}/spatial", json=square)) == ["1", "2"]
    wide = client.post(f"{town}/spatial?radius=60000", json=square)
    assert found(wide) == ["0", "1", "2", "3"]
    over = {"type": "LineString", "coordinates": [[179, 10], [181, 10]]}
    assert found(client.post(f"{town}/spatial", json=over)) == ["far"]


@pytest.mark.parametrize(
    "body",
    [
        {"type": "Feature", "geometry": {"type": "Point", "coordinates": [0, 0]}},
        {"type": "Point", "coordinates": ["a", 0]},
        {"type": "Polygon", "coordinates": [[[0, 0]]]},
        {},
    ],
)
def test_a_geometry_must_be_one(client: httpx.Client, town: str, body: object) -> None:
    error(client.post(f"{town}/spatial", json=body), 400)


def test_geometries_are_clipped(client: httpx.Client) -> None:
    space = new_space(client)
    line = {"type": "LineString", "coordinates": [[-5, 0], [5, 0]]}
    put(client, space, point("way") | {"geometry": line})
    answer = client.get(f"{space}/spatial?lat=0&lon=0&radius=111195&clip=true")
    (way,) = answer.json()["features"]
    (west, _), (east, _) = way["geometry"]["coordinates"]
    assert (west, east) == (pytest.approx(-1, abs=0.01), pytest.approx(1, abs=0.01))


# ---- Many at once --------------------------------------------------------------------------------


def test_around_each_feature_of_a_query(client: httpx.Client, town: str) -> None:
    other = new_space(client)
    put(
        client,
        other,
        point("a", 0.1, 0, kind="park"),
        point("b", 1.1, 0, kind="park"),
        point("c", 2.1, 0, kind="shop"),
        point("n", kind="park") | {"geometry": None},
    )
    body = {"refSpaceId": id_of(other), "query": "p.kind=park"}
    answer = client.post(f"{town}/spatial/batch?radius=130000&selection=p.size", json=body)
    assert answer.status_code == 200
    results = {one["refFeatureId"]: ids_of(one["features"]) for one in answer.json()["results"]}
    assert {id: sorted(ids) for id, ids in results.items()} == {
        "a": ["0", "1"],
        "b": ["0", "1", "2"],
        "n": [],
    }
    some = client.post(f"{town}/spatial/batch?radius=130000&limit=1&p.size>0", json=body).json()
    assert [len(one["features"]) for one in some["results"]] == [1, 1, 0]


def test_a_batch_goes_on_where_it_ended(client: httpx.Client, town: str) -> None:
    body: dict[str, object] = {"refSpaceId": id_of(town), "limit": 2}
    seen = []
    while True:
        answer = client.post(f"{town}/spatial/batch", json=body).json()
        assert answer["type"] == "SpatialBatchResponse"
        seen += [(one["refFeatureId"], ids_of(one["features"])) for one in answer["results"]]
        if "handle" not in answer:
            break
        body["handle"] = answer["handle"]
    assert seen == [(id, [id]) for id in ["0", "1", "2", "3", "far"]]
    nothing = client.post(f"{town}/spatial/batch", json={**body, "ids": ["nobody"], "handle": "0"})
    assert nothing.json() == {"type": "SpatialBatchResponse", "results": []}


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "refSpaceId"),
        ({"refSpaceId": 7}, "refSpaceId"),
        ({"refSpaceId": "x", "ids": [7]}, "ids[0]"),
        ({"refSpaceId": "x", "limit": 0}, "limit"),
        ({"refSpaceId": "x", "query": "p.a"}, "p.a"),
    ],
)
def test_a_batch_needs_a_reference(
    client: httpx.Client, town: str, body: object, field: str
) -> None:
    error(client.post(f"{town}/spatial/batch", json=body), 400, field)
    error(client.post(f"{town}/spatial/batch", json={"refSpaceId": "nothing"}), 404)
