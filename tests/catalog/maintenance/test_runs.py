"""Maintenance runs: exclusive, dry, interrupted, and with filters that were too small."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from naksha.catalog.maintenance import MaintenanceSettings, RunPhase
from naksha.catalog.realms import RealmStatus
from naksha.catalog.system_objects import SYSTEM_REALM
from naksha.model import limits
from naksha.model.errors import Conflict, NotFound, Unavailable
from naksha.spi.catalog import Scanned
from tests.catalog.maintenance.support import GRACE, SHORT, Store


async def store_with_garbage(store: Store, count: int = 500) -> Store:
    await store.realm()
    for number in range(20):
        await store.put({f"k{number % 3}": str(number)})
    await store.write(count)
    store.time.passes(GRACE + 1)
    return store


async def killed_run(store: Store, *, after_batches: int) -> int:
    """The id of a run that has died in the midst of its sweep."""
    batches = 0
    reached = asyncio.Event()

    async def hang(rows: Sequence[Scanned]) -> None:
        nonlocal batches
        batches += 1
        if batches > after_batches:
            reached.set()
            await asyncio.Event().wait()

    store.between.before_delete = hang
    maintenance = await store.maintenance(rules=[SHORT])
    task = asyncio.create_task(maintenance.run())
    await reached.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    store.between.before_delete = None
    return (await maintenance.runs.list())[-1].id


class TestRuns:
    async def test_their_records_are_kept(self, store: Store) -> None:
        await store_with_garbage(store, 10)
        maintenance = await store.maintenance()
        first, second = await maintenance.run(), await maintenance.run()
        assert await maintenance.runs.list() == [first, second]
        assert first.phase is RunPhase.DONE
        assert first.started_us <= first.ended_us <= second.started_us
        assert first.cutoff_us <= first.started_us - GRACE * 1_000_000
        assert (first.purged, second.purged) == (10, 0)
        assert first.scanned > 10
        assert first.marked > 0
        assert "maps" in (await maintenance.runs.report(first.id)).realms
        with pytest.raises(NotFound):
            await maintenance.runs.report(1)

    async def test_only_the_last_ones_are_kept(self, store: Store) -> None:
        maintenance = await store.maintenance()
        begun: list[int] = []
        for _ in range(limits.MAINTENANCE_RUNS_KEPT + 3):
            last = begun[-1] if begun else None
            run = await maintenance.runs.begin(0, is_dry=False, supersede=last)
            begun.append(run.id)
        assert [run.id for run in await maintenance.runs.list()] == begun[3:]

    async def test_a_second_one_is_refused(self, store: Store) -> None:
        await store_with_garbage(store)
        id = await killed_run(store, after_batches=1)
        maintenance = await store.maintenance()
        before = await store.ids()
        with pytest.raises(Conflict, match=str(id)):
            await maintenance.run()
        with pytest.raises(Conflict, match="it is not running"):
            await maintenance.run(supersede=id + 1)
        assert await store.ids() == before

    async def test_there_must_be_something_to_supersede(self, store: Store) -> None:
        maintenance = await store.maintenance()
        run = await maintenance.run()
        with pytest.raises(Conflict, match="it is not running"):
            await maintenance.run(supersede=run.id)

    @pytest.mark.parametrize("after_batches", [0, 1, 3])
    async def test_the_next_run_finishes_the_work_of_a_dead_one(
        self, store: Store, after_batches: int
    ) -> None:
        await store_with_garbage(store)
        expected = await store.texts()
        id = await killed_run(store, after_batches=after_batches)
        assert len(await store.ids()) > 10
        assert await store.is_consistent("maps", SYSTEM_REALM)
        maintenance = await store.maintenance(rules=[SHORT])
        run = await maintenance.run(supersede=id)
        superseded = (await maintenance.runs.list())[-2]
        assert (superseded.id, superseded.phase) == (id, RunPhase.SUPERSEDED)
        assert str(run.id) in superseded.note
        assert await store.texts() == expected
        [check] = await store.check()
        assert (check.consistency, check.orphans) == ("CONSISTENT", 0)

    async def test_a_superseded_run_stops(
        self, store: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(limits, "MAINTENANCE_BEAT_SECONDS", 0.0)
        await store_with_garbage(store)
        maintenance = await store.maintenance()
        other = await store.maintenance()

        async def supersede(rows: Sequence[Scanned]) -> None:
            store.between.before_delete = None
            [running] = await other.runs.list()
            await other.runs.begin(0, is_dry=False, supersede=running.id)

        store.between.before_delete = supersede
        with pytest.raises(Conflict, match="superseded"):
            await maintenance.run()
        assert len(await store.ids(kind="maintained-thing")) > 300
        phases = [run.phase for run in await other.runs.list()]
        assert phases == [RunPhase.SUPERSEDED, RunPhase.MARK]

    async def test_a_failed_run_reports_why_and_blocks_no_other(self, store: Store) -> None:
        await store_with_garbage(store)

        async def fail(rows: Sequence[Scanned]) -> None:
            raise Unavailable("The database is away")

        store.between.before_delete = fail
        maintenance = await store.maintenance()
        with pytest.raises(Unavailable):
            await maintenance.run()
        [run] = await maintenance.runs.list()
        assert (run.phase, run.note) == (RunPhase.FAILED, "The database is away")
        store.between.before_delete = None
        assert (await maintenance.run()).purged == 500


class TestDryRuns:
    async def test_dry_runs_delete_nothing_and_count_deletions(self, store: Store) -> None:
        await store_with_garbage(store)
        purged = await store.realm("gone")
        await store.put({"a": "1"}, "gone")
        realms = store.catalog.realms
        inactive = await realms.update(purged, RealmStatus.INACTIVE)
        gone = await realms.update(inactive, RealmStatus.PURGING)
        maintenance = await store.maintenance(rules=[SHORT])
        rows = [await store.rows(realm) for realm in ("maps", "gone")]
        dry = await maintenance.run(is_dry=True)
        assert [await store.rows(realm) for realm in ("maps", "gone")] == rows
        assert await realms.get("gone") == gone
        assert dry.is_dry
        store.between.deletes_realms = False
        real = await maintenance.run()
        assert not real.is_dry
        assert dry.purged == real.purged > 500
        dry_report = (await maintenance.runs.report(dry.id)).realms
        real_report = (await maintenance.runs.report(real.id)).realms
        for realm in ("maps", "gone"):
            dry_types, real_types = dry_report[realm].types, real_report[realm].types
            for kind in ("entities", "maintained-thing"):
                assert dry_types[kind].purged == real_types[kind].purged > 0


class TestFilters:
    async def test_with_one_that_is_too_small_nothing_is_deleted(self, store: Store) -> None:
        await store.realm()
        await store.put({str(number): "x" for number in range(2_000)})
        await store.write(100)
        store.time.passes(GRACE + 1)
        before = await store.rows()
        maintenance = await store.maintenance(settings=MaintenanceSettings(marks_exact_max=100))
        run = await maintenance.run()
        assert run.phase is RunPhase.DONE
        assert "filter" in run.note
        assert not run.is_exact
        assert run.rate > 1 / limits.MARKS_FILTER_ONE_IN_MIN
        assert sorted(await store.rows(), key=str) == sorted(before, key=str)
        next_run = await maintenance.run()
        assert 95 <= next_run.purged <= 100
        assert not next_run.is_exact
        assert next_run.rate <= 1 / limits.MARKS_FILTER_ONE_IN_MIN
        assert len(await store.texts()) == 2_000
