"""Leases of node ids: one holder per timestamp despite skewed clocks, pauses and faults."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import Any

import msgspec
import pytest

from naksha.catalog.cluster import nodes
from naksha.catalog.cluster.leases import LeaseTable, NodeLease
from naksha.catalog.cluster.nodes import LeaseTimes, Node
from naksha.catalog.cluster.snowflake import EPOCH_MS, IdSpec
from naksha.catalog.system_objects import SYSTEM_REALM
from naksha.memory import MemoryCatalog
from naksha.model import limits
from naksha.model.errors import InvalidArgument, NakshaError, StorageCorrupt, Unavailable
from naksha.spi.catalog import CatalogBackend, ObjectKey, ObjectRow
from tests.catalog.cluster.manual_clock import START_MS, HandClock, until
from tests.catalog.faulty import Fault, Faulty

SPEC = IdSpec()
FEW = IdSpec(47, 4, 12)
"""16 nodes only."""
HOUR = 3_600
HOUR_MS = HOUR * 1000

pytestmark = pytest.mark.usefixtures("by_hand")


@pytest.fixture
def by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing happens in the background; tests call `check` themselves."""
    monkeypatch.setattr(nodes, "_TICK_SECONDS", 1_000)


@pytest.fixture
def hand() -> HandClock:
    return HandClock()


@pytest.fixture
async def backend() -> Faulty:
    return Faulty(await MemoryCatalog.open())


def node(backend: CatalogBackend, hand: HandClock, spec: IdSpec = SPEC, **options: Any) -> Node:
    return Node(backend, spec, hand.clock(), **options)


async def lease_of(backend: CatalogBackend, node_id: int, spec: IdSpec = SPEC) -> NodeLease:
    table = LeaseTable(backend, spec, HandClock().clock())
    return (await table.read([node_id]))[node_id].lease


def held(one: Node) -> NodeLease:
    assert one.lease is not None
    return one.lease


# ---- Taking ----------------------------------------------------------------------------------


async def test_a_node_is_leased_for_an_hour(backend: Faulty, hand: HandClock) -> None:
    one = await node(backend, hand, address="somewhere:1").start()
    lease = held(one)
    assert lease == NodeLease(lease.node, START_MS, START_MS + HOUR_MS, one.instance, "somewhere:1")
    assert await lease_of(backend, lease.node) == lease
    assert SPEC.parts(one.ids.next_id()) == (START_MS, lease.node, 0)
    await one.close()


async def test_an_instance_gets_the_node_back_that_it_had(backend: Faulty, hand: HandClock) -> None:
    one = await node(backend, hand, identity="here").start()
    other = await node(backend, hand, identity="there").start()
    before = held(one).node
    assert before != held(other).node
    await one.close()
    hand.advance(0.002)
    again = await node(backend, hand, identity="here").start()
    assert held(again).node == before
    await other.close()
    await again.close()


async def test_instances_of_one_host_get_different_nodes(backend: Faulty, hand: HandClock) -> None:
    together = await asyncio.gather(*(node(backend, hand).start() for _ in range(40)))
    assert len({held(one).node for one in together}) == 40
    for one in together:
        await one.close()


async def test_all_1024_nodes_can_be_leased_and_a_further_lease_is_refused(
    backend: Faulty, hand: HandClock
) -> None:
    one = node(backend, hand)
    lease = NodeLease(0, START_MS, START_MS + HOUR_MS, "another")
    for number in range(SPEC.nodes - 1):
        await LeaseTable(backend, SPEC, hand.clock()).put(
            msgspec.structs.replace(lease, node=number), None
        )
    await one.start()
    assert held(one).node == 1_023
    with pytest.raises(Unavailable, match="All 1,024 node ids of the catalog are leased"):
        await node(backend, hand).start()
    await one.close()
    hand.advance(0.002)
    after = await node(backend, hand).start()
    assert held(after).node == 1_023
    await after.close()


async def test_leases_are_read_sixteen_at_a_time(hand: HandClock) -> None:
    asked = []

    class Counting(MemoryCatalog):
        async def fetch(self, realm: str, keys: Any) -> dict[ObjectKey, ObjectRow]:
            asked.append(len(keys))
            return await super().fetch(realm, keys)

    backend = await Counting.open()
    one = await node(backend, hand).start()
    assert asked == [16]
    await one.close()


async def test_a_take_over_starts_after_the_old_lease_and_the_drift_of_clocks(
    backend: Faulty, hand: HandClock
) -> None:
    all_nodes = [await node(backend, hand, FEW).start() for _ in range(FEW.nodes)]
    hand.advance(HOUR + 5)
    with pytest.raises(Unavailable, match="All 16"):
        await node(backend, hand, FEW).start()
    hand.advance(0.001)
    later = await node(backend, hand, FEW).start()
    old = next(one for one in all_nodes if held(one).node == held(later).node)
    assert held(later).start_ms == held(old).end_ms + 5_001
    assert later.ids.next_id() > FEW.compose(held(old).end_ms, held(old).node, FEW.sequences - 1)
    for one in [*all_nodes, later]:
        await one.close()


async def test_a_node_given_back_is_not_given_out_in_the_same_millisecond(
    backend: Faulty, hand: HandClock
) -> None:
    """H5: neither its ids nor any other with the same time and node is generated twice."""
    first = [await node(backend, hand, FEW).start() for _ in range(FEW.nodes)]
    ids = {one.ids.next_id() for one in first}
    for one in first:
        await one.close()
    with pytest.raises(Unavailable):
        await node(backend, hand, FEW).start()
    hand.advance(0.001)  # the time at which they end, since the one before was used
    with pytest.raises(Unavailable):
        await node(backend, hand, FEW).start()
    hand.advance(0.001)
    second = [await node(backend, hand, FEW).start() for _ in range(FEW.nodes)]
    again = {one.ids.next_id() for one in second}
    assert not ids & again
    assert min(again) > max(ids)
    for one in second:
        await one.close()


async def test_a_clock_behind_takes_no_node_that_was_given_back_in_its_future(
    backend: Faulty, hand: HandClock
) -> None:
    first = [await node(backend, hand, FEW).start() for _ in range(FEW.nodes)]
    used = [one.ids.next_id() for one in first]
    for one in first:
        await one.close()
    behind = HandClock(START_MS - 3_000)
    with pytest.raises(Unavailable):
        await node(backend, behind, FEW).start()
    behind.advance(3.002)
    late = await node(backend, behind, FEW).start()
    assert late.ids.next_id() not in used
    await late.close()


async def test_a_clock_outside_the_range_of_ids_is_reported(backend: Faulty) -> None:
    with pytest.raises(Unavailable, match="clock of this machine is wrong"):
        await node(backend, HandClock(EPOCH_MS - 1)).start()


@pytest.mark.parametrize("fault", [Fault.LOST, Fault.APPLIED, Fault.LATE])
async def test_a_lost_answer_while_a_node_is_taken(
    backend: Faulty, hand: HandClock, fault: Fault
) -> None:
    backend.faults = [fault]
    one = await node(backend, hand).start()
    leased = await LeaseTable(backend, SPEC, hand.clock()).read(range(SPEC.nodes))
    assert [kept.lease for kept in leased.values()] == [held(one)]
    await backend.come_true()
    other = await node(backend, hand).start()
    assert held(one).node != held(other).node
    assert await lease_of(backend, held(one).node) == held(one)
    await one.close()
    await other.close()


async def test_a_database_that_never_answers_ends_the_start(
    backend: Faulty, hand: HandClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "LEASE_CALL_SECONDS_MAX", 0.01)
    backend.faults = [Fault.HANGS] * 100
    with pytest.raises(Unavailable, match="did not confirm"):
        await node(backend, hand).start()


async def test_something_else_in_the_place_of_a_lease_is_reported(
    backend: Faulty, hand: HandClock
) -> None:
    rows = [ObjectRow(SPEC.system_id(n), 0, 1, "other", b"", 0) for n in range(SPEC.nodes)]
    await backend.write(SYSTEM_REALM, rows)
    with pytest.raises(StorageCorrupt, match="not the lease"):
        await node(backend, hand).start()


# ---- Renewing --------------------------------------------------------------------------------


async def test_a_lease_is_renewed_in_its_last_quarter(backend: Faulty, hand: HandClock) -> None:
    one = await node(backend, hand).start()
    hand.advance(HOUR * 3 / 4 - 0.001)
    await one.check()
    assert held(one).end_ms == START_MS + HOUR_MS
    hand.advance(0.001)
    await one.check()
    assert held(one).end_ms == START_MS + HOUR_MS * 7 // 4
    assert held(one).start_ms == START_MS
    assert await lease_of(backend, held(one).node) == held(one)
    hand.advance(HOUR - 0.001)
    assert SPEC.parts(one.ids.next_id()).ms == START_MS + HOUR_MS * 7 // 4 - 1
    await one.close()


async def test_a_renewal_that_fails_is_tried_again_after_a_pause(
    backend: Faulty, hand: HandClock
) -> None:
    one = await node(backend, hand).start()
    hand.advance(HOUR * 3 / 4)
    backend.faults = [Fault.REFUSED]
    with pytest.raises(Unavailable):
        await one.check()
    await one.check()  # nothing is due yet
    assert held(one).end_ms == START_MS + HOUR_MS
    hand.advance(2)
    await one.check()
    assert held(one).end_ms == START_MS + HOUR_MS * 7 // 4 + 2_000
    await one.close()


@pytest.mark.parametrize("fault", [Fault.LOST, Fault.APPLIED, Fault.LATE, Fault.HANGS])
@pytest.mark.parametrize("is_early", [False, True])
async def test_a_renewal_whose_answer_is_lost_loses_nothing(
    backend: Faulty,
    hand: HandClock,
    fault: Fault,
    is_early: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one = await node(backend, hand).start()
    before = held(one)
    hand.advance(HOUR * 3 / 4)
    backend.faults = [fault]
    with monkeypatch.context() as waiting:
        if fault is Fault.HANGS:  # Who answers may take its time, on a busy machine too.
            waiting.setattr(limits, "LEASE_CALL_SECONDS_MAX", 0.01)
        await checked(one)
    if is_early:
        await backend.come_true()
    hand.advance(2)
    await checked(one)
    await backend.come_true()
    hand.advance(HOUR * 3 / 4)
    await checked(one)
    assert held(one).continues(before)
    assert held(one).end_ms > START_MS + HOUR_MS * 2
    assert await lease_of(backend, held(one).node) == held(one)
    one.ids.next_id()
    await one.close()
    assert (await lease_of(backend, before.node)).is_released


async def checked(one: Node) -> None:
    """Check the node as the background task does, which continues after an error."""
    with contextlib.suppress(NakshaError):
        await one.check()


async def test_without_the_database_ids_end_with_the_lease_and_come_back_with_it(
    backend: Faulty, hand: HandClock
) -> None:
    one = await node(backend, hand).start()
    backend.faults = [Fault.REFUSED] * 10_000
    hand.advance(HOUR * 3 / 4)
    for _ in range(450):  # to just before the end
        with pytest.raises(Unavailable):
            await one.check()
        one.ids.next_id()
        hand.advance(2)
    with pytest.raises(Unavailable, match="could not be renewed"):
        one.ids.next_id()
    backend.faults = []
    hand.advance(6)
    await one.check()
    assert held(one).start_ms > START_MS + HOUR_MS
    one.ids.next_id()
    await one.close()


async def test_a_stalled_process_whose_node_was_taken_gives_no_id(
    backend: Faulty, hand: HandClock
) -> None:
    stalled = [await node(backend, hand, FEW).start() for _ in range(FEW.nodes)]
    used = [one.ids.next_id() for one in stalled]
    hand.advance(HOUR + 6)
    awake = [await node(backend, hand, FEW).start() for _ in range(FEW.nodes)]
    taken = [one.ids.next_id() for one in awake]
    for one in stalled:
        with pytest.raises(Unavailable):
            one.ids.next_id()
        with pytest.raises(Unavailable, match="All 16"):
            await one.check()
        with pytest.raises(Unavailable):
            one.ids.next_id()
        await one.close()
    assert not set(used) & set(taken)
    for one in awake:
        assert await lease_of(backend, held(one).node, FEW) == held(one)
        await one.close()


async def test_a_node_lost_to_a_clock_far_ahead_is_given_up_for_another_one(
    backend: Faulty, hand: HandClock, caplog: pytest.LogCaptureFixture
) -> None:
    one = await node(backend, hand).start()
    before = held(one)
    first = one.ids.next_id()
    ahead = HandClock(START_MS + 2 * HOUR_MS)
    thief = await node(backend, ahead).start()
    assert held(thief).node == before.node
    stolen = thief.ids.next_id()
    hand.advance(HOUR * 3 / 4)
    second = one.ids.next_id()  # the times of the lease are still this instance's alone
    with caplog.at_level(logging.WARNING):
        await one.check()
    assert "took over node id" in caplog.text
    assert held(one).node != before.node
    hand.advance(0.001)
    assert len({first, second, stolen, one.ids.next_id()}) == 4
    await one.close()
    assert await lease_of(backend, before.node) == held(thief)
    await thief.close()


async def test_a_deleted_lease_ends_the_ids_of_its_node(backend: Faulty, hand: HandClock) -> None:
    one = await node(backend, hand).start()
    row_id = SPEC.system_id(held(one).node)
    hand.advance(HOUR * 3 / 4)
    await backend.delete(SYSTEM_REALM, [ObjectKey(row_id)])
    await one.check()
    assert held(one).start_ms == START_MS + HOUR_MS * 3 // 4
    assert SPEC.parts(one.ids.next_id()).ms >= held(one).start_ms
    await one.close()


async def test_a_jump_of_the_clock_beyond_the_lease_costs_no_id_twice(
    backend: Faulty, hand: HandClock
) -> None:
    one = await node(backend, hand).start()
    ids = [one.ids.next_id()]
    hand.set_wall(-2 * HOUR)
    ids.append(one.ids.next_id())
    hand.set_wall(5 * HOUR)
    with pytest.raises(Unavailable):
        one.ids.next_id()
    await one.check()
    ids.append(one.ids.next_id())
    hand.set_wall(-4 * HOUR)
    ids.append(one.ids.next_id())
    assert ids == sorted(set(ids))
    await one.close()


async def test_the_background_renews(
    backend: Faulty, hand: HandClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nodes, "_TICK_SECONDS", 0.001)
    backend.faults = [None, Fault.REFUSED, Fault.APPLIED]
    one = await node(backend, hand).start()
    hand.advance(HOUR * 3 / 4)
    await until(lambda: len(backend.faults) == 1)
    hand.advance(2)
    await until(lambda: held(one).end_ms > START_MS + HOUR_MS)
    await one.close()


# ---- Giving back -----------------------------------------------------------------------------


async def test_a_closed_node_is_free_and_gives_no_ids(backend: Faulty, hand: HandClock) -> None:
    one = await node(backend, hand).start()
    number = held(one).node
    hand.advance(1)
    one.ids.next_id()
    await one.close()
    row = await lease_of(backend, number)
    assert row.is_released
    assert row.end_ms == START_MS + 1_001
    with pytest.raises(Unavailable, match="closed"):
        one.ids.next_id()


async def test_a_node_is_given_back_though_a_renewal_came_true_unheard(
    backend: Faulty, hand: HandClock
) -> None:
    one = await node(backend, hand).start()
    number = held(one).node
    hand.advance(HOUR * 3 / 4)
    backend.faults = [Fault.LATE]
    await checked(one)
    await backend.come_true()
    assert (await lease_of(backend, number)).end_ms > held(one).end_ms
    await one.close()
    assert (await lease_of(backend, number)).is_released


async def test_a_node_that_cannot_be_given_back_ends_by_itself(
    backend: Faulty, hand: HandClock, caplog: pytest.LogCaptureFixture
) -> None:
    one = await node(backend, hand).start()
    backend.faults = [Fault.REFUSED]
    with caplog.at_level(logging.WARNING):
        await one.close()
    assert "could not be released" in caplog.text
    with pytest.raises(Unavailable):
        one.ids.next_id()


async def test_the_others_and_their_addresses_are_known(backend: Faulty, hand: HandClock) -> None:
    one = await node(backend, hand, address="one:1").start()
    other = await node(backend, hand, address="other:2").start()
    silent = await node(backend, hand).start()
    gone = await node(backend, hand, address="gone:3").start()
    await gone.close()
    assert await one.peers() == {other.instance: "other:2"}
    assert await silent.peers() == {one.instance: "one:1", other.instance: "other:2"}
    hand.advance(HOUR)
    assert await one.peers() == {}
    for each in (one, other, silent):
        await each.close()


@pytest.mark.parametrize(
    "times",
    [
        {"renew_seconds": 3_600},
        {"renew_seconds": 0},
        {"lease_seconds": 10},
        {"drift_seconds": -1},
        {"retry_seconds": 0},
    ],
)
def test_times_that_make_no_sense_are_refused(times: dict[str, float]) -> None:
    with pytest.raises(InvalidArgument):
        LeaseTimes(**times)
