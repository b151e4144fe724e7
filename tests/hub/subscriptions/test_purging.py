"""Removal of a purged realm's pins from its storages, even if the purge is interrupted."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from naksha.catalog.catalog import Tuning
from naksha.catalog.maintenance import Maintenance, MaintenanceRun, RealmOutcome, RealmReport
from naksha.catalog.maintenance.sweep import Sweep
from naksha.catalog.realms import RealmStatus
from naksha.hub.maintenance.realm_purge import HubRealms
from naksha.hub.subscriptions.changes import remove_subscription
from naksha.model.errors import Unavailable
from naksha.model.version import AtSeq
from naksha.spi.storage import Storage
from naksha.testing.fixtures import DatabaseFactory
from tests.hub.handlers.support import ACTOR, feature
from tests.hub.subscriptions.support import DeliveringHub, a_delivering_hub, eventually

NO_QUARANTINE = Tuning(quarantine_seconds=0)
OTHER = "branch:1"
"""A pin that belongs to the features, which stay."""


@pytest.fixture(params=["file", pytest.param("psql", marks=pytest.mark.postgres)])
async def hub(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[DeliveringHub]:
    """A hub on each storage."""
    options: dict[str, Any] = {"catalog": f"file:{tmp_path}/hub.catalog", "tuning": NO_QUARANTINE}
    if request.param == "file":
        location = f"file:{tmp_path}/{{realm}}.naksha"
        async with a_delivering_hub(location, tmp_path, **options) as opened:
            yield opened
        return
    factory: DatabaseFactory = request.getfixturevalue("database_factory")
    with factory.fresh() as dsn:
        async with a_delivering_hub(dsn, tmp_path, **options) as opened:
            yield opened


async def pins(storage: Any) -> list[str]:
    """The names of the pins of a storage."""
    if hasattr(storage, "_writer"):
        rows = await storage._writer.task(
            lambda connection: connection.execute("SELECT name FROM naksha_pin").fetchall()
        )
    else:
        async with storage._connection() as connection:
            rows = await connection.fetch("SELECT name FROM naksha_pin")
    return sorted(row[0] for row in rows)


async def purging(hub: DeliveringHub) -> Storage:
    """Bring the realm of two subscriptions, one of them removed, to PURGING."""
    await hub.space("roads")
    kept = await hub.subscribe("s", source={"spaceId": "roads"})
    gone = await hub.subscribe("t", source={"spaceId": "roads"})
    await hub.put("roads", feature("a"))
    await hub.caught_up(kept)
    await hub.caught_up(gone)
    storage = await hub.realm.storage("default")
    await storage.pin(OTHER, await storage.resolve(AtSeq(1)))
    await remove_subscription(hub.realm, "t", ACTOR)
    # An instance that had not heard of the removal.
    await storage.pin(f"subscription/default/{gone.progress_id}", await storage.resolve(AtSeq(1)))
    realms = hub.hub.catalog.realms
    realm = await realms.update(await realms.get("default"), RealmStatus.INACTIVE)

    async def is_stopped() -> bool:
        return hub.service is not None and not hub.service.held()

    await eventually(is_stopped)
    await realms.update(realm, RealmStatus.PURGING)
    assert len(await pins(storage)) == 3
    return storage


async def run(hub: DeliveringHub) -> tuple[MaintenanceRun, RealmReport]:
    maintenance = Maintenance(hub.hub.catalog, [HubRealms(hub.hub)])
    await maintenance.setup()
    done = await maintenance.run()
    return done, (await maintenance.runs.report(done.id)).realms["default"]


async def finish(hub: DeliveringHub) -> None:
    """Maintain until nothing is left of the realm."""
    for _ in range(2):
        await run(hub)
    assert (await hub.hub.catalog.realms.get("default")).status is RealmStatus.PURGED


async def test_a_purged_realm_leaves_no_pins(hub: DeliveringHub) -> None:
    storage = await purging(hub)
    await finish(hub)
    assert await pins(storage) == [OTHER]


async def test_a_dry_run_removes_no_pins(hub: DeliveringHub) -> None:
    storage = await purging(hub)
    maintenance = Maintenance(hub.hub.catalog, [HubRealms(hub.hub)])
    await maintenance.setup()
    await maintenance.run(is_dry=True)
    assert len(await pins(storage)) == 3


async def test_nothing_is_deleted_before_all_pins_are_removed(
    hub: DeliveringHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = await purging(hub)
    unpin, left = storage.unpin, [None, Unavailable("The storage does not answer")]

    async def unreliable(name: str) -> None:
        error = left.pop(0) if left else None
        if error is not None:
            raise error
        await unpin(name)

    monkeypatch.setattr(storage, "unpin", unreliable)
    done, report = await run(hub)
    assert (report.outcome, done.purged) == (RealmOutcome.POSTPONED, 0)
    assert "The storage does not answer" in report.note
    assert len(await pins(storage)) == 2
    await finish(hub)
    assert await pins(storage) == [OTHER]


async def test_a_purge_that_was_interrupted_goes_on(
    hub: DeliveringHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The entries by which the pins are found are deleted, too."""
    storage = await purging(hub)
    # As in a database that cannot delete a realm at once.
    monkeypatch.setattr(type(hub.hub.catalog.backend), "deletes_realms", False)
    delete = Sweep._delete

    async def interrupted(self: Sweep, report: RealmReport, rows: Any) -> None:
        await delete(self, report, rows[: len(rows) // 2])
        raise Unavailable("The instance was killed")

    with monkeypatch.context() as patched:
        patched.setattr(Sweep, "_delete", interrupted)
        with pytest.raises(Unavailable):
            await run(hub)
    assert await pins(storage) == [OTHER]
    assert (await hub.hub.catalog.realms.get("default")).is_released
    await finish(hub)


async def test_a_storage_that_never_answers_delays_a_purge_for_a_while_only(
    hub: DeliveringHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = await purging(hub)

    async def fails(name: str) -> None:
        raise Unavailable("The storage does not answer")

    monkeypatch.setattr(storage, "unpin", fails)
    assert (await run(hub))[1].outcome is RealmOutcome.POSTPONED
    monkeypatch.setattr("naksha.model.limits.REALM_RELEASE_SECONDS_MAX", 0)
    await finish(hub)


async def test_a_file_that_is_gone_is_not_made_again(tmp_path: Path) -> None:
    location, catalog = f"file:{tmp_path}/{{realm}}.naksha", f"file:{tmp_path}/hub.catalog"
    async with a_delivering_hub(location, tmp_path, catalog=catalog, tuning=NO_QUARANTINE) as hub:
        await purging(hub)
        await hub.hub.storages.close()
        for path in tmp_path.glob("default.naksha*"):
            path.unlink()
        await finish(hub)
        assert list(tmp_path.glob("default.naksha*")) == []
