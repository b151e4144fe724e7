"""Parameters that narrow, guard or simulate: applied, or refused, but never ignored."""

from typing import Any

import httpx
import pytest

from tests.server.towns import XYZ, error, found, id_of, new_space, point, put


def fine(answer: httpx.Response) -> Any:
    assert answer.status_code in (200, 201, 204), answer.text
    return answer.json() if answer.content else None


@pytest.fixture
def space(client: httpx.Client) -> str:
    space = new_space(client)
    put(client, space, point("a", n=1))
    return space


@pytest.mark.parametrize(
    ("method", "path", "field"),
    [
        ("DELETE", "features/a?p.n=2", "p.n"),
        ("DELETE", "features?id=a&f.n=2", "f.n"),
        ("DELETE", "features/a?tags=x", "tags"),
        ("DELETE", "features/a?dryRun=true", "dryRun"),
        ("PUT", "features/a?dryRun=true", "dryRun"),
        ("GET", "features/a?p.n=2", "p.n"),
        ("GET", "statistics?tags=x", "tags"),
        ("GET", "statistics?p.n=2", "p.n"),
        ("GET", "tags?author=x", "author"),
        ("GET", "branches?west=1", "west"),
        ("DELETE", "features/a?conflictDetection=true", "conflictDetection"),
        ("PATCH", "features/a?prefixId=x", "prefixId"),
        ("GET", "?tags=x", "tags"),
    ],
)
def test_unsupported_parameters_are_rejected(
    client: httpx.Client, space: str, method: str, path: str, field: str
) -> None:
    body = point("a", n=2) if method in ("PUT", "PATCH") else None
    url = f"{space}/{path}".replace("/?", "?")
    error(client.request(method, url, json=body), 400, field)
    assert fine(client.get(f"{space}/features/a"))["properties"]["n"] == 1


@pytest.mark.parametrize("path", ["features/a", "statistics", "count", "search", "iterate", ""])
def test_presentation_and_unknown_parameters_are_ignored(
    client: httpx.Client, space: str, path: str
) -> None:
    more = {
        "clip": "true",
        "skipCache": "true",
        "selection": "*",
        "clientId": "x",
        "dryRun": "false",
    }
    assert client.get(f"{space}/{path}".rstrip("/"), params=more).status_code == 200


def test_a_feature_of_an_author(client: httpx.Client, space: str) -> None:
    author = fine(client.get(f"{space}/features/a"))["properties"][XYZ]["author"]
    fine(client.get(f"{space}/features/a", params={"author": f"x,{author}"}))
    error(client.get(f"{space}/features/a", params={"author": "x"}), 404)


def test_a_prefix_comes_before_the_id_in_the_path(client: httpx.Client, space: str) -> None:
    put_one = client.put(f"{space}/features/b", json=point("b"), params={"prefixId": "new:"})
    assert fine(put_one)["id"] == "new:b"
    assert found(client.get(f"{space}/search")) == ["a", "new:b"]


@pytest.mark.parametrize("kind", ["connectors", "handlers"])
def test_connectors_by_id(client: httpx.Client, kind: str) -> None:
    names = [f"{kind}-{n}" for n in range(3)]
    for name in names:
        fine(client.post("/connectors", json={"id": name, "className": "tag-filter"}))
    for query in ({"id": names[:2]}, {"id": ",".join(names[:2])}):
        assert [one["id"] for one in fine(client.get(f"/{kind}", params=query))] == names[:2]


def test_spaces_by_the_tags_of_their_versions(client: httpx.Client, space: str) -> None:
    name = f"release-{id_of(space)}"
    fine(client.post(f"{space}/tags", json={"id": name}))
    other = new_space(client, tags=["configured"])

    def listed(tag: str) -> list[str]:
        return [one["id"] for one in fine(client.get("/spaces", params={"tag": tag}))]

    assert listed(name) == [id_of(space)]
    assert id_of(other) in listed(f"none,configured,{name}")
    assert listed("none") == []


GEOMETRIES: dict[str, Any] = {
    "point": {"type": "Point", "coordinates": [1, 1]},
    "raised": {"type": "Point", "coordinates": [1, 1, 9]},
    "line": {"type": "LineString", "coordinates": [[1, 1], [2, 2]]},
    "lines": {"type": "MultiLineString", "coordinates": [[[1, 1], [2, 2]]]},
    "area": {"type": "Polygon", "coordinates": [[[1, 1], [2, 1], [2, 2], [1, 1]]]},
    "none": None,
}


@pytest.mark.parametrize(
    ("query", "ids"),
    [
        ("=point", ["point", "raised"]),
        ("=POINT,linestring", ["line", "point", "raised"]),
        ("=MultiLineString", ["lines"]),
        ("=.null", ["none"]),
        ("!=.null", ["area", "line", "lines", "point", "raised"]),
        ("!=point", ["area", "line", "lines"]),
        ("=nonsense", []),
    ],
)
def test_features_by_the_type_of_their_geometry(
    client: httpx.Client, query: str, ids: list[str]
) -> None:
    space = new_space(client)
    put(client, space, *[{**point(id), "geometry": shape} for id, shape in GEOMETRIES.items()])
    view = new_space(client, extends={"spaceId": id_of(space)})
    for each in (space, view):
        assert found(client.get(f"{each}/search?f.geometry.type{query}")) == ids
        assert fine(client.get(f"{each}/count?f.geometry.type{query}"))["count"] == len(ids)
    versions = fine(client.get(f"{space}/statistics"))["maxVersion"]["value"]
    put(client, space, {**point("point"), "geometry": None})
    at = client.get(f"{space}/search?f.geometry.type{query}&versionRef={versions}")
    assert found(at) == ids
    error(client.get(f"{space}/search?f.geometry.coordinates=1"), 400, "f.geometry.coordinates")


# ---- dryRun ------------------------------------------------------------------------------------

DRY = {"dryRun": "true"}
COLLECTIONS = "/storages/default/collections"


def test_a_dry_run_makes_no_space(client: httpx.Client, space: str) -> None:
    made = fine(client.post("/spaces", json={"id": "dry", "title": "Dry"}, params=DRY))
    assert (made["id"], made["title"]) == ("dry", "Dry")
    error(client.get("/spaces/dry"), 404)
    error(client.get(f"{COLLECTIONS}/{made['collectionId']}"), 404)
    error(client.post("/spaces", json={"id": id_of(space)}, params=DRY), 409)
    error(client.post("/spaces", json={"id": "x", "extends": {"spaceId": "no"}}, params=DRY), 400)


def test_a_dry_run_changes_no_space(client: httpx.Client, space: str) -> None:
    before = fine(client.get(space))
    collection = f"{COLLECTIONS}/{before['collectionId']}"
    settings = fine(client.get(collection))
    assert fine(client.patch(space, json={"title": "New"}, params=DRY))["title"] == "New"
    fine(client.patch(space, json={"versionsToKeep": 1}, params=DRY))
    assert fine(client.put(space, json={"title": "Other"}, params=DRY))["title"] == "Other"
    assert fine(client.get(space)) == before
    assert fine(client.get(collection)) == settings
    error(client.patch(space, json={"id": "other"}, params=DRY), 400)


def test_a_dry_run_deletes_no_space(client: httpx.Client, space: str) -> None:
    assert client.delete(space, params=DRY).status_code == 204
    assert fine(client.get(f"{space}/features/a"))
    fine(client.post(f"{space}/tags", json={"id": "kept"}))
    fine(client.delete(space, params=DRY))
    assert [tag["id"] for tag in fine(client.get(f"{space}/tags"))] == ["kept"]
    error(client.delete("/spaces/none", params=DRY), 404)


# ---- Filters of subscriptions --------------------------------------------------------------------

AREA = {"type": "Polygon", "coordinates": [[[0, 0], [2, 0], [2, 2], [0, 2], [0, 0]]]}


def subscription(client: httpx.Client, space: str, **more: Any) -> httpx.Response:
    client.post("/connectors", json={"id": "anywhere", "className": "tag-filter"})
    body = {"id": f"sub-{id_of(space)}", "destination": "anywhere", **more}
    return client.post(f"{space}/subscriptions", json=body)


def test_filters_of_xyz_are_those_of_the_subscription(client: httpx.Client, space: str) -> None:
    spatial = {"geometry": AREA, "radius": 10, "clip": True}
    filters = {
        "spatialFilter": spatial,
        "jsonPath": "$.properties[?@.n > 1]",
        "propertyFilter": "p.n>1",
        "context": "DEFAULT",
    }
    made = fine(subscription(client, space, filters=filters))
    assert made["filter"]["spatialFilter"] == {**spatial, "radius": 10.0}
    assert made["filter"]["properties"] == "p.n>1"
    assert made["filters"] == made["filter"]
    path = f"{space}/subscriptions/{made['id']}"
    assert fine(client.put(path, json=made))["filter"] == made["filter"]
    changed = {**made, "filters": {"jsonPath": "$.id"}}
    error(client.put(path, json=changed), 400, "filters")


@pytest.mark.parametrize(
    ("filters", "field"),
    [
        ("nonsense", "filters"),
        ({"spatialFilter": {"geometry": {"type": "Blob"}}}, "filter.spatialFilter"),
        ({"spatialFilter": {"geometry": AREA, "radius": -1}}, "filter.spatialFilter.radius"),
        ({"spatialFilter": {"tileIds": ["1"], "geometry": AREA}}, "filters.spatialFilter.tileIds"),
        ({"spatialFilters": {}}, "filters.spatialFilters"),
        ({"jsonPath": "nonsense["}, "filter.jsonPath"),
        ({"propertyFilter": {"and": []}}, "filters.propertyFilter"),
        ({"context": "EXTENSION"}, "filters.context"),
    ],
)
def test_invalid_filters_are_refused(
    client: httpx.Client, space: str, filters: Any, field: str
) -> None:
    told = error(subscription(client, space, filters=filters), 400)
    assert told["field"].startswith(field), told
