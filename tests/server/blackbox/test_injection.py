"""Hostile values in names, queries, headers and configurations.

The response is an error that says so, or a correct result, and no other data has changed.
"""

import asyncio
import hashlib
import json
import sqlite3
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any
from urllib.parse import quote

import asyncpg
import httpx
import pytest

from naksha.testing.fixtures import DatabaseFactory
from naksha.testing.servers.hub_server import HubServer
from tests.server.raw_connection import connected, rest
from tests.server.towns import collection, point

NASTY = {
    "quote": "'; DROP TABLE roads; --",
    "double-quote": '"; DROP SCHEMA naksha CASCADE; --',
    "or": "' OR '1'='1",
    "union": "x' UNION SELECT raw FROM naksha.roads --",
    "stacked": "1); DELETE FROM naksha.roads; --",
    "dollar": "$$; DELETE FROM naksha.roads; $$",
    "parameter": "$1",
    "placeholder": "?1 :id @id %(id)s %s {0} {id} ${id}",
    "format": "%s%s%n%x{0.__class__.__mro__}{}",
    "json-path": "$.** ? (@ == 1) || $[*]",
    "json": '{"$ne": null}',
    "like": "%_\\",
    "backslash": "\\'; DELETE FROM roads; --",
    "traversal": "../../../../etc/passwd",
    "encoded-traversal": "..%2f..%2fetc%2fpasswd",
    "crlf": "x\r\nSet-Cookie: a=b\r\n\r\nHTTP/1.1 200 OK",
    "nul": "x\x00y",
    "control": "x\x01\x1b[31m\x7f",
    "right-to-left": "x\u202ey\u0301\ufeff",
    "emoji": "🦓" * 10,
    "not-a-character": "\uffff\ufffe",
    "long": "x" * 5_000,
    "spaces": "   ",
    "empty-braces": "{}",
    "script": "<script>alert(1)</script>",
    "log4j": "${jndi:ldap://127.0.0.1:1/x}",
    "comma": ",,,+,,",
    "operators": "=lt=@>!=<>^=",
}
CLEAN = {400, 401, 403, 404, 405, 409, 410, 412, 413, 414, 415, 431}


class Place:
    """A hub, and all that is in its storage."""

    def __init__(self, server: HubServer, dsn: str | None) -> None:
        self.server = server
        self.dsn = dsn

    def fingerprint(self) -> dict[str, str]:
        """A sum for every table of the storage."""
        if self.dsn is not None:
            return asyncio.run(_psql_sums(self.dsn))
        return _sqlite_sums(self.server.directory / "default.naksha")


def _sum(rows: list[str]) -> str:
    return f"{len(rows)} {hashlib.sha256(chr(10).join(sorted(rows)).encode()).hexdigest()}"


async def _psql_sums(dsn: str) -> dict[str, str]:
    connection = await asyncpg.connect(dsn)
    try:
        tables = await connection.fetch(
            "SELECT format('%I.%I', table_schema, table_name) AS name"
            " FROM information_schema.tables WHERE table_type = 'BASE TABLE'"
            " AND table_schema NOT IN ('pg_catalog', 'information_schema')"
            " AND table_name <> 'spatial_ref_sys'"  # 8,500 rows of PostGIS
            # Days are made before a write that may be refused; their rows are in the whole history.
            " AND table_name !~ '_hst_[0-9_]+$'"
        )
        found = {}
        for table in tables:
            name = table["name"]
            rows = await connection.fetch(f"SELECT row::text AS text FROM {name} AS row")
            found[name] = _sum([row["text"] for row in rows])
        return found
    finally:
        await connection.close()


def _sqlite_sums(path: Path) -> dict[str, str]:
    connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    try:
        names = connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall()
        found = {}
        for (name,) in names:
            if name.startswith("sqlite_"):
                continue
            try:
                rows = connection.execute(f'SELECT * FROM "{name}"').fetchall()
            except sqlite3.OperationalError:
                continue  # a virtual table; what it is made of has tables of its own
            found[name] = _sum([repr(row) for row in rows])
        spaces = connection.execute("SELECT id, t FROM naksha_collection").fetchall()
        for (id, t), table in product(spaces, ("naksha_head", "naksha_del", "naksha_hst")):
            rows = connection.execute(f"SELECT * FROM {table} WHERE t = ?", (t,)).fetchall()
            found[f"{id} in {table}"] = _sum([repr(row) for row in rows])
        return found
    finally:
        connection.close()


@pytest.fixture(scope="module", params=["file", pytest.param("psql", marks=pytest.mark.postgres)])
def place(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Place]:
    directory = tmp_path_factory.mktemp("hub")
    if request.param == "file":
        with HubServer(directory) as server:
            yield Place(server, None)
        return
    factory: DatabaseFactory = request.getfixturevalue("database_factory")
    with factory.fresh() as dsn, HubServer(directory, storage=dsn) as server:
        yield Place(server, dsn)


@pytest.fixture(scope="module")
def client(place: Place) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=f"{place.server.url}/hub", timeout=60) as client:
        for id in ("roads", "rails"):
            client.post("/spaces", json={"id": id}).raise_for_status()
            some = [point(f"f{n}", n, n, n=n, name=f"N{n}", tags=["t"]) for n in range(20)]
            client.put(f"/spaces/{id}/features", json=collection(*some)).raise_for_status()
            client.post(f"/spaces/{id}/tags", json={"id": "first"}).raise_for_status()
            client.post(f"/spaces/{id}/branches", json={"id": "draft"}).raise_for_status()
        yield client


@pytest.fixture
def unchanged(place: Place, client: httpx.Client) -> Iterator[None]:
    """Nothing in the storage is changed by a test."""
    before = place.fingerprint()
    assert before
    yield
    assert place.fingerprint() == before


@pytest.fixture
def features_unchanged(place: Place, client: httpx.Client) -> Iterator[None]:
    """A test may make things, and remove them; features are as they were, and no table is gone."""
    before = place.fingerprint()
    yield
    after = place.fingerprint()
    assert before.keys() <= after.keys()
    of_spaces = {name for name in before if "roads" in name or "rails" in name}
    assert of_spaces
    assert {name: after[name] for name in of_spaces} == {name: before[name] for name in of_spaces}


def clean(answer: httpx.Response, *, may_find: bool = False) -> None:
    """An error without internals, or an empty result."""
    if answer.status_code == 200:
        assert may_find, answer.text
        return
    assert answer.status_code in CLEAN, (answer.status_code, answer.text)
    body = answer.json()
    assert body["type"] == "ErrorResponse" or (body["type"], answer.status_code) == ("error", 404)
    for inner in ("Traceback", "asyncpg", "sqlite3", "syntax error", "SELECT "):
        assert inner not in body["errorMessage"].replace("UNION SELECT ", ""), body


def features_of(answer: httpx.Response) -> list[Any]:
    found: list[Any] = answer.json()["features"]
    return found


@pytest.mark.usefixtures("unchanged")
def test_in_paths(client: httpx.Client) -> None:
    for text in NASTY.values():
        ask_in_paths(client, text)


def ask_in_paths(client: httpx.Client, text: str) -> None:
    name = quote(text, safe="")
    for path in (
        f"/spaces/{name}",
        f"/spaces/{name}/search",
        f"/spaces/{name}/features/f1",
        f"/spaces/roads/features/{name}",
        f"/spaces/roads/features/{name}/history",
        f"/spaces/roads/tags/{name}",
        f"/spaces/roads/branches/{name}",
        f"/spaces/roads/branches/{name}/conflicts",
        f"/spaces/roads/changesets/{name}",
        f"/spaces/roads/tile/{name}/0",
        f"/spaces/roads/tile/quadkey/{name}",
        f"/handlers/{name}",
        f"/storages/{name}",
        f"/roles/{name}",
        f"/states/{name}",
        f"/transactions/{name}",
        f"/{name}",
    ):
        clean(client.get(path), may_find=path.endswith("/history"))
    for path in (f"/spaces/{name}", f"/spaces/roads/features/{name}", f"/roles/{name}"):
        clean(client.delete(path))
        clean(client.patch(path, json={}))


@pytest.mark.usefixtures("unchanged")
def test_in_queries(client: httpx.Client) -> None:
    for text in NASTY.values():
        ask_in_queries(client, text)


def ask_in_queries(client: httpx.Client, text: str) -> None:
    """Values are only values: nothing is found by them that was not asked for."""
    value = quote(text, safe="")
    for query in (f"p.name={value}", f"p.{value}=1", f"f.id={value}", f"p.n>{value}"):
        answer = client.get(f"/spaces/roads/search?{query}")
        clean(answer, may_find=True)
        if answer.status_code == 200 and not query.startswith("p.n>"):
            assert features_of(answer) == [], query
    for query in (
        *(f"p.name={operator}{value}" for operator in ("cs=", "bw=", "lt=", "gte=")),
        f"p.name!={value}",
        f"f.{value}={value}",
        f"tags={value}",
        f"tags=t+{value}",
        f"selection={value}",
        f"selection=p.{value}",
        f"author={value}",
        f"limit={value}",
        f"versionRef={value}",
        f"versionRef=draft:{value}",
        f"version={value}",
        f"context={value}",
        f"{value}={value}",
        f"force2D={value}",
    ):
        answer = client.get(f"/spaces/roads/search?{query}")
        clean(answer, may_find=True)
    for path in (
        f"iterate?sort={value}",
        f"iterate?sort=p.{value}:asc",
        f"iterate?sort=p.n:{value}",
        f"iterate?handle={value}",
        f"iterate?part={value}",
        f"features?id={value}",
        f"bbox?west={value}&south=0&east=1&north=1",
        f"bbox?west=0&south=0&east=1&north=1&clustering={value}",
        f"bbox?west=0&south=0&east=1&north=1&clustering=hexbin&clustering.property={value}",
        f"bbox?west=0&south=0&east=1&north=1&tweaks={value}",
        f"spatial?lat=0&lon=0&radius={value}",
        f"spatial?refSpaceId={value}&refFeatureId={value}",
        f"spatial?h3Index={value}",
        f"changesets?author={value}&startTime={value}",
        f"changesets?pageToken={value}",
        f"diff?versionRef={value}&other={value}",
        f"history?versionRef={value}",
        f"statistics?versionRef={value}",
    ):
        clean(client.get(f"/spaces/roads/{path}"), may_find=True)
    for path in (f"features?id={value}", f"features?tags={value}", f"changesets?version<{value}"):
        answer = client.delete(f"/spaces/roads/{path}")
        assert answer.status_code == 204 or answer.status_code in CLEAN, answer.text


@pytest.mark.usefixtures("features_unchanged")
def test_in_bodies(client: httpx.Client) -> None:
    for text in NASTY.values():
        ask_in_bodies(client, text)


def ask_in_bodies(client: httpx.Client, text: str) -> None:
    """Requests about versions, and writes in dry runs or failing transactions."""
    wrong: dict[str, Any] = {"type": "Feature", "id": "wrong", "geometry": {"type": text}}
    for path, body in (
        ("tags", {"id": text}),
        ("tags", {"id": "new", "versionRef": text + ":1"}),
        ("branches", {"id": text + " "}),
        ("branches", {"id": "new", "baseRef": text + ":1"}),
        ("branches/draft", {"type": text}),
        ("branches/draft", {"type": "Merge", "targetBranchId": text}),
        ("branches/draft", {"type": "Resolve", "conflictId": text}),
        ("rollback", {"versionRef": text, "dryRun": True}),
        ("revert", {"version": text, "dryRun": True}),
        ("copy", {"targetSpaceId": text}),
        ("features", collection(point(text, 1, 1), wrong)),
        ("features", {"type": text}),
        ("spatial/batch", {"refSpaceId": text}),
        ("spatial/batch", {"refSpaceId": "rails", "query": text, "handle": text}),
        ("spatial", {"type": text, "coordinates": [text]}),
    ):
        answer = client.post(f"/spaces/roads/{path}", json=body)
        clean(answer, may_find=path in ("spatial/batch", "tags"))
        if path == "tags" and answer.is_success:  # tags have any names without blanks
            assert answer.json()["id"] == text
            gone = client.delete(f"/spaces/roads/tags/{quote(text, safe='')}")
            assert gone.status_code == 200, (text, gone.text)
            assert gone.json()["id"] == text
    clean(client.post("/spaces/roads/features", content=text.encode()))
    clean(client.post("/spaces", content=text.encode("utf-16")))


def virtual(made_of: Any) -> dict[str, Any]:
    return {"id": "virtualspace", "params": {"virtualspace": made_of}}


@pytest.mark.usefixtures("features_unchanged")
def test_in_configurations(client: httpx.Client) -> None:
    for text in NASTY.values():
        ask_in_configurations(client, text)


def ask_in_configurations(client: httpx.Client, text: str) -> None:
    """Invalid input is rejected; accepted input is returned unchanged and does no harm."""
    for path, body in (
        ("/spaces", {"id": text}),
        ("/handlers", {"id": text, "className": "read-only"}),
        ("/handlers", {"id": "x", "className": text}),
        ("/handlers", {"id": "x", "className": "view", "properties": {"spaceIds": [text]}}),
        ("/handlers", {"id": "x", "className": "remote", "properties": {"url": text}}),
        ("/storages", {"id": "x", "properties": {"location": text}}),
        ("/storages", {"id": "x", "properties": {"location": "file:" + text + "/x/y/z"}}),
        ("/storages", {"id": "x", "className": text, "properties": {}}),
        ("/roles", {"id": text, "urm": {}}),
        ("/roles", {"id": "x", "urm": {"naksha": {text: [{}]}}}),
        ("/spaces", {"id": "x", "eventHandlerIds": [text]}),
        ("/spaces", {"id": "x", "storage": {"id": text}}),
        ("/spaces", {"id": "x", "extends": {"spaceId": text}}),
        ("/spaces", {"id": "x", "storage": virtual({"merge": [text]})}),
        ("/spaces", {"id": "x", "storage": virtual({text: ["roads"]})}),
        ("/spaces", {"id": "x", "storage": virtual(text)}),
    ):
        answer = client.post(path, json=body)
        if answer.is_success:  # a name that is one, such as `$1` is not
            assert json.dumps(text) in json.dumps(answer.json()), answer.text
            client.delete(f"{path}/{answer.json()['id']}").raise_for_status()
            continue
        clean(answer)
    answer = client.patch("/spaces/rails", json={"title": text, "description": text})
    if answer.is_success:
        assert client.get("/spaces/rails").json()["title"] == text
    else:
        clean(answer)


@pytest.mark.usefixtures("unchanged")
def test_in_fields_of_the_head(place: Place) -> None:
    for text in NASTY.values():
        ask_in_fields_of_the_head(place, text)


def ask_in_fields_of_the_head(place: Place, text: str) -> None:
    """Header values are bytes: a line end in one must not begin another header."""
    value = text.encode()
    for name in (b"Stream-Id", b"If-None-Match", b"Accept", b"Accept-Encoding", b"X-Other"):
        with connected(place.server.port) as connection:
            head = b"GET /hub/spaces/roads/features/f1 HTTP/1.1\r\nConnection: close\r\n"
            host = b"Host: 127.0.0.1\r\n"
            connection.sendall(head + host + name + b": " + value + b"\r\n\r\n")
            answer = rest(connection)
        status, _, tail = answer.partition(b"\r\n")
        assert status.split()[1] in (b"200", b"304", b"400", b"431"), answer[:200]
        assert b"Set-Cookie" not in tail.partition(b"\r\n\r\n")[0]


@pytest.mark.usefixtures("features_unchanged")
def test_texts_are_kept_as_they_are(client: httpx.Client) -> None:
    """In properties, ids and tags of features that can have them; and all of it is removed again
    in a space of its own."""
    client.post("/spaces", json={"id": "texts", "versionsToKeep": 1}).raise_for_status()
    try:
        for name, text in NASTY.items():
            feature = point(None, 1, 1, **{text if name != "nul" else "x": text})
            answer = client.put(f"/spaces/texts/features/{name}", json=feature)
            if name == "nul":
                clean(answer)
                continue
            assert answer.status_code == 200, answer.text
            assert client.get(f"/spaces/texts/features/{name}").json()["properties"][text] == text
            found = client.get(f"/spaces/texts/search?f.id={name}&selection=p.x")
            assert len(features_of(found)) == 1
    finally:
        client.delete("/spaces/texts").raise_for_status()
