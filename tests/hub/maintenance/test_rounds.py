"""Rounds beside each other: broken collections and storages, leases, dry runs, budgets."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from naksha.hub.config.objects import StorageObject
from naksha.hub.leases import take
from naksha.hub.maintenance.requests import storages_view
from naksha.hub.maintenance.schedule import DailyWindow, MaintenanceSchedule
from naksha.hub.maintenance.state import MaintenanceTable, state_id
from naksha.model.collection import CollectionInfo
from naksha.model.errors import InUse
from naksha.model.version import HEAD
from naksha.psql import PsqlStorage
from naksha.spi.partitioning import FEATURE_ID
from naksha.spi.storage import Storage
from naksha.testing.fixtures import DatabaseFactory
from tests.hub.handlers.support import ACTOR
from tests.hub.maintenance.support import AgingHub, aging_hub, catalog_in, until
from tests.psql.support import connect_to


@pytest.fixture
async def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[AgingHub]:
    """A hub on files, whose release is known to its storages."""
    location = f"file:{tmp_path}/{{realm}}.naksha"
    async with aging_hub(location, catalog_in(tmp_path), monkeypatch, release="") as opened:
        yield opened


def place(id: str, n: int = 0) -> dict[str, Any]:
    where = {"type": "Point", "coordinates": [n % 180, 10]}
    return {"type": "Feature", "id": id, "geometry": where, "properties": {"n": n}}


async def create(storage: Storage, *names: str, **settings: Any) -> None:
    for name in names:
        async with storage.write("app") as session:
            await session.create_collection(CollectionInfo(id=name, **settings))


async def write(storage: Storage, name: str, n: int = 0) -> None:
    txn = await storage.run(lambda s: s.upsert(name, [place("a", n)]), "app")
    assert txn


async def drop(storage: Storage, *names: str) -> None:
    for name in names:
        async with storage.write("app") as session:
            await session.drop_collection(name)


async def names_of(storage: Storage) -> list[str]:
    return [info.id for info in await storage.collections(dropped=True)]


async def run_round(hub: AgingHub, storage_id: str = "default", *, is_dry: bool = False) -> None:
    """Request a round and wait for its end."""
    view = storages_view(await hub.hub.realm("default"), [storage_id])
    await view.request(is_dry=is_dry)
    hub.service.wake()
    assert await view.wait(60)


async def test_a_broken_collection_does_not_stop_the_others(hub: AgingHub, tmp_path: Path) -> None:
    storage = await hub.storage()
    await create(storage, "a", "broken", "z", max_age=1)
    for n in range(2):
        for name in ("a", "broken", "z"):
            await write(storage, name, n)
    break_history(tmp_path / "default.naksha", "broken")
    await hub.day_passes(5)
    state = await hub.state()
    assert state.last is not None
    assert [note.step for note in state.last.failed] == ["expiry of broken"]
    assert {"expiry of 1 states of a", "expiry of 1 states of z"} <= set(state.last.done)
    assert state.last.outcome == "incomplete"


def break_history(file: Path, name: str) -> None:
    """Make every removal of history of a collection fail."""
    with closing(sqlite3.connect(file)) as connection:
        (t,) = connection.execute(
            "SELECT t FROM naksha_collection WHERE id = ?", (name,)
        ).fetchone()
        connection.execute(
            f"CREATE TRIGGER broken BEFORE DELETE ON naksha_hst WHEN OLD.t = {t:d}"
            " BEGIN SELECT RAISE(ABORT, 'broken'); END"
        )


@pytest.mark.postgres
async def test_a_collection_that_cannot_be_dropped_does_not_stop_the_others(
    database_factory: DatabaseFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with database_factory.fresh() as dsn:
        async with aging_hub(dsn, catalog_in(tmp_path), monkeypatch, release="") as hub:
            storage = await hub.storage()
            assert isinstance(storage, PsqlStorage)
            await create(storage, "a", "broken", "z")
            plain = await connect_to(dsn)
            try:
                await plain.execute("CREATE VIEW seen AS SELECT * FROM broken")
            finally:
                plain.terminate()
            await drop(storage, "a", "broken", "z")
            await hub.day_passes()
            assert await names_of(storage) == ["broken"]
            state = await hub.state()
            assert state.last is not None
            assert [note.step for note in state.last.failed] == ["removal of broken"]


async def test_a_broken_storage_does_not_delay_the_others(hub: AgingHub) -> None:
    realm = await hub.hub.realm("default")
    broken = StorageObject(id="broken", properties={"location": "postgresql://127.0.0.1:1/none"})
    await realm.registry.create(broken, ACTOR)
    storage = await hub.storage()
    await create(storage, "gone")
    await drop(storage, "gone")
    await hub.day_passes()
    assert await names_of(storage) == []

    async def has_failed() -> bool:
        state = await hub.state("broken")
        return state.last is not None and state.last.outcome == "failed"

    await until(has_failed)


async def test_a_dry_run_changes_nothing(hub: AgingHub) -> None:
    storage = await hub.storage()
    await hub.settled()
    await create(storage, "gone")
    await drop(storage, "gone")
    hub.time.passes(1)
    await run_round(hub, is_dry=True)
    state = await hub.state()
    assert state.last_dry is not None
    assert state.last_dry.done == ("removal of the collection gone",)
    assert await names_of(storage) == ["gone"]
    await run_round(hub)
    assert await names_of(storage) == []


async def test_the_first_round_of_a_release_only_reports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    location = f"file:{tmp_path}/{{realm}}.naksha"
    async with aging_hub(location, catalog_in(tmp_path), monkeypatch, release="1") as hub:
        storage = await hub.storage()
        await create(storage, "gone")
        await drop(storage, "gone")
        await hub.day_passes()
        assert await names_of(storage) == ["gone"]
        assert "removal of the collection gone" in caplog.text
        await hub.day_passes()
        assert await names_of(storage) == []


async def test_no_round_runs_while_another_instance_holds_the_lease(hub: AgingHub) -> None:
    await hub.storage()
    await hub.settled()
    table = MaintenanceTable((await hub.hub.realm("default")).opened.persistence)
    kept = await table.get(state_id("default"))
    assert kept is not None
    other = await take(table, kept, "another instance")
    assert other is not None
    view = storages_view(await hub.hub.realm("default"), ["default"])
    await view.request(is_dry=False)
    hub.service.wake()
    assert not await view.wait(2)
    await other.save()
    await other.release()
    hub.service.wake()
    assert await view.wait(60)


async def test_a_step_without_time_is_first_in_the_next_round(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    location = f"file:{tmp_path}/{{realm}}.naksha"
    schedule = MaintenanceSchedule(budget_seconds=1e-9)
    async with aging_hub(
        location, catalog_in(tmp_path), monkeypatch, release="", schedule=schedule
    ) as hub:
        storage = await hub.storage()
        await create(storage, "a")
        await run_round(hub)
        state = await hub.state()
        assert state.last is not None
        assert not state.last.done
        reasons = {note.reason for note in state.last.postponed}
        assert reasons == {"the time budget of the round is used up"}
        assert state.due_ms - hub.hub.catalog.clock.now_ms() <= 60_000


async def test_heavy_work_waits_for_its_window(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    location = f"file:{tmp_path}/{{realm}}.naksha"
    # An empty window never begins.
    schedule = MaintenanceSchedule(window=DailyWindow(0, 0))
    async with aging_hub(
        location, catalog_in(tmp_path), monkeypatch, release="", schedule=schedule
    ) as hub:
        await hub.storage()
        await hub.day_passes()
        state = await hub.catalog_state()
        assert state.last is not None
        assert {note.step for note in state.last.postponed} == {"mark and sweep", "verification"}


async def test_partitionings_follow_new_versions(hub: AgingHub) -> None:
    storage = await hub.storage()
    await run_round(hub)  # the next round, which would compute them too, is not due for minutes
    await create(storage, "roads", optimal_partitioning=True)
    await write(storage, "roads")

    async def is_computed() -> bool:
        kept = await storage.meta("roads", FEATURE_ID)
        return kept is not None and bool(kept["properties"]["by_qrid"])

    async with asyncio.timeout(30):
        await until(is_computed)


async def test_a_dropped_collection_that_is_protected_stays(hub: AgingHub) -> None:
    storage = await hub.storage()
    await create(storage, "roads", delete_at=hub.hub.catalog.clock.now_ms() + 1_000)
    await write(storage, "roads")
    version = await storage.resolve(HEAD)
    await storage.pin("p", version, guards=True)
    with pytest.raises(InUse):
        await drop(storage, "roads")
    await hub.day_passes()
    assert await names_of(storage) == ["roads"]
    state = await hub.state()
    assert state.last is not None
    assert state.last.vitals.oldest_pin == "p"
