"""Sweeps under clock skew: independent of other clocks, and stopped when clocks differ too much."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack

import pytest

from naksha.catalog.backends import open_backend
from naksha.catalog.maintenance import MaintenanceSettings
from naksha.catalog.pointers import Pointer
from naksha.model import limits
from tests.catalog.maintenance.conftest import NewLocation
from tests.catalog.maintenance.support import GRACE, ManualTime, Store

OpenPair = Callable[[float], Awaitable[tuple[Store, Store]]]
HOUR = 3_600.0


@pytest.fixture
async def open_pair(new_location: NewLocation) -> AsyncIterator[OpenPair]:
    """Opens two instances of one catalog; the machine of the second is so many seconds behind."""
    async with AsyncExitStack() as stack:

        async def open_pair(behind: float) -> tuple[Store, Store]:
            location, time = new_location(), ManualTime()
            clocks = (time.clock, time.clock_behind(behind))
            stores = []
            for clock in clocks:
                store = await Store.open(await open_backend(location), time=time, clock=clock)
                stack.push_async_callback(store.catalog.close)
                stores.append(store)
            await stores[0].realm()
            return stores[0], stores[1]

        yield open_pair


async def _sweep_between_write_and_move(maintainer: Store, writer: Store, grace: float) -> Pointer:
    """Run maintenance after an object was written, before the pointer moves to it."""
    persistence = await writer.persistence()
    await persistence.ensure_pointers(["main"])
    [thing] = await writer.write()
    maintenance = await maintainer.maintenance(settings=MaintenanceSettings(grace_seconds=grace))
    await maintenance.run()
    moved = await persistence.move_pointer(await persistence.pointer_now("main"), thing.ref)
    assert moved is not None
    assert await maintainer.ids() == {thing.id}
    return moved


class TestSkew:
    @pytest.mark.parametrize("behind", [-4 * HOUR, 10.0, 4 * HOUR])
    @pytest.mark.parametrize("grace", [0, GRACE])
    async def test_a_head_that_is_just_written_stays(
        self, open_pair: OpenPair, behind: float, grace: float
    ) -> None:
        maintainer, writer = await open_pair(behind)
        await _sweep_between_write_and_move(maintainer, writer, grace)
        assert await maintainer.is_consistent()

    @pytest.mark.parametrize("behind", [-4 * HOUR, 4 * HOUR])
    async def test_a_head_stays_when_the_clock_of_the_maintainer_is_wrong(
        self, open_pair: OpenPair, behind: float
    ) -> None:
        writer, maintainer = await open_pair(behind)
        await _sweep_between_write_and_move(maintainer, writer, 0)

    @pytest.mark.parametrize("behind", [-4 * HOUR, 2 * limits.CLOCK_SKEW_SECONDS_MAX])
    async def test_above_the_bound_nothing_is_swept_and_the_run_names_the_instance(
        self, open_pair: OpenPair, behind: float, caplog: pytest.LogCaptureFixture
    ) -> None:
        with caplog.at_level(logging.WARNING):
            maintainer, skewed = await open_pair(behind)
        assert "clock" in caplog.text
        await maintainer.write(3)
        maintainer.time.passes(GRACE + 1)
        run = await (await maintainer.maintenance()).run()
        assert run.purged == 0
        assert len(await maintainer.ids()) == 3
        assert skewed.catalog.node.instance in run.note
        assert abs(run.skew_ms + behind * 1000) < 1_000

    async def test_the_clock_of_the_maintainer_itself_counts(self, open_pair: OpenPair) -> None:
        _, maintainer = await open_pair(4 * HOUR)
        await maintainer.write(3)
        maintainer.time.passes(GRACE + 1)
        run = await (await maintainer.maintenance()).run()
        assert (run.purged, len(await maintainer.ids())) == (0, 3)
        assert maintainer.catalog.node.instance in run.note

    async def test_garbage_below_the_bound_is_removed(self, open_pair: OpenPair) -> None:
        maintainer, writer = await open_pair(limits.CLOCK_SKEW_SECONDS_MAX / 2)
        await writer.write(3)
        maintainer.time.passes(GRACE + 1)
        run = await (await maintainer.maintenance()).run()
        assert await maintainer.ids() == set()
        assert run.note == ""

    async def test_garbage_is_removed_once_the_instance_is_gone(self, open_pair: OpenPair) -> None:
        maintainer, skewed = await open_pair(4 * HOUR)
        await skewed.write(3)
        await skewed.catalog.node.close()
        maintainer.time.passes(GRACE + 1)
        await (await maintainer.maintenance()).run()
        assert await maintainer.ids() == set()

    async def test_a_clock_that_is_set_while_the_instance_runs_is_noticed(
        self, open_pair: OpenPair
    ) -> None:
        maintainer, other = await open_pair(0)
        await maintainer.write(3)
        machine = ManualTime()
        machine.passes(2 * GRACE)
        other.between.time = machine  # the database and the machine differ from now on
        other.time.passes(limits.CLOCK_CHECK_SECONDS)
        await other.catalog.node.check()
        maintainer.time.passes(GRACE)
        run = await (await maintainer.maintenance()).run()
        assert (run.purged, len(await maintainer.ids())) == (0, 3)
        assert other.catalog.node.instance in run.note
