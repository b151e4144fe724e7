"""A state machine that uses an index and a plain dict alike."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from naksha.catalog.index import IndexLimits
from tests.catalog.index.store import TINY, Store, listed, run

LIMITS = [
    TINY,
    IndexLimits(
        embedded_bytes=60,
        stripe_bytes=120,
        stripes_inline=1,
        segment_stripes=2,
        block_entries=1,
        block_bytes=20,
    ),
    IndexLimits(
        embedded_bytes=2000,
        stripe_bytes=1000,
        stripes_inline=4,
        segment_stripes=100,
        block_entries=4,
        block_bytes=100,
    ),
]

PIECES = [b"a", b"\0", b"\1", b"\x7f", b"\x80", b"\xff", b"a/", b"ab/"]
CHAINS = st.builds(
    lambda byte, length: byte * length, st.sampled_from(PIECES[:6]), st.integers(0, 500)
)
KEYS = st.one_of(
    st.lists(st.sampled_from(PIECES), max_size=4).map(b"".join),
    st.binary(max_size=3),
    CHAINS,
)
VALUES = st.one_of(st.binary(max_size=8), st.integers(0, 300).map(bytes))
BOUNDS = st.none() | KEYS


class IndexMachine(RuleBasedStateMachine):
    """An index is a sorted map."""

    @initialize(limits=st.sampled_from(LIMITS))
    def open(self, limits: IndexLimits) -> None:
        self.store = Store(limits)
        self.index = self.store.open()
        self.model: dict[bytes, bytes] = {}

    # ---- Changes -----------------------------------------------------------------------------

    @rule(key=KEYS, value=VALUES)
    def put(self, key: bytes, value: bytes) -> None:
        assert self.index.put(key, value) in {None, key not in self.model}
        self.model[key] = value

    @rule(prefix=KEYS, count=st.integers(1, 60), value=VALUES)
    def put_many(self, prefix: bytes, count: int, value: bytes) -> None:
        for number in range(count):
            self.put(prefix[:490] + b"%d" % number, value)

    @rule(key=KEYS)
    def remove(self, key: bytes) -> None:
        assert self.index.remove(key) in {None, key in self.model}
        self.model.pop(key, None)

    @rule(data=st.data())
    def remove_one_that_is_there(self, data: st.DataObject) -> None:
        if self.model:
            self.remove(data.draw(st.sampled_from(sorted(self.model))))

    @rule(lower=KEYS, upper=BOUNDS)
    def remove_range(self, lower: bytes, upper: bytes | None) -> None:
        for key in self.expected(lower, upper):
            self.remove(key)

    @rule(key=KEYS, value=VALUES)
    def what_was_read_is_known(self, key: bytes, value: bytes) -> None:
        self.get(key)
        assert self.index.put(key, value) is (key not in self.model)
        self.model[key] = value
        assert self.index.remove(key) is True
        assert self.index.remove(key) is False
        assert self.index.put(key, value) is True

    # ---- Saving ------------------------------------------------------------------------------

    @rule()
    def save(self) -> None:
        saved = run(self.store.save(self.index))
        self.store.check(saved.container)
        assert not self.index.is_changed
        assert run(self.store.save(self.index)) == (saved.container, ())

    @rule()
    def save_and_load(self) -> None:
        self.save()
        self.index = self.store.open(self.index.container)

    @rule(key=KEYS, value=VALUES)
    def a_copy_is_independent(self, key: bytes, value: bytes) -> None:
        former = self.index.copy()
        self.index.put(key, value)
        self.index.put(key + b"!" if len(key) < 500 else b"", value)
        self.save()
        assert run(former.get(key)) == self.model.get(key)
        self.index = former

    # ---- Reads -------------------------------------------------------------------------------

    @rule(key=KEYS)
    def get(self, key: bytes) -> None:
        assert run(self.index.get(key)) == self.model.get(key)

    @rule(keys=st.lists(KEYS, max_size=10))
    def get_many(self, keys: list[bytes]) -> None:
        keys += list(self.model)[::7]
        before = len(self.store.reads)
        expected = {key: self.model[key] for key in keys if key in self.model}
        assert run(self.index.get_many(keys)) == expected
        assert len(self.store.reads) <= before + 2, "one for the segments, one for the stripes"

    @rule(lower=BOUNDS, upper=BOUNDS, reverse=st.booleans())
    def items(self, lower: bytes | None, upper: bytes | None, reverse: bool) -> None:
        found = run(listed(self.index.items(lower, upper, reverse=reverse)))
        expected = self.expected(lower, upper)
        assert found == [(key, self.model[key]) for key in expected[:: -1 if reverse else 1]]

    @rule(prefix=KEYS, reverse=st.booleans(), after=BOUNDS)
    def prefix(self, prefix: bytes, reverse: bool, after: bytes | None) -> None:
        found = run(listed(self.index.prefix(prefix, reverse=reverse, after=after)))
        expected = [key for key in sorted(self.model, reverse=reverse) if key.startswith(prefix)]
        if after is not None:
            expected = [key for key in expected if (key < after if reverse else key > after)]
        assert found == [(key, self.model[key]) for key in expected]

    def expected(self, lower: bytes | None, upper: bytes | None) -> list[bytes]:
        return [
            key
            for key in sorted(self.model)
            if (lower is None or key >= lower) and (upper is None or key < upper)
        ]

    def teardown(self) -> None:
        if hasattr(self, "index"):
            self.items(None, None, False)
            self.save_and_load()
            self.items(None, None, True)
