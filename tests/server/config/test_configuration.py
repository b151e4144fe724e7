"""Connectors, storages and roles over REST."""

from pathlib import Path

import httpx
import pytest

import naksha
from naksha.testing.servers.hub_server import HubServer
from tests.server.towns import error, point, put

JSON = {"Accept": "application/json"}


# ---- Connectors ----------------------------------------------------------------------------------


def test_a_connector_has_two_names(client: httpx.Client) -> None:
    made = client.post("/connectors", json={"id": "c1", "className": "storage", "x": 1})
    assert (made.status_code, made.json()["type"]) == (201, "EventHandler")
    also = client.post("/handlers", json={"id": "c2", "className": "read-only"})
    assert also.status_code == 200
    for path in ("/connectors", "/handlers"):
        assert {"c1", "c2"} <= {one["id"] for one in client.get(path).json()}
        assert client.get(f"{path}/c1").json()["x"] == 1
    patched = client.patch("/connectors/c1", json={"title": "T"})
    assert (patched.json()["title"], patched.json()["x"]) == ("T", 1)
    put_ = client.put("/handlers/c1", json={"className": "storage", "title": "U"})
    assert put_.json()["title"] == "U"
    assert "x" not in put_.json()
    error(client.put("/handlers/c1", json={"id": "c2", "className": "storage"}), 400, "id")
    assert client.delete("/connectors/c1").status_code == 204
    assert client.delete("/handlers/c2", headers=JSON).json()["id"] == "c2"
    error(client.get("/connectors/c1"), 404)
    error(client.put("/handlers/c1", json={"className": "storage"}), 404)


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"className": "storage"}, "id"),
        ({"id": "w"}, "className"),
        ({"id": "w", "className": "subprocess.Popen"}, "className"),
        (
            {"id": "w", "className": "storage", "properties": {"storageId": "no"}},
            "properties.storageId",
        ),
        (
            {"id": "w", "className": "storage", "properties": {"collection": 1}},
            "properties.collection",
        ),
    ],
)
def test_a_connector_that_cannot_work_is_refused(
    client: httpx.Client, body: dict[str, object], field: str
) -> None:
    for path in ("/connectors", "/handlers"):
        error(client.post(path, json=body), 400, field)
    error(client.get("/connectors/w"), 404)


def test_a_connector_stays_while_a_space_has_it(client: httpx.Client) -> None:
    client.post("/connectors", json={"id": "used", "className": "storage"})
    client.post("/spaces", json={"id": "user", "eventHandlerIds": ["used"]})
    refused = error(client.delete("/connectors/used"), 409)
    assert "user" in refused["errorMessage"]
    wrong = {"properties": {"collection": "No!"}}
    error(client.patch("/connectors/used", json=wrong), 400, "properties.collection.id")
    put(client, "/spaces/user", point("a"))
    client.delete("/spaces/user")
    assert client.delete("/connectors/used").status_code == 204


# ---- Storages ------------------------------------------------------------------------------------


def test_a_storage_is_added_used_and_removed(client: httpx.Client, tmp_path: Path) -> None:
    location = f"file:{tmp_path}/more.naksha"
    body = {"id": "more", "properties": {"location": location, "busyS": 3}}
    made = client.post("/storages", json=body)
    assert made.status_code == 200, made.text
    assert made.json()["properties"] == {"location": location}
    assert {"default", "more"} <= {one["id"] for one in client.get("/storages").json()}
    client.post("/spaces", json={"id": "in-more", "storage": {"id": "more"}})
    put(client, "/spaces/in-more", point("a"))
    assert "in-more" in error(client.delete("/storages/more"), 409)["errorMessage"]
    shown = client.get("/storages/more").json()
    changed = client.put("/storages/more", json={**shown, "title": "More"})
    assert (changed.status_code, changed.json()["title"]) == (200, "More")
    elsewhere = {"properties": {"location": f"file:{tmp_path}/elsewhere.naksha"}}
    assert client.put("/storages/more", json=elsewhere).status_code == 200
    assert client.get("/spaces/in-more/count").json()["count"] == 0, "it is another one now"
    assert client.put("/storages/more", json=shown).status_code == 200
    assert client.get("/spaces/in-more/count").json()["count"] == 1
    client.delete("/spaces/in-more")
    assert client.delete("/storages/more").status_code == 204


def test_a_storage_can_be_opened_read_only(client: httpx.Client, tmp_path: Path) -> None:
    location = f"file:{tmp_path}/fixed.naksha"
    with naksha.connect(location, app_id="setup") as database:
        database.create_collection("roads").create(point("a"))
    properties = {"location": location, "readOnly": True}
    made = client.post("/storages", json={"id": "fixed", "properties": properties})
    assert made.status_code == 200, made.text
    settings = {"storageId": "fixed", "collection": {"id": "roads"}}
    client.post("/connectors", json={"id": "f", "className": "storage", "properties": settings})
    client.post("/spaces", json={"id": "fixed-roads", "eventHandlerIds": ["f"]})
    assert client.get("/spaces/fixed-roads/features/a").status_code == 200
    refused = client.put("/spaces/fixed-roads/features/b", json=point("b"))
    assert refused.status_code in (403, 405, 409), refused.text
    assert "read-only" in refused.text


@pytest.mark.parametrize(
    ("properties", "field"),
    [
        ({}, "properties.location"),
        ({"location": "nowhere"}, "properties.location"),
        ({"location": "file:/no/such/folder/a.naksha"}, "properties.location"),
        ({"location": "postgresql://me:secret@127.0.0.1:1/maps"}, "properties.location"),
        ({"location": "file:a.naksha", "nonsense": 1}, "properties.nonsense"),
        (
            {"master": {"host": "127.0.0.1", "db": "m", "user": "me", "password": 7}},
            "properties.master.password",
        ),
    ],
)
def test_a_storage_that_cannot_be_opened_is_refused(
    client: httpx.Client, properties: dict[str, object], field: str
) -> None:
    answer = client.post("/storages", json={"id": "bad", "properties": properties})
    error(answer, 400, field)
    assert "secret" not in answer.text
    error(client.get("/storages/bad"), 404)


def test_a_storage_that_is_not_there_yet_can_be_kept(client: httpx.Client) -> None:
    secret = {"location": "postgresql://me:secret@127.0.0.1:1/maps?options=-csecret"}
    body = {"id": "later", "properties": secret}
    made = client.post("/storages", params={"check": False}, json=body)
    assert made.status_code == 200
    assert "secret" not in made.text
    for path in ("/storages", "/storages/later"):
        assert "secret" not in client.get(path).text
    same = client.put("/storages/later?check=false", json=made.json())
    assert same.headers["ETag"] == made.headers["ETag"], "nothing has changed, not even the secret"
    assert client.delete("/storages/later").status_code == 204


def test_the_default_storage_stays_while_a_space_is_in_it(client: httpx.Client) -> None:
    client.post("/spaces", json={"id": "by-default"})
    error(client.delete("/storages/default"), 409)


@pytest.mark.postgres
def test_former_storage_properties_are_accepted(client: httpx.Client, database: str) -> None:
    parts = httpx.URL(database)
    master = {
        "host": parts.params.get("host") or parts.host,
        "port": int(parts.params.get("port") or parts.port or 5432),
        "db": parts.path.strip("/"),
        "user": parts.username or parts.params.get("user") or "postgres",
        "password": "secret",
        "schema": "older",
    }
    body = {"id": "older", "properties": {"master": master, "readers": [], "appName": "x"}}
    answer = client.post("/storages", params={"check": False}, json=body)
    assert answer.status_code == 200, answer.text
    assert list(answer.json()["properties"]) == ["location"]
    assert "secret" not in answer.text


# ---- Roles ---------------------------------------------------------------------------------------


def test_a_role_is_made_changed_and_removed(client: httpx.Client) -> None:
    urm = {"naksha": {"readFeatures": [{"spaceId": "public-*"}]}}
    made = client.post("/roles", json={"id": "reader", "urm": urm})
    assert (made.status_code, made.json()["urm"]) == (200, urm)
    assert "reader" in {one["id"] for one in client.get("/roles").json()}
    error(client.post("/roles", json={"id": "reader"}), 409)
    wrong = {"naksha": {"readFeatures": "all"}}
    error(client.put("/roles/reader", json={"urm": wrong}), 400, "urm.naksha.readFeatures")
    error(client.patch("/roles/reader", json={"urm": {"naksha": {"roles": ["a"]}}}), 400, "urm")
    assert client.patch("/roles/reader", json={"title": "T"}).json()["urm"] == urm
    assert client.put("/roles/reader", json={"urm": {}}).json()["urm"] == {}
    assert client.delete("/roles/reader").status_code == 204
    error(client.get("/roles/reader"), 404)


def test_all_members_are_documented(hub: HubServer) -> None:
    document = httpx.get(f"{hub.url}/openapi.json", timeout=60).json()
    paths = document["paths"]
    for path, methods in {
        "/hub/spaces": {"get", "post"},
        "/hub/spaces/{space_id}": {"get", "patch", "put", "delete"},
        "/hub/spaces/{space_id}/provenance": {"post"},
        "/hub/spaces/{space_id}/copy": {"post"},
        "/hub/connectors": {"get", "post"},
        "/hub/connectors/{connector_id}": {"get", "patch", "delete"},
        "/hub/handlers": {"get", "post"},
        "/hub/handlers/{connector_id}": {"get", "put", "delete"},
        "/hub/storages": {"get", "post"},
        "/hub/storages/{storage_id}": {"get", "put", "delete"},
        "/hub/roles": {"get", "post"},
        "/hub/roles/{role_id}": {"get", "put", "patch", "delete"},
        "/hub/states/{state_id}": {"get"},
        "/hub/transactions/{transaction_id}": {"get"},
    }.items():
        assert set(paths[path]) == methods
        for method, operation in paths[path].items():
            assert {"400", "401", "403", "404", "500", "503"} <= set(operation["responses"])
            if method in {"post", "put", "patch"}:
                assert "requestBody" in operation
