"""Features by properties, tags and boxes, and their count."""

import time
from typing import Any

import httpx
import pytest

from tests.server.towns import error, found, new_space, point, put


@pytest.fixture(scope="module")
def town(client: httpx.Client) -> str:
    space = new_space(client)
    put(
        client,
        space,
        point("a", 1, 1, tags=["red", "old"], size=1, name="Ä, B", open=True),
        point("b", 2, 2, tags=["red"], size=2, name="b", sizes=[1, 2], gone=None),
        point("c", 3, 3, tags=["blue"], size=3.5, name="c", inner={"size": 7}),
        point("d", 179, -60, size="3"),
    )
    return space


@pytest.mark.parametrize(
    ("query", "ids"),
    [
        ("", "abcd"),
        ("clientId=x&unknown=1", "abcd"),
        ("p.size=2", "b"),
        ("p.size>=2", "bc"),
        ("p.size%3Dgte=2", "bc"),
        ("p.size=gt=2", "c"),
        ("p.size<2=", "a"),
        ("p.size!=2", "acd"),
        ("p.size=1,3.5", "ac"),
        ("p.size='3'", "d"),
        ("p.size>1&p.size<3", "b"),
        ("p.name=%C3%84%2C%20B", "a"),
        ("p.name=b,c", "bc"),
        ("p.open=true", "a"),
        ("p.inner.size=7", "c"),
        ("p.sizes=cs=2", "b"),
        ("p.sizes@>2", "b"),
        ("p.name=.null", "d"),
        ("p.name!=.null", "abc"),
        ("f.id=a", "a"),
        ("f.id%3Dlte=b", "ab"),
        ("p.name^=b", "b"),
        ("f.tags=cs=red", "ab"),
        ("f.updatedAt>1000", "abcd"),
        ("createdFrom=1000&createdTo=4000000000000", "abcd"),
        ("createdFrom=4000000000000", ""),
        ("createdTo=1000&p.size=2", ""),
        ("tags=red", "ab"),
        ("tags=RED,blue", "abc"),
        ("tags=red+old", "a"),
        ("tags=red%2Bold,blue", "ac"),
        ("tags=old&tags=blue", "ac"),
        ("tags=red%2Cblue&p.size>2", "c"),
        ("author=anonymous", "abcd"),
        ("author=nobody", ""),
    ],
)
def test_a_search(client: httpx.Client, town: str, query: str, ids: str) -> None:
    assert found(client.get(f"{town}/search?{query}")) == [*ids]
    counted = client.get(f"{town}/count?{query}")
    assert counted.json() == {"type": "CountResponse", "count": len(ids), "estimated": False}


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("limit=0", "limit"),
        ("limit=100001", "limit"),
        ("limit=many", "limit"),
        ("createdFrom=-1", "createdFrom"),
        ("createdTo=yesterday", "createdTo"),
        ("p.size", "p.size"),
        ("p.open>true", "p.open"),
        ("context=sideways", "context"),
        ("versionRef=a:b:c", "versionRef"),
        ("selection=!name", "selection"),
        ("tags=%00", None),
        ("p.a=%ff", None),
    ],
)
def test_invalid_parameters_are_named(
    client: httpx.Client, town: str, query: str, field: str | None
) -> None:
    body = error(client.get(f"{town}/search?{query}"), 400, field)
    assert body["error"] == "IllegalArgument"


def test_a_search_stops_at_its_limit(client: httpx.Client, town: str) -> None:
    assert len(found(client.get(f"{town}/search?limit=3"))) == 3
    assert len(found(client.get(f"{town}/search?limit=100000"))) == 4


def test_reads_see_preceding_writes(client: httpx.Client) -> None:
    space = new_space(client)
    for number in range(20):
        put(client, space, point(f"{number}"))
        assert len(found(client.get(f"{space}/search?limit=100"))) == number + 1


def test_features_are_found_by_the_time_of_their_creation(client: httpx.Client) -> None:
    space = new_space(client)
    times = []
    for id_ in "ab":
        put(client, space, point(id_, 1, 1))
        feature = client.get(f"{space}/features/{id_}").json()
        times.append(feature["properties"]["@ns:com:here:xyz"]["createdAt"])
        time.sleep(0.005)
    put(client, space, point("a", 1, 1, size=2))
    since, before = f"createdFrom={times[1]}", f"createdTo={times[1]}"
    for path in (
        "search?",
        "iterate?",
        "bbox?west=0&south=0&east=2&north=2&",
        "spatial?lat=1&lon=1&",
    ):
        assert found(client.get(f"{space}/{path}{since}")) == ["b"]
        assert found(client.get(f"{space}/{path}{before}")) == ["a"]
    assert client.get(f"{space}/count?{since}").json()["count"] == 1
    error(client.delete(f"{space}/features?id=a&{since}"), 400, "createdFrom")
    changes = client.get(f"{space}/changes?since=0&{before}").json()["items"]
    assert [one["feature"]["id"] for item in changes for one in item["features"]] == ["a", "a"]


@pytest.mark.parametrize(
    "text",
    ["'; DROP TABLE x; --", "\\", "%", "a' OR '1'='1", "$$", "{}", '"', "p.a=1) OR (1=1"],
)
def test_values_are_only_values(client: httpx.Client, town: str, text: str) -> None:
    for name in ("p.name", f"p.{text}"):
        answer = client.get(f"{town}/search", params={name: text})
        assert answer.status_code in (200, 400)
        if answer.status_code == 200 and name == "p.name":
            assert answer.json()["features"] == []
    assert found(client.get(f"{town}/search", params={"tags": text})) == []
    assert len(found(client.get(f"{town}/search"))) == 4


def test_a_version_is_searched(client: httpx.Client) -> None:
    space = new_space(client)
    first = put(client, space, point("a"), point("b"))["version"]
    client.delete(f"{space}/features/a")
    assert found(client.get(f"{space}/search")) == ["b"]
    assert found(client.get(f"{space}/search?versionRef={first}")) == ["a", "b"]
    assert client.get(f"{space}/count?version={first}").json()["count"] == 2
    error(client.get(f"{space}/search?versionRef=99999"), 404)
    error(client.get(f"{space}/search?versionRef=summer"), 404)


# ---- Boxes ---------------------------------------------------------------------------------------


def box(client: httpx.Client, space: str, *edges: float, **more: Any) -> httpx.Response:
    west, south, east, north = edges
    return client.get(
        f"{space}/bbox",
        params={"west": west, "south": south, "east": east, "north": north, **more},
    )


def test_features_in_a_box(client: httpx.Client, town: str) -> None:
    assert found(box(client, town, 0, 0, 2.5, 2.5)) == ["a", "b"]
    assert found(box(client, town, 2, 2, 2, 2)) == ["b"]
    assert found(box(client, town, -180, -90, 180, 90)) == ["a", "b", "c", "d"]
    assert found(box(client, town, 0, 0, 5, 5, tags="red", limit=10)) == ["a", "b"]
    assert found(box(client, town, 0, 0, 5, 5, **{"p.size": "2"})) == ["b"]
    assert len(found(box(client, town, 0, 0, 5, 5, limit=2))) == 2


def test_a_box_reaches_over_the_date_line(client: httpx.Client, town: str) -> None:
    assert found(box(client, town, 178, -70, -170, -50)) == ["d"]


def test_a_bbox_search_finds_and_clips(client: httpx.Client) -> None:
    space = new_space(client)
    line = {"type": "LineString", "coordinates": [[0, 0], [10, 10]]}
    put(client, space, point("way") | {"geometry": line})
    # The box around the way covers this corner, but the way does not go there.
    assert found(box(client, space, 8, 0, 10, 2)) == []
    (whole,) = box(client, space, 0, 0, 5, 5).json()["features"]
    assert whole["geometry"]["coordinates"] == [[0.0, 0.0], [10.0, 10.0]]
    (part,) = box(client, space, 0, 0, 5, 5, clip="true").json()["features"]
    assert part["geometry"]["coordinates"] == [[0.0, 0.0], [5.0, 5.0]]


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("west=0&south=0&east=1", "north"),
        ("west=0&south=0&east=1&north=91", "north"),
        ("west=-181&south=0&east=1&north=1", "west"),
        ("west=0&south=0&east=1&north=1&north=2", "north"),
        ("west=nan&south=0&east=1&north=1", "west"),
        ("west=inf&south=0&east=1&north=1", "west"),
        ("west=0&south=0&east=1&north=1&clustering=circles", "clustering"),
        ("west=0&south=0&east=1&north=1&tweaks=magic", "tweaks"),
        (
            "west=0&south=0&east=1&north=1&clustering=quadbin&clustering.relativeResolution=-1",
            "clustering.relativeResolution",
        ),
    ],
)
def test_a_box_must_be_one(client: httpx.Client, town: str, query: str, field: str) -> None:
    error(client.get(f"{town}/bbox?{query}"), 400, field)


# ---- Clusters and tweaks -------------------------------------------------------------------------


@pytest.fixture(scope="module")
def crowd(client: httpx.Client) -> str:
    space = new_space(client)
    put(client, space, *(point(f"{n}", n % 20 / 10, n // 20 / 10, size=n) for n in range(400)))
    return space


def test_hexagons_count_their_features(client: httpx.Client, crowd: str) -> None:
    answer = box(
        client,
        crowd,
        *(-5, -5, 5, 5),
        **{
            "clustering": "hexbin",
            "clustering.absoluteResolution": 3,
            "clustering.property": "size",
        },
    )
    features = answer.json()["features"]
    assert features
    assert {feature["properties"]["kind"] for feature in features} == {"H3"}
    assert {feature["geometry"]["type"] for feature in features} == {"Polygon"}
    assert {feature["properties"]["resolution"] for feature in features} == {3}
    sums = [feature["properties"]["aggregation"]["size"] for feature in features]
    assert sum(one["qty"] for one in sums) == 400
    assert sum(one["sum"] for one in sums) == sum(range(400))


def test_quads_count_their_features(client: httpx.Client, crowd: str) -> None:
    answer = box(
        client,
        crowd,
        *(-5, -5, 5, 5),
        **{"clustering": "quadbin", "clustering.relativeResolution": 2},
    )
    features = answer.json()["features"]
    assert sum(feature["properties"]["count"] for feature in features) >= 400
    assert all(feature["geometry"]["type"] == "Polygon" for feature in features)
    again = box(
        client,
        crowd,
        *(-5, -5, 5, 5),
        **{"clustering": "quadbin", "clustering.relativeResolution": 2, "p.size": 27},
    )
    assert sum(one["properties"]["count"] for one in again.json()["features"]) == 1


def test_a_sample_is_a_part_and_always_the_same(client: httpx.Client, crowd: str) -> None:
    edges = (-5.0, -5.0, 5.0, 5.0)
    some = found(box(client, crowd, *edges, tweaks="sampling", **{"tweaks.strength": "low"}))
    assert 0 < len(some) < 200
    assert found(box(client, crowd, *edges, tweaks="sampling", **{"tweaks.strength": 10})) == some
    few = {"tweaks.strength": "high"}
    assert set(found(box(client, crowd, *edges, tweaks="sampling", **few))) <= set(some)
    assert len(found(box(client, crowd, *edges, tweaks="ensure"))) == 400
    assert len(found(box(client, crowd, *edges, tweaks="ensure", limit=7))) == 7


def test_geometries_are_made_simpler(client: httpx.Client) -> None:
    space = new_space(client)
    coordinates = [[n / 1000, n % 2 / 100_000] for n in range(1000)]
    line = {"type": "LineString", "coordinates": coordinates}
    put(client, space, point("way") | {"geometry": line}, point("spot", 0.5, 0.5))
    simple = {"tweaks": "simplification", "tweaks.algorithm": "simplified", "tweaks.strength": 50}
    answer = box(client, space, -1, -1, 2, 2, **simple)
    assert found(answer) == ["spot", "way"]
    (way,) = [one for one in answer.json()["features"] if one["id"] == "way"]
    assert len(way["geometry"]["coordinates"]) < 10


def test_features_of_an_area_are_joined(client: httpx.Client) -> None:
    space = new_space(client)
    line = [[1.0, 1.0], [1.0001, 1.0], [1.0002, 1.0]]
    lines = [
        {"id": f"l{n}", "type": "Feature", "properties": {}}
        | {"geometry": {"type": "LineString", "coordinates": line[n : n + 2]}}
        for n in range(2)
    ]
    put(client, space, *lines, *[point(f"p{n}", 1.5, 1.5) for n in range(3)], point("far", 50, 50))
    simple = {"tweaks": "simplification", "tweaks.strength": "high"}
    edges = (0, 0, 2, 2)
    one = box(client, space, *edges, **simple, **{"tweaks.algorithm": "linemerge"})
    assert found(one) == ["l1", "p0", "p1", "p2"]
    (joined,) = [each for each in one.json()["features"] if each["id"] == "l1"]
    assert joined["geometry"] == {"type": "LineString", "coordinates": line}
    assert joined["properties"]["ids"] == ["l0", "l1"]
    some = box(client, space, *edges, **simple, **{"tweaks.algorithm": "merge"})
    counts = sorted(each["properties"]["groupInfo"][3] for each in some.json()["features"])
    assert sum(counts) == 5
    assert 3 in counts
    tile = client.get(
        f"{space}/tile/web/0_0_0.mvt", params={**simple, "tweaks.algorithm": "linemerge"}
    )
    assert tile.status_code == 200
    cells = box(client, space, *edges, clustering="quadbin").json()["features"]
    assert {cell["properties"]["total_count"] for cell in cells} == {6}
    assert sum(cell["properties"]["count"] for cell in cells) >= 5
