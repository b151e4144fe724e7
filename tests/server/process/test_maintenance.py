"""Maintenance by real hubs: over REST, and when the process that runs a round is killed."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from collections.abc import Awaitable, Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from naksha.hub.auth.keys import KeyFile, read_signing_key
from naksha.hub.auth.tokens import mint
from naksha.model.collection import CollectionInfo
from naksha.model.errors import Expired
from naksha.model.query import Query
from naksha.model.version import AtSeq
from naksha.sqlite import SqliteStorage
from naksha.testing.fixtures import DatabaseFactory
from naksha.testing.servers.hub_server import HubServer
from tests.psql.aging import aging_storage
from tests.psql.support import connect_to

WAIT_SECONDS = 120.0
LEASE = ["--subscription-seconds", "1"]
STATES = 12_000


def post(client: httpx.Client, path: str = "/maintenance", **parameters: Any) -> dict[str, Any]:
    """Run rounds and wait for their end."""
    answer = client.post(path, params=parameters)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def ended(client: httpx.Client) -> dict[str, Any]:
    """Wait for the end of a requested round of the default storage, and return its record."""
    deadline = time.monotonic() + WAIT_SECONDS
    while True:
        state = client.get("/maintenance/default").json()
        if "requestedAt" not in state and "lastRound" in state:
            found: dict[str, Any] = state["lastRound"]
            return found
        assert time.monotonic() < deadline, state
        time.sleep(0.1)


async def until(is_so: Callable[[], Awaitable[bool]]) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not await is_so():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.02)


def test_a_round_on_request_reports_what_it_did(client: httpx.Client) -> None:
    client.post("/spaces", json={"id": "roads"}).raise_for_status()
    feature: dict[str, Any] = {"type": "Feature", "id": "a", "geometry": None, "properties": {}}
    client.put("/spaces/roads/features", json=feature).raise_for_status()
    found = post(client, "/maintenance/default")
    assert (found["storageId"], found["running"]) == ("default", False)
    assert found["lastRound"]["outcome"] == "done"
    assert found["lastRound"]["dryRun"] is False
    assert client.get("/maintenance/default").json()["lastRound"] == found["lastRound"]
    statistics = client.get("/storages/default/collections/roads").json()
    assert statistics["estimatedFeatureCount"] == 1


def test_a_dry_run_of_everything(client: httpx.Client) -> None:
    found = post(client, dryRun=True)
    assert found["enabled"] is True
    assert found["catalog"]["lastDryRun"]["dryRun"] is True
    assert [one["storageId"] for one in found["storages"]] == ["default"]
    assert found["storages"][0]["lastDryRun"]["outcome"] == "done"


def test_metrics_and_log_lines_of_a_round(hub: HubServer, client: httpx.Client) -> None:
    post(client, "/maintenance/default")
    metrics = httpx.get(f"{hub.url}/metrics").text
    assert 'naksha_maintenance_rounds_total{outcome="done",subject="default/default"}' in metrics
    assert 'naksha_maintenance_last_round{subject="default/default"}' in metrics
    assert "Maintenance of default/default: done in" in hub.log()


def test_an_unknown_storage_is_not_maintained(client: httpx.Client) -> None:
    assert client.post("/maintenance/nothing").status_code == 404
    assert client.get("/maintenance/nothing").status_code == 404


def test_a_hub_in_order_has_no_warnings(client: httpx.Client) -> None:
    found = client.get("/health-status", params={"detailed": ""}).json()
    assert found["status"] == {"result": "OK"}
    assert found["warnings"] == []


def test_rights_to_maintain(tmp_path: Path) -> None:
    """An actor that manages a storage may maintain it; only operators see the catalog."""
    secret = tmp_path / "secret"
    secret.write_text("a secret that is long enough for HS256\n")
    key = read_signing_key(KeyFile.parse(f"secret:{secret}"))

    def bearer(**rights: Any) -> dict[str, str]:
        token = mint(key, {"appId": "test", "urm": {"naksha": rights}}, seconds=600)
        return {"Authorization": f"Bearer {token}"}

    reader = bearer(useStorages=[{}])
    other = bearer(manageStorages=[{"id": "other"}])
    operator = bearer(manageStorages=[{"id": "default"}])
    with (
        HubServer(tmp_path, arguments=["--keys", f"secret:{secret}"]) as hub,
        httpx.Client(base_url=f"{hub.url}/hub", timeout=60) as client,
    ):
        for headers in (reader, other):
            assert client.post("/maintenance/default", headers=headers).status_code == 403
            assert client.get("/maintenance/default", headers=headers).status_code == 403
        assert client.get("/maintenance", headers=reader).status_code == 403
        found = client.get("/maintenance", headers=other).json()
        assert (found["storages"], "catalog" in found) == ([], False)
        assert client.post("/maintenance/default", headers=operator).status_code == 200
        assert "catalog" in client.get("/maintenance", headers=operator).json()


def test_a_hub_without_maintenance_still_runs_rounds_on_request(tmp_path: Path) -> None:
    with (
        HubServer(tmp_path, arguments=["--no-maintenance"]) as hub,
        httpx.Client(base_url=f"{hub.url}/hub", timeout=60) as client,
    ):
        assert client.get("/maintenance").json()["enabled"] is False
        assert post(client, "/maintenance/default")["lastRound"]["outcome"] == "done"


# ---- Killed in the middle of a round -------------------------------------------------------------


async def old_history(path: Path) -> int:
    """Write a collection whose history of two years ago is due; return its first version."""
    then = int((datetime.now(UTC) - timedelta(days=730)).timestamp() * 1000)
    storage = await SqliteStorage.open(path)
    try:
        info = CollectionInfo(id="roads", max_age=30)
        await storage.run(lambda s: s.create_collection(info), "app", at_ms=then)
        for n in range(2):
            features = [
                {"type": "Feature", "id": str(id), "geometry": None, "properties": {"n": n}}
                for id in range(STATES)
            ]
            at_ms = then + (n + 1) * 1000
            async with storage.write("app", at_ms=at_ms) as session:
                await session.upsert("roads", features)
        return (await storage.transactions())[1].seq_number or 0
    finally:
        await storage.close()


def states_left(path: Path) -> int:
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        (count,) = connection.execute("SELECT count(*) FROM naksha_hst").fetchone()
    return int(count)


async def test_a_round_on_a_file_that_was_killed_is_completed(tmp_path: Path) -> None:
    path = tmp_path / "default.naksha"
    first = await old_history(path)
    assert states_left(path) == STATES
    hub = HubServer(tmp_path, arguments=LEASE)
    hub.start()
    try:
        asking = threading.Thread(target=lambda: _ask(hub.url))
        asking.start()

        async def is_begun() -> bool:
            return states_left(path) < STATES

        await until(is_begun)
        hub.kill()
        asking.join()
        left = states_left(path)
        assert 0 < left < STATES
        hub.start()
        with httpx.Client(base_url=f"{hub.url}/hub", timeout=60) as client:
            assert ended(client)["outcome"] == "done"
        assert states_left(path) == 0
    finally:
        hub.kill()
    storage = await SqliteStorage.open(path)
    try:
        with pytest.raises(Expired):
            await storage.page("roads", Query(limit=1), AtSeq(first))
        assert await storage.count("roads", Query()) == STATES
        assert await storage.mismatches("roads", 10) == []
    finally:
        await storage.close()


def _ask(url: str) -> None:
    """Request a round; the hub may be killed before it responds."""
    try:
        httpx.post(f"{url}/hub/maintenance/default", timeout=60)
    except httpx.HTTPError:
        return


@pytest.mark.postgres
async def test_another_instance_completes_the_round_of_a_killed_one(
    database_factory: DatabaseFactory, tmp_path: Path
) -> None:
    today = datetime.now(UTC).date()
    with database_factory.fresh() as dsn:
        async with aging_storage(dsn, today - timedelta(days=100)) as aging:
            await aging.create()
            await aging.write_days(today - timedelta(days=100), 20, 4)
            before, parts = await aging.everything(), len(await aging.partitions())
            hubs = []
            for name in ("a", "b"):
                (tmp_path / name).mkdir()
                data = ["--data", str(tmp_path / name)]
                hubs.append(
                    HubServer(tmp_path / name, storage=dsn, catalog=dsn, arguments=LEASE + data)
                )
                hubs[-1].start()
            try:
                survivor = await _killed_in_a_merge(dsn, hubs)
                with httpx.Client(base_url=f"{survivor.url}/hub", timeout=60) as client:
                    round_ = await asyncio.to_thread(ended, client)
                assert round_["outcome"] == "done", round_
                assert any(text.startswith("merge of roads_hst") for text in round_["done"])
            finally:
                for hub in hubs:
                    hub.kill()
            assert len(await aging.partitions()) < parts
            assert not [name for name in await aging.tables() if "_new_" in name]
            assert await aging.everything() == before


async def _killed_in_a_merge(dsn: str, hubs: list[HubServer]) -> HubServer:
    """Kill the instance that runs a round while it waits to replace partitions."""
    older = await connect_to(dsn)
    looker = await connect_to(dsn)
    try:
        await older.execute("BEGIN")
        await older.fetchval("SELECT count(*) FROM naksha_version")
        asking = threading.Thread(target=lambda: _ask(hubs[0].url))
        asking.start()

        async def is_merging() -> bool:
            found = await looker.fetchval(
                "SELECT count(*) FROM pg_class WHERE relname LIKE 'roads\\_hst\\_new\\_%'"
            )
            return bool(found)

        await until(is_merging)
        is_first = await asyncio.to_thread(_runs_the_round, hubs[0].url)
        killed, survivor = hubs if is_first else hubs[::-1]
        killed.kill()
        asking.join()
        await older.execute("ROLLBACK")
    finally:
        older.terminate()
        looker.terminate()
    return survivor


def _runs_the_round(url: str) -> bool:
    with httpx.Client(base_url=f"{url}/hub", timeout=60) as client:
        state = client.get("/maintenance/default").json()
        assert state["running"], state
        known = client.get("/instances").json()
    return any(one["self"] and one["id"] == state["instance"] for one in known)
