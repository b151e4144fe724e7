"""The unchanged client package xyzspaces against the hub: every call that needs no network.

(Calls that need GeoPandas or turfpy require those packages.)
"""

import csv
import json
import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from xyzspaces import XYZ
from xyzspaces.apis import HubApi
from xyzspaces.config.default import XYZConfig
from xyzspaces.datasets import get_chicago_parks_data, get_countries_data
from xyzspaces.exceptions import ApiError
from xyzspaces.spaces import Space

from naksha.testing.servers.hub_server import HubServer
from tests.server.blackbox.conftest import Minter

# The package leaves files open, and gives text to a parser of bytes.
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*unclosed file.*:ResourceWarning"),
    pytest.mark.filterwarnings("ignore:\\nijson works:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
NS = "@ns:com:here:xyz"
GERMANY = {"lat": 51.0, "lon": 10.0}
# The tile of level 4 that holds most of Germany, in each scheme.
TILES = {"quadkeys": "1202", "web": "4_8_5", "tms": "4_8_10", "here": "1220"}


@pytest.fixture(scope="module")
def config(guarded_hub: HubServer, minter: Minter) -> XYZConfig:
    return XYZConfig(
        credentials={"XYZ_TOKEN": "", "HERE_USER": None, "HERE_PASSWORD": None},
        http_headers={
            "Authorization": f"Bearer {minter(userId='anna')}",
            "Content-Type": "application/geo+json",
        },
        url=guarded_hub.url,
    )


@pytest.fixture(scope="module")
def xyz(config: XYZConfig) -> XYZ:
    return XYZ(config=config)


@pytest.fixture(scope="module")
def api(config: XYZConfig) -> HubApi:
    return HubApi(config=config)


@pytest.fixture(scope="module")
def countries(xyz: XYZ, config: XYZConfig) -> Iterator[Space]:
    """The space that the tests of the package work on."""
    space = xyz.spaces.new(title="Countries", description="Of the earth", config=config)
    written = space.add_features(features=get_countries_data(), add_tags=["state"])
    # Antarctica goes around the pole and over the date line; it is repaired, and a notice says so.
    assert ids(written["notices"]) == {"ATA"}
    yield space
    space.delete()


@pytest.fixture
def empty(xyz: XYZ, config: XYZConfig) -> Iterator[Space]:
    space = xyz.spaces.new(title="Empty", description="Yet", config=config)
    yield space
    space.delete()


def ids(features: Iterable[Any]) -> set[str]:
    return {feature["id"] for feature in features}


def status_of(error: pytest.ExceptionInfo[ApiError]) -> int:
    code: int = error.value.args[0].status_code
    return code


# ---- Spaces --------------------------------------------------------------------------------------


def test_the_health_check_identifies_the_hub(api: HubApi) -> None:
    assert {"reporter", "status", "schemaVersion"} <= set(api.get_hub())
    assert api.get_hub(params={"a": "b"})["status"]


def test_a_space_is_created_changed_and_deleted(xyz: XYZ, config: XYZConfig) -> None:
    space = xyz.spaces.new(
        title="First", description="One", space_id="by-hand", shared=True, config=config
    )
    assert (space.info["id"], space.info["title"]) == ("by-hand", "First")
    assert space.info["shared"] is True
    assert space.isshared()
    again = Space.from_id("by-hand", config=config)
    assert again.info == space.info
    assert repr(xyz.spaces.read("by-hand")) == "space_id: by-hand"
    changed = space.update(title="Second", description="Two", shared=False)
    assert (changed["title"], changed["description"]) == ("Second", "Two")
    assert "shared" not in changed
    assert "by-hand" in ids(xyz.spaces.list())
    assert "by-hand" in ids(xyz.spaces.list(owner="*", include_rights=True))
    with pytest.raises(ApiError) as taken:
        xyz.spaces.new(title="Again", description="", space_id="by-hand", config=config)
    assert status_of(taken) == 409
    space.delete()
    assert space.info == {}
    with pytest.raises(ApiError) as gone:
        Space.from_id("by-hand", config=config)
    assert status_of(gone) == 404
    assert "by-hand" not in ids(xyz.spaces.list(owner="*"))


def test_a_space_without_an_id_gets_one(xyz: XYZ, config: XYZConfig) -> None:
    space = xyz.spaces.new(title="", description="", config=config)
    assert len(space.info["id"]) == 8
    space.delete()


def test_platform_features_are_rejected_with_a_reason(xyz: XYZ, config: XYZConfig) -> None:
    with pytest.raises(ApiError) as refused:
        xyz.spaces.new(
            title="x",
            description="y",
            enable_uuid=True,
            listeners={"id": "activity-log", "params": None},
            config=config,
        )
    assert status_of(refused) == 400
    assert "subscription" in str(refused.value)
    with pytest.raises(ApiError) as elsewhere:
        xyz.spaces.new(title="x", description="y", schema="https://127.0.0.1/x", config=config)
    assert status_of(elsewhere) == 400
    assert "fetches nothing" in str(elsewhere.value)


def test_rules_for_tags_and_schemas_hold(empty: Space) -> None:
    empty.update(tagging_rules={"big": "$.features[?(@.properties.size>10)]"})
    many = [feature("a", 1.0, 1.0, size=20), feature("b", 1.0, 1.0, size=2)]
    empty.add_features(features={"type": "FeatureCollection", "features": many})
    assert ids(empty.search(tags=["big"])) == {"a"}
    draft = "http://json-schema.org/draft-07/schema#"
    named = {"$schema": draft, "properties": {"properties": {"required": ["name"]}}}
    empty.update(schema=json.dumps(named))
    with pytest.raises(ApiError) as refused:
        empty.add_features(features={"type": "FeatureCollection", "features": many})
    assert status_of(refused) == 400


# ---- Features ------------------------------------------------------------------------------------


def test_a_feature_is_created_changed_and_deleted(empty: Space) -> None:
    france = feature("FRA", 2.0, 46.0, name="France")
    stored = empty.add_feature(data=france, feature_id="FRA", add_tags=["A", "b"])
    assert stored["properties"][NS]["tags"] == ["a", "b"]
    assert stored["properties"][NS]["space"] == empty.info["id"]
    assert empty.get_feature("FRA") == stored
    changed = empty.update_feature(
        "FRA",
        {"type": "Feature", "properties": {"name": "Gaul"}},
        add_tags=["c"],
        remove_tags=["a"],
    )
    assert changed["properties"]["name"] == "Gaul"
    assert changed["geometry"]["coordinates"] == [2.0, 46.0]
    assert set(changed["properties"][NS]["tags"]) == {"b", "c"}
    assert empty.delete_feature("FRA") == ""
    with pytest.raises(ApiError) as gone:
        empty.get_feature("FRA")
    assert status_of(gone) == 404
    message = gone.value.args[0].json()["errorMessage"]
    assert message == "The requested resource does not exist."
    with pytest.raises(ApiError) as gone:
        empty.delete_feature("FRA")
    assert status_of(gone) == 404


def test_a_feature_may_be_added_without_an_id(empty: Space) -> None:
    added = empty.add_feature(data=feature(None, 1.0, 2.0, name="nameless"))
    (found,) = empty.search()
    assert found["properties"]["name"] == "nameless"
    assert added["features"][0]["id"] == found["id"]


def test_many_features(empty: Space, api: HubApi) -> None:
    some = [feature(f"{n}", n / 10, n / 20, n=n) for n in range(60)]
    written = empty.add_features({"type": "FeatureCollection", "features": some})
    assert len(written["inserted"]) == 60
    id = empty.info["id"]
    assert api.get_space_count(id)["count"] == 60
    assert ids(empty.get_features(["1", "2", "x"])["features"]) == {"1", "2"}
    patch = {"type": "Feature", "id": "1", "properties": {"n": 100}}
    updated = empty.update_features(
        {"type": "FeatureCollection", "features": [patch]}, add_tags=["t"]
    )
    assert updated["updated"] == ["1"]
    assert updated["features"][0]["geometry"]["coordinates"] == [0.1, 0.05]
    assert empty.delete_features(feature_ids=["2", "3"]) == ""
    assert empty.delete_features(feature_ids=[], tags=["t"]) == ""
    assert api.get_space_count(id)["count"] == 57
    assert empty.delete_features(feature_ids=["*"]) == ""
    assert api.get_space_count(id)["count"] == 0


def test_duplicates_in_one_request_do_no_harm(empty: Space, api: HubApi) -> None:
    twice = [feature("a", 0, 0, n=1), feature("a", 0, 0, n=2)]
    api.put_space_features(
        space_id=empty.info["id"], data={"type": "FeatureCollection", "features": twice}
    )
    assert empty.get_feature("a")["properties"]["n"] == 2


def test_more_features_than_one_request_takes_come_from_several_processes(
    empty: Space, api: HubApi
) -> None:
    some = [feature(None, n % 180, n % 90, n=n) for n in range(950)]
    empty.add_features({"type": "FeatureCollection", "features": some}, features_size=100)
    assert api.get_space_count(empty.info["id"])["count"] == 950
    found = [*empty.iter_feature(limit=200)]
    assert sorted(each["properties"]["n"] for each in found) == [*range(950)]


def test_ids_are_made_of_properties(empty: Space) -> None:
    some = [feature(None, 0, 0, kind="park", name=name) for name in "abc"]
    empty.add_features(
        {"type": "FeatureCollection", "features": some}, id_properties=["kind", "name"]
    )
    assert ids(empty.search()) == {"park-a", "park-b", "park-c"}


def test_files_are_loaded(empty: Space, tmp_path: Path) -> None:
    collection = tmp_path / "some.geojson"
    collection.write_text(json.dumps(get_chicago_parks_data()))
    empty.add_features_geojson(path=str(collection), features_size=10)
    parks = {each["id"]: each for each in empty.iter_feature()}
    assert len(parks) == len(get_chicago_parks_data()["features"])
    one = tmp_path / "one.geojson"
    one.write_text(json.dumps(feature("one", 1.5, 2.5)))
    empty.add_features_geojson(path=str(one))
    assert empty.get_feature("one")["geometry"]["coordinates"] == [1.5, 2.5]
    table = tmp_path / "table.csv"
    with table.open("w", newline="") as file:
        rows = csv.writer(file, delimiter=";")
        rows.writerow(["key", "x", "y", "z", "name"])
        rows.writerows([[f"row-{n}", n, n, 100 + n, f"Row {n}"] for n in range(10)])
    empty.add_features_csv(
        str(table), lon_col="x", lat_col="y", alt_col="z", id_col="key", delimiter=";"
    )
    row = empty.get_feature("row-7")
    assert (row["geometry"]["coordinates"], row["properties"]["name"]) == ([7, 7, 107], "Row 7")
    assert empty.get_feature("row-7", force_2d=True)["geometry"]["coordinates"] == [7, 7]


def test_pages_go_on_until_the_end(countries: Space, api: HubApi) -> None:
    everything = ids(get_countries_data()["features"])
    for limit in (1000, 180, 90, 60, 7):  # divisors of the number too: the last page is full
        found = [*countries.iter_feature(limit=limit)]
        assert len(found) == len(everything)
        assert ids(found) == everything
    whole = api.get_space_all(space_id=countries.info["id"], limit=50, max_len=100)
    assert len(whole["features"]) == 100
    shapes = {each["id"]: each["geometry"] for each in countries.iter_feature(force_2d=True)}
    sent = {each["id"]: each["geometry"] for each in get_countries_data()["features"]}
    assert {**shapes, "ATA": None} == {**sent, "ATA": None}


# ---- Search --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ({"p.name": "Germany"}, "DEU"),
        # An encoded comma is part of the value, as it always was.
        ({"p.name": "Germany,France"}, ""),
        ({"f.id=lte": "AGO"}, "AFG AGO"),
        ({"f.id!": "x", "p.name": "'Italy'"}, "ITA"),
        ({"p.name": "Atlantis"}, ""),
        ({"p.name=bw": "Germ"}, "DEU"),
        ({"p.name=gt": "Zam", "p.name=lt": "Zim"}, "ZMB"),
    ],
    ids=str,
)
def test_properties_are_searched(countries: Space, query: dict[str, str], found: str) -> None:
    assert ids(countries.search(params=query)) == {*found.split()}


def test_numbers_and_tags_that_go_together(empty: Space, api: HubApi) -> None:
    some = [feature(f"{n}", n, n, capacity=n) for n in range(4)]
    empty.add_features({"type": "FeatureCollection", "features": some[:2]}, add_tags=["a", "b"])
    empty.add_features({"type": "FeatureCollection", "features": some[2:]}, add_tags=["b"])
    assert ids(empty.search(params={"p.capacity=gte": "2"})) == {"2", "3"}
    assert ids(empty.search(tags=["a+b"])) == {"0", "1"}
    assert ids(empty.search(tags=["a", "b"])) == {"0", "1", "2", "3"}
    assert api.delete_space_features(empty.info["id"], id=["0", "3"]) == ""
    assert ids(empty.iter_feature()) == {"1", "2"}


def test_tags_and_limits_and_selections(countries: Space) -> None:
    assert len([*countries.search(tags=["state"])]) == 180
    assert len([*countries.search(tags=["nothing", "state"])]) == 180
    assert [*countries.search(tags=["nothing"])] == []
    assert len([*countries.search(limit=7)]) == 7
    (germany,) = countries.search(params={"p.name": "Germany"}, selection=["p.name"])
    assert germany["properties"] == {"name": "Germany"}
    assert germany["geometry"]["type"] == "Polygon"
    (germany,) = countries.search(params={"p.name": "Germany"}, selection=["p.nothing"])
    assert germany["properties"] == {}


# ---- Places --------------------------------------------------------------------------------------


def test_in_a_box(countries: Space) -> None:
    box = [9.5, 50.5, 10.5, 51.5]
    assert ids(countries.features_in_bbox(bbox=box)) == {"DEU"}
    (clipped,) = countries.features_in_bbox(bbox=box, clip=True, selection=["p.name"])
    corners = clipped["geometry"]["coordinates"][0]
    assert {tuple(corner) for corner in corners} == {
        *((9.5, 50.5), (9.5, 51.5), (10.5, 51.5), (10.5, 50.5)),
    }
    few = [*countries.features_in_bbox(bbox=[-180, -90, 180, 90], limit=5, tags=["state"])]
    assert len(few) == 5
    assert ids(
        countries.features_in_bbox(bbox=[-180, -90, 180, 90], params={"p.name": "Chile"})
    ) == {"CHL"}
    (flat,) = countries.features_in_bbox(bbox=box, force_2d=True)
    assert flat["id"] == "DEU"


@pytest.mark.parametrize("scheme", TILES)
def test_in_a_tile(countries: Space, scheme: str) -> None:
    found = countries.features_in_tile(tile_type=scheme, tile_id=TILES[scheme])
    assert "DEU" in ids(found)
    (germany,) = countries.features_in_tile(
        tile_type=scheme,
        tile_id=TILES[scheme],
        clip=True,
        params={"p.name": "Germany"},
        selection=["p.name"],
        tags=["state"],
        margin=10,
        limit=10,
        force_2d=True,
    )
    assert germany["properties"] == {"name": "Germany"}
    visual = countries.features_in_tile(
        tile_type=scheme, tile_id=TILES[scheme], mode="viz", viz_sampling="off"
    )
    assert "DEU" in ids(visual)


def test_a_tile_of_an_unknown_scheme_is_refused_by_the_hub_too(
    countries: Space, api: HubApi
) -> None:
    with pytest.raises(ApiError) as refused:
        api.get_space_tile(countries.info["id"], "quadrants", "1202")
    assert status_of(refused) == 400


def test_around_a_place(countries: Space) -> None:
    assert ids(countries.spatial_search(**GERMANY, radius=1000)) == {"DEU"}
    (germany,) = countries.spatial_search(
        **GERMANY, radius=1, selection=["p.name"], tags=["state"], limit=3, force_2d=True
    )
    assert germany["properties"] == {"name": "Germany"}
    assert [*countries.spatial_search(lat=0.1, lon=-30.0, radius=1000)] == []


def test_around_a_feature(countries: Space) -> None:
    neighbours = ids(
        countries.spatial_search(ref_space_id=countries.info["id"], ref_feature_id="DEU", radius=1)
    )
    assert neighbours > {"DEU", "FRA", "POL", "AUT"}
    assert "ESP" not in neighbours
    only = countries.spatial_search(
        ref_space_id=countries.info["id"], ref_feature_id="DEU", params={"p.name": "Poland"}
    )
    assert ids(only) == {"POL"}


def test_in_a_shape(countries: Space) -> None:
    square = {"type": "Polygon", "coordinates": [[[9, 50], [11, 50], [11, 52], [9, 52], [9, 50]]]}
    assert ids(countries.spatial_search_geometry(data=square)) == {"DEU"}
    wide = countries.spatial_search_geometry(data=square, radius=300_000, tags=["state"])
    assert ids(wide) > {"DEU", "CZE", "NLD"}
    (germany,) = countries.spatial_search_geometry(
        data={"type": "Point", "coordinates": [10, 51]}, selection=["p.name"], limit=5
    )
    assert germany["properties"] == {"name": "Germany"}


# ---- Figures -------------------------------------------------------------------------------------


def test_statistics_and_counts(countries: Space, api: HubApi) -> None:
    figures = countries.get_statistics()
    assert figures["type"] == "StatisticsResponse"
    assert figures["count"]["value"] == 180
    assert figures["tags"]["value"] == [{"key": "state", "count": 180}]
    assert set(figures["geometryTypes"]["value"]) == {"Polygon", "MultiPolygon"}
    west, south, east, north = figures["bbox"]["value"]
    assert -180 <= west < east <= 180
    assert -90 <= south < north <= 90
    count = api.get_space_count(countries.info["id"])
    assert (count["type"], count["count"]) == ("CountResponse", 180)


@pytest.mark.parametrize(
    ("clustering", "parameters"),
    [
        ("hexbin", None),
        ("hexbin", {"resolution": 2}),
        ("hexbin", {"absoluteResolution": 1, "pointmode": True, "singlecoord": True}),
        ("quadbin", None),
        ("quadbin", {"relativeResolution": 2, "noBuffer": True, "countmode": "real"}),
    ],
    ids=str,
)
def test_clusters(countries: Space, clustering: str, parameters: dict[str, Any] | None) -> None:
    found = countries.cluster(clustering, clustering_params=parameters)
    assert found["type"] == "FeatureCollection"
    assert found["features"]
    if parameters == {"resolution": 2}:
        assert {each["properties"]["kind"] for each in found["features"]} == {"H3"}
    tile = countries.features_in_tile(
        tile_type="quadkeys", tile_id="1202", clustering=clustering, clustering_params=parameters
    )
    assert [*tile]


# ---- Spaces over others --------------------------------------------------------------------------


def test_a_space_extends_another(countries: Space, api: HubApi, config: XYZConfig) -> None:
    below = countries.info["id"]
    made = api.post_space(data={"title": "Ours", "extends": {"spaceId": below}})
    ours = Space.from_id(made["id"], config=config)
    assert ours.get_feature("DEU")["properties"]["name"] == "Germany"
    ours.add_feature(data=feature("DEU", 10, 51, name="Allemagne"), feature_id="DEU")
    ours.delete_feature("FRA")
    assert ours.get_feature("DEU")["properties"]["name"] == "Allemagne"
    assert "FRA" not in ids(ours.iter_feature())
    assert len([*ours.iter_feature(limit=50)]) == 179
    assert countries.get_feature("DEU")["properties"]["name"] == "Germany"
    ours.delete()
    assert len([*countries.iter_feature()]) == 180


@pytest.fixture
def parks(xyz: XYZ, config: XYZConfig) -> Iterator[tuple[Space, Space]]:
    """Countries and parks, as the examples of the package put them together."""
    some = [feature("FRA", 2, 46, name="France"), feature("LP", 1, 1, name="Park", size=1)]
    spaces = (xyz.spaces.new("one", "x", config=config), xyz.spaces.new("two", "x", config=config))
    spaces[0].add_features(features={"type": "FeatureCollection", "features": some})
    yield spaces
    for space in spaces:
        space.delete()


def both(kind: str, spaces: tuple[Space, Space], config: XYZConfig) -> Space:
    """A virtual space."""
    names = [space.info["id"] for space in spaces]
    return Space.virtual("both", "of two", config=config, virtualspace={kind: names})


def test_a_group_of_spaces(parks: tuple[Space, Space], config: XYZConfig) -> None:
    one, two = parks
    two.add_feature(data=feature("BP", 3, 3, name="Other park"), feature_id="BP")
    group = both("group", parks, config)
    assert group.get_feature("FRA") == one.get_feature("FRA")
    assert group.get_feature("BP") == two.get_feature("BP")
    assert ids(group.iter_feature()) == {"BP", "FRA", "LP"}
    group.update_feature(feature_id="BP", data=group.get_feature("BP"), add_tags=["green"])
    assert two.get_feature("BP")["properties"][NS]["tags"] == ["green"]
    group.delete_feature("FRA")
    with pytest.raises(ApiError):
        one.get_feature("FRA")
    group.delete()
    assert ids(one.iter_feature()) == {"LP"}


@pytest.mark.parametrize("kind", ["merge", "override"])
def test_a_space_over_another(kind: str, parks: tuple[Space, Space], config: XYZConfig) -> None:
    one, two = parks
    changed = feature("LP", 1, 1, name="Large park")
    two.add_feature(data=changed, feature_id="LP", add_tags=["foo", "bar"])
    top = both(kind, parks, config)
    park = top.get_feature("LP")
    assert sorted(park["properties"][NS]["tags"]) == ["bar", "foo"]
    assert park["properties"]["name"] == "Large park"
    assert ("size" in park["properties"]) is (kind == "merge")
    assert ids(top.search(tags=["foo"])) == {"LP"}
    assert ids(top.features_in_bbox(bbox=[0, 0, 5, 5])) == {"LP"}
    top.delete_feature("FRA")
    assert ids(top.iter_feature()) == {"LP"}
    assert one.get_feature("FRA")["properties"]["name"] == "France"
    top.delete()


# ---- Who may -------------------------------------------------------------------------------------


def test_requests_without_token_get_nothing(guarded_hub: HubServer, countries: Space) -> None:
    # What the package sends when XYZ_TOKEN is not set.
    headers = {"Authorization": "Bearer None", "Content-Type": "application/geo+json"}
    stranger = HubApi(config=XYZConfig(http_headers=headers, url=guarded_hub.url))
    with pytest.raises(ApiError) as refused:
        stranger.get_space(countries.info["id"])
    assert status_of(refused) == 401


def feature(id: str | None, lon: float, lat: float, **properties: Any) -> dict[str, Any]:
    assert math.isfinite(lon)
    made = {
        "type": "Feature",
        "geometry": {"type": "Point", "coordinates": [lon, lat]},
        "properties": properties,
    }
    return made if id is None else {"id": id, **made}
