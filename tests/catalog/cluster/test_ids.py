"""Generated ids: strictly increasing, never outside the lease of their node."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from naksha.catalog.cluster.clock import MonotonicClock
from naksha.catalog.cluster.ids import IdGenerator
from naksha.catalog.cluster.snowflake import EPOCH_MS, IdSpec
from naksha.model import limits
from naksha.model.errors import Unavailable
from naksha.spi.clock import Clock
from tests.catalog.cluster.manual_clock import START_MS, HandClock, ListedClock, TickingClock

SPEC = IdSpec()
HOUR_MS = 3_600_000


def generator(clock: Clock, node: int = 7, lease_ms: int = HOUR_MS) -> IdGenerator:
    made = IdGenerator(SPEC, clock)
    made.begin(node, START_MS, START_MS + lease_ms)
    return made


def test_an_id_has_the_time_and_the_node() -> None:
    ids = generator(ListedClock(START_MS + 5))
    assert SPEC.parts(ids.next_id()) == (START_MS + 5, 7, 0)
    assert SPEC.parts(ids.next_id()) == (START_MS + 5, 7, 1)
    assert ids.node == 7


def test_a_millisecond_has_4096_ids_then_the_next_one_is_waited_for() -> None:
    ids = generator(TickingClock(4_100))
    parts = [SPEC.parts(ids.next_id()) for _ in range(3 * 4_096)]
    assert [p.ms - START_MS for p in parts] == [n // 4_096 for n in range(3 * 4_096)]
    assert [p.sequence for p in parts] == [n % 4_096 for n in range(3 * 4_096)]


def test_a_clock_that_stands_still_does_not_block_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "ID_WAIT_SECONDS_MAX", 0.02)
    ids = generator(HandClock().clock())
    for _ in range(4_096):
        ids.next_id()
    with pytest.raises(Unavailable, match="stood still"):
        ids.next_id()


@given(st.lists(st.integers(-3, 3), min_size=1, max_size=200))
def test_ids_increase_whatever_the_clock_says(steps: list[int]) -> None:
    now = START_MS + 1_000
    times = [now := now + step for step in steps]
    ids = generator(ListedClock(START_MS + 1_000, *times))
    given_ids = [ids.next_id() for _ in range(len(times) + 1)]
    assert given_ids == sorted(set(given_ids))


def test_a_clock_that_goes_back_repeats_no_id() -> None:
    ids = generator(ListedClock(START_MS + 50, START_MS + 10, START_MS + 10, START_MS + 51))
    assert [SPEC.parts(ids.next_id())[::2] for _ in range(4)] == [
        (START_MS + 50, 0),
        (START_MS + 50, 1),
        (START_MS + 50, 2),
        (START_MS + 51, 0),
    ]


@pytest.fixture
def busy_threads() -> Iterator[None]:
    """Threads take turns as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("busy_threads")
def test_threads_never_get_the_same_id() -> None:
    clock = MonotonicClock()
    ids = IdGenerator(SPEC, clock)
    ids.begin(1, clock.now_ms(), clock.now_ms() + HOUR_MS)
    found: list[list[int]] = [[] for _ in range(4)]

    def draw(into: list[int]) -> None:
        into.extend(ids.next_id() for _ in range(10_000))

    threads = [threading.Thread(target=draw, args=(into,)) for into in found]
    before = clock.now_ms()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(into == sorted(into) for into in found)
    assert len({id for into in found for id in into}) == 40_000
    times = {SPEC.parts(id).ms for into in found for id in into}
    assert before <= min(times)
    assert max(times) <= clock.now_ms()


def test_a_thread_waits_until_another_one_has_its_id() -> None:
    """Force the overlap that the threads of the test above may never reach."""
    others: list[threading.Thread] = []
    found: list[int] = []

    class Interrupted:
        def now_ms(self) -> int:
            if not others:
                others.append(threading.Thread(target=lambda: found.append(ids.next_id())))
                others[0].start()
                others[0].join(0.05)
                assert not found
            return START_MS

    ids = generator(Interrupted())
    first = ids.next_id()
    others[0].join()
    assert found == [first + 1]


def test_no_id_is_given_before_the_lease() -> None:
    ids = generator(ListedClock(START_MS - 1, START_MS))
    assert SPEC.parts(ids.next_id()).ms == START_MS


def test_no_id_has_a_time_after_the_lease() -> None:
    hand = HandClock()
    ids = generator(hand.clock(), lease_ms=10)
    hand.advance(0.009_999)
    assert SPEC.parts(ids.next_id()).ms == START_MS + 9
    hand.advance(0.000_001)
    for _ in range(2):
        with pytest.raises(Unavailable, match="lease of this process's node id has expired"):
            ids.next_id()
    ids.extend(START_MS + 20)
    assert SPEC.parts(ids.next_id()).ms == START_MS + 10


def test_a_pause_after_looking_at_the_clock_makes_no_id_outside_the_lease() -> None:
    """H5: what counts is the time in the id; it may be handed out later."""
    hand = HandClock()
    clock = hand.clock()

    class Pausing:
        def now_ms(self) -> int:
            now = clock.now_ms()
            hand.advance(60)  # the process sleeps before it does anything with this
            return now

    ids = generator(Pausing(), lease_ms=30_000)
    assert SPEC.parts(ids.next_id()).ms == START_MS
    assert clock.now_ms() > START_MS + 30_000
    with pytest.raises(Unavailable):
        ids.next_id()


def test_ids_still_increase_with_another_node_in_the_same_millisecond() -> None:
    ids = generator(TickingClock(10), node=900)
    first = ids.next_id()
    ids.begin(3, START_MS, START_MS + HOUR_MS)
    second = ids.next_id()
    assert SPEC.parts(second).node == 3
    assert second > first


def test_after_stop_there_are_no_ids_and_what_was_used_is_known() -> None:
    ids = generator(ListedClock(START_MS + 5))
    ids.next_id()
    assert ids.stop("it is closed") == START_MS + 6
    assert ids.node is None
    ids.extend(START_MS + HOUR_MS)
    with pytest.raises(Unavailable, match="it is closed"):
        ids.next_id()


def test_before_a_node_is_leased_there_are_no_ids() -> None:
    with pytest.raises(Unavailable, match="not leased a node id yet"):
        IdGenerator(SPEC, ListedClock(START_MS)).next_id()


def test_the_first_and_the_last_millisecond_of_the_form() -> None:
    first = IdGenerator(SPEC, ListedClock(EPOCH_MS))
    first.begin(0, EPOCH_MS, EPOCH_MS + 1)
    assert first.next_id() == 0
    last = IdGenerator(SPEC, ListedClock(SPEC.end_ms - 1, SPEC.end_ms))
    last.begin(1_023, SPEC.end_ms - 1, SPEC.end_ms + HOUR_MS)
    assert last.next_id() < SPEC.system_id(0)
    with pytest.raises(Unavailable):
        last.next_id()


def test_a_forked_process_gives_none_of_the_ids_of_its_parent() -> None:
    program = f"""
import os
from naksha.catalog.cluster.clock import MonotonicClock
from naksha.catalog.cluster.ids import IdGenerator
from naksha.catalog.cluster.snowflake import IdSpec
from naksha.model.errors import Unavailable
ids = IdGenerator(IdSpec(), MonotonicClock())
ids.begin(1, {START_MS}, {2**42})
ids.next_id()
child = os.fork()
if child == 0:
    try:
        ids.next_id()
    except Unavailable as error:
        os._exit(7 if "forked" in str(error) else 1)
    os._exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
ids.next_id()
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_an_id_costs_about_a_microsecond() -> None:
    clock = MonotonicClock()
    ids = IdGenerator(SPEC, clock)
    ids.begin(1, clock.now_ms(), clock.now_ms() + HOUR_MS)
    fastest = 1.0
    for _ in range(20):
        begun = time.perf_counter()
        for _ in range(1_000):
            ids.next_id()
        fastest = min(fastest, (time.perf_counter() - begun) / 1_000)
    assert fastest < 10e-6
