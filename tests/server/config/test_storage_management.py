"""Storage management over REST.

Deleted features, collections and snapshots of a storage, and the log of the configuration.
"""

import time
from typing import Any

import httpx
import pytest

from tests.server.towns import XYZ, error, id_of, ids_of, new_space, point, put

STORAGE = "/storages/default"
FAR_MS = 4_102_444_800_000


def collection_of(client: httpx.Client, space: str) -> str:
    """The id of the collection of a space."""
    found: str = client.get(space).json()["collectionId"]
    return found


# ---- Deleted features --------------------------------------------------------------------------


def test_deleted_features_are_listed_and_purged(client: httpx.Client) -> None:
    space = new_space(client)
    put(client, space, *(point(f"p{n}", n=n) for n in range(5)))
    assert client.delete(f"{space}/features?id=p0,p1,p2").status_code == 204
    first = client.get(f"{space}/deleted", params={"limit": 2}).json()
    assert ids_of(first["features"]) == ["p0", "p1"]
    namespace = first["features"][0]["properties"][XYZ]
    assert (namespace["action"], namespace["space"]) == ("DELETE", id_of(space))
    rest = client.get(f"{space}/deleted", params={"handle": first["handle"]}).json()
    assert ids_of(rest["features"]) == ["p2"]
    assert "handle" not in rest
    found = client.get(f"{space}/deleted?p.n=1").json()
    assert ids_of(found["features"]) == ["p1"]
    answer = client.delete(f"{space}/deleted?id=p0,p1,nobody").json()
    assert (answer["purged"], answer["retained"]) == (["p0", "p1"], ["nobody"])
    assert ids_of(client.get(f"{space}/deleted").json()["features"]) == ["p2"]
    assert client.get(f"{space}/features/p0?version=*").json()["features"]


def test_a_live_feature_is_not_purged(client: httpx.Client) -> None:
    space = new_space(client)
    put(client, space, point("a"), point("b"))
    client.delete(f"{space}/features/b")
    assert error(client.delete(f"{space}/deleted?id=b,a"), 409)
    assert ids_of(client.get(f"{space}/deleted").json()["features"]) == ["b"]
    error(client.delete(f"{space}/deleted"), 400)


# ---- Collections -------------------------------------------------------------------------------


def test_collections_are_scheduled_dropped_and_restored(client: httpx.Client) -> None:
    space = new_space(client)
    put(client, space, point("a"))
    name = collection_of(client, space)
    url = f"{STORAGE}/collections/{name}"
    assert name in [each["id"] for each in client.get(f"{STORAGE}/collections").json()]
    scheduled = client.patch(url, json={"deleteAt": FAR_MS}).json()
    assert (scheduled["deleteAt"], scheduled["droppedAt"]) == (FAR_MS, 0)
    assert client.get(f"{space}/features/a").status_code == 200
    dropped = client.delete(url, params={"deleteAt": FAR_MS}).json()
    assert dropped["droppedAt"] > 0
    assert client.get(f"{space}/features/a").status_code == 404
    assert name not in [each["id"] for each in client.get(f"{STORAGE}/collections").json()]
    everything = client.get(f"{STORAGE}/collections", params={"dropped": "true"}).json()
    assert name in [each["id"] for each in everything]
    restored = client.post(f"{url}/restore").json()
    assert (restored["deleteAt"], restored["droppedAt"]) == (0, 0)
    assert client.get(f"{space}/features/a").status_code == 200


@pytest.mark.parametrize("change", [{"deleteAt": -1}, {"maxAge": "long"}, {"colour": "red"}, []])
def test_wrong_settings_are_refused(client: httpx.Client, change: Any) -> None:
    space = new_space(client)
    put(client, space, point("a"))
    url = f"{STORAGE}/collections/{collection_of(client, space)}"
    error(client.patch(url, json=change), 400)


def test_a_collection_that_is_not_there(client: httpx.Client) -> None:
    for answer in (
        client.get(f"{STORAGE}/collections/nothing"),
        client.patch(f"{STORAGE}/collections/nothing", json={"author": "me"}),
        client.delete(f"{STORAGE}/collections/nothing"),
        client.post(f"{STORAGE}/collections/nothing/restore"),
        client.get("/storages/nowhere/collections"),
    ):
        error(answer, 404)


# ---- Snapshots ---------------------------------------------------------------------------------


def test_a_snapshot_is_of_the_whole_storage(client: httpx.Client) -> None:
    spaces = [new_space(client), new_space(client)]
    for space in spaces:
        put(client, space, point("a", n=1))
    name = f"snapshot-{id_of(spaces[0])}"
    made = client.post(f"{STORAGE}/snapshots", json={"id": name, "description": "the first"})
    assert made.status_code == 200, made.text
    version = made.json()["version"]
    for space in spaces:
        put(client, space, point("a", n=2))
        read = client.get(f"{space}/features/a", params={"versionRef": str(version)}).json()
        assert read["properties"]["n"] == 1
    assert client.get(f"{STORAGE}/snapshots/{name}").json() == made.json()
    assert name in [each["id"] for each in client.get(f"{STORAGE}/snapshots").json()]
    error(client.post(f"{STORAGE}/snapshots", json={"id": name}), 409)
    url = f"{STORAGE}/collections/{collection_of(client, spaces[1])}"
    error(client.delete(url), 409)
    assert client.delete(f"{STORAGE}/snapshots/{name}").json() == made.json()
    error(client.get(f"{STORAGE}/snapshots/{name}"), 404)
    assert client.delete(url).status_code == 200


# ---- The log of the configuration --------------------------------------------------------------


def test_the_log_of_the_configuration_is_read_from_anywhere(client: httpx.Client) -> None:
    before = client.get("/configuration/changes", params={"limit": 1, "newestFirst": "true"})
    space = new_space(client)
    time.sleep(0.01)
    moment_ms = int(time.time() * 1000)
    client.patch(space, json={"title": "Renamed"})
    client.delete(space)
    expected = [("create", "space"), ("update", "space"), ("delete", "space")]

    def changes(**query: Any) -> list[tuple[str, str]]:
        answer = client.get("/configuration/changes", params=query)
        assert answer.status_code == 200, answer.text
        return [
            (each["action"], each["kind"])
            for commit in answer.json()["commits"]
            for each in commit["changes"]
            if each["id"] == id_of(space)
        ]

    after = before.json()["commits"][0]["cursor"]
    assert changes(after=after, limit=1000) == expected
    assert changes(since=moment_ms, limit=1000) == expected[1:]
    assert changes(newestFirst="true", limit=3) == expected[::-1]
    paged, cursor = [], after
    for _ in range(3):
        page = client.get("/configuration/changes", params={"after": cursor, "limit": 1}).json()
        paged += page["commits"]
        cursor = page["next"]
    assert [each["message"].split()[0] for each in paged] == ["create", "change", "remove"]
    assert all(each["appId"] and each["time"] for each in paged)


def test_a_page_of_the_future_is_empty(client: httpx.Client) -> None:
    page = client.get("/configuration/changes", params={"since": FAR_MS}).json()
    assert page["commits"] == []
    new_space(client)
    later = client.get("/configuration/changes", params={"after": page["next"]}).json()
    assert len(later["commits"]) == 1


@pytest.mark.parametrize("query", [{"after": "x"}, {"since": "soon"}, {"limit": 0}])
def test_wrong_places_in_the_log_are_refused(client: httpx.Client, query: dict[str, Any]) -> None:
    error(client.get("/configuration/changes", params=query), 400)
