"""Storages, hubs, tokens and settings written by 0.1: read as 0.1 read them, and still usable.

The files are in `tests/data/written_by_0_1`, each with the answers of the code that wrote it. They
are never written again: a release that reads them otherwise breaks what users have.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

import naksha
from naksha import NotSupported
from naksha.testing.servers.hub_server import HubServer
from naksha.testing.servers.postgres import PostgresCluster
from tests.compatibility.answers import (
    hub_answers,
    settings_answers,
    storage_answers,
    token_answers,
)
from tests.compatibility.opening import (
    DATA,
    HUB_FILES,
    content,
    hub_arguments,
    recorded,
    server_environment,
    unpacked,
)

FEATURE = {"type": "Feature", "id": "new", "geometry": None, "properties": {"speed": 5}}


def check_storage(location: str, answers: Mapping[str, Any], **options: Any) -> None:
    with naksha.connect(location, app_id="later", **options) as db:
        check_answers(storage_answers(db), answers)
    with naksha.connect(location, read_only=True, **options) as db:
        check_answers(storage_answers(db), answers)
    with naksha.connect(location, app_id="later", **options) as db:
        db["roads"].create(FEATURE)
        db["roads"].delete("a")
        db.branch("idea")["roads"].create(FEATURE)
        assert {one["id"] for one in db.branch("idea")["roads"].query()} >= {"d", "e", "new"}
        assert {one["id"] for one in db["roads"].query()} == {"c", "d", "new", "ä/ 'x'"}
        assert {one["id"] for one in db["roads"].at("first").query()} == {"a", "b", "c", "ä/ 'x'"}


def check_answers(now: Any, before: Mapping[str, Any]) -> None:
    """One by one, so that a failure shows what is different."""
    now = msgspec.json.decode(msgspec.json.encode(now))
    assert now.keys() == before.keys()
    for name, answer in before.items():
        assert now[name] == answer, name


def test_a_storage_in_a_file(tmp_path: Path) -> None:
    path = unpacked("town.naksha", tmp_path)
    with pytest.raises(NotSupported, match="open it once without read_only"):
        naksha.connect(f"file:{path}", read_only=True).__enter__()
    check_storage(f"file:{path}", recorded("town"))


def test_a_storage_in_a_database(database: str, postgres_cluster: PostgresCluster) -> None:
    restored(database, postgres_cluster)
    with pytest.raises(NotSupported, match="open the storage once as the owner"):
        naksha.connect(database, read_only=True, schema="town").__enter__()
    check_storage(database, recorded("psql_town"), schema="town")


def restored(dsn: str, cluster: PostgresCluster) -> None:
    name = server_environment(dsn)["PGDATABASE"]
    cluster.execute(content("psql.sql").decode(), name)


@contextmanager
def serving(folder: Path, environment: Mapping[str, str] | None = None) -> Iterator[httpx.Client]:
    hub = HubServer(folder, arguments=hub_arguments(folder, environment), environment=environment)
    with hub, httpx.Client(base_url=f"{hub.url}/hub", timeout=60) as client:
        yield client


def check_hub(client: httpx.Client, answers: Mapping[str, Any]) -> None:
    check_answers(hub_answers(client), answers)
    body = {"type": "FeatureCollection", "features": [FEATURE]}
    for space in ("roads", "towns", "edits"):
        client.put(f"/spaces/{space}/features", json=body).raise_for_status()
        assert client.get(f"/spaces/{space}/features/new").status_code == 200
    client.patch("/spaces/roads", json={"title": "Streets"}).raise_for_status()
    client.post("/jobs/check/cancel").raise_for_status()
    client.delete("/subscriptions/tell").raise_for_status()
    assert client.get("/spaces/roads").json()["mine"] == {"kept": 1}


def test_a_hub_on_files(tmp_path: Path) -> None:
    for name in HUB_FILES:
        unpacked(f"hub.{name}", tmp_path, name)
    with serving(tmp_path) as client:
        check_hub(client, recorded("hub"))


def test_a_hub_on_a_database(
    database: str, postgres_cluster: PostgresCluster, tmp_path: Path
) -> None:
    restored(database, postgres_cluster)
    with serving(tmp_path, server_environment(database)) as client:
        check_hub(client, recorded("psql_hub"))


@pytest.mark.parametrize("key", ["secret:test.secret", "pem:test.pem"])
def test_a_token(key: str) -> None:
    form, _, name = key.partition(":")
    known = recorded("tokens")[key]
    check_answers(token_answers(f"{form}:{DATA / name}", known["token"]), known["says"])


def test_a_file_of_settings() -> None:
    """Later releases have more settings."""
    now, before = settings_answers(DATA / "settings.toml"), recorded("settings")
    check_answers({name: now[name] for name in before}, before)
