"""The `uuid` of a feature as a lock, only on request of the client or the space."""

from typing import Any

import httpx
import pytest

from tests.server.towns import XYZ, error, new_space

Feature = dict[str, Any]


def road(id: str | None = "a", **properties: Any) -> Feature:
    geometry = {"type": "Point", "coordinates": [8.5, 50.1]}
    named = {} if id is None else {"id": id}
    return {"type": "Feature", **named, "geometry": geometry, "properties": properties}


def fine(answer: httpx.Response) -> Any:
    assert answer.status_code == 200, answer.text
    return answer.json()


def read(client: httpx.Client, space: str, id: str = "a") -> Feature:
    found: Feature = fine(client.get(f"{space}/features/{id}"))
    return found


def changed(feature: Feature, **properties: Any) -> Feature:
    return {**feature, "properties": {**feature["properties"], **properties}}


@pytest.fixture
def space(client: httpx.Client) -> str:
    space = new_space(client)
    fine(client.put(f"{space}/features/a", json=road(n=1)))
    return space


def test_the_same_object_is_written_twice(client: httpx.Client, space: str) -> None:
    stale = read(client, space)
    for n in (2, 3, 4):
        assert fine(client.put(f"{space}/features/a", json=changed(stale, n=n)))
    for n, method in ((5, "POST"), (6, "PUT")):
        sent = {"type": "FeatureCollection", "features": [changed(stale, n=n)]}
        assert fine(client.request(method, f"{space}/features", json=sent))["updated"] == ["a"]
    assert fine(client.patch(f"{space}/features/a", json=changed(stale, n=7)))
    assert read(client, space)["properties"]["n"] == 7


def test_deleted_features_are_recreated(client: httpx.Client, space: str) -> None:
    stale = read(client, space)
    assert client.delete(f"{space}/features/a").status_code == 204
    assert fine(client.put(f"{space}/features/a", json=stale))["properties"]["n"] == 1


@pytest.mark.parametrize("method", ["POST", "PUT"])
def test_a_copy_without_id_or_under_another_one_is_created(
    client: httpx.Client, space: str, method: str
) -> None:
    read_one = read(client, space)
    nameless = {name: value for name, value in read_one.items() if name != "id"}
    sent = {"type": "FeatureCollection", "features": [nameless, {**read_one, "id": "b"}]}
    written = fine(client.request(method, f"{space}/features", json=sent))
    assert len(written["inserted"]) == 2


@pytest.mark.parametrize(
    "asks",
    [
        {"params": {"conflictDetection": "true"}},
        {"headers": {"If-Match": "*"}},
    ],
)
def test_a_client_may_ask_for_the_lock(
    client: httpx.Client, space: str, asks: dict[str, Any]
) -> None:
    stale = read(client, space)
    fine(client.put(f"{space}/features/a", json=changed(stale, n=2), **asks))
    told = error(client.put(f"{space}/features/a", json=changed(stale, n=3), **asks), 409)
    assert told["head"]["properties"]["n"] == 2
    sent = {"type": "FeatureCollection", "features": [changed(stale, n=3)]}
    for method in ("POST", "PUT"):
        error(client.request(method, f"{space}/features", json=sent, **asks), 409)
    assert read(client, space)["properties"]["n"] == 2


def test_a_space_may_ask_for_the_lock(client: httpx.Client, space: str) -> None:
    assert fine(client.patch(space, json={"uuidLock": True}))["uuidLock"] is True
    stale = read(client, space)
    fine(client.put(f"{space}/features/a", json=changed(stale, n=2)))
    error(client.put(f"{space}/features/a", json=changed(stale, n=3)), 409)
    error(client.put(f"{space}/features/b", json={**stale, "id": "b"}), 409)
    fine(client.patch(space, json={"uuidLock": False}))
    fine(client.put(f"{space}/features/a", json=changed(stale, n=3)))


@pytest.mark.parametrize("name", ["etag", "uuid"])
def test_if_match_names_the_state_that_was_read(
    client: httpx.Client, space: str, name: str
) -> None:
    def tag() -> dict[str, str]:
        answer = client.get(f"{space}/features/a")
        uuid = answer.json()["properties"][XYZ]["uuid"]
        return {"If-Match": answer.headers["ETag"] if name == "etag" else f'"{uuid}"'}

    first = tag()
    answer = client.put(f"{space}/features/a", json=road(n=2), headers=first)
    assert fine(answer)["properties"]["n"] == 2
    for method, body in (("PUT", road(n=3)), ("PATCH", {"properties": {"n": 3}}), ("DELETE", None)):
        told = error(client.request(method, f"{space}/features/a", json=body, headers=first), 412)
        assert told["head"]["properties"]["n"] == 2
    fine(client.patch(f"{space}/features/a", json={"properties": {"n": 4}}, headers=tag()))
    assert client.delete(f"{space}/features/a", headers=tag()).status_code == 204
    error(client.put(f"{space}/features/a", json=road(n=5), headers=first), 412)
    error(client.delete(f"{space}/features/a", headers={"If-Match": "*"}), 412)


def test_a_tag_of_several_features_is_refused(client: httpx.Client, space: str) -> None:
    sent = {"type": "FeatureCollection", "features": [road(n=2)]}
    for method in ("POST", "PUT"):
        told = error(
            client.request(method, f"{space}/features", json=sent, headers={"If-Match": '"x"'}), 400
        )
        assert told["field"] == "If-Match"


def test_a_lock_that_an_endpoint_does_not_support_is_refused(
    client: httpx.Client, space: str
) -> None:
    """Whatever the header says: ignoring it would overwrite or delete."""
    fine(client.put(f"{space}/meta/m", json=road("m", n=1)))
    several = {"type": "FeatureCollection", "features": [road(n=2)]}
    stale, new = {"If-Match": '"nonsense"'}, {"If-None-Match": "*"}
    for method, path, body, headers in (
        ("DELETE", f"{space}/features?id=a", None, stale),
        ("DELETE", f"{space}/features?id=a", None, {"If-Match": "*"}),
        ("PUT", f"{space}/meta/m", road("m", n=2), stale),
        ("PUT", f"{space}/meta/m", road("m", n=2), new),
        ("PUT", space, {"title": "Other"}, new),
        ("PATCH", f"{space}/features/a", road(n=2), new),
        ("PUT", f"{space}/features", several, new),
        ("POST", f"{space}/features", several, new),
        ("PUT", f"{space}/features/a", road(n=2), {"If-None-Match": '"x"'}),
        ("PUT", f"{space}/features/a", road(n=2), {"If-Unmodified-Since": "yesterday"}),
    ):
        told = error(client.request(method, path, json=body, headers=headers), 400)
        assert told["field"] == next(iter(headers))
    assert read(client, space)["properties"]["n"] == 1
    assert fine(client.get(f"{space}/meta/m"))["properties"]["n"] == 1


def test_if_none_match_creates_and_never_replaces(client: httpx.Client, space: str) -> None:
    new = {"If-None-Match": "*"}
    told = error(client.put(f"{space}/features/a", json=road(n=2), headers=new), 412)
    assert (told["field"], told["head"]["properties"]["n"]) == ("If-None-Match", 1)
    assert fine(client.put(f"{space}/features/b", json=road("b", n=2), headers=new))["id"] == "b"
    error(client.put(f"{space}/features/b", json=road("b", n=3), headers=new), 412)
    assert read(client, space, "b")["properties"]["n"] == 2


@pytest.mark.parametrize("method", ["POST", "PUT"])
def test_if_match_of_several_features_needs_the_uuid_of_each(
    client: httpx.Client, space: str, method: str
) -> None:
    fine(client.put(f"{space}/features/b", json=road("b", n=1)))
    known = changed(read(client, space), n=2)
    for other in (road("b", n=2), road("new", n=2), road(None, n=2)):
        sent = {"type": "FeatureCollection", "features": [known, other]}
        told = error(
            client.request(method, f"{space}/features", json=sent, headers={"If-Match": "*"}), 409
        )
        assert told.get("featureId") == other.get("id")
    deletes = {"type": "FeatureModification", "onFeatureExists": "delete", "featureIds": ["b"]}
    listed = {"type": "FeatureModificationList", "modifications": [deletes]}
    error(client.request(method, f"{space}/features", json=listed, headers={"If-Match": "*"}), 409)
    for id in ("a", "b"):
        assert read(client, space, id)["properties"]["n"] == 1
    sent = {
        "type": "FeatureCollection",
        "features": [known, changed(read(client, space, "b"), n=2)],
    }
    answer = client.request(method, f"{space}/features", json=sent, headers={"If-Match": "*"})
    assert fine(answer)["updated"] == ["a", "b"]


def test_a_tag_of_a_subscription_that_does_not_exist(client: httpx.Client, space: str) -> None:
    client.post("/connectors", json={"id": "anywhere", "className": "tag-filter"})
    path = f"{space}/subscriptions/none-{space.rpartition('/')[2]}"
    body = {"destination": "anywhere"}
    error(client.put(path, json=body, headers={"If-Match": '"x"'}), 412, "If-Match")
    error(client.get(path), 404)
