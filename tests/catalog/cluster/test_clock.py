"""Monotonicity of the clock."""

from __future__ import annotations

import logging
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from naksha.catalog.cluster.clock import MonotonicClock
from tests.catalog.cluster.manual_clock import START_MS, HandClock

DAY_NS = 86_400_000_000_000


@given(st.lists(st.tuples(st.integers(0, DAY_NS), st.integers(-DAY_NS, DAY_NS))))
def test_it_never_decreases_whatever_the_wall_clock_does(steps: list[tuple[int, int]]) -> None:
    hand = HandClock()
    clock = hand.clock()
    before = clock.now_ns()
    for passed, jump in steps:
        hand.monotonic_ns += passed
        hand.wall_ns += passed + jump
        now = clock.now_ns()
        assert now >= before + passed
        assert now >= hand.wall_ns
        before = now


def test_a_jump_forward_is_adopted_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    hand = HandClock()
    clock = hand.clock()
    hand.set_wall(1.5)
    with caplog.at_level(logging.WARNING):
        assert clock.now_ms() == START_MS + 1_500
        assert not caplog.records
        hand.set_wall(3600)
        assert clock.now_ms() == START_MS + 3_601_500
    assert "forward by 3600.0 s" in caplog.text


def test_a_jump_back_is_ignored_until_the_wall_clock_has_caught_up() -> None:
    hand = HandClock()
    clock = hand.clock()
    hand.set_wall(-10)
    assert clock.now_ms() == START_MS
    hand.advance(4)
    assert clock.now_ms() == START_MS + 4_000
    hand.set_wall(9)  # still a second behind
    assert clock.now_ms() == START_MS + 4_000
    hand.set_wall(2)
    assert clock.now_ms() == START_MS + 5_000


def test_a_pause_between_the_two_readings_does_not_put_it_ahead() -> None:
    hand = HandClock()
    pause = 0.050

    def wall_ns() -> int:
        read = hand.wall_ns
        hand.advance(pause)
        return read

    def monotonic_ns() -> int:
        read = hand.monotonic_ns
        hand.advance(pause)
        return read

    clock = MonotonicClock(wall_ns, monotonic_ns)
    for _ in range(10):
        assert clock.now_ns() <= hand.wall_ns
    pause = 0
    assert clock.now_ns() == hand.wall_ns


def test_units_are_of_one_time() -> None:
    hand = HandClock()
    hand.advance(0.001_999)
    clock = hand.clock()
    assert clock.now_us() == START_MS * 1_000 + 1_999
    assert clock.now_ms() == START_MS + 1


def test_of_two_jumps_that_are_adopted_at_once_the_further_one_counts() -> None:
    hand = HandClock()
    clock = hand.clock()

    class Overtaken:
        """Before a reader gets the lock, another one comes with a later reading."""

        def __enter__(self) -> None:
            clock._lock = threading.Lock()
            hand.set_wall(10)
            assert clock.now_ms() == START_MS + 11_000

        def __exit__(self, *_: object) -> None:
            """Do nothing: this object is not a lock."""

    clock._lock = Overtaken()  # type: ignore[assignment]
    hand.set_wall(1)
    assert clock.now_ms() == START_MS + 11_000


def test_several_threads_never_see_it_decrease_while_the_wall_clock_jumps() -> None:
    hand = HandClock()
    clock = MonotonicClock(lambda: hand.wall_ns, lambda: 0)
    latest = [0]
    wrong: list[int] = []

    def read() -> None:
        for _ in range(5_000):
            least = latest[0]
            now = clock.now_ns()
            if now < least:
                wrong.append(now)
            latest[0] = now  # whatever order: it was returned before the next call begins

    def jump() -> None:
        for n in range(20_000):
            hand.wall_ns += 1_000 if n % 3 else -1_500

    threads = [threading.Thread(target=target) for target in (read, read, read, jump)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_it_follows_another_clock_and_never_goes_back_after_the_first_time() -> None:
    hand = HandClock()
    clock = hand.clock()
    clock.follow(3_600 * 10**9, sets_back=True)
    assert clock.now_ms() == START_MS - 3_600_000
    clock.follow(3_602 * 10**9)
    assert clock.now_ms() == START_MS - 3_600_000
    clock.follow(0)
    assert clock.now_ms() == START_MS


def test_a_difference_that_may_be_the_network_is_not_followed() -> None:
    hand = HandClock()
    clock = hand.clock()
    clock.follow(-900_000_000)
    assert clock.now_ms() == START_MS
