"""A request resolves realm, configuration, reference and collection once, and parses nothing twice.

The calls of the real objects are counted, in a hub of this process. Its storage is on PostgreSQL
unless a test says otherwise.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from contextvars import ContextVar
from datetime import date
from pathlib import Path
from types import FrameType
from typing import Any

import httpx
import msgspec
import pytest

from naksha.catalog.catalog import Catalog
from naksha.hub.config.registry import Registry
from naksha.hub.handlers.stored.storage import StorageHandler
from naksha.hub.pipeline.handler_registry import handler_class
from naksha.hub.pipeline.pipeline import Event, Pipeline, Setup
from naksha.hub.pipeline.requests import WriteFeatures
from naksha.hub.remote.program import RemoteHost
from naksha.psql.read.reader import PsqlReader
from naksha.psql.storage import PsqlStorage
from naksha.psql.write.session import PsqlSession
from naksha.server.app import create_app, serving
from naksha.server.process.settings_sources import settings_from
from naksha.testing.servers._private_server import free_port
from naksha.versioning import version_refs

SPACE = "/hub/spaces/places"
BOX = "west=0&south=0&east=1&north=1"
COUNT = 20
IN_REQUEST = ContextVar("IN_REQUEST", default=False)


def places(n: int) -> dict[str, Any]:
    """Features that differ with n."""
    features = [
        {
            "type": "Feature",
            "id": f"p{i}",
            "geometry": {"type": "Point", "coordinates": [i / 100, i / 100]},
            "properties": {"n": n},
        }
        for i in range(COUNT)
    ]
    return {"type": "FeatureCollection", "features": features}


class HubInProcess:
    """A hub in this process, with its only storage."""

    def __init__(self, client: httpx.AsyncClient, storage: Any, port: int) -> None:
        self.client = client
        self.storage = storage
        self.port = port
        """Of the only handler elsewhere that is allowed."""
        self.calls: Counter[str] = Counter()

    def count(self, patch: pytest.MonkeyPatch, owner: Any, name: str) -> None:
        """Count the calls of a function or method, except those of background tasks."""
        real: Callable[..., Any] = getattr(owner, name)

        def counted(*arguments: Any, **named: Any) -> Any:
            if IN_REQUEST.get():
                self.calls[name] += 1
            return real(*arguments, **named)

        patch.setattr(owner, name, counted)

    async def second(self, method: str, path: str, json: Any = None) -> httpx.Response:
        """Send a request twice; count the calls of the second one, when caches are filled."""
        url = f"{SPACE}{path}"
        (await self.client.request(method, url, json=json)).raise_for_status()
        self.calls.clear()
        answer = await self.client.request(method, url, json=json)
        return answer.raise_for_status()


@asynccontextmanager
async def hub_on(
    location: str, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[HubInProcess]:
    """A hub with a storage at this location, and with the features of `places(0)`."""
    port = free_port()
    given = {
        "catalog": f"file:{directory}/hub.catalog",
        "realm_storage": location,
        "remote_handlers": f"http://127.0.0.1:{port}",
    }
    app = create_app(settings_from(given, {}))
    async with serving(app) as state:
        ((_, storage),) = state.hub.storages.opened()

        async def request(scope: Any, receive: Any, send: Any) -> None:
            IN_REQUEST.set(True)
            await app(scope, receive, send)

        transport = httpx.ASGITransport(request)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            (await client.post("/hub/spaces", json={"id": "places"})).raise_for_status()
            (await client.put(f"{SPACE}/features", json=places(0))).raise_for_status()
            hub = HubInProcess(client, storage, port)
            hub.count(monkeypatch, Catalog, "realm")
            hub.count(monkeypatch, Registry, "snapshot")
            hub.count(monkeypatch, Pipeline, "run")
            hub.count(monkeypatch, version_refs, "_split_branch")
            yield hub


@pytest.fixture
async def hub(
    database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[HubInProcess]:
    async with hub_on(database, tmp_path, monkeypatch) as hub:
        assert isinstance(hub.storage, PsqlStorage)
        yield hub


# ---- Look-ups ------------------------------------------------------------------------------------

READS = [
    "/features/p1",
    "/features?id=p1,p2",
    f"/bbox?{BOX}",
    "/search?p.n=0",
    "/iterate?limit=5",
    "/statistics",
]


@pytest.mark.parametrize("path", READS)
@pytest.mark.parametrize("version", ["", "2", "first"])
async def test_a_read_resolves_everything_once(hub: HubInProcess, path: str, version: str) -> None:
    """The ETag of a fixed version is that of the version that is read."""
    if version == "first":
        (await hub.client.post(f"{SPACE}/tags", json={"id": "first"})).raise_for_status()
    mark = "&" if "?" in path else "?"
    answer = await hub.second("GET", f"{path}{mark}versionRef={version}" if version else path)
    expected = {"realm": 1, "snapshot": 1, "run": 1}
    assert hub.calls == (expected | {"_split_branch": 1} if version else expected)
    if version and "ETag" in answer.headers and "FeatureCollection" in answer.text:
        hub.calls.clear()
        known = {"If-None-Match": answer.headers["ETag"]}
        assert (await hub.client.get(answer.url, headers=known)).status_code == 304
        assert hub.calls == {"realm": 1, "snapshot": 1, "_split_branch": 1}


@pytest.mark.parametrize("version", ["", "2", "first"])
async def test_a_tile_resolves_everything_once_and_is_rendered_once(
    hub: HubInProcess, version: str
) -> None:
    (await hub.client.post(f"{SPACE}/tags", json={"id": "first"})).raise_for_status()
    url = f"{SPACE}/tile/web/4_8_7.mvt?versionRef={version}"
    (await hub.client.get(f"{url}&unique=1")).raise_for_status()
    hub.calls.clear()
    rendered = (await hub.client.get(url)).raise_for_status()
    once = {"realm": 1, "snapshot": 1}
    parsed = {"_split_branch": 1} if version else {}
    assert hub.calls == {**once, **parsed, "run": 1}
    # A tag may have been moved.
    again = once | (parsed if version == "first" else {})
    for headers, status in (({}, 200), ({"If-None-Match": rendered.headers["ETag"]}, 304)):
        hub.calls.clear()
        assert (await hub.client.get(url, headers=headers)).status_code == status
        assert hub.calls == again


async def test_a_view_and_its_spaces_see_one_configuration(hub: HubInProcess) -> None:
    layer = {"id": "layer", "extends": {"spaceId": "places"}}
    (await hub.client.post("/hub/spaces", json=layer)).raise_for_status()
    path = f"/hub/spaces/layer/bbox?{BOX}"
    await hub.client.get(path)
    hub.calls.clear()
    answer = (await hub.client.get(path)).raise_for_status()
    assert len(answer.json()["features"]) == COUNT
    assert (hub.calls["realm"], hub.calls["snapshot"]) == (1, 1)
    assert hub.calls["run"] > 1


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("PUT", "/features", places(1)),
        ("POST", "/features", places(1)),
        ("PUT", "/features/p1", places(1)["features"][1]),
        ("PATCH", "/features/p1", {"properties": {"z": 1}}),
        ("DELETE", "/features?id=p1&eraseContent=false", None),
    ],
)
async def test_a_write_resolves_everything_once(
    hub: HubInProcess, method: str, path: str, body: Any
) -> None:
    await hub.second(method, path, body)
    assert hub.calls == {"realm": 1, "snapshot": 1, "run": 1}


async def test_parts_of_a_copy_are_resolved_again(
    hub: HubInProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A copy may take hours: it sees that rights are withdrawn, or that the target is read-only."""
    (await hub.client.post("/hub/spaces", json={"id": "copy"})).raise_for_status()
    monkeypatch.setattr("naksha.model.limits.COPY_PART_FEATURES", 5)
    hub.calls.clear()
    copied = await hub.client.post(f"{SPACE}/copy", json={"targetSpaceId": "copy"})
    assert copied.json()["inserted"] == COUNT
    assert hub.calls["snapshot"] > COUNT / 5


# ---- Versions, tags and branches -----------------------------------------------------------------


class LookUps(Counter[str]):
    """Look-ups in the storage and on branches of it, outside of sessions, with their arguments."""

    def count(self, patch: pytest.MonkeyPatch, name: str) -> None:
        real: Callable[..., Any] = getattr(PsqlReader, name)

        def counted(reader: PsqlReader, *arguments: Any) -> Any:
            if IN_REQUEST.get() and not isinstance(reader, PsqlSession):
                self[f"{name} {arguments}"] += 1
            return real(reader, *arguments)

        patch.setattr(PsqlReader, name, counted)


@pytest.fixture
async def versioned(hub: HubInProcess) -> HubInProcess:
    """Four versions: `first` is a tag of version 1, and `edit` a branch of version 2."""
    for n in (1, 2):
        (await hub.client.put(f"{SPACE}/features", json=places(n))).raise_for_status()
    for path, body in (
        ("/tags", {"id": "first", "version": 1}),
        ("/branches", {"id": "edit", "baseRef": "2"}),
    ):
        (await hub.client.post(f"{SPACE}{path}", json=body)).raise_for_status()
    changed = await hub.client.put(f"{SPACE}/features?versionRef=edit", json=places(3))
    changed.raise_for_status()
    return hub


DRY = {"dryRun": True}
VERSION_REQUESTS: list[tuple[str, Any, int]] = [
    ("/tags", None, 0),
    ("/tags/first", None, 0),
    ("/branches", None, 0),
    ("/branches/edit", None, 0),
    ("/branches/edit/conflicts", None, 0),
    ("/changesets", None, 1),
    ("/changesets?versionRef=1..3", None, 1),
    ("/changesets?versionRef=edit", None, 1),
    ("/changesets?versionRef=edit:2..5", None, 1),
    ("/changesets?versionRef=first..4", None, 1),
    ("/changesets?versionRef=first..4&squashed=true", None, 1),
    ("/changesets/3", None, 1),
    ("/changesets/statistics", None, 0),
    ("/changesets/statistics?versionRef=edit", None, 1),
    ("/history?versionRef=edit", None, 1),
    ("/history/statistics?versionRef=edit", None, 1),
    ("/diff?versionRef=1..3", None, 1),
    ("/diff?versionRef=edit", None, 1),
    ("/diff?versionRef=edit:1..4", None, 1),
    ("/diff?versionRef=first&other=edit", None, 2),
    ("/diff?versionRef=edit:3&other=edit", None, 2),
    ("/features/p1/history", None, 1),
    ("/features/p1/history?versionRef=edit", None, 1),
    ("/features/p1/history?versionRef=first..3", None, 1),
    ("/features/p1?versionRef=edit", None, 1),
    ("/statistics?versionRef=edit", None, 1),
    ("/changes?since=1", None, 0),
    ("/rollback", {"versionRef": "first", **DRY}, 2),
    ("/rollback", {"versionRef": "edit:3", "branch": "edit", **DRY}, 2),
    ("/revert", {"version": 3, **DRY}, 2),
    ("/revert", {"version": "edit:5", "branch": "edit", **DRY}, 2),
]


@pytest.mark.filterwarnings("ignore:deprecated:DeprecationWarning")
@pytest.mark.parametrize(("path", "body", "references"), VERSION_REQUESTS)
async def test_a_request_about_versions_looks_everything_up_once(
    versioned: HubInProcess,
    monkeypatch: pytest.MonkeyPatch,
    path: str,
    body: Any,
    references: int,
) -> None:
    method, url = "GET" if body is None else "POST", f"{SPACE}{path}"
    (await versioned.client.request(method, url, json=body)).raise_for_status()
    look_ups = LookUps()
    for name in ("stored_object", "stored_objects", "resolve", "collection"):
        look_ups.count(monkeypatch, name)
    versioned.count(monkeypatch, StorageHandler, "target")
    versioned.calls.clear()
    (await versioned.client.request(method, url, json=body)).raise_for_status()
    expected = {"realm": 1, "snapshot": 1, "run": 1, "target": 1, "_split_branch": references}
    assert versioned.calls == {name: n for name, n in expected.items() if n}
    assert {asked: n for asked, n in look_ups.items() if n > 1} == {}


# ---- Parsing -------------------------------------------------------------------------------------


class ParseCounts(Counter[str]):
    """Calls of JSON decoders in requests and in threads of storages, by the calling module."""

    def __call__(self, frame: FrameType, event: str, called: Any) -> None:
        if event != "c_call" or not is_decoder(called):
            return
        if threading.current_thread() is not threading.main_thread() or IN_REQUEST.get():
            self[frame.f_globals["__name__"].removeprefix("naksha.")] += 1

    def of_sent_features(self) -> dict[str, int]:
        """Return counts of the modules that parse each feature of a body, or the body."""
        return {
            name: n
            for name, n in self.items()
            if name == BODY or (n >= COUNT and name not in STORED_FEATURES)
        }


BODY = "server.requests.json_body"
STORED_FEATURES = {"model.damage", "model.state", "sqlite.write.states"}
"""Modules that parse the states that a write is compared with."""


def is_decoder(called: Any) -> bool:
    of = getattr(called, "__self__", None)
    is_method = isinstance(of, msgspec.json.Decoder) and called.__name__ == "decode"
    return is_method or called is msgspec.json.decode


@pytest.fixture
def parses() -> Iterator[ParseCounts]:
    """Counts from now on, in this thread and in those that start."""
    counts = ParseCounts()
    threading.setprofile(counts)
    sys.setprofile(counts)
    yield counts
    sys.setprofile(None)
    threading.setprofile(None)


@pytest.mark.parametrize("backend", ["psql", "sqlite"])
@pytest.mark.parametrize("query", ["", "?transactional=false", "?addTags=x"])
async def test_a_feature_is_parsed_once_on_its_way_in(
    parses: ParseCounts,
    backend: str,
    query: str,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    file = f"file:{tmp_path}/places.naksha"
    location = request.getfixturevalue("database") if backend == "psql" else file
    async with hub_on(location, tmp_path, monkeypatch) as hub:
        (await hub.client.post("/hub/spaces", json={"id": "new"})).raise_for_status()
        for space, changed in (("new", "inserted"), ("places", "updated")):
            parses.clear()
            url = f"/hub/spaces/{space}/features{query}"
            answer = (await hub.client.put(url, json=places(1))).raise_for_status()
            assert len(answer.json()[changed]) == COUNT
            assert parses.of_sent_features() == {BODY: 1}


class Dating:
    """A handler that puts a value into features that is not a JSON value."""

    def __init__(self, setup: Setup) -> None:
        """There is nothing to set up."""

    async def process(self, event: Event) -> Any:
        if isinstance(event.request, WriteFeatures):
            for modification in event.request.modifications:
                for feature in modification.features:
                    feature["properties"]["day"] = date(2026, 1, 1)
        return await event.send_upstream()


async def test_features_of_a_handler_are_checked_for_values_that_are_not_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def handler_of(name: str) -> Any:
        return Dating if name == "read-only" else handler_class(name)

    monkeypatch.setattr("naksha.hub.pipeline.configuration.handler_class", handler_of)
    async with hub_on(f"file:{tmp_path}/places.naksha", tmp_path, monkeypatch) as hub:
        for connector in (
            {"id": "dating", "className": "read-only"},
            {"id": "near", "className": "storage", "properties": {"collection": "places"}},
        ):
            (await hub.client.post("/hub/connectors", json=connector)).raise_for_status()
        space = {"id": "dated", "eventHandlerIds": ["dating", "near"]}
        (await hub.client.post("/hub/spaces", json=space)).raise_for_status()
        for query in ("", "?transactional=false"):
            url = f"/hub/spaces/dated/features{query}"
            answer = await hub.client.put(url, json=places(1))
            assert (answer.status_code, "properties.day" in answer.text) == (400, True)


# ---- Connections ---------------------------------------------------------------------------------


async def test_no_connection_is_held_while_a_body_is_received(hub: HubInProcess) -> None:
    body = httpx.Request("PUT", "http://127.0.0.1", json=places(7)).content
    used: list[int] = []

    async def slowly() -> AsyncIterator[bytes]:
        for start in range(0, len(body), 200):
            await asyncio.sleep(0)
            used.append(hub.storage.connections()["used"])
            yield body[start : start + 200]

    answer = await hub.client.put(f"{SPACE}/features", content=slowly())
    assert answer.raise_for_status().json()["updated"]
    assert len(used) > 5
    assert set(used) == {0}


class Elsewhere:
    """A handler in another process, as far as the hub can tell, that looks at the hub's storage."""

    storage: PsqlStorage
    used: list[int]

    def __init__(self, setup: Setup) -> None:
        """There is nothing to set up."""

    async def process(self, event: Event) -> Any:
        self.used.append(self.storage.connections()["used"])
        answer = await event.send_upstream()
        self.used.append(self.storage.connections()["used"])
        return answer


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", f"/bbox?{BOX}", None),
        ("GET", "/iterate?limit=7", None),
        ("PUT", "/features", places(5)),
        ("PATCH", "/features/p1", {"properties": {"z": 1}}),
        ("DELETE", "/features?id=p1", None),
    ],
)
async def test_no_connection_is_held_while_a_handler_runs_elsewhere(
    hub: HubInProcess, method: str, path: str, body: Any
) -> None:
    Elsewhere.storage, Elsewhere.used = hub.storage, []
    host = RemoteHost(Elsewhere)
    port = await host.start("127.0.0.1", hub.port)
    try:
        connectors = [
            {"id": "far", "className": "remote", "properties": {"url": f"http://127.0.0.1:{port}"}},
            {"id": "near", "className": "storage", "properties": {"collection": "places"}},
        ]
        for connector in connectors:
            (await hub.client.post("/hub/connectors", json=connector)).raise_for_status()
        space = {"id": "remote", "eventHandlerIds": ["far", "near"]}
        (await hub.client.post("/hub/spaces", json=space)).raise_for_status()
        (
            await hub.client.request(method, f"/hub/spaces/remote{path}", json=body)
        ).raise_for_status()
    finally:
        await host.close()
    assert len(Elsewhere.used) >= 2
    assert set(Elsewhere.used) == {0}
