"""Subscriptions over REST, with real servers, some of which are killed or stopped."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import pytest

from naksha.hub.remote.signatures import check_signature
from naksha.model import limits
from naksha.testing.fixtures import DatabaseFactory
from naksha.testing.servers.hub_server import HubServer
from tests.hub.subscriptions.receiver import SECRET, Delivery, Receiver, a_receiver

LEASE = 2
SECONDS_MAX = 60
TAKEN_OVER_SECONDS = (
    LEASE + limits.SUBSCRIPTION_DRIFT_SECONDS + 2 * limits.SUBSCRIPTION_LOOK_SECONDS + 5
)
"""After a death: the rest of the lease, the difference of clocks, and how often others look; and
some time for a busy machine."""


@pytest.fixture(scope="module")
def receiver() -> Iterator[Receiver]:
    with a_receiver() as found:
        yield found


@pytest.fixture(autouse=True)
def new_receiver(receiver: Receiver) -> None:
    receiver.taken.clear()
    receiver.refused = 0
    receiver.answers = lambda _: 200


def hub_on(directory: Path, receiver: Receiver, storage: str | None = None) -> HubServer:
    arguments = ["--remote-handlers", receiver.url, "--subscription-seconds", str(LEASE)]
    arguments += ["--data", str(directory)]
    return HubServer(directory, storage=storage, catalog=storage, arguments=arguments)


@contextmanager
def asking(hub: HubServer) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=f"{hub.url}/hub", timeout=60) as client:
        yield client


@pytest.fixture(scope="module", params=["file", pytest.param("psql", marks=pytest.mark.postgres)])
def client(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    receiver: Receiver,
) -> Iterator[httpx.Client]:
    """Of a hub on each storage."""
    directory = tmp_path_factory.mktemp("hub")
    if request.param == "file":
        with hub_on(directory, receiver) as hub, asking(hub) as found:
            yield found
        return
    factory: DatabaseFactory = request.getfixturevalue("database_factory")
    with factory.fresh() as dsn, hub_on(directory, receiver, dsn) as hub, asking(hub) as found:
        yield found


def make(client: httpx.Client, receiver: Receiver, name: str, **told: Any) -> dict[str, Any]:
    """A space, a webhook and a subscription, all of one name."""
    client.post("/spaces", json={"id": name}).raise_for_status()
    properties = {"url": receiver.url, "secret": SECRET}
    webhook = {"id": name, "className": "webhook", "properties": properties}
    client.post("/connectors", json=webhook).raise_for_status()
    body = {"id": name, "source": {"spaceId": name}, "eventHandlerIds": [name], **told}
    made = client.post("/subscriptions", json=body)
    assert made.status_code == 201, made.text
    found: dict[str, Any] = made.json()
    return found


def write(client: httpx.Client, space: str, *ids: str, **properties: Any) -> int:
    """Some features; gives the version."""
    features = [
        {"type": "Feature", "id": id, "geometry": None, "properties": properties} for id in ids
    ]
    body = {"type": "FeatureCollection", "features": features}
    answer = client.put(f"/spaces/{space}/features", json=body)
    assert answer.status_code == 200, answer.text
    version: int = answer.json()["version"]
    return version


def eventually(holds: Callable[[], Any], seconds: float = SECONDS_MAX) -> Any:
    deadline = time.monotonic() + seconds
    while not (found := holds()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return found


def ids_in(deliveries: list[Delivery]) -> list[str]:
    return [one["feature"]["id"] for each in deliveries for one in each.changes.get("features", ())]


def test_a_webhook_gets_everything_signed_and_in_order(
    client: httpx.Client, receiver: Receiver
) -> None:
    make(client, receiver, "signed")
    versions = [write(client, "signed", f"f{n}", n=n) for n in range(20)]
    receiver.wait(lambda found: len(found.taken) >= 20)
    assert receiver.versions() == versions
    assert ids_in(receiver.taken) == [f"f{n}" for n in range(20)]
    for each in receiver.taken:
        check_signature(SECRET.encode(), each.body, each.signature)
        assert (each.subscription, each.part) == ("signed", 0)
        assert each.changes["version"] == each.version


def test_it_is_tried_again_until_it_is_taken(client: httpx.Client, receiver: Receiver) -> None:
    make(client, receiver, "moody")
    receiver.answers = lambda _: 500
    write(client, "moody", "a")
    write(client, "moody", "b")
    told = eventually(lambda: (found := status(client, "moody"))["state"] == "failing" and found)
    assert "500" in told["stateReason"]
    receiver.wait(lambda found: found.refused >= 2)
    receiver.answers = lambda _: 204
    receiver.wait(lambda found: len(found.taken) >= 2)
    assert ids_in(receiver.taken) == ["a", "b"]
    eventually(lambda: status(client, "moody")["state"] == "active")


def status(client: httpx.Client, id: str) -> dict[str, Any]:
    found: dict[str, Any] = client.get(f"/subscriptions/{id}").raise_for_status().json()["status"]
    return found


def test_reading_changing_and_removing(client: httpx.Client, receiver: Receiver) -> None:
    made = make(client, receiver, "plain", title="Plain", filter={"actions": ["CREATE"]})
    assert made["source"] == {"spaceId": "plain"}
    assert made["granularity"] == "PER_TRANSACTION"
    assert "progressId" not in made
    assert made["status"]["state"] == "active"
    answer = client.get("/subscriptions/plain")
    assert answer.json()["title"] == "Plain"
    assert "plain" in [one["id"] for one in client.get("/subscriptions").json()]
    etag = answer.headers["ETag"]
    paused = client.patch("/subscriptions/plain", json={"active": False}).raise_for_status()
    assert paused.json()["status"]["state"] == "paused"
    refused = client.patch(
        "/subscriptions/plain", json={"active": True}, headers={"If-Match": etag}
    )
    assert refused.status_code == 412
    elsewhere = {**made, "source": {"storageId": "default"}, "title": "Other"}
    replaced = client.put("/subscriptions/plain", json=elsewhere).raise_for_status().json()
    assert (replaced["source"], replaced["title"]) == ({"spaceId": "plain"}, "Other")
    assert client.delete("/spaces/plain").status_code == 409
    assert client.delete("/subscriptions/plain").status_code == 204
    assert client.get("/subscriptions/plain").status_code == 404
    assert client.delete("/spaces/plain").status_code in (200, 204)


def test_subscriptions_of_a_space_as_xyz_has_them(client: httpx.Client, receiver: Receiver) -> None:
    make(client, receiver, "other")
    client.post("/spaces", json={"id": "xyz"}).raise_for_status()
    body = {
        "id": "sub",
        "destination": "other",
        "config": {"type": "PER_FEATURE", "params": {}},
        "filter": {"jsonPath": "$.properties[?@.speed > 50]"},
    }
    path = "/spaces/xyz/subscriptions"
    made = client.post(path, json={**body, "id": "xyz-sub", "filter": {}})
    assert made.status_code == 201, made.text
    told = client.get(f"{path}/xyz-sub").json()
    assert (told["destination"], told["config"]["type"]) == ("other", "PER_FEATURE")
    assert [one["id"] for one in client.get(path).json()] == ["xyz-sub"]
    write(client, "xyz", "a", "b")
    receiver.wait(lambda found: len(found.taken) >= 2)
    assert [each.part for each in receiver.taken] == [0, 1]
    again = client.put(f"{path}/xyz-sub", json=body | {"id": "xyz-sub"})
    assert again.status_code == 200, again.text
    new = client.put(f"{path}/xyz-new", json={**body, "id": "xyz-new"})
    assert new.status_code == 201, new.text
    assert client.get("/spaces/other/subscriptions/xyz-sub").status_code == 404
    for id in ("xyz-sub", "xyz-new"):
        assert client.delete(f"{path}/{id}").status_code == 204
    assert client.get(path).json() == []


@pytest.mark.parametrize(
    ("told", "field"),
    [
        ({"source": {}}, "source"),
        ({"source": {"spaceId": "a", "storageId": "b"}}, "source"),
        ({"source": {"spaceId": "nowhere"}}, "source.spaceId"),
        ({"source": {"storageId": "default", "collections": ["No!"]}}, "source.collections[0]"),
        ({"filter": {"actions": ["PURGE"]}}, "filter.actions[0]"),
        ({"filter": {"properties": "speed>5"}}, "filter.properties"),
        ({"filter": {"jsonPath": "$["}}, "filter.jsonPath"),
        ({"filter": {"jsonPath": "$[?match(@.a, '(a+)+$')]"}}, "filter.jsonPath"),
        (
            {"filter": {"spatialFilter": {"geometry": {"type": "Point", "coordinates": []}}}},
            "filter.spatialFilter.geometry",
        ),
        ({"granularity": "SOME"}, "granularity"),
        ({"eventHandlerIds": []}, "eventHandlerIds"),
        ({"eventHandlerIds": ["nobody"]}, "eventHandlerIds[0]"),
        ({"start": "soon"}, "start"),
        ({"keepDays": -1}, "keepDays"),
    ],
)
def test_errors_name_their_field(client: httpx.Client, told: dict[str, Any], field: str) -> None:
    body = {
        "id": "wrong",
        "source": {"storageId": "default"},
        "eventHandlerIds": ["signed"],
        **told,
    }
    answer = client.post("/subscriptions", json=body)
    assert answer.status_code == 400, answer.text
    assert answer.json()["field"].startswith(field)
    assert client.get("/subscriptions/wrong").status_code == 404


def test_a_replay_over_rest(client: httpx.Client, receiver: Receiver) -> None:
    make(client, receiver, "again")
    first = write(client, "again", "a")
    write(client, "again", "b")
    receiver.wait(lambda found: len(found.taken) >= 2)
    life = receiver.taken[0].life
    answer = client.post("/subscriptions/again/reset", json={"since": first})
    assert answer.status_code == 200, answer.text
    receiver.wait(lambda found: len(found.taken) >= 3)
    assert ids_in(receiver.taken) == ["a", "b", "b"]
    assert receiver.taken[2].life > life
    for wrong in ({"since": "soon"}, {}, {"since": True}):
        answer = client.post("/subscriptions/again/reset", json=wrong)
        assert (answer.status_code, answer.json()["field"]) == (400, "since")
    answer = client.post("/subscriptions/again/reset", json={"since": 10**6})
    assert answer.status_code in (400, 404, 409, 425), answer.text


# ---- Several processes ---------------------------------------------------------------------------


class Pair:
    """Two hubs on one database; one of them delivers the subscription `roads`."""

    def __init__(self, hubs: list[HubServer], clients: list[httpx.Client]) -> None:
        self.hubs = hubs
        self.clients = clients
        self.names = [_own_name(client) for client in clients]

    def holder(self) -> int:
        """Which of them delivers."""
        name = eventually(lambda: status(self.clients[0], "roads").get("instance"))
        return self.names.index(name)


@pytest.fixture
def pair(tmp_path: Path, receiver: Receiver, database_factory: DatabaseFactory) -> Iterator[Pair]:
    with ExitStack() as stack:
        dsn = stack.enter_context(database_factory.fresh())
        hubs = []
        for name in ("one", "two"):
            (tmp_path / name).mkdir()
            hub = hub_on(tmp_path / name, receiver, dsn)
            hub.start()
            stack.callback(_ended, hub)
            hubs.append(hub)
        clients = [stack.enter_context(asking(hub)) for hub in hubs]
        make(clients[0], receiver, "roads")
        eventually(lambda: clients[1].get("/spaces/roads").status_code == 200)
        yield Pair(hubs, clients)


def _ended(hub: HubServer) -> None:
    if hub.process.poll() is None:
        os.kill(hub.process.pid, signal.SIGCONT)
        hub.kill()


def test_another_process_goes_on_after_one_was_killed(pair: Pair, receiver: Receiver) -> None:
    versions = [write(pair.clients[0], "roads", f"a{n}") for n in range(5)]
    receiver.wait(lambda found: len(found.taken) >= 5)
    dead = pair.holder()
    pair.hubs[dead].kill()
    other = pair.clients[1 - dead]
    versions += [write(other, "roads", f"b{n}") for n in range(5)]
    receiver.wait(lambda found: {*versions} <= {*found.versions()}, TAKEN_OVER_SECONDS)
    _check_order(receiver, versions)
    assert status(other, "roads")["instance"] == pair.names[1 - dead]


def test_a_subscription_that_resumes_late_moves_nothing(pair: Pair, receiver: Receiver) -> None:
    """It is stopped while a delivery is under way, and goes on when another one has taken over."""
    late = pair.holder()
    other = pair.clients[1 - late]
    stopped = pair.hubs[late].process.pid

    def stop_it(_: Delivery) -> int:
        receiver.answers = lambda _: 200
        os.kill(stopped, signal.SIGSTOP)
        return 200

    receiver.answers = stop_it
    versions = [write(other, "roads", f"a{n}") for n in range(5)]
    receiver.wait(lambda found: {*versions} <= {*found.versions()}, SECONDS_MAX)
    term = max(each.term for each in receiver.taken)
    os.kill(stopped, signal.SIGCONT)
    versions += [write(other, "roads", f"b{n}") for n in range(5)]
    receiver.wait(lambda found: {*versions} <= {*found.versions()}, SECONDS_MAX)
    eventually(lambda: pair.clients[late].get("/subscriptions/roads").status_code == 200)
    assert status(other, "roads")["term"] == term
    _check_order(receiver, versions)
    assert {each.term for each in receiver.taken[1:]} == {term}


def test_configuration_changes_reach_other_hubs(pair: Pair) -> None:
    """After the interval at which it looks for changes, which is a second. Also where it has made
    something from the configuration of before, as pipelines are."""
    one, two = pair.clients
    for name, client in zip(pair.names, pair.clients, strict=True):
        write(client, "roads", name)  # both have it in their memory
    one.post("/spaces", json={"id": "new"}).raise_for_status()
    one.patch("/spaces/roads", json={"readOnly": True}).raise_for_status()
    assert limits.CONFIG_SECONDS_MAX <= 1
    eventually(lambda: two.get("/spaces/new").status_code == 200)
    body: dict[str, Any] = {"type": "FeatureCollection", "features": []}
    body["features"] = [{"type": "Feature", "id": "no", "geometry": None, "properties": {}}]
    eventually(lambda: two.put("/spaces/roads/features", json=body).status_code == 405)
    two.patch("/spaces/roads", json={"readOnly": False}).raise_for_status()
    two.patch("/subscriptions/roads", json={"active": False}).raise_for_status()
    eventually(lambda: status(one, "roads")["state"] == "paused")
    write(one, "roads", "after")


def test_it_is_moved_on_demand(pair: Pair, receiver: Receiver) -> None:
    client = pair.clients[0]
    versions = [write(client, "roads", "a")]
    to = pair.names[1 - pair.holder()]
    answer = client.post("/subscriptions/roads/move", json={"instance": to})
    assert answer.status_code == 200, answer.text
    eventually(lambda: status(client, "roads").get("instance") == to)
    versions.append(write(client, "roads", "b"))
    receiver.wait(lambda found: {*versions} <= {*found.versions()})
    _check_order(receiver, versions)
    wrong = client.post("/subscriptions/roads/move", json={"instance": "nobody"})
    assert (wrong.status_code, wrong.json()["field"]) == (400, "instance")


def _own_name(client: httpx.Client) -> str:
    (name,) = [one["id"] for one in client.get("/instances").json() if one["self"]]
    found: str = name
    return found


def _check_order(receiver: Receiver, versions: list[int]) -> None:
    """All of them, and never one after a later one of the same term; a new term may repeat."""
    taken = receiver.taken
    assert {*versions} <= {each.version for each in taken}
    for one, following in pairwise(taken):
        if one.term == following.term:
            assert one.version < following.version
        else:
            assert one.term < following.term
    first: list[int] = []
    for each in taken:
        if each.version not in first:
            first.append(each.version)
    assert first == sorted(first)
