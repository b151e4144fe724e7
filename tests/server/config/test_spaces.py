"""Spaces over REST."""

import time
from typing import Any

import httpx
import pytest

from tests.server.towns import GEO_JSON, error, id_of, new_space, point, put

JSON = {"Accept": "application/json"}


def listed(client: httpx.Client, query: str = "") -> dict[str, Any]:
    answer = client.get(f"/spaces?{query}")
    assert answer.status_code == 200, answer.text
    assert isinstance(answer.json(), list)
    return {space["id"]: space for space in answer.json()}


def test_a_space_is_made_changed_and_removed(client: httpx.Client) -> None:
    made = client.post("/spaces", json={"title": "Roads"})
    assert made.status_code == 200
    space_id = made.json()["id"]
    assert len(space_id) == 8
    assert made.json()["owner"] == "anonymous"
    assert space_id in listed(client)
    error(client.post("/spaces", json={"id": space_id}), 409, "id")
    changed = client.patch(f"/spaces/{space_id}", json={"description": "all", "title": None})
    assert (changed.json()["description"], changed.json()["title"]) == ("all", "")
    replaced = client.put(f"/spaces/{space_id}", json={"id": space_id, "title": "Streets"})
    assert (replaced.json()["description"], replaced.json()["title"]) == ("", "Streets")
    assert client.delete(f"/spaces/{space_id}").status_code == 204
    error(client.get(f"/spaces/{space_id}"), 404)
    error(client.delete(f"/spaces/{space_id}"), 404)
    error(client.patch(f"/spaces/{space_id}", json={}), 404)
    error(client.put(f"/spaces/{space_id}", json={}), 404)


def test_spaces_can_be_sent_and_requested_as_geojson(
    client: httpx.Client,
) -> None:
    body = b'{"id": "as.geo_json-1", "title": "T", "unknown": {"kept": true}}'
    made = client.post("/spaces", content=body, headers=GEO_JSON)
    assert made.status_code == 200, made.text
    assert made.headers["Content-Type"] == "application/json"
    assert made.json()["unknown"] == {"kept": True}
    removed = client.delete("/spaces/as.geo_json-1", headers=JSON)
    assert (removed.status_code, removed.json()["title"]) == (200, "T")


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (b"", "body"),
        (b"[]", "body"),
        (b'{"id": "no/way"}', "id"),
        (b'{"id": "", "title": "x"}', "id"),
        (b'{"title": 7}', "title"),
        (b'{"storage": {"id": "none"}}', "storage.id"),
        (b'{"eventHandlerIds": ["none"]}', "eventHandlerIds[0]"),
        (b'{"extends": {"spaceId": "none"}}', "extends.spaceId"),
        (b'{"versionsToKeep": 0}', "versionsToKeep"),
        (b'{"properties": {"collection": "No!"}}', "properties.collection.id"),
    ],
)
def test_errors_name_the_invalid_field(client: httpx.Client, body: bytes, field: str) -> None:
    error(client.post("/spaces", content=body, headers=GEO_JSON), 400, field)


def test_a_stale_etag_is_rejected(client: httpx.Client) -> None:
    space = new_space(client)
    seen = client.get(space).headers["ETag"]
    assert client.get(space, headers={"If-None-Match": seen}).status_code == 304
    first = client.patch(space, json={"title": "1"}, headers={"If-Match": seen})
    assert first.status_code == 200
    error(client.patch(space, json={"title": "2"}, headers={"If-Match": seen}), 412, "If-Match")
    error(client.delete(space, headers={"If-Match": seen}), 412, "If-Match")
    again = client.get(space, headers={"If-None-Match": seen})
    assert (again.status_code, again.json()["title"]) == (200, "1")
    both = f"{seen}, {first.headers['ETag']}"
    assert client.delete(space, headers={"If-Match": both}).status_code == 204


def test_a_list_is_filtered(client: httpx.Client) -> None:
    client.post("/spaces", json={"id": "l-mine", "tags": ["a", "b"], "region": "eu"})
    client.post("/spaces", json={"id": "l-other", "tags": ["b"], "owner": "someone"})
    assert {"l-mine"} == set(listed(client)) & {"l-mine", "l-other"}
    for query, expected in [
        ("owner=me", {"l-mine"}),
        ("owner=others", {"l-other"}),
        ("owner=*", {"l-mine", "l-other"}),
        ("owner=%2A&clientId=cli", {"l-mine", "l-other"}),
        ("owner=someone", {"l-other"}),
        ("owner=nobody", set()),
        ("owner=*&tag=a", {"l-mine"}),
        ("owner=*&tag=x,b", {"l-mine", "l-other"}),
        ("owner=*&region=eu", {"l-mine"}),
        ("owner=*&region=us", set()),
    ]:
        assert set(listed(client, query)) & {"l-mine", "l-other"} == expected, query
    assert client.get("/spaces/?owner=me").status_code == 200


def test_lists_have_extra_members_on_request(client: httpx.Client) -> None:
    space = new_space(client)
    put(client, space, point("a"), point("b"))
    client.post("/connectors", json={"id": "l-c", "className": "storage"})
    client.post("/spaces", json={"id": "l-connected", "eventHandlerIds": ["l-c"]})
    plain = listed(client)[id_of(space)]
    assert {"rights", "connectors", "featureCount", "contentUpdatedAt"}.isdisjoint(plain)
    query = "includeRights=true&includeConnectors=true&includeCounts=true"
    full = listed(client, query)
    told = full[id_of(space)]
    assert (told["featureCount"], told["estimated"]) == (2, False)
    assert {"readFeatures", "manageSpaces"} <= set(told["rights"])
    assert told["connectors"] == []
    assert full["l-connected"]["connectors"][0]["className"] == "storage"
    assert full["l-connected"]["featureCount"] == 0
    hides = {"id": "l-f", "className": "tag-filter", "properties": {"contains": ["open"]}}
    client.post("/connectors", json=hides)
    stored = {"collection": id_of(space)}
    client.post("/connectors", json={"id": "l-s", "className": "storage", "properties": stored})
    client.post("/spaces", json={"id": "l-some", "eventHandlerIds": ["l-f", "l-s"]})
    assert listed(client, query)["l-some"]["featureCount"] is None


def test_the_time_of_the_last_change_is_reported(client: httpx.Client) -> None:
    space = new_space(client)
    created = client.get(space).json()["createdAt"]
    assert client.get(space).json()["contentUpdatedAt"] == created
    seen = client.get(space).headers["ETag"]
    time.sleep(0.01)
    put(client, space, point("a"))
    changed = client.get(space, headers={"If-None-Match": seen})
    assert changed.status_code == 200, "the answer is another one"
    at = changed.json()["contentUpdatedAt"]
    assert at > created
    id = id_of(space)
    for operator, is_there in [
        (f"contentUpdatedAt={at}", True),
        (f"contentUpdatedAt={at + 1},{at}", True),
        (f"contentUpdatedAt>{at}", False),
        (f"contentUpdatedAt%3E{at - 1}", True),
        (f"contentUpdatedAt>={at}", True),
        (f"contentUpdatedAt=lt={at}", False),
        (f"contentUpdatedAt<={at}", True),
        (f"contentUpdatedAt!={at}", False),
        (f"contentUpdatedAt>{created}&contentUpdatedAt=lte={at}", True),
    ]:
        assert (id in listed(client, operator)) is is_there, operator
    error(client.get("/spaces?contentUpdatedAt>soon"), 400, "contentUpdatedAt")
    error(client.get("/spaces?contentUpdatedAt"), 400, "contentUpdatedAt")


def test_loads_are_noted(client: httpx.Client) -> None:
    space = new_space(client)
    entry = {"source": "roads.gpkg", "tool": "loader 1", "counts": {"inserted": 3}}
    kept = client.post(f"{space}/provenance", json=entry)
    assert kept.status_code == 200, kept.text
    assert kept.json()["by"] == "anonymous"
    assert client.get(space).json()["provenance"] == [kept.json()]
    changed = client.patch(space, json={"provenance": [{"source": "elsewhere"}]})
    assert changed.json()["provenance"] == [{"source": "elsewhere"}]
    error(client.post(f"{space}/provenance", json={"tool": "x"}), 400, "provenance.source")
    error(client.post("/spaces/nowhere/provenance", json=entry), 404)


def test_a_removed_space_leaves_nothing_to_its_successor(client: httpx.Client) -> None:
    client.post("/spaces", json={"id": "again"})
    put(client, "/spaces/again", point("a"))
    client.post("/spaces/again/tags", json={"id": "summer"})
    assert client.delete("/spaces/again").status_code == 204
    made = client.post("/spaces", json={"id": "again"})
    assert made.status_code == 200
    assert client.get("/spaces/again/count").json()["count"] == 0
    assert client.get("/spaces/again/tags").json() == []


def test_history_follows_the_versions_to_keep(client: httpx.Client) -> None:
    space = new_space(client, versionsToKeep=1)
    put(client, space, point("a", n=1))
    version = put(client, space, point("a", n=2))["version"]
    old = client.get(f"{space}/features/a", params={"versionRef": version - 1})
    assert old.status_code == 410
    assert client.patch(space, json={"versionsToKeep": 50}).status_code == 200
    version = put(client, space, point("a", n=3))["version"]
    put(client, space, point("a", n=4))
    old = client.get(f"{space}/features/a", params={"versionRef": version})
    assert old.json()["properties"]["n"] == 3
