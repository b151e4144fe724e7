"""Several instances on one catalog: commits of one become visible to the others soon."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from naksha.catalog.backends import open_backend
from naksha.catalog.catalog import Catalog, OpenRealm, Tuning
from naksha.catalog.entities import EntityEdit
from naksha.catalog.realms import RealmStatus
from naksha.model.errors import RealmChanged, RealmInactive, Unavailable
from naksha.testing.catalog.faulty import Fault, FaultyCatalog, scripted_faults
from naksha.testing.catalog.suite_realms import Thing

TUNING = Tuning(listen="127.0.0.1", pointer_seconds=3600, quarantine_seconds=0)
SECONDS_MAX = 60
"""Without messages, nothing would be seen for an hour."""


async def started(path: Path, tuning: Tuning = TUNING) -> Catalog:
    return await Catalog.open(await open_backend(f"file:{path}"), tuning=tuning)


@pytest.fixture
async def instances(tmp_path: Path) -> AsyncIterator[tuple[Catalog, Catalog]]:
    path = tmp_path / "hub.catalog"
    one, other = await started(path), await started(path)
    realm = await one.realms.create("maps")
    realm = await one.realms.update(realm, RealmStatus.INITIALIZING)
    await (await one.realm_for_setup(realm)).ensure_pointers(["config"])
    await one.realms.update(realm, RealmStatus.ACTIVE)
    yield one, other
    await one.close()
    await other.close()


async def put(realm: OpenRealm, text: str) -> None:
    async def change(edit: EntityEdit) -> None:
        edit.put("thing", Thing(text))

    await realm.entities("config").commit(change)


async def text(realm: OpenRealm) -> str | None:
    found = await (await realm.entities("config").recent()).get("thing", Thing)
    return found.value.text if found is not None else None


async def test_a_commit_is_seen_by_the_other_soon(
    instances: tuple[Catalog, Catalog],
) -> None:
    """By a message: by themselves they look once in an hour."""
    one, other = [await instance.realm("maps") for instance in instances]
    for number in range(5):
        for writer, reader in ((one, other), (other, one)):
            await text(reader)  # it has the old one in its cache now
            wanted = f"{number} {writer is one}"
            await put(writer, wanted)
            assert await text(writer) == wanted
            async with asyncio.timeout(SECONDS_MAX):
                while True:
                    if await text(reader) == wanted:
                        break
                    await asyncio.sleep(0.001)


async def test_a_waiting_reader_is_woken_by_the_commit_of_the_other(
    instances: tuple[Catalog, Catalog],
) -> None:
    one, other = [await instance.realm("maps") for instance in instances]
    await put(one, "first")
    cursor = await other.entities("config").log.cursor()
    waiting = asyncio.create_task(other.entities("config").log.wait(cursor))
    await asyncio.sleep(0.05)
    await put(one, "second")
    assert len((await waiting).commits) == 1


async def test_a_realm_that_stops_to_serve_stops_everywhere(
    instances: tuple[Catalog, Catalog],
) -> None:
    one, other = instances
    stale = await other.realm("maps")
    await one.realms.update(await one.realms.get("maps"), RealmStatus.INACTIVE)
    with pytest.raises(RealmChanged):
        await put(stale, "never")
    with pytest.raises(RealmInactive):
        async with asyncio.timeout(SECONDS_MAX):
            while True:
                await other.realm("maps")
                await asyncio.sleep(0.001)


async def test_a_closed_instance_gives_no_ids(tmp_path: Path) -> None:
    catalog = await started(tmp_path / "hub.catalog")
    await catalog.close()
    with pytest.raises(Unavailable):
        catalog.node.ids.next_id()


async def test_an_instance_that_fails_to_open_leaves_nothing_behind(tmp_path: Path) -> None:
    backend = await open_backend(f"file:{tmp_path / 'hub.catalog'}")
    faulty = FaultyCatalog(backend, scripted_faults(create_pointers=[Fault.REFUSED]))
    with pytest.raises(Unavailable, match="injected"):
        await Catalog.open(faulty, tuning=TUNING)
    with pytest.raises(Unavailable, match="closed"):
        await backend.fetch_pointers("maps", ["config"])
    catalog = await started(tmp_path / "hub.catalog")
    assert await catalog.node.peers() == {}
    await catalog.close()
