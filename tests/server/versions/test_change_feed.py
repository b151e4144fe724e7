"""The change feed over REST: pages, long polls, streams, and how these end."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from naksha.hub.auth.keys import KeyFile, read_signing_key
from naksha.hub.auth.rights import Right
from naksha.hub.auth.tokens import mint
from naksha.model import limits
from naksha.testing.servers.hub_server import HubServer
from tests.server.raw_connection import connected, get_line, rest, wait_until
from tests.server.towns import error, id_of, new_space, point, put

EVENTS = {"Accept": "text/event-stream"}


def feed(client: httpx.Client, space: str, **query: Any) -> dict[str, Any]:
    answer = client.get(f"{space}/changes", params=query)
    assert answer.status_code == 200, answer.text
    assert answer.headers["Content-Type"] == "application/json"
    body: dict[str, Any] = answer.json()
    assert body["type"] == "ChangeFeed"
    return body


def told(items: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(each["action"], each["feature"]["id"]) for item in items for each in item["features"]]


def delete(client: httpx.Client, space: str, id: str) -> None:
    assert client.delete(f"{space}/features/{id}").is_success


# ---- Pages ---------------------------------------------------------------------------------------


def test_pages_go_on_from_where_the_one_before_ended(client: httpx.Client) -> None:
    space = new_space(client)
    for n in range(5):
        put(client, space, point("a", n=n))
    delete(client, space, "a")
    items: list[dict[str, Any]] = []
    since = "0"
    while True:
        page = feed(client, space, since=since, limit=2)
        items += page["items"]
        assert len(page["items"]) <= 2
        if page["next"] == str(page["last"]):
            break
        since = page["next"]
    assert told(items) == [("CREATE", "a"), *[("UPDATE", "a")] * 4, ("DELETE", "a")]
    versions = [item["version"] for item in items]
    assert versions == sorted(set(versions))
    assert items[-1]["features"][0]["feature"]["properties"]["@ns:com:here:xyz"]["space"] == id_of(
        space
    )
    assert feed(client, space)["items"] == []


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ({"action": "DELETE"}, [("DELETE", "b")]),
        ({"action": ["CREATE", "DELETE"]}, [("CREATE", "a"), ("CREATE", "b"), ("DELETE", "b")]),
        ({"tags": "red"}, [("CREATE", "a"), ("UPDATE", "a")]),
        ({"p.n": 1}, [("CREATE", "a"), ("CREATE", "b"), ("UPDATE", "a"), ("DELETE", "b")]),
        ({"p.n": 2}, [("UPDATE", "a")]),
        ({"west": 0, "south": 0, "east": 2, "north": 2}, [("CREATE", "a"), ("UPDATE", "a")]),
        ({"west": 0, "south": 2, "east": 2, "north": 0}, [("CREATE", "a"), ("UPDATE", "a")]),
        ({"author": "nobody"}, []),
    ],
)
def test_filters(
    client: httpx.Client, query: dict[str, Any], expected: list[tuple[str, str]]
) -> None:
    begin = feed(client, "/storages/default")["next"]
    space = new_space(client)
    put(client, space, point("a", 1, 1, n=1, tags=["red"]), point("b", 9, 9, n=1))
    put(client, space, point("a", 8, 8, n=2, tags=["blue"]))
    delete(client, space, "b")
    assert told(feed(client, space, since="0", **query)["items"]) == expected
    of_storage = feed(client, "/storages/default", since=begin, collection=id_of(space), **query)
    assert told(of_storage["items"]) == expected


def test_signals_have_documented_names(client: httpx.Client) -> None:
    begin = feed(client, "/storages/default")["next"]
    space = new_space(client, versionsToKeep=1)
    assert client.patch(space, json={"versionsToKeep": None}).is_success
    put(client, space, point("a"))
    one = {"since": begin, "collection": id_of(space)}
    for action, changed, ids in (
        ("TxModifyCollection", [True, True], []),
        ("TxModifyFeatures", [None], [("CREATE", "a")]),
        ("TxComment", [], []),
    ):
        for path, query in ((space, {"since": "0"}), ("/storages/default", one)):
            items = feed(client, path, action=action, **query)["items"]
            assert [item["collections"][0].get("changed") for item in items] == changed
            assert told(items) == ids


def test_all_changes_of_features_are_described_as_without_a_filter(client: httpx.Client) -> None:
    space = new_space(client)
    put(client, space, point("a"))
    delete(client, space, "a")
    assert client.delete(f"{space}/deleted?id=a").is_success
    everything = feed(client, space, since="0")["items"]
    written = feed(client, space, since="0", action="TxModifyFeatures")["items"]
    assert written == [item for item in everything if not item["collections"][0].get("changed")]
    assert len(written) == 3


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ({"action": "TxComment", "tags": "red"}, "action"),
        ({"action": ["CREATE", "TxModifyCollection"], "p.n": 1}, "action"),
        ({"since": "x"}, "since"),
        ({"since": "1~x"}, "since"),
        ({"limit": 0}, "limit"),
        ({"wait": -1}, "wait"),
        ({"wait": 1000}, "wait"),
        ({"action": "MOVE"}, "action.0"),
        ({"west": 1}, "south"),
    ],
)
def test_invalid_feed_parameters(client: httpx.Client, query: dict[str, Any], field: str) -> None:
    space = new_space(client)
    error(client.get(f"{space}/changes", params=query), 400, field)
    stream = client.get(f"{space}/changes", params=query, headers=EVENTS)
    error(stream, 400, field)


def test_a_space_that_is_not_there(client: httpx.Client) -> None:
    error(client.get("/spaces/nowhere/changes"), 404)
    error(client.get("/storages/nowhere/changes"), 404)
    error(client.get("/spaces/nowhere/changes", headers=EVENTS), 404)


def test_expired_and_future_versions(client: httpx.Client) -> None:
    space = new_space(client)
    put(client, space, point("a", n=1))
    second = put(client, space, point("a", n=2))["version"]
    assert client.delete(f"{space}/changesets?version<{second}").is_success
    body = error(client.get(f"{space}/changes", params={"since": 0}), 410)
    assert body["oldest"] == second
    assert told(feed(client, space, since=second - 1)["items"]) == [("UPDATE", "a")]
    error(client.get(f"{space}/changes", params={"since": 10**9}), 404)


def test_a_storage_feed_can_be_limited_to_collections(client: httpx.Client) -> None:
    begin = feed(client, "/storages/default")["next"]
    spaces = [new_space(client) for _ in range(3)]
    for space in spaces:
        put(client, space, point("a"))
    names = [id_of(space) for space in spaces]
    for query in ({"collection": names[:2]}, {"collection": ",".join(names[:2])}):
        items = feed(client, "/storages/default", since=begin, **query)["items"]
        assert [each["collection"] for item in items for each in item["features"]] == names[:2]
    items = feed(client, "/storages/default", since=begin)["items"]
    assert {each["collection"] for item in items for each in item["features"]} == {*names}


# ---- Waiting -------------------------------------------------------------------------------------


def test_a_page_is_waited_for(client: httpx.Client) -> None:
    space = new_space(client)
    begin = feed(client, space)["next"]
    assert feed(client, space, since=begin, wait=0.1)["items"] == []
    with ThreadPoolExecutor() as threads:
        waiting = [
            threads.submit(feed, client, space, since=begin, wait=50, **{"p.n": 1})
            for _ in range(20)
        ]
        put(client, space, point("a", n=0))
        put(client, space, point("b", n=1))
        for each in waiting:
            assert told(each.result()["items"]) == [("CREATE", "b")]


# ---- Streams -------------------------------------------------------------------------------------

Event = dict[str, str]


@contextmanager
def stream(
    client: httpx.Client, space: str, headers: dict[str, str] | None = None, **query: Any
) -> Iterator[Iterator[Event]]:
    """The events of a stream; those without a name are heart-beats."""
    asked = {**EVENTS, **(headers or {})}
    with client.stream("GET", f"{space}/changes", params=query, headers=asked) as answer:
        assert answer.status_code == 200, answer.read()
        assert answer.headers["Content-Type"].startswith("text/event-stream")
        yield events_of(answer.iter_lines())


def events_of(lines: Iterator[str]) -> Iterator[Event]:
    event: Event = {}
    for line in lines:
        if line == "":
            yield event
            event = {}
            continue
        name, _, value = line.partition(": ")
        event[name] = f"{event[name]}\n{value}" if name in event else value


def named(events: Iterator[Event]) -> Iterator[Event]:
    return (event for event in events if "event" in event)


def test_a_stream_has_past_and_new_changes(client: httpx.Client) -> None:
    space = new_space(client)
    put(client, space, point("a", text="one\nline"), point("b"))
    with stream(client, space, since="0") as events:
        assert next(events) == {"retry": str(limits.FEED_RETRY_SECONDS * 1000)}
        told_of = named(events)
        # The first one has made the collection.
        seen = [next(told_of), next(told_of)]
        put(client, space, point("a", n=2))
        seen.append(next(told_of))
        delete(client, space, "b")
        seen.append(next(told_of))
    items = [json.loads(event["data"]) for event in seen]
    assert told(items) == [("CREATE", "a"), ("CREATE", "b"), ("UPDATE", "a"), ("DELETE", "b")]
    assert {event["event"] for event in seen} == {"changes"}
    pulled = feed(client, space, since="0")["items"]
    assert items == pulled


@pytest.mark.parametrize("of", ["space", "collection"])
def test_a_stream_goes_on_after_the_last_event_that_was_seen(client: httpx.Client, of: str) -> None:
    begin = feed(client, "/storages/default")["next"]
    space = new_space(client)
    place, query = space, {"since": begin}
    if of == "collection":
        place, query = "/storages/default", {**query, "collection": id_of(space)}
    for n in range(4):
        put(client, space, point("a", n=n))
    with stream(client, place, **query) as events:
        told_of = named(events)
        seen = [next(told_of) for _ in range(4)]
    for number, event in enumerate(seen[:-1]):
        # What the client says it saw goes before what the address says.
        with stream(client, place, {"Last-Event-ID": event["id"]}, **query) as events:
            assert next(named(events)) == seen[number + 1]


def test_a_stream_of_expired_changes_ends_with_an_error(client: httpx.Client) -> None:
    space = new_space(client)
    put(client, space, point("a", n=1))
    second = put(client, space, point("a", n=2))["version"]
    client.delete(f"{space}/changesets?version<{second}").raise_for_status()
    with stream(client, space, since="0") as events:
        (event,) = named(events)
    assert event["event"] == "expired"
    body = json.loads(event["data"])
    assert (body["type"], body["oldest"]) == ("ErrorResponse", second)


def test_streams_take_no_turns_but_there_are_only_so_many(client: httpx.Client) -> None:
    space = new_space(client)
    put(client, space, point("a", n=1))
    opened: list[Iterator[Event]] = []
    with ExitStack() as stack:
        for _ in range(limits.FEED_WATCHERS_PER_ACTOR_MAX):
            opened.append(stack.enter_context(stream(client, space, since="0")))
            assert next(named(opened[-1]))["event"] == "changes"
        # These are more than an actor may ask at once; all the same there is room for him.
        put(client, space, point("a", n=2))
        error(client.get(f"{space}/changes", headers=EVENTS), 503)
        error(client.get(f"{space}/changes", params={"wait": 5}), 503)
        feed(client, space, since="0")

    def is_free() -> bool:
        with client.stream("GET", f"{space}/changes", headers=EVENTS) as answer:
            return answer.status_code == 200

    wait_until(is_free)


# ---- Ends ----------------------------------------------------------------------------------------


@pytest.fixture
def own_hub(tmp_path: Path) -> Iterator[HubServer]:
    arguments = ["--request-seconds", "3", "--drain-seconds", "20"]
    with HubServer(tmp_path, arguments=arguments) as hub:
        yield hub


@pytest.fixture
def own_client(own_hub: HubServer) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=f"{own_hub.url}/hub", timeout=60) as client:
        yield client


def test_a_stopping_server_ends_streams_and_long_polls(tmp_path: Path) -> None:
    with HubServer(tmp_path) as hub, httpx.Client(base_url=f"{hub.url}/hub", timeout=60) as client:
        space = new_space(client)
        put(client, space, point("a"))
        with stream(client, space, since="0") as events, ThreadPoolExecutor() as threads:
            assert [next(named(events))["event"] for _ in range(2)] == ["changes"] * 2
            waiting = threads.submit(feed, client, space, wait=50)
            wait_until(lambda: is_waiting(client))
            began = time.monotonic()
            stopping = threads.submit(hub.stop)
            # They end as they should, not by a connection that is cut.
            assert list(named(events)) == []
            assert waiting.result()["items"] == []
            assert stopping.result() == 0
            assert time.monotonic() - began < limits.DRAIN_SECONDS_MAX / 2
        hub.start()


def is_waiting(client: httpx.Client) -> bool:
    """A stream and a request take no turns."""
    metrics = client.get(str(client.base_url).removesuffix("/hub/") + "/metrics").text
    return "naksha_watchers 2.0" in metrics


def test_heartbeats_come_sooner_than_the_time_of_a_request_ends(
    own_client: httpx.Client,
) -> None:
    space = new_space(own_client)
    put(own_client, space, point("a"))
    with stream(own_client, space) as events:
        assert "retry" in next(events)
        beats = [next(events) for _ in range(4)]
    assert all("event" not in beat and beat["id"].isdecimal() for beat in beats)


def test_a_stream_whose_space_is_removed_ends(own_client: httpx.Client) -> None:
    client = own_client
    space = new_space(client)
    put(client, space, point("a", n=1))
    with stream(client, space, since="0") as events:
        told_of = named(events)
        next(told_of)
        client.delete(space).raise_for_status()
        put(client, new_space(client), point("x"))
        last = list(told_of)[-1]
    assert last["event"] == "failed"
    assert json.loads(last["data"])["code"] == "not_found"


def test_a_client_that_does_not_read_is_cut_off(
    own_hub: HubServer, own_client: httpx.Client
) -> None:
    space = new_space(own_client)
    for n in range(30):
        put(own_client, space, point(f"f{n}", text="x" * 1_000_000))
    path = f"/hub{space}/changes?since=0&limit=1"
    with connected(own_hub.port) as connection:
        connection.sendall(get_line(own_hub.port, path, "Accept: text/event-stream"))
        wait_until(lambda: "was cut off" in own_hub.log(), 30)
        assert not rest(connection).endswith(b"0\r\n\r\n")


@pytest.fixture(scope="module")
def minted(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Callable[[float], str]]:
    path = tmp_path_factory.mktemp("keys") / "secret"
    path.write_text("a secret that is long enough for HS256\n")
    key = read_signing_key(KeyFile.parse(f"secret:{path}"))
    rights: dict[str, Any] = {"naksha": {right.value: [{}] for right in Right}}

    def make(seconds: float) -> str:
        return mint(key, {"appId": "test", "urm": rights}, seconds=seconds)

    return path, make


def test_a_stream_ends_with_its_token(
    tmp_path: Path, minted: tuple[Path, Callable[[float], str]]
) -> None:
    secret, make = minted
    with (
        HubServer(tmp_path, arguments=["--keys", f"secret:{secret}"]) as hub,
        httpx.Client(
            base_url=f"{hub.url}/hub", timeout=60, headers={"Authorization": f"Bearer {make(600)}"}
        ) as client,
    ):
        space = new_space(client)
        put(client, space, point("a", n=1))
        # It has expired, but clocks may differ by so much.
        short = {"Authorization": f"Bearer {make(3 - limits.TOKEN_LEEWAY_SECONDS)}"}
        with stream(client, space, short, since="0") as events:
            told_of = named(events)
            next(told_of)
            stop = threading.Event()

            def go_on() -> None:
                n = 1
                while not stop.wait(0.2):
                    n += 1
                    put(client, space, point("a", n=n))

            with ThreadPoolExecutor() as threads:
                writing = threads.submit(go_on)
                try:
                    *changes, last = told_of
                finally:
                    stop.set()
                writing.result()
    assert {event["event"] for event in changes} <= {"changes"}
    assert last["event"] == "failed"
    assert json.loads(last["data"])["code"] == "unauthorized"
