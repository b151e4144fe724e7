"""Authentication on a real server with keys and on one without."""

import base64
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from naksha.hub.auth.keys import KeyFile, read_signing_key
from naksha.hub.auth.rights import Right
from naksha.hub.auth.tokens import mint
from naksha.model import limits
from naksha.testing.servers.hub_server import HubServer
from tests.cli.command import naksha

EVERYTHING: dict[str, Any] = {"naksha": {right.value: [{}] for right in Right}}
Minter = Callable[..., str]


@pytest.fixture(scope="module")
def secret(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("keys") / "secret"
    path.write_text("a secret that is long enough for HS256\n")
    return path


@pytest.fixture(scope="module")
def minter(secret: Path) -> Minter:
    key = read_signing_key(KeyFile.parse(f"secret:{secret}"))

    def make(seconds: float = 600, **claims: Any) -> str:
        return mint(key, {"appId": "test", "urm": EVERYTHING, **claims}, seconds=seconds)

    return make


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory, secret: Path) -> Iterator[HubServer]:
    directory = tmp_path_factory.mktemp("hub")
    flags = ["--catalog", f"file:{directory}/hub.catalog"]
    flags += ["--realm-storage", f"file:{directory}/{{realm}}.naksha"]
    made = naksha("realm", "create", "other", *flags)
    assert made.returncode == 0, made.stderr
    with HubServer(directory, arguments=["--keys", f"secret:{secret}"]) as server:
        yield server


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def test_a_token_is_needed_where_there_are_keys(client: httpx.Client, minter: Minter) -> None:
    for path in ("/spaces", "/spaces/x/features/y"):
        answer = client.get(path)
        assert answer.status_code == 401
        assert answer.json()["error"] == "Unauthorized"
        assert answer.headers["WWW-Authenticate"] == "Bearer"
    assert client.get("/spaces", headers=bearer(minter())).status_code == 200
    assert client.get("/spaces", params={"access_token": minter()}).status_code == 200
    assert client.get("/spaces", headers={"Authorization": f"bearer  {minter()}"}).is_success


def test_health_is_public_but_its_details_are_not(client: httpx.Client, minter: Minter) -> None:
    assert client.get("/health-status").status_code == 200
    assert client.get("/health-status", headers=bearer("nonsense")).status_code == 200
    assert client.get("/health-status?detailed").status_code == 401
    answer = client.get("/health-status?detailed", headers=bearer(minter()))
    assert answer.json()["checks"].keys() == {"catalog", "storage/default"}
    nobody = bearer(minter(urm={}))
    answer = client.get("/health-status?detailed", headers=nobody)
    assert answer.json()["checks"].keys() == {"catalog"}


def test_metrics_are_for_operators(hub: HubServer, minter: Minter) -> None:
    """They name the storages of all realms."""
    url = f"{hub.url}/metrics"
    assert httpx.get(url).status_code == 401
    reader = minter(urm={"naksha": {"readFeatures": [{}]}})
    for token in (minter(realm="other"), reader):
        answer = httpx.get(url, headers=bearer(token))
        assert (answer.status_code, answer.json()["error"]) == (403, "Forbidden")
    assert httpx.get(url, headers=bearer(minter())).status_code == 200


@pytest.mark.parametrize("token", ["nonsense", "a.b.c", "x" * 20_000])
def test_nonsense_is_not_let_in(client: httpx.Client, token: str) -> None:
    for header in (token, f"Basic {token}", f"Bearer {token}", "Bearer"):
        answer = client.get("/spaces", headers={"Authorization": header})
        assert answer.status_code == 401
        assert token not in answer.text


def test_missing_rights_are_named(client: httpx.Client, minter: Minter) -> None:
    assert client.get("/spaces", headers=bearer(minter(seconds=-100))).json()["field"] == "exp"
    answer = client.get("/spaces", headers=bearer(minter(appId=None)))
    assert answer.json()["field"] == "appId"
    nothing = bearer(minter(urm={}))
    answer = client.post("/spaces", json={"id": "forbidden"}, headers=nothing)
    assert answer.status_code == 403
    assert answer.json()["right"] == "manageSpaces"


def test_the_token_determines_the_realm(client: httpx.Client, minter: Minter) -> None:
    ours, others = bearer(minter()), bearer(minter(realm="other"))
    assert client.post("/spaces", json={"id": "private"}, headers=ours).status_code == 200
    assert client.get("/spaces/private", headers=ours).status_code == 200
    assert client.get("/spaces/private", headers=others).status_code == 404
    assert client.post("/spaces", json={"id": "private"}, headers=others).status_code == 200
    answer = client.get("/spaces", headers=bearer(minter(realm="nowhere")))
    assert answer.status_code in (403, 404)
    assert answer.json()["code"] == "realm_not_found"


def test_roles_are_resolved_in_the_realm(client: httpx.Client, minter: Minter) -> None:
    token = bearer(minter(urm={"naksha": {"roles": ["editor"]}}))
    answer = client.post("/spaces", json={"id": "by-role"}, headers=token)
    assert answer.status_code == 403  # there is no such role


def test_token_introspection_for_older_clients(hub: HubServer, minter: Minter) -> None:
    told = httpx.get(f"{hub.url}/token-api/tokens/{minter(userId='anna')}").json()
    assert (told["valid"], told["cid"], told["aid"], told["realm"]) == (
        True,
        "test",
        "anna",
        "default",
    )


def test_tokens_of_the_command_are_good(client: httpx.Client, secret: Path) -> None:
    made = naksha("token", "my-app", "--key", f"secret:{secret}", "--author", "anna")
    headers = bearer(made.stdout.strip())
    space = client.post("/spaces", json={"id": "by-command"}, headers=headers).json()
    assert "anna" in space["owner"] or space["owner"] == "my-app"
    rights = '{"naksha":{"useSpaces":[{}]}}'
    made = naksha("token", "x", "--key", f"secret:{secret}", "--rights", rights, "--realm", "other")
    headers = bearer(made.stdout.strip())
    assert client.get("/spaces", headers=headers).status_code == 200
    assert client.post("/spaces", json={"id": "no"}, headers=headers).status_code == 403
    wrong_rights = (
        "{",
        '{"naksha": 1}',
        '{"readFeatures": [{}]}',
        '{"naksha": {"readFetures": []}}',
    )
    for wrong in (["--realm", "a b"], *(["--rights", rights] for rights in wrong_rights)):
        made = naksha("token", "x", "--key", f"secret:{secret}", *wrong)
        assert made.returncode in (2, 77), made.stderr
        assert made.stderr.startswith("naksha: ")
    assert "did you mean readFeatures?" in made.stderr


# ---- Without a token -----------------------------------------------------------------------------


@pytest.fixture(scope="module", params=[[], ["keys", "--anonymous"]])
def open_hub(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, secret: Path
) -> Iterator[HubServer]:
    arguments = [f"--keys=secret:{secret}" if one == "keys" else one for one in request.param]
    with HubServer(tmp_path_factory.mktemp("open"), arguments=arguments) as server:
        yield server


def test_local_requests_need_no_token(open_hub: HubServer) -> None:
    made = httpx.post(f"{open_hub.url}/hub/spaces", json={"id": "mine"})
    assert made.json()["owner"] == "anonymous"
    local = {"Origin": "http://localhost:5173", "Host": f"localhost:{open_hub.port}"}
    assert httpx.get(f"{open_hub.url}/hub/spaces", headers=local).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"X-Forwarded-For": "127.0.0.1"},
        {"Forwarded": "for=10.0.0.1"},
        {"Via": "1.1 proxy"},
        {"Host": "maps.example.com"},
        {"Host": "127.0.0.1.example.com"},
        {"Origin": "https://evil.example.com"},
        {"Origin": "null"},
        {"Origin": "http://localhost.example.com"},
    ],
)
def test_forwarded_requests_need_a_token(open_hub: HubServer, headers: dict[str, str]) -> None:
    answer = httpx.get(f"{open_hub.url}/hub/spaces", headers=headers)
    assert answer.status_code == 401
    assert "token is required, because" in answer.json()["errorMessage"]


def test_a_token_counts_also_where_none_is_needed(open_hub: HubServer) -> None:
    answer = httpx.get(f"{open_hub.url}/hub/spaces", headers=bearer("nonsense"))
    assert answer.status_code == 401


def test_a_realm_has_no_storage_of_another_one(
    hub: HubServer, client: httpx.Client, minter: Minter
) -> None:
    mine, other = bearer(minter()), bearer(minter(realm="other"))
    assert client.post("/spaces", json={"id": "secret"}, headers=mine).is_success
    for location in (f"file:{hub.directory}/default.naksha", f"file:{hub.directory}/new.naksha"):
        body = {"id": "theirs", "properties": {"location": location}}
        answer = client.post("/storages", json=body, headers=other)
        assert answer.status_code == 403, answer.text
    body = {"id": "again", "properties": {"location": f"file:{hub.directory}/other.naksha"}}
    answer = client.post("/storages", json=body, headers=other)
    assert answer.status_code == 409, answer.text
    assert "the storage 'default' has the same id or number" in answer.json()["errorMessage"]
    assert client.get("/storages/theirs", headers=other).status_code == 404


def test_a_shared_space_is_visible_to_readers(client: httpx.Client, minter: Minter) -> None:
    owner, reader = bearer(minter()), bearer(minter(appId="reader", urm={}))
    for id, shared, status in (("open-to-all", True, 200), ("closed", False, 403)):
        made = client.post("/spaces", json={"id": id, "shared": shared}, headers=owner)
        assert made.is_success
        for path in (f"/spaces/{id}", f"/spaces/{id}/search", f"/spaces/{id}/statistics"):
            answer = client.get(path, headers=reader)
            assert answer.status_code == status, (path, answer.text)
        assert client.patch(f"/spaces/{id}", json={"title": "x"}, headers=reader).status_code == 403


def test_clustering_is_a_capability(client: httpx.Client, minter: Minter) -> None:
    urm: dict[str, Any] = {"xyz-hub": {"readFeatures": [{}]}}
    able: dict[str, Any] = {
        "xyz-hub": {"readFeatures": [{}], "useCapabilities": [{"id": "hexbinClustering"}]}
    }
    reader, clusterer = (bearer(minter(appId="reader", urm=each)) for each in (urm, able))
    for id, shared in (("binned", False), ("binned-for-all", True)):
        made = client.post("/spaces", json={"id": id, "shared": shared}, headers=bearer(minter()))
        assert made.is_success

    def status(id: str, kind: str, who: dict[str, str]) -> int:
        box = "west=-1&south=-1&east=1&north=1"
        return client.get(f"/spaces/{id}/bbox?{box}&clustering={kind}", headers=who).status_code

    assert status("binned", "hexbin", reader) == status("binned", "quadbin", clusterer) == 403
    assert status("binned", "hexbin", clusterer) == 200
    assert status("binned-for-all", "quadbin", reader) == 200
    tile = "/spaces/binned/tile/quadkey/0.mvt?clustering=hexbin"
    assert client.get(tile, headers=reader).status_code == 403
    assert client.get(tile, headers=clusterer).status_code == 200


def test_no_more_features_are_written_than_the_token_allows(
    client: httpx.Client, minter: Minter
) -> None:
    few = bearer(minter(limits={"maxFeaturesPerSpace": 1}))
    assert client.post("/spaces", json={"id": "few"}, headers=few).is_success
    feature: dict[str, Any] = {"type": "Feature", "geometry": None, "properties": {}}
    assert client.put("/spaces/few/features/one", json=feature, headers=few).is_success
    answer = client.put("/spaces/few/features/two", json=feature, headers=few)
    assert (answer.status_code, answer.json()["error"]) == (403, "Forbidden")
    assert client.get("/spaces/few/features/two", headers=few).status_code == 404


def test_lists_have_content_members_for_readers_only(client: httpx.Client, minter: Minter) -> None:
    """And names rights as requests are decided: also those by storage and collection."""
    all_rights = bearer(minter())
    for id in ("counted", "hidden"):
        client.post("/spaces", json={"id": id}, headers=all_rights).raise_for_status()
        feature = {"type": "Feature", "id": "a", "geometry": None, "properties": {"n": 1}}
        sent = client.put(f"/spaces/{id}/features", json=feature, headers=all_rights)
        assert sent.is_success
    query = {"owner": "*", "includeCounts": "true", "includeRights": "true"}
    for right in ({"spaceId": "counted"}, {"storageId": "default", "collectionId": "counted"}):
        rights = {"naksha": {"useSpaces": [{}], "readFeatures": [right]}}
        answer = client.get("/spaces", params=query, headers=bearer(minter(urm=rights)))
        told = {space["id"]: space for space in answer.json()}
        assert told["counted"]["featureCount"] == 1
        assert told["counted"]["rights"] == ["useSpaces", "readFeatures"]
        assert told["hidden"]["featureCount"] is None
        assert told["hidden"]["rights"] == ["useSpaces"]


def test_recording_a_load_requires_rights(client: httpx.Client, minter: Minter) -> None:
    client.post("/spaces", json={"id": "loaded"}, headers=bearer(minter())).raise_for_status()
    rights: dict[str, Any] = {"createFeatures": [{}]}
    for more, status in (({}, 403), ({"useSpaces": [{"id": "loaded"}]}, 200)):
        token = bearer(minter(urm={"naksha": {**rights, **more}}))
        entry = {"source": "roads.gpkg"}
        answer = client.post("/spaces/loaded/provenance", json=entry, headers=token)
        assert answer.status_code == status, answer.text
    by_storage = {"useSpaces": [{}], "createFeatures": [{"storageId": "default"}]}
    token = bearer(minter(urm={"naksha": by_storage}))
    answer = client.post("/spaces/loaded/provenance", json={"source": "x"}, headers=token)
    assert answer.status_code == 200, answer.text


def test_an_unknown_path_needs_no_token(client: httpx.Client) -> None:
    for headers in ({}, bearer("nonsense")):
        answer = client.get("/invalid", headers=headers)
        assert answer.status_code == 404
        assert answer.text.startswith('{"type":"error",')


def compressed(token: bytes, length: int | None = None) -> str:
    return base64.b64encode(zlib.compress(token)[:length]).decode()


def test_a_compressed_token_is_read(client: httpx.Client, minter: Minter) -> None:
    token = minter().encode()
    packed = compressed(token)
    assert client.get("/spaces", headers=bearer(packed)).status_code == 200
    assert client.get("/spaces", params={"access_token": packed}).status_code == 200
    raw = packed.replace("/", "%2F").replace("=", "%3D")
    assert client.get(f"/spaces?access_token={raw}").status_code == 200
    bomb = compressed(b"a" * 10_000_000)
    large = compressed(minter(note="a" * limits.TOKEN_BYTES_MAX).encode())
    assert max(len(bomb), len(large)) < limits.TOKEN_BYTES_MAX
    for wrong in (
        *(bomb, large, compressed(token, -9), compressed(token, -1)),
        *("nonsense", base64.b64encode(b"nonsense").decode()),
    ):
        assert client.get("/spaces", headers=bearer(wrong)).status_code == 401


@pytest.mark.parametrize(
    "path", ["spaces", "connectors", "handlers", "storages", "roles", "subscriptions", "jobs"]
)
def test_a_list_without_the_right_is_forbidden(
    client: httpx.Client, minter: Minter, path: str
) -> None:
    matrices: list[dict[str, Any]] = [{}, {"naksha": {"readFeatures": [{}]}}]
    for urm in matrices:
        answer = client.get(f"/{path}", headers=bearer(minter(urm=urm, appId="visitor")))
        assert (answer.status_code, answer.json()["error"]) == (403, "Forbidden")
    assert client.get(f"/{path}", headers=bearer(minter())).status_code == 200


def test_the_spaces_of_a_token_are_limited(client: httpx.Client, minter: Minter) -> None:
    headers = bearer(minter(appId="collector", limits={"maxSpaces": 1}))
    first = client.post("/spaces", json={"id": "only-one"}, headers=headers)
    assert first.status_code == 200
    answer = client.post("/spaces", json={"id": "one-more"}, headers=headers)
    assert (answer.status_code, answer.json()["error"]) == (403, "Forbidden")
