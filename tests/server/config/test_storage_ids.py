"""Ids of storages over REST: shown, unique, and ambiguous where an earlier release left them so."""

import sqlite3
from contextlib import closing

import httpx
import pytest

from naksha.testing.servers.hub_server import HubServer
from tests.server.towns import XYZ, error, point, put


def storage(hub: HubServer, client: httpx.Client, name: str, status: int = 200) -> httpx.Response:
    """Register a storage of the kind that the hub has."""
    place = {"location": f"file:{hub.directory}/{name}.naksha"}
    if hub.storage.startswith("postgresql"):
        place = {"location": hub.storage, "schema": name}
    answer = client.post("/storages", json={"id": name, "properties": place})
    assert answer.status_code == status, answer.text
    return answer


def space_in(client: httpx.Client, name: str) -> str:
    there = {"id": f"in-{name}", "storage": {"id": name}, "properties": {"collection": "roads"}}
    assert client.post("/spaces", json=there).status_code == 200
    return f"/spaces/in-{name}"


def test_two_storages_with_the_same_collection_have_their_own_states(
    hub: HubServer, client: httpx.Client
) -> None:
    made = {name: storage(hub, client, name).json()["identity"] for name in ("one", "two")}
    assert {name: each["id"] for name, each in made.items()} == {"one": "one", "two": "two"}
    assert made["one"]["number"] != made["two"]["number"]
    listed = {each["id"]: each["identity"] for each in client.get("/storages").json()}
    assert listed["two"] == client.get("/storages/two").json()["identity"] == made["two"]
    spaces = {name: space_in(client, name) for name in made}
    for name, space in spaces.items():
        (state,) = put(client, space, point("x", n=name))["features"]
        found = client.get(f"/states/{state['properties'][XYZ]['uuid']}").json()
        assert found["properties"]["n"] == name
    read = client.get(f"{spaces['one']}/features/x").json()
    changed = client.put(f"{spaces['two']}/features/x?conflictDetection=true", json=read)
    assert changed.status_code == 200, changed.text


@pytest.mark.parametrize("hub", ["file"], indirect=True)
def test_duplicates_are_refused_and_existing_ones_are_ambiguous(
    hub: HubServer, client: httpx.Client
) -> None:
    storage(hub, client, "three")
    (state,) = put(client, space_in(client, "three"), point("x", n=1))["features"]
    copy = hub.directory / "four.naksha"
    with closing(sqlite3.connect(hub.directory / "three.naksha")) as connection:
        connection.execute("VACUUM INTO ?", (str(copy),))
    refused = storage(hub, client, "four", 409)
    assert "'three'" in refused.text
    assert "naksha storage fork" in refused.text
    # Without opening it the hub cannot know; so it was with all of an earlier release.
    place = {"location": f"file:{copy}"}
    unchecked = client.post("/storages?check=false", json={"id": "four", "properties": place})
    assert unchecked.status_code == 200
    space_in(client, "four")
    uuid = state["properties"][XYZ]["uuid"]
    ambiguous = client.get(f"/states/{uuid}")
    assert ambiguous.status_code == 409
    assert "'four' and 'three'" in ambiguous.text
    for name in ("three", "four"):
        assert client.get(f"/states/{uuid}", params={"storage": name}).status_code == 200
    error(client.get(f"/states/{uuid}", params={"storage": "default"}), 404)
    # From now on the same id names different features.
    later = {
        name: put(client, f"/spaces/in-{name}", point("x", n=name))["features"][0]
        for name in ("three", "four")
    }
    (uuid,) = {each["properties"][XYZ]["uuid"] for each in later.values()}
    assert client.get(f"/states/{uuid}").status_code == 409
    for name in later:
        found = client.get(f"/states/{uuid}", params={"storage": name}).json()
        assert found["properties"]["n"] == name
    assert client.get("/storages/four").json()["identity"]["id"] == "three"
