"""When rounds run: first rounds of a release, failed ones, free slots, the daily window."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from naksha.catalog.realms import RealmStatus
from naksha.hub.config.objects import StorageObject
from naksha.hub.config.realm_setup import DefaultStorage
from naksha.hub.hub import Hub
from naksha.hub.maintenance.partitionings import PartitioningWatch
from naksha.hub.maintenance.requests import catalog_view, storages_view
from naksha.hub.maintenance.rounds import storage_round
from naksha.hub.maintenance.schedule import DailyWindow, MaintenanceSchedule
from naksha.hub.maintenance.state import MaintenanceState
from naksha.model import limits
from naksha.model.collection import CollectionChange, CollectionInfo
from naksha.spi.maintenance import StorageRound
from naksha.spi.storage import Storage
from naksha.sqlite import SqliteStorage
from naksha.versioning import Attribution, create_tag, tags
from tests.hub.handlers.support import ACTOR
from tests.hub.maintenance.support import AgingHub, aging_hub, catalog_in, until

INTERVAL_MS = limits.MAINTENANCE_SECONDS * 1_000


@pytest.fixture
async def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[AgingHub]:
    """A hub on files, whose release is known to its storages."""
    location = f"file:{tmp_path}/{{realm}}.naksha"
    async with aging_hub(location, catalog_in(tmp_path), monkeypatch, release="") as opened:
        yield opened


async def run_round(hub: AgingHub, *ids: str) -> None:
    """Request rounds of storages and wait for their end."""
    view = storages_view(await hub.hub.realm("default"), ids or ["default"])
    await view.request(is_dry=False)
    hub.service.wake()
    assert await view.wait(30)


async def dry_run(hub: AgingHub) -> tuple[list[str], list[str]]:
    """Return what rounds of the default storage and of the catalog would do."""
    views = [storages_view(await hub.hub.realm("default"), ["default"]), catalog_view(hub.hub)]
    found: list[list[str]] = []
    for view in views:
        await view.request(is_dry=True)
        hub.service.wake()
        assert await view.wait(30)
        (state,) = await view.states()
        assert state.last_dry is not None
        found.append(list(state.last_dry.done))
    return found[0], found[1]


# ---- The first round of a release ----------------------------------------------------------------


async def test_a_sweep_that_waited_for_the_window_has_not_been_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    location = f"file:{tmp_path}/{{realm}}.naksha"
    schedule = MaintenanceSchedule(window=DailyWindow(0, 0))  # it never begins
    async with aging_hub(location, catalog_in(tmp_path), monkeypatch, schedule=schedule) as hub:
        await hub.storage()
        await hub.day_passes()
        state = await hub.catalog_state()
        assert state.last_dry is not None
        assert state.release == ""
        assert (await hub.state()).release == "1"
        await hub.day_passes()
        assert (await hub.catalog_state()).last is None


async def test_a_sweep_that_could_not_tell_ages_has_not_been_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    location = f"file:{tmp_path}/{{realm}}.naksha"
    async with aging_hub(location, catalog_in(tmp_path), monkeypatch, behind_seconds=120) as hub:
        await hub.storage()
        await hub.day_passes()
        state = await hub.catalog_state()
        assert state.last_dry is not None
        assert "clock" in state.last_dry.postponed[0].reason
        assert state.release == ""


# ---- Requests ------------------------------------------------------------------------------------


def test_a_dry_run_does_not_replace_a_requested_round() -> None:
    idle = MaintenanceState(subject="s")
    assert idle.requested(1, is_dry=True).requested_dry
    assert not idle.requested(1, is_dry=False).requested(2, is_dry=True).requested_dry
    assert not idle.requested(1, is_dry=True).requested(2, is_dry=False).requested_dry


async def test_a_dry_run_reports_tags_and_realms(hub: AgingHub) -> None:
    storage = await hub.storage()
    await purging_realm(hub)
    await expired_tag(storage)
    storage_would, catalog_would = await dry_run(hub)
    assert "removal of 1 tags whose version has expired" in storage_would
    assert "purge of the realm town" in catalog_would
    assert len(await tags(storage)) == 1
    for _ in range(4):
        await hub.day_passes()
    assert await tags(storage) == []
    assert (await hub.hub.catalog.realms.get("town")).status is RealmStatus.PURGED
    state = await hub.catalog_state()
    assert state.last is not None
    assert "purge of the realm town" not in state.last.done  # it ended in an earlier round


async def expired_tag(storage: Storage) -> None:
    await storage.run(lambda s: s.create_collection(CollectionInfo(id="roads")), "app")
    feature: dict[str, Any] = {"type": "Feature", "id": "a", "geometry": None, "properties": {}}
    await storage.run(lambda s: s.upsert("roads", [feature]), "app")
    await create_tag(storage, "loose", Attribution("app"), protects=False)
    off = CollectionChange(history_enabled=False)
    await storage.run(lambda s: s.change_collection("roads", off), "app")
    await storage.run(lambda s: s.upsert("roads", [feature | {"properties": {"n": 1}}]), "app")


async def purging_realm(hub: AgingHub) -> None:
    hub.hub._default_storage = DefaultStorage(location="memory:unused-{realm}")
    realms = hub.hub.catalog.realms
    realm = await realms.create("town")
    for status in ("INITIALIZING", "ACTIVE", "INACTIVE"):
        realm = await realms.update(realm, RealmStatus(status))
    await hub.day_passes(4)  # the quarantine
    await realms.update(realm, RealmStatus.PURGING)


# ---- Failures ------------------------------------------------------------------------------------


async def test_a_file_that_is_missing_is_not_created(hub: AgingHub, tmp_path: Path) -> None:
    await hub.storage()
    await hub.settled()
    file = tmp_path / "default.naksha"
    file.rename(tmp_path / "moved")
    await run_round(hub)
    state = await hub.state()
    assert state.last is not None
    assert (state.last.outcome, state.failures) == ("failed", 1)
    assert "is missing" in state.last.error
    assert not file.exists()
    (tmp_path / "moved").rename(file)
    await run_round(hub)
    state = await hub.state()
    assert state.last is not None
    assert (state.last.outcome, state.failures) == ("done", 0)


async def test_a_storage_that_was_never_used_is_not_created(hub: AgingHub, tmp_path: Path) -> None:
    realm = await hub.hub.realm("default")
    file = tmp_path / "new.naksha"
    new = StorageObject(id="new", properties={"location": f"file:{file}"})
    await realm.registry.create(new, ACTOR)
    await run_round(hub, "new")
    state = await hub.state("new")
    assert state.last is not None
    assert [note.reason for note in state.last.postponed] == ["the storage has not been used yet"]
    assert (state.last.outcome, file.exists()) == ("done", False)


async def test_the_pause_after_failed_rounds_grows(hub: AgingHub) -> None:
    realm = await hub.hub.realm("default")
    broken = StorageObject(id="broken", properties={"location": "postgresql://127.0.0.1:1/none"})
    await realm.registry.create(broken, ACTOR)
    pauses = []
    for _ in range(4):
        await run_round(hub, "broken")
        now_ms = hub.hub.catalog.clock.now_ms()
        pauses.append(((await hub.state("broken")).due_ms - now_ms) / INTERVAL_MS)
    assert pauses == pytest.approx([1.9, 3.8, 5.7, 5.7], rel=0.1)  # with jitter; at most an hour


async def test_a_round_ends_although_its_realm_is_deactivated(
    hub: AgingHub, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    started, goes_on = asyncio.Event(), asyncio.Event()

    async def slow(hub: Hub, realm: str, thing: StorageObject, record: StorageRound) -> None:
        started.set()
        await goes_on.wait()
        await storage_round(hub, realm, thing, record)

    await hub.storage()
    await hub.settled()
    monkeypatch.setattr("naksha.hub.maintenance.service.storage_round", slow)
    view = storages_view(await hub.hub.realm("default"), ["default"])
    await view.request(is_dry=False)
    hub.service.wake()
    await started.wait()
    await hub.service._visit_catalog([])
    goes_on.set()
    assert await view.wait(20)
    assert "failed unexpectedly" not in caplog.text


# ---- Slots and the daily window ------------------------------------------------------------------


async def test_a_slot_that_becomes_free_is_used_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "MAINTENANCE_LOOK_SECONDS", 3_600.0)
    location = f"file:{tmp_path}/{{realm}}.naksha"
    async with aging_hub(location, catalog_in(tmp_path), monkeypatch, release="") as hub:
        realm = await hub.hub.realm("default")
        names = [f"s{n}" for n in range(3 * limits.MAINTENANCE_PARALLEL_MAX)]
        for name in names:
            file = {"location": f"file:{tmp_path}/{name}.naksha"}
            await realm.registry.create(StorageObject(id=name, properties=file), ACTOR)

        async def slow(hub: Hub, realm: str, thing: StorageObject, record: StorageRound) -> None:
            await asyncio.sleep(0.2)

        monkeypatch.setattr("naksha.hub.maintenance.service.storage_round", slow)
        await run_round(hub, *names)


async def test_slow_storages_do_not_delay_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A round that exceeds its budget goes on, but does not occupy a slot."""
    location = f"file:{tmp_path}/{{realm}}.naksha"
    schedule = MaintenanceSchedule(budget_seconds=0.5)
    async with aging_hub(
        location, catalog_in(tmp_path), monkeypatch, release="", schedule=schedule
    ) as hub:
        await hub.storage()
        await hub.settled()
        realm = await hub.hub.realm("default")
        names = [f"s{n}" for n in range(2 * limits.MAINTENANCE_PARALLEL_MAX)]
        for name in names:
            file = {"location": f"file:{tmp_path}/{name}.naksha"}
            await realm.registry.create(StorageObject(id=name, properties=file), ACTOR)
        started: list[str] = []

        async def stuck(hub: Hub, realm: str, thing: StorageObject, record: StorageRound) -> None:
            if thing.id in names:
                started.append(thing.id)
                await asyncio.Event().wait()
            await storage_round(hub, realm, thing, record)

        monkeypatch.setattr("naksha.hub.maintenance.service.storage_round", stuck)
        view = storages_view(realm, names)
        await view.request(is_dry=False)
        hub.service.wake()

        async def are_stuck() -> bool:
            return len(started) >= limits.MAINTENANCE_PARALLEL_MAX

        await until(are_stuck)
        await run_round(hub)


async def test_heavy_work_starts_with_its_window(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    location = f"file:{tmp_path}/{{realm}}.naksha"
    minute = time.time_ns() // 60_000_000_000
    window = DailyWindow((minute + 60) % 1_440, (minute + 62) % 1_440)
    schedule = MaintenanceSchedule(window=window)
    async with aging_hub(
        location, catalog_in(tmp_path), monkeypatch, release="", schedule=schedule
    ) as hub:
        await hub.storage()
        await hub.day_passes(10 / 86_400)
        await hub.settled()

        async def is_postponed() -> bool:
            hub.time.passes(10)
            hub.service.wake()
            return (await hub.catalog_state()).last is not None

        await until(is_postponed)
        assert (await hub.catalog_state()).due_ms == (minute + 60) * 60_000
        hub.time.passes(60 * 60)
        await hub.settled()
        state = await hub.catalog_state()
        assert state.last is not None
        assert not state.last.postponed


# ---- Partitionings -------------------------------------------------------------------------------


async def test_a_storage_without_partitionings_is_not_polled(
    hub: AgingHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    await hub.service.close()
    await hub.storage()
    waits: list[float] = []
    wait_beyond = SqliteStorage.wait_beyond

    async def counted(self: SqliteStorage, seq_number: int, timeout_s: float) -> int:
        waits.append(timeout_s)
        return await wait_beyond(self, seq_number, timeout_s)

    monkeypatch.setattr(SqliteStorage, "wait_beyond", counted)
    watch = PartitioningWatch(hub.hub, pause_seconds=0.1)
    watch.start()
    try:

        async def has_looked() -> bool:
            return len(waits) >= 3

        async with asyncio.timeout(20):
            await until(has_looked)
        assert set(waits) == {0}
    finally:
        await watch.close()
