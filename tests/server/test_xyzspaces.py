"""The Python client that people have, unchanged, against our hub."""

import warnings
from collections.abc import Iterator
from typing import Any

import pytest

from naksha.testing.hub_server import HubServer
from tests.server.towns import collection, ids_of, point

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of what it imports
    from xyzspaces import XYZ
    from xyzspaces.config.default import XYZConfig
    from xyzspaces.exceptions import ApiError

COUNTRIES = [
    point("DEU", 10, 51, name="Germany", capacity=5, tags=["europe", "schengen"]),
    point("FRA", 2, 46, name="France", capacity=3, tags=["europe", "schengen"]),
    point("GBR", -2, 54, name="Britain", capacity=8, tags=["europe"]),
    point("BRA", -53, -10, name="Brazil", capacity=6, tags=["america"]),
    point("AGO", 17, -12, name="Angola", capacity=2),
]


@pytest.fixture(scope="module")
def config(hub: HubServer) -> Any:
    headers = {"Content-Type": "application/geo+json"}
    return XYZConfig(http_headers=headers, url=hub.url, credentials={})


@pytest.fixture(scope="module")
def xyz(config: Any) -> Any:
    return XYZ(config=config)


@pytest.fixture
def space(xyz: Any, config: Any) -> Iterator[Any]:
    made = xyz.spaces.new(title="Countries", description="Some", config=config)
    made.api.put_space_features(space_id=made.info["id"], data=collection(*COUNTRIES))
    yield made
    made.delete()


def ids(features: Any) -> list[str]:
    return sorted(ids_of(features))


def test_the_hub_is_there(xyz: Any) -> None:
    assert set(xyz.hub_api.get_hub()) >= {"reporter", "status", "schemaVersion"}


def test_spaces(xyz: Any, space: Any, config: Any) -> None:
    assert space.info["id"] in [one["id"] for one in xyz.spaces.list()]
    space.update(title="New")
    assert xyz.spaces.from_id(space.info["id"], config=config).info["title"] == "New"


def test_features(space: Any) -> None:
    assert space.get_feature("DEU")["properties"]["name"] == "Germany"
    assert ids(space.get_features(["DEU", "FRA", "nowhere"])["features"]) == ["DEU", "FRA"]
    space.add_feature(data=point("ITA", 12, 42), feature_id="ITA", add_tags=["new"])
    space.update_feature(feature_id="ITA", data={"type": "Feature", "properties": {"size": 1}})
    assert space.get_feature("ITA")["properties"]["size"] == 1
    space.add_features(features=collection(point("ESP"), point("PRT")))
    space.update_features(features=collection(point("PRT", size=2)), add_tags=["x"])
    assert space.api.delete_space_features(space.info["id"], id=["ITA", "BRA"]) == ""
    assert space.api.delete_space_feature(space.info["id"], feature_id="ESP") == ""
    space.delete_features(feature_ids=[], tags=["x"])
    assert ids(space.iter_feature()) == ["AGO", "DEU", "FRA", "GBR"]
    with pytest.raises(ApiError) as missing:
        space.get_feature("ITA")
    assert missing.value.args[0].status_code == 404
    assert missing.value.args[0].json()["errorMessage"] == "The requested resource does not exist."


def test_search(space: Any) -> None:
    assert ids(space.search(params={"p.capacity=gte": "5"})) == ["BRA", "DEU", "GBR"]
    assert ids(space.search(params={"f.id=lte": "AGO"})) == ["AGO"]
    assert ids(space.search(tags=["america", "schengen"])) == ["BRA", "DEU", "FRA"]
    assert ids(space.search(tags=["europe+schengen"])) == ["DEU", "FRA"]
    (found,) = space.search(params={"p.name": "France"}, selection=["p.capacity"])
    assert found["properties"] == {"capacity": 3}


def test_areas(space: Any) -> None:
    assert ids(space.features_in_bbox([-10, 40, 20, 60])) == ["DEU", "FRA", "GBR"]
    assert ids(space.features_in_tile(tile_type="web", tile_id="1_1_0")) == ["DEU", "FRA"]
    assert ids(space.features_in_tile(tile_type="quadkeys", tile_id="2")) == ["BRA"]
    assert ids(space.features_in_tile(tile_type="tms", tile_id="1_1_0", clip=True)) == ["AGO"]
    assert ids(space.features_in_tile(tile_type="here", tile_id="1_1_0")) == ["AGO", "DEU", "FRA"]
    viz = space.features_in_tile("web", "1_1_0", mode="viz", viz_sampling="off", margin=10)
    assert ids(viz) == ["DEU", "FRA", "GBR"]
    cells = space.cluster(clustering="hexbin", clustering_params={"resolution": 3})
    assert sum(cell["properties"]["aggregation"]["qty"] for cell in cells["features"]) == 5


def test_places(space: Any) -> None:
    assert ids(space.spatial_search(lat=51, lon=10, radius=1000)) == ["DEU"]
    near = space.spatial_search(ref_space_id=space.info["id"], ref_feature_id="FRA", radius=900_000)
    assert ids(near) == ["DEU", "FRA"]
    square = {"type": "Polygon", "coordinates": [[[0, 40], [20, 40], [20, 60], [0, 60], [0, 40]]]}
    assert ids(space.spatial_search_geometry(data=square)) == ["DEU", "FRA"]


def test_all_of_it(space: Any) -> None:
    assert ids(space.iter_feature(limit=2)) == ["AGO", "BRA", "DEU", "FRA", "GBR"]
    assert space.get_statistics()["count"]["value"] == 5
    assert space.api.get_space_count(space.info["id"])["count"] == 5
