"""The set of marked ids: exact, or a filter if there are many.

Ids are stored as sorted arrays of 8 bytes each. If they exceed the limit, they are moved to a Bloom
filter of 3 bytes each, which retains some garbage but never loses a marked id. The filter is
salted, so garbage that one run retains by mistake is found by the next one.
"""

from __future__ import annotations

import hashlib
import secrets
from array import array
from collections.abc import Iterable, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from naksha.catalog.maintenance.bloom import BloomFilter, Hashes, mixed
from naksha.model import limits


class MarkLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits at which marks become a filter, and the size of the filter."""

    exact_max: int = limits.MARKS_EXACT_MAX
    expected: int = 0
    """Least number of ids that the filter is made for; from the last run."""
    rate: float = 1 / limits.MARKS_FILTER_ONE_IN
    rate_max: float = 1 / limits.MARKS_FILTER_ONE_IN_MIN


class MarkSet:
    """The ids that were marked in each realm. All must be added before the first is looked up."""

    def __init__(self, bounds: MarkLimits | None = None) -> None:
        self.count = 0
        """Number of added ids, including duplicates."""
        self._bounds = bounds or MarkLimits()
        self._pending: dict[str, array[int]] = {}
        self._pending_count = 0
        self._settled: dict[str, Hashes] = {}
        self._filter: BloomFilter | None = None
        self._salt = secrets.token_bytes(16)
        self._seeds: dict[str, np.uint64] = {}

    def add(self, realm: str, ids: Iterable[int]) -> None:
        pending = self._pending.setdefault(realm, array("Q"))
        before = len(pending)
        pending.extend(ids)
        added = len(pending) - before
        self.count += added
        self._pending_count += added
        if self._pending_count >= limits.MARKS_PENDING_MAX:
            self._settle()

    def has(self, realm: str, ids: Sequence[int]) -> NDArray[np.bool_]:
        """Return for each id whether it was marked."""
        self._settle()
        wanted = np.array(ids, dtype=np.uint64)
        if self._filter is not None:
            return self._filter.has(self._hashed(realm, wanted))
        settled = self._settled.get(realm)
        if settled is None or not len(settled):
            return np.zeros(len(wanted), dtype=np.bool_)
        at = np.searchsorted(settled, wanted)
        at[at == len(settled)] = 0
        return np.equal(settled[at], wanted)

    @property
    def is_exact(self) -> bool:
        self._settle()
        return self._filter is None

    @property
    def rate(self) -> float:
        """Share of the garbage that is retained by mistake."""
        self._settle()
        return 0.0 if self._filter is None else self._filter.rate

    @property
    def is_good(self) -> bool:
        """Whether the filter was large enough; if not, it retains too much garbage to be useful."""
        return self.rate <= self._bounds.rate_max

    def _settle(self) -> None:
        if not self._pending_count:
            return
        pending, self._pending, self._pending_count = self._pending, {}, 0
        for realm, added in pending.items():
            new = np.frombuffer(added, dtype=np.uint64)
            if self._filter is not None:
                self._filter.add(self._hashed(realm, new))
            else:
                old = self._settled.get(realm)
                self._settled[realm] = np.unique(new if old is None else np.concatenate([old, new]))
        if sum(map(len, self._settled.values())) > self._bounds.exact_max:
            self._convert_to_filter()

    def _convert_to_filter(self) -> None:
        expected = min(
            max(self._bounds.expected, limits.MARKS_FILTER_GROWTH * self._bounds.exact_max),
            limits.MARKS_FILTER_MAX,
        )
        self._filter = BloomFilter(int(expected), self._bounds.rate)
        settled, self._settled = self._settled, {}
        for realm, ids in settled.items():
            self._filter.add(self._hashed(realm, ids))

    def _hashed(self, realm: str, ids: Hashes) -> Hashes:
        seed = self._seeds.get(realm)
        if seed is None:
            digest = hashlib.blake2b(realm.encode(), digest_size=8, salt=self._salt).digest()
            seed = self._seeds[realm] = np.uint64(int.from_bytes(digest, "big"))
        return mixed(ids ^ seed)
