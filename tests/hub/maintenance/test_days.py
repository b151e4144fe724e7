"""Days pass for a hub with its default settings: what has expired is gone, everywhere."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from naksha.catalog.objects import Object, ObjectRef
from naksha.catalog.realms import RealmStatus
from naksha.hub.config.realm_setup import DefaultStorage
from naksha.model.collection import CollectionInfo
from naksha.model.errors import Expired
from naksha.model.query import Query
from naksha.model.version import AtSeq, Version
from naksha.psql import PsqlStorage
from naksha.spi.catalog import ScannedObject
from naksha.spi.partitioning import FEATURE_ID
from naksha.spi.storage import Storage, WriteSession
from naksha.testing.fixtures import DatabaseFactory
from tests.catalog.maintenance.support import Thing
from tests.hub.maintenance.support import DAY, AgingHub, aging_hub, catalog_in

PARTITIONS_MAX = 120
DAYS = PARTITIONS_MAX + 15
"""Each day has a transaction, so history and log have more days than they may have partitions."""
STEP = 15
"""Days that pass between two times when all rounds have ended."""
MAX_AGE = 20
DAY_PART = re.compile(r"_\d{4}_\d\d_\d\d$")


@pytest.fixture(params=["file", pytest.param("psql", marks=pytest.mark.postgres)])
async def hub(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[AgingHub]:
    """A hub on each storage."""
    catalog = catalog_in(tmp_path)
    if request.param == "file":
        location = f"file:{tmp_path}/{{realm}}.naksha"
        async with aging_hub(location, catalog, monkeypatch) as opened:
            yield opened
        return
    factory: DatabaseFactory = request.getfixturevalue("database_factory")
    with factory.fresh() as dsn:
        async with aging_hub(dsn, catalog, monkeypatch) as opened:
            yield opened


def place(n: int) -> dict[str, Any]:
    where = {"type": "Point", "coordinates": [n % 180, 10]}
    return {"type": "Feature", "id": "a", "geometry": where, "properties": {"n": n}}


async def written(storage: Storage, n: int) -> Version:
    async def work(session: WriteSession) -> int:
        for name in ("roads", "paths"):
            await session.upsert(name, [place(n)])
        assert session.txn is not None
        return session.txn

    version = await storage.wait_published(await storage.run(work, "app"))
    assert version is not None
    return version


async def set_up(hub: AgingHub) -> Storage:
    """Collections of all kinds."""
    storage = await hub.storage()
    now_ms = hub.hub.catalog.clock.now_ms()

    async def work(session: WriteSession) -> None:
        await session.create_collection(CollectionInfo(id="roads", max_age=MAX_AGE))
        await session.create_collection(CollectionInfo(id="paths", optimal_partitioning=True))
        for name in ("dropped", "scheduled"):
            delete_at = now_ms + 5 * 86_400_000 if name == "scheduled" else 0
            await session.create_collection(CollectionInfo(id=name, delete_at=delete_at))

    await storage.run(work, "app")
    await storage.run(lambda session: session.drop_collection("dropped"), "app")
    return storage


async def deactivated(hub: AgingHub) -> None:
    """A second realm, which does not serve any more."""
    hub.hub._default_storage = DefaultStorage(location="memory:unused-{realm}")
    realms = hub.hub.catalog.realms
    realm = await realms.create("town")
    realm = await realms.update(realm, RealmStatus.INITIALIZING)
    realm = await realms.update(realm, RealmStatus.ACTIVE)
    await realms.update(realm, RealmStatus.INACTIVE)


async def orphan(hub: AgingHub) -> ObjectRef:
    """An object of the catalog that nothing refers to."""
    persistence = (await hub.hub.realm("default")).opened.persistence
    (made,) = await persistence.write([Object(persistence.new_id(), Thing("lost"))])
    return made.ref


async def exists(hub: AgingHub, ref: ObjectRef) -> bool:
    rows = [row async for page in hub.hub.catalog.backend.scan() for row in page]
    return any(isinstance(row, ScannedObject) and row.key.id == ref.id for row in rows)


async def partitions(storage: PsqlStorage, name: str) -> list[str]:
    async with storage._connection() as connection:
        rows = await connection.fetch("SELECT name FROM naksha_partitions($1)", name)
    return [row["name"] for row in rows]


async def test_days_pass(hub: AgingHub) -> None:
    storage = await set_up(hub)
    lost = await orphan(hub)
    await deactivated(hub)
    versions = [await written(storage, 0)]
    await hub.day_passes()
    assert (await hub.state()).last is None  # the first round of a release only reports
    assert (await hub.state()).last_dry is not None
    for n in range(1, DAYS):
        versions.append(await written(storage, n))
        hub.time.passes(DAY)
        if n % STEP == 0:
            await hub.settled()
        if n == STEP:
            realms = hub.hub.catalog.realms
            await realms.update(await realms.get("town"), RealmStatus.PURGING)

    await hub.settled()  # no round removes anything while it is checked

    await check_history(storage, versions)
    names = [info.id for info in await storage.collections(dropped=True)]
    assert names == ["paths", "roads"]
    info = await storage.collection("roads")
    assert info.estimated_feature_count == 1
    kept = await storage.meta("paths", FEATURE_ID)
    assert kept is not None
    assert sum(kept["properties"]["by_qrid"].values()) == 1
    assert not await exists(hub, lost)
    assert (await hub.hub.catalog.realms.get("town")).status is RealmStatus.PURGED
    state = await hub.state()
    assert state.last is not None
    assert state.last.outcome == "done", state.last


async def check_history(storage: Storage, versions: list[Version]) -> None:
    """Old history of one collection is gone, that of the other one is merged."""
    with pytest.raises(Expired) as caught:
        await storage.page("roads", Query(), AtSeq(versions[0].seq_number))
    oldest = caught.value.oldest
    assert oldest is not None
    assert versions[0].seq_number < oldest <= versions[-MAX_AGE].seq_number
    assert len((await storage.page("roads", Query(), AtSeq(oldest))).states) == 1
    page = await storage.page("paths", Query(), AtSeq(versions[0].seq_number))
    assert page.states[0].feature["properties"]["n"] == 0
    if isinstance(storage, PsqlStorage):
        for name in ("paths_hst", "naksha_tx"):
            found = await partitions(storage, name)
            assert 0 < len(found) <= PARTITIONS_MAX
            # The days of the current month, and those that are prepared.
            months = {part[: -len("_DD")] for part in found if DAY_PART.search(part)}
            assert len(months) <= 2, f"closed months of {name} are not merged: {found}"
