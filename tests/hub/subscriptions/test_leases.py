"""Leases of subscriptions: one instance at a time, through any failure."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import msgspec
import pytest

from naksha.catalog.backends import open_backend
from naksha.catalog.catalog import Catalog
from naksha.catalog.cluster.nodes import LeaseTimes
from naksha.hub import leases as module
from naksha.hub.leases import HeldLease, LeaseLost, take
from naksha.hub.subscriptions.progress import Kept, ProgressTable, SubscriptionProgress
from naksha.model.errors import Unavailable
from naksha.versioning import FeedPosition

TIMES = LeaseTimes(lease_seconds=10, renew_seconds=6, drift_seconds=1, retry_seconds=0.01)
ID = 77


class Clocks:
    """The clock of the machine and the catalog's, put forward together."""

    def __init__(self) -> None:
        self.seconds = 1_000.0

    def forward(self, seconds: float) -> None:
        self.seconds += seconds


@pytest.fixture
def clocks(monkeypatch: pytest.MonkeyPatch) -> Clocks:
    found = Clocks()
    monkeypatch.setattr(module, "boot_seconds", lambda: found.seconds)
    monkeypatch.setattr(
        ProgressTable, "now_ms", property(lambda _: int(found.seconds * 1000) + 10**12)
    )
    return found


@asynccontextmanager
async def a_table() -> AsyncIterator[ProgressTable]:
    catalog = await Catalog.open(await open_backend("memory:"))
    try:
        table = ProgressTable(catalog.system)
        progress = SubscriptionProgress(subscription="s", position=FeedPosition(5), life=ID)
        await table.create(ID, progress)
        yield table
    finally:
        await catalog.close()


async def kept_in(table: ProgressTable) -> Kept:
    found = await table.get(ID)
    assert found is not None
    return found


async def taken(table: ProgressTable, instance: str) -> HeldLease[SubscriptionProgress]:
    holding = await take(table, await kept_in(table), instance, TIMES)
    assert holding is not None
    return holding


def moved(seq_number: int) -> Callable[[SubscriptionProgress], SubscriptionProgress]:
    position = FeedPosition(seq_number)
    return lambda old: msgspec.structs.replace(old, position=position)


async def test_one_of_many_gets_it() -> None:
    async with a_table() as table:
        kept = await kept_in(table)
        found = await asyncio.gather(*(take(table, kept, f"i{n}", TIMES) for n in range(8)))
        (holding,) = [one for one in found if one is not None]
        assert (await kept_in(table)).value == holding.value
        assert holding.value.term == 1


async def test_it_is_free_only_after_the_lease_and_the_difference_of_clocks(
    clocks: Clocks,
) -> None:
    async with a_table() as table:
        await taken(table, "a")
        for seconds, is_free in ((9.9, False), (1.0, False), (0.2, True)):
            clocks.forward(seconds)
            progress = (await kept_in(table)).value
            assert progress.is_free(table.now_ms, 1_000) is is_free


async def test_the_holder_knows_before_the_others_that_it_is_over(clocks: Clocks) -> None:
    async with a_table() as table:
        holding = await taken(table, "a")
        clocks.forward(9.9)
        holding.check()
        clocks.forward(0.2)
        with pytest.raises(LeaseLost):
            holding.check()
        assert not (await kept_in(table)).value.is_free(table.now_ms, 1_000)


async def test_saving_extends_the_lease(clocks: Clocks) -> None:
    async with a_table() as table:
        holding = await taken(table, "a")
        clocks.forward(8)
        await holding.save(moved(6))
        clocks.forward(8)
        holding.check()
        assert (await kept_in(table)).value.position == FeedPosition(6)


async def test_a_late_holder_cannot_move_the_position(clocks: Clocks) -> None:
    async with a_table() as table:
        late = await taken(table, "late")
        clocks.forward(20)
        quick = await taken(table, "quick")
        await quick.save(moved(9))
        with pytest.raises(LeaseLost):
            await late.save(moved(6))
        await late.release()
        now = (await kept_in(table)).value
        assert (now.position, now.holder, now.term) == (FeedPosition(9), "quick", 2)


async def test_a_late_holder_without_competitors_continues(clocks: Clocks) -> None:
    """The lease expired but was not taken: saving renews it in the same term."""
    async with a_table() as table:
        holding = await taken(table, "a")
        clocks.forward(20)
        await holding.save(moved(6))
        holding.check()
        assert holding.value.term == 1


async def test_a_move_is_reported_when_progress_is_saved() -> None:
    async with a_table() as table:
        holding = await taken(table, "a")
        await table.change(
            ID, lambda old: msgspec.structs.replace(old, wanted="b", wanted_until_ms=10**15)
        )
        with pytest.raises(LeaseLost, match="b"):
            await holding.save(moved(8))
        await holding.release()
        now = (await kept_in(table)).value
        assert (now.position, now.holder) == (FeedPosition(8), "")
        assert now.may_go_to("b", table.now_ms)
        assert not now.may_go_to("a", table.now_ms)
        assert (await taken(table, "b")).value.wanted == ""


async def test_waiting_for_the_requested_instance_is_limited() -> None:
    progress = SubscriptionProgress(
        subscription="s", position=FeedPosition(5), life=1, wanted="b", wanted_until_ms=1_000
    )
    assert not progress.may_go_to("a", 1_000)
    assert progress.may_go_to("a", 1_001)


async def test_a_reset_ends_the_lease() -> None:
    async with a_table() as table:
        holding = await taken(table, "a")

        def reset(old: SubscriptionProgress) -> SubscriptionProgress:
            return msgspec.structs.replace(
                old, position=FeedPosition(1), life=old.life + 1, term=old.term + 1, holder=""
            )

        await table.change(ID, reset)
        with pytest.raises(LeaseLost):
            await holding.save(moved(9))
        assert (await kept_in(table)).value.position == FeedPosition(1)


async def test_the_holder_ends_before_another_instance_begins(clocks: Clocks) -> None:
    """State from before a reset is not used after it."""
    async with a_table() as table:
        holding = await taken(table, "a")

        def reset(old: SubscriptionProgress) -> SubscriptionProgress:
            return msgspec.structs.replace(old, position=FeedPosition(1), life=old.life + 1)

        await table.change(ID, reset)
        assert not (await kept_in(table)).value.is_free(table.now_ms, 1_000)
        for _ in range(2):
            with pytest.raises(LeaseLost):
                await holding.save(moved(9))
        with pytest.raises(LeaseLost):
            holding.check()
        assert holding.value.life == ID
        await holding.release()
        now = (await kept_in(table)).value
        assert (now.position, now.life, now.holder) == (FeedPosition(1), ID + 1, "")


async def test_a_release_succeeds_after_a_reset() -> None:
    async with a_table() as table:
        holding = await taken(table, "a")
        await table.change(ID, lambda old: msgspec.structs.replace(old, life=old.life + 1))
        await holding.release()
        assert (await kept_in(table)).value.holder == ""
        other = await taken(table, "b")
        await holding.release()
        assert (await kept_in(table)).value == other.value


async def test_a_removed_lease_is_lost() -> None:
    async with a_table() as table:
        holding = await taken(table, "a")
        await table.forget(ID)
        with pytest.raises(LeaseLost, match="removed"):
            await holding.save()
        assert await table.get(ID) is None


async def test_a_catalog_that_does_not_answer_ends_it_in_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Running work ends before another instance can hold the lease."""
    times = LeaseTimes(lease_seconds=0.4, renew_seconds=0.3, drift_seconds=1, retry_seconds=0.02)
    async with a_table() as table:
        holding = await take(table, await kept_in(table), "a", times)
        assert holding is not None

        async def hangs(old: Kept, new: SubscriptionProgress) -> Kept | None:
            await asyncio.Event().wait()
            return None

        monkeypatch.setattr(table, "swap", hangs)
        async with asyncio.timeout(20):
            with pytest.raises(LeaseLost):
                await holding.keep()


async def test_it_is_kept_while_the_catalog_is_away_for_a_moment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """For as long as no other instance can hold the lease."""
    times = LeaseTimes(lease_seconds=2, renew_seconds=1.5, drift_seconds=1, retry_seconds=0.02)
    async with a_table() as table:
        holding = await take(table, await kept_in(table), "a", times)
        assert holding is not None
        swap = table.swap

        async def away(old: Kept, new: SubscriptionProgress) -> Kept | None:
            raise Unavailable("gone")

        monkeypatch.setattr(table, "swap", away)
        keeping = asyncio.create_task(holding.keep())
        await asyncio.sleep(1)
        monkeypatch.setattr(table, "swap", swap)
        await asyncio.sleep(2)
        holding.check()
        monkeypatch.setattr(table, "swap", away)
        with pytest.raises(LeaseLost):
            await keeping
