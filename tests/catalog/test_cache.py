"""The cache: bounded in size and staleness, with no return of an old state."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from naksha.catalog.cache import ABSENT, CatalogCache, ReadStamp
from naksha.catalog.objects import Object, ObjectRef, UnknownValue, object_type
from naksha.catalog.pointers import Pointer
from naksha.model import limits
from tests.catalog.cluster.manual_clock import HandClock

ENTRY = limits.CACHE_ENTRY_BYTES


@object_type("test-cached")
class Cached(msgspec.Struct, frozen=True):
    text: str = ""


@object_type("test-uncached", is_cached=False)
class Uncached(msgspec.Struct, frozen=True):
    text: str = ""


def state(n: int, created: int = 1, name: str = "main") -> Pointer:
    """The n-th state of a pointer."""
    return Pointer(name, ObjectRef("test-cached", 1_000 + n), created, 0)


@pytest.fixture
def hand() -> HandClock:
    return HandClock()


@pytest.fixture
def cache(hand: HandClock) -> CatalogCache:
    return CatalogCache(hand.clock(), pointer_seconds=60)


def keep(cache: CatalogCache, n: int, sequence: int | None = None, created: int = 1) -> None:
    """Store a pointer as a client does that reads it from the database."""
    stamp = cache.stamp("r", "main")
    cache.put_pointer("r", "main", state(n, created), stamp, sequence)


# ---- Objects ---------------------------------------------------------------------------------


def test_an_object_stays_for_ever_in_its_realm(cache: CatalogCache, hand: HandClock) -> None:
    one = Object(7, Cached("one"))
    cache.put("r", one, 10)
    hand.advance(10**9)
    assert cache.get("r", 7) is one
    assert cache.get("other", 7) is None
    assert cache.get("r", 8) is None
    cache.evict("r", 7)
    assert cache.get("r", 7) is None
    assert cache.counts[:3] == (1, 3, 0)
    assert cache.counts.bytes == cache.counts.entries == 0


@pytest.mark.parametrize(
    "changing",
    [
        Object(7, Uncached("it says so")),
        Object(7, Cached("conditional"), token="t"),
        Object(7, UnknownValue("test-of-tomorrow", b"")),
    ],
)
def test_changeable_values_are_not_cached(cache: CatalogCache, changing: Object[object]) -> None:
    cache.put("r", changing, 10)
    assert cache.get("r", 7) is None


def test_the_least_recently_used_goes_first(hand: HandClock) -> None:
    cache = CatalogCache(hand.clock(), bytes_max=3 * (ENTRY + 100))
    for id in (1, 2, 3):
        cache.put("r", Object(id, Cached()), 100)
    assert cache.get("r", 1) is not None
    cache.put("r", Object(4, Cached()), 100)
    assert [id for id in (1, 2, 3, 4) if cache.get("r", id)] == [1, 3, 4]
    assert cache.counts.evictions == 1


def test_an_object_that_would_fill_the_cache_is_not_kept_and_evicts_no_other(
    hand: HandClock,
) -> None:
    cache = CatalogCache(hand.clock(), bytes_max=10_000)
    cache.put("r", Object(1, Cached()), 100)
    cache.put("r", Object(2, Cached()), 5_000)
    assert cache.get("r", 1) is not None
    assert cache.get("r", 2) is None
    assert cache.counts.evictions == 0


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 900), st.booleans()), max_size=60))
def test_it_is_never_above_its_size(puts: list[tuple[int, int, bool]]) -> None:
    cache = CatalogCache(HandClock().clock(), bytes_max=2_500)
    for id, size, is_evicted in puts:
        cache.put("r", Object(id, Cached()), size)
        if is_evicted:
            cache.evict("r", id // 2)
        counts = cache.counts
        assert counts.entries * ENTRY <= counts.bytes <= 2_500
    for id in range(10):
        cache.evict("r", id)
    assert cache.counts.bytes == 0


# ---- The time limit of pointers --------------------------------------------------------------


def test_a_pointer_ends_after_its_time_however_often_it_is_read(
    cache: CatalogCache, hand: HandClock
) -> None:
    keep(cache, 1)
    for _ in range(59):
        hand.advance(1)
        assert cache.pointer("r", "main") == state(1)
    hand.advance(0.999)
    assert cache.pointer("r", "main") == state(1)
    hand.advance(0.001)
    assert cache.pointer("r", "main") is None
    assert cache.counts.expirations == 1
    assert cache.counts.bytes == 0


def test_the_time_of_a_pointer_counts_from_before_it_was_read(
    cache: CatalogCache, hand: HandClock
) -> None:
    stamp = cache.stamp("r", "main")
    hand.advance(50)  # the database is slow
    cache.put_pointer("r", "main", state(1), stamp)
    hand.advance(10)
    assert cache.pointer("r", "main") is None


def test_a_missing_pointer_is_cached_only_on_request(hand: HandClock) -> None:
    cache = CatalogCache(hand.clock())
    cache.put_pointer("r", "main", None, cache.stamp("r", "main"))
    assert cache.pointer("r", "main") is None
    cache = CatalogCache(hand.clock(), absent_seconds=5)
    cache.put_pointer("r", "main", None, cache.stamp("r", "main"))
    assert cache.pointer("r", "main") is ABSENT
    cache.pointer_moved("r", state(1), 1)
    assert cache.pointer("r", "main") is None
    cache.put_pointer("r", "main", None, cache.stamp("r", "main"))
    hand.advance(5)
    assert cache.pointer("r", "main") is None


# ---- H4: states that must not get in ---------------------------------------------------------


def test_a_pointer_that_was_evicted_while_it_was_read_is_not_kept(cache: CatalogCache) -> None:
    stamp = cache.stamp("r", "main")
    old = state(1)  # is read now, and evicted before the result arrives
    cache.evict_pointer("r", "main")
    cache.put_pointer("r", "main", old, stamp)
    assert cache.pointer("r", "main") is None
    assert cache.counts.fenced == 1


def test_a_pointer_that_moved_while_it_was_read_is_not_kept(cache: CatalogCache) -> None:
    stamp = cache.stamp("r", "main")
    cache.pointer_moved("r", state(2), 2)
    cache.put_pointer("r", "main", state(1), stamp)
    assert cache.pointer("r", "main") is None


def test_a_move_that_is_answered_after_a_later_one_was_read_is_not_kept(
    cache: CatalogCache,
) -> None:
    mine = cache.stamp("r", "main")  # state 1 is written now, and state 2 by another instance
    keep(cache, 2)
    cache.pointer_moved("r", state(1), 1, mine)
    assert cache.pointer("r", "main") in (None, state(2))


def test_a_move_that_is_answered_after_a_message_about_a_later_one_is_not_kept(
    cache: CatalogCache,
) -> None:
    mine = cache.stamp("r", "main")
    cache.pointer_moved("r", state(2), 2)
    cache.pointer_moved("r", state(1), 1, mine)
    assert cache.pointer("r", "main") is None


def test_a_move_here_is_kept_at_once(cache: CatalogCache, hand: HandClock) -> None:
    keep(cache, 1)
    hand.advance(59)
    stamp = cache.stamp("r", "main")
    cache.pointer_moved("r", state(2), 2, stamp)
    hand.advance(59)
    assert cache.pointer("r", "main") == state(2)


def test_other_pointers_are_not_fenced(cache: CatalogCache) -> None:
    stamps = {name: cache.stamp("r", name) for name in ("a", "b", "c", "d", "e")}
    cache.evict_pointer("r", "main")
    for name, stamp in stamps.items():
        cache.put_pointer("r", name, state(1, name=name), stamp)
    kept = [name for name in stamps if cache.pointer("r", name) is not None]
    assert len(kept) >= 4  # one may share its counter with main, by chance


def test_a_realm_is_forgotten_with_all_that_is_being_read(cache: CatalogCache) -> None:
    keep(cache, 1)
    cache.put("r", Object(7, Cached()), 10)
    cache.put("other", Object(7, Cached()), 10)
    stamp = cache.stamp("r", "late")
    cache.evict_realm("r")
    cache.put_pointer("r", "late", state(1, name="late"), stamp)
    assert cache.pointer("r", "main") is None
    assert cache.pointer("r", "late") is None
    assert cache.get("r", 7) is None
    assert cache.get("other", 7) is not None


# ---- Messages --------------------------------------------------------------------------------


def test_a_message_replaces_an_older_state_but_does_not_prolong_its_time(
    cache: CatalogCache, hand: HandClock
) -> None:
    keep(cache, 1, sequence=1)
    hand.advance(30)
    cache.pointer_moved("r", state(2), 2)
    assert cache.pointer("r", "main") == state(2)
    hand.advance(30)
    assert cache.pointer("r", "main") is None


@pytest.mark.parametrize("late", [1, 2, 3])
def test_a_late_message_does_not_replace_a_newer_state(cache: CatalogCache, late: int) -> None:
    keep(cache, 3, sequence=3)
    cache.pointer_moved("r", state(late), late)
    assert cache.pointer("r", "main") == state(3)


def test_a_message_about_another_life_of_the_name_evicts(cache: CatalogCache) -> None:
    keep(cache, 9, sequence=9, created=1)
    cache.pointer_moved("r", state(1, created=2), 1)
    assert cache.pointer("r", "main") is None


def test_a_message_evicts_what_it_cannot_be_compared_with(cache: CatalogCache) -> None:
    keep(cache, 1)
    cache.pointer_moved("r", state(2), 2)
    assert cache.pointer("r", "main") is None


def test_a_message_about_what_is_not_here_is_not_kept(cache: CatalogCache) -> None:
    cache.pointer_moved("r", state(2), 2)
    assert cache.pointer("r", "main") is None


class PointerMachine(RuleBasedStateMachine):
    """One pointer, moved here and elsewhere, with messages late, lost, doubled and out of order,
    and reads and moves that are answered late. All of them may overlap."""

    LIMIT_MS = 60_000

    def __init__(self) -> None:
        super().__init__()
        self.hand = HandClock()
        self.clock = self.hand.clock()
        self.cache = CatalogCache(self.clock, pointer_seconds=self.LIMIT_MS / 1000)
        self.moved_ms = [self.clock.now_ms()]  # when each state began
        self.reading: list[tuple[ReadStamp, int, bool]] = []
        self.moving: list[tuple[ReadStamp, int | None]] = []
        self.heard = 0

    @rule()
    def move_elsewhere(self) -> None:
        self.moved_ms.append(self.clock.now_ms())

    @rule(back=st.integers(0, 5))
    def hear(self, back: int) -> None:
        n = max(0, len(self.moved_ms) - 1 - back)
        self.cache.pointer_moved("r", state(n), n)
        self.heard = max(self.heard, n)

    @rule(is_known=st.booleans())
    def begin_read(self, is_known: bool) -> None:
        stamp = self.cache.stamp("r", "main")
        self.reading.append((stamp, len(self.moved_ms) - 1, is_known))

    @precondition(lambda self: self.reading)
    @rule(which=st.integers(0, 9))
    def end_read(self, which: int) -> None:
        stamp, n, is_known = self.reading.pop(which % len(self.reading))
        self.cache.put_pointer("r", "main", state(n), stamp, n if is_known else None)

    @rule()
    def begin_move(self) -> None:
        self.moving.append((self.cache.stamp("r", "main"), None))

    @precondition(lambda self: self.moving)
    @rule(which=st.integers(0, 9))
    def carry_out_move(self, which: int) -> None:
        stamp, n = self.moving[which % len(self.moving)]
        if n is None:
            self.moved_ms.append(self.clock.now_ms())
            self.moving[which % len(self.moving)] = (stamp, len(self.moved_ms) - 1)

    @precondition(lambda self: self.moving)
    @rule(which=st.integers(0, 9))
    def end_move(self, which: int) -> None:
        stamp, n = self.moving.pop(which % len(self.moving))
        if n is not None:
            self.cache.pointer_moved("r", state(n), n, stamp)
            self.heard = max(self.heard, n)

    @rule()
    def evict(self) -> None:
        self.cache.evict_pointer("r", "main")

    @rule(seconds=st.integers(0, 40))
    def wait(self, seconds: int) -> None:
        self.hand.advance(seconds)

    @invariant()
    def what_is_served_is_not_too_old(self) -> None:
        served = self.cache.pointer("r", "main")
        if not isinstance(served, Pointer) or served.target is None:
            return
        n = served.target.id - 1_000
        assert n >= self.heard
        if n + 1 < len(self.moved_ms):
            assert self.moved_ms[n + 1] > self.clock.now_ms() - self.LIMIT_MS


TestPointerMachine = PointerMachine.TestCase
