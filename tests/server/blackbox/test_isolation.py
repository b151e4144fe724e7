"""Isolation of realms, and refusal without a valid token.

Both are checked with every operation of the OpenAPI document.
"""

import base64
import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from naksha.hub.auth.keys import KeyFile, read_signing_key
from naksha.hub.auth.tokens import mint
from naksha.testing.servers.hub_server import HubServer
from tests.server.blackbox.conftest import EVERYTHING, OTHER_REALM, Minter
from tests.server.blackbox.requests import (
    ASKED,
    MINE,
    OPEN,
    OPERATIONS,
    WITHOUT_RIGHTS,
    Ask,
    covered,
)
from tests.server.towns import collection, point

KNOWN = "zebra"
"""The word that all names of the first realm begin with."""
SECRET = "secret"
"""Prefix of titles, texts and persons, which no request contains."""
GHOST = "ghost"
"""The same, of things that are nowhere."""
# Of two answers that mean the same, these differ.
_CHANGING = {"streamId", "createdAt", "updatedAt", "at", "time", "number"}
"""Times, and the random number of a new storage."""
LOOKUPS = {"GET /hub/states/{state_id}", "GET /hub/transactions/{transaction_id}"}
IDS = [f"{n}-{ask.operation}" for n, ask in enumerate(ASKED)]


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


@pytest.fixture(scope="module")
def client(guarded_hub: HubServer) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=guarded_hub.url, timeout=60) as client:
        yield client


@pytest.fixture(scope="module")
def owner(minter: Minter) -> dict[str, str]:
    return bearer(minter(appId="secret-app", userId="secret-user"))


@pytest.fixture(scope="module")
def stranger(minter: Minter) -> dict[str, str]:
    return bearer(minter(realm=OTHER_REALM))


@pytest.fixture(scope="module")
def things(client: httpx.Client, owner: dict[str, str], stranger: dict[str, str]) -> Any:
    """The objects of the first realm; the other realm has a space of its own."""
    role = {"id": "zebra-role", "urm": {"naksha": {"readFeatures": [{}]}}}
    connector = {"id": "zebra-connector", "className": "read-only"}
    place = {"location": "file:zebra.naksha"}
    some = collection(
        *(point(f"zebra-{n}", 1, 1, text="secret-text", tags=["secret-tag"]) for n in "ab")
    )
    feature = point("zebra-feature", 1, 1, text="secret-text", tags=["secret-tag"])
    subscription = {
        "id": "zebra-subscription",
        "title": "secret-title",
        "source": {"spaceId": "zebra-space"},
        "eventHandlerIds": ["zebra-connector"],
        "active": False,
    }
    for headers, path, body in (
        (
            owner,
            "/hub/storages?check=false",
            {"id": "zebra-storage", "active": False, "properties": place},
        ),
        (owner, "/hub/handlers", connector),
        (owner, "/hub/roles", role),
        (owner, "/hub/spaces", {"id": "zebra-space", "title": "secret-title"}),
        (owner, "/hub/spaces/zebra-space/features", feature),
        (owner, "/hub/spaces/zebra-space/features", some),
        (owner, "/hub/spaces/zebra-space/tags", {"id": "zebra-tag"}),
        (owner, "/hub/spaces/zebra-space/branches", {"id": "zebra-branch"}),
        (owner, "/hub/subscriptions", subscription),
        (owner, "/hub/jobs", {"id": "zebra-job", "job": "partition", "spaceId": "zebra-space"}),
        (stranger, "/hub/spaces", {"id": MINE}),
        (stranger, f"/hub/spaces/{MINE}/features", point("own", 1, 1)),
    ):
        answer = client.post(path, json=body, headers=headers)
        assert answer.is_success, answer.text
    return fingerprint(client, owner)


def fingerprint(client: httpx.Client, headers: dict[str, str]) -> Any:
    """All that the first realm has."""
    found = {}
    for path in (
        *("spaces?owner=*", "handlers", "storages", "roles", "jobs"),
        *(f"spaces/zebra-space/{path}" for path in ("changesets", "tags", "branches", "iterate")),
        "spaces/zebra-space/iterate?versionRef=zebra-branch",
    ):
        answer = client.get(f"/hub/{path}", headers=headers)
        assert answer.is_success, answer.text
        found[path] = answer.json()
    answer = client.get("/hub/subscriptions", headers=headers)
    told = [{**one, "status": one["status"]["state"]} for one in answer.json()]
    return {**found, "subscriptions": told}


def test_every_operation_is_tried() -> None:
    assert covered() == set(OPERATIONS), "give requests.py a request for each new operation"


def seen(answer: httpx.Response, word: str) -> Any:
    """The content of a response, without values that differ every time."""

    def plain(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: plain(one) for name, one in value.items() if name not in _CHANGING}
        return [plain(one) for one in value] if isinstance(value, list) else value

    text = answer.text.replace(word, "WORD")
    is_json = answer.headers.get("Content-Type", "").startswith("application/")
    body = plain(json.loads(text)) if is_json and text and "mapbox" not in text else text
    return answer.status_code, answer.headers.get("Content-Type"), body


@pytest.mark.parametrize("ask", ASKED, ids=IDS)
def test_other_realms_cannot_probe_for_existence(
    ask: Ask, client: httpx.Client, things: Any, stranger: dict[str, str]
) -> None:
    there = ask.send(client, KNOWN, stranger)
    nowhere = ask.send(client, GHOST, stranger)
    for answer in (there, nowhere):
        assert answer.status_code < 500, answer.text
        assert SECRET not in answer.text
    if ask.operation == "GET /metrics":
        assert KNOWN not in there.text
        return
    if "{" not in ask.operation and not ask.body:  # a list has what the stranger made before
        return
    assert seen(there, KNOWN) == seen(nowhere, GHOST)


@pytest.mark.parametrize("name", ["uuid", "txn"])
def test_states_and_transactions_are_found_by_their_realm_only(
    name: str, client: httpx.Client, things: Any, owner: Any, minter: Minter
) -> None:
    path = "/hub/spaces/zebra-space/features/zebra-feature"
    said = client.get(path, headers=owner).json()["properties"]["@ns:com:here:xyz"]
    lookup = f"/hub/{'states' if name == 'uuid' else 'transactions'}/{said[name]}"
    assert SECRET in client.get(lookup, headers=owner).text
    for headers in (bearer(minter(realm=OTHER_REALM)), bearer(minter(urm={"naksha": {}}))):
        answer = client.get(lookup, headers=headers)
        assert SECRET not in answer.text
        assert KNOWN not in answer.text.replace(said[name], "")


def test_nothing_of_it_was_changed(client: httpx.Client, things: Any, owner: Any) -> None:
    assert fingerprint(client, owner) == things


@pytest.fixture(scope="module")
def foreign(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A token signed with a key that the server does not have."""
    path = tmp_path_factory.mktemp("foreign") / "secret"
    path.write_text("another secret that is long enough for HS256\n")
    key = read_signing_key(KeyFile.parse(f"secret:{path}"))
    return mint(key, {"appId": "x", "urm": EVERYTHING}, seconds=600)


def _unsigned(claims: dict[str, Any]) -> str:
    def part(value: dict[str, Any]) -> str:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")

    return f"{part({'alg': 'none', 'typ': 'JWT'})}.{part(claims)}."


@pytest.mark.parametrize("ask", ASKED, ids=IDS)
def test_requests_without_a_valid_token_are_rejected(
    ask: Ask, client: httpx.Client, things: Any, minter: Minter, foreign: str
) -> None:
    good = minter()
    head, _, signature = good.split(".")
    other_claims = minter(realm=OTHER_REALM).split(".")[1]
    bad = {
        "none": {},
        "expired": bearer(minter(seconds=-3600)),
        "no algorithm": bearer(_unsigned({"appId": "x", "urm": {"naksha": {}}})),
        "cut off": bearer(good[:-4]),
        "of another realm": bearer(f"{head}.{other_claims}.{signature}"),
        "another key": bearer(foreign),
        "basic": {"Authorization": "Basic eDp5"},
    }
    for what, headers in bad.items():
        answer = ask.send(client, KNOWN, headers)
        if ask.operation in OPEN and "detailed" not in ask.query:
            assert answer.status_code == 200, what
        else:
            assert answer.status_code == 401, (what, answer.text)
            assert answer.headers["WWW-Authenticate"] == "Bearer"
        assert KNOWN not in answer.text.replace("zebra.", ""), what


@pytest.mark.parametrize("ask", ASKED, ids=IDS)
def test_a_token_without_rights_allows_nothing(
    ask: Ask, client: httpx.Client, things: Any, minter: Minter
) -> None:
    powerless = bearer(minter(urm={"naksha": {}}))
    answer = ask.send(client, KNOWN, powerless)
    assert SECRET not in answer.text
    if ask.operation in WITHOUT_RIGHTS:
        return
    if answer.status_code == 200:
        assert answer.json() == []  # a list of what he may see
        return
    if ask.operation in LOOKUPS:  # they find what he may read, and he may nothing
        assert answer.status_code == 404, answer.text
        return
    if ask.ids.get("space_id") == MINE:  # their realm does not have the space
        assert answer.status_code in (403, 404)
        return
    assert answer.status_code == 403, answer.text


def test_nothing_was_changed_by_those_either(client: httpx.Client, things: Any, owner: Any) -> None:
    assert fingerprint(client, owner) == things
