"""Each warning of the health check, with the thing that it warns about."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from naksha.hub.config.objects import StorageObject
from naksha.hub.maintenance.health_warnings import catalog_warnings, storage_warnings
from naksha.model import limits
from naksha.model.collection import CollectionInfo
from naksha.model.transaction import PublicationStatus
from naksha.model.version import HEAD
from naksha.testing.fixtures import DatabaseFactory
from tests.hub.handlers.support import ACTOR
from tests.hub.maintenance.support import AgingHub, aging_hub, catalog_in, until


@pytest.fixture
async def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[AgingHub]:
    """A hub on files."""
    location = f"file:{tmp_path}/{{realm}}.naksha"
    async with aging_hub(location, catalog_in(tmp_path), monkeypatch, release="") as opened:
        yield opened


@pytest.fixture
async def psql_hub(
    database_factory: DatabaseFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[AgingHub]:
    """A hub on PostgreSQL."""
    with database_factory.fresh() as dsn:
        async with aging_hub(dsn, catalog_in(tmp_path), monkeypatch, release="") as opened:
            yield opened


async def warned(hub: AgingHub) -> dict[str, str]:
    """The codes of the warnings about the storages, each with its message."""
    realm = await hub.hub.realm("default")
    things = await realm.registry.list(StorageObject)
    found = await storage_warnings(hub.hub, realm, things, hub.service.schedule)
    assert all(one.subject == "storage/default" for one in found)
    return {one.code: one.message for one in found}


async def write(hub: AgingHub, n: int) -> None:
    storage = await hub.storage()
    feature = {"type": "Feature", "id": "a", "geometry": None, "properties": {"n": n}}
    await storage.run(lambda s: s.upsert("roads", [feature]), "app")


async def create(hub: AgingHub) -> None:
    storage = await hub.storage()
    await storage.run(lambda s: s.create_collection(CollectionInfo(id="roads")), "app")


async def test_a_hub_in_order_has_no_warnings(hub: AgingHub) -> None:
    await hub.day_passes()
    assert await warned(hub) == {}
    assert await catalog_warnings(hub.hub, hub.service.schedule, {}) == []


async def test_a_round_that_is_overdue(hub: AgingHub) -> None:
    await hub.settled()
    await hub.service.close()
    hub.time.passes(2 * 3_600)
    assert "hours late" in (await warned(hub))["maintenance_overdue"]
    hub.time.passes(24 * 3_600)
    found = await catalog_warnings(hub.hub, hub.service.schedule, {})
    assert [(one.code, one.subject) for one in found] == [("maintenance_overdue", "catalog")]


async def test_an_old_pin(hub: AgingHub) -> None:
    await create(hub)
    storage = await hub.storage()
    await storage.pin("mine", await storage.resolve(HEAD))
    await hub.day_passes(20)
    assert await warned(hub) == {}
    await hub.day_passes(20)
    message = (await warned(hub))["old_pin"]
    assert "'mine'" in message
    assert "40 days" in message


async def test_a_disk_that_is_nearly_full(hub: AgingHub, monkeypatch: pytest.MonkeyPatch) -> None:
    await hub.storage()
    monkeypatch.setattr(limits, "DISK_FREE_PERCENT_MIN", 100)
    monkeypatch.setattr(limits, "DISK_FREE_BYTES_MIN", limits.INT8_MAX)
    assert "MiB left" in (await warned(hub))["disk_nearly_full"]


async def test_a_disk_of_the_hub_that_is_nearly_full(
    hub: AgingHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "DISK_FREE_PERCENT_MIN", 100)
    monkeypatch.setattr(limits, "DISK_FREE_BYTES_MIN", limits.INT8_MAX)
    places = {"catalog": tmp_path, "temporary files": tmp_path / "none"}
    (found,) = await catalog_warnings(hub.hub, hub.service.schedule, places)
    assert (found.code, found.subject) == ("disk_nearly_full", "catalog")
    assert str(tmp_path) in found.message


async def test_a_clock_that_differs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    location = f"file:{tmp_path}/{{realm}}.naksha"
    catalog = catalog_in(tmp_path)
    async with aging_hub(location, catalog, monkeypatch, behind_seconds=120) as hub:
        (found,) = await catalog_warnings(hub.hub, hub.service.schedule, {})
        assert found.code == "clock_differs"
        assert found.subject == f"instance/{hub.hub.catalog.node.instance}"
        assert "behind" in found.message


async def test_many_partitions(psql_hub: AgingHub, monkeypatch: pytest.MonkeyPatch) -> None:
    await create(psql_hub)
    for n in range(4):
        await write(psql_hub, n)
        await psql_hub.day_passes()
    assert await warned(psql_hub) == {}
    monkeypatch.setattr(limits, "PARTITIONS_WARNED", 1)
    assert "'roads'" in (await warned(psql_hub))["many_partitions"]


async def test_publication_that_is_held(
    psql_hub: AgingHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    await create(psql_hub)
    await psql_hub.settled()
    monkeypatch.setattr(limits, "PUBLICATION_HELD_SECONDS", -1.0)

    async def is_warned() -> bool:
        return "publication_held" in await warned(psql_hub)

    feature: dict[str, Any] = {"type": "Feature", "id": "b", "geometry": None, "properties": {}}
    async with (await psql_hub.storage()).write("app") as session:
        await session.upsert("roads", [feature])
        await write(psql_hub, 1)
        await until(is_warned)


async def test_a_slow_storage_does_not_hide_the_warnings_about_others(
    hub: AgingHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def slow() -> PublicationStatus:
        await asyncio.sleep(3_600)
        raise AssertionError

    realm = await hub.hub.realm("default")
    file = {"location": f"file:{tmp_path}/other.naksha"}
    await realm.registry.create(StorageObject(id="other", properties=file), ACTOR)
    monkeypatch.setattr(await realm.storage("default"), "publication", slow)
    monkeypatch.setattr(limits, "HEALTH_SECONDS_MAX", 0.5)
    monkeypatch.setattr(limits, "DISK_FREE_PERCENT_MIN", 100)
    monkeypatch.setattr(limits, "DISK_FREE_BYTES_MIN", limits.INT8_MAX)
    things = await realm.registry.list(StorageObject)
    async with asyncio.timeout(20):
        found = await storage_warnings(hub.hub, realm, things, hub.service.schedule)
    assert {one.subject for one in found} == {"storage/default", "storage/other"}
