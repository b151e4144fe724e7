"""Marks: exact while they fit, otherwise a filter without false negatives."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from naksha.catalog.maintenance.bloom import BloomFilter, mixed
from naksha.catalog.maintenance.mark_set import MarkLimits, MarkSet
from naksha.model import limits

IDS = st.integers(0, limits.INT8_MAX)


def hashes(begin: int, end: int) -> "np.typing.NDArray[np.uint64]":
    return mixed(np.arange(begin, end, dtype=np.uint64))


class TestBloomFilter:
    def test_it_contains_all_added_marks(self) -> None:
        bloom = BloomFilter(10_000, 1e-3)
        bloom.add(hashes(0, 10_000))
        assert bloom.has(hashes(0, 10_000)).all()

    @pytest.mark.parametrize("rate", [1e-1, 1e-2, 1e-3])
    def test_its_error_rate_is_as_declared(self, rate: float) -> None:
        bloom = BloomFilter(10_000, rate)
        bloom.add(hashes(0, 10_000))
        errs = float(bloom.has(hashes(1_000_000, 1_200_000)).mean())
        assert errs == pytest.approx(bloom.rate, rel=0.3)
        assert errs == pytest.approx(rate, rel=0.4)

    def test_it_reports_when_it_is_full(self) -> None:
        bloom = BloomFilter(1_000, 1e-5)
        assert bloom.rate == 0
        bloom.add(hashes(0, 1_000))
        assert bloom.rate < 2e-5
        bloom.add(hashes(1_000, 3_000))
        assert bloom.rate > 1e-3

    def test_it_needs_three_bytes_for_each(self) -> None:
        assert BloomFilter(1_000_000, 1e-5)._words.nbytes == pytest.approx(3_000_000, rel=0.01)


class TestMarks:
    @given(st.lists(st.tuples(st.sampled_from("ab"), IDS)), st.lists(IDS))
    def test_marks_are_a_set(self, marked: list[tuple[str, int]], asked: list[int]) -> None:
        marks = MarkSet()
        for realm, id in marked:
            marks.add(realm, [id])
        for realm in "abc":
            ids = [id for _, id in marked] + asked
            expected = [(realm, id) in marked for id in ids]
            assert marks.has(realm, ids).tolist() == expected
        assert marks.is_exact
        assert marks.is_good
        assert marks.rate == 0

    def test_many_are_still_exact(self) -> None:
        marks = MarkSet()
        for begin in range(0, 300_000, 1_000):
            marks.add("r", range(2 * begin, 2 * (begin + 1_000), 2))
            marks.add("r", range(begin, begin + 10, 2))
        found = marks.has("r", range(600_010))
        assert found[:600_000:2].all()
        assert not found[1::2].any()
        assert not found[600_000:].any()

    def test_more_than_fit_become_a_filter_that_forgets_nothing(self) -> None:
        marks = MarkSet(MarkLimits(exact_max=1_000))
        marks.add("one", range(2_000))
        marks.add("two", range(5_000, 6_000))
        assert marks.has("one", range(2_000)).all()
        assert not marks.is_exact
        assert marks.has("two", range(5_000, 6_000)).all()
        assert marks.is_good
        assert not marks.has("one", range(5_000, 6_000)).any()
        assert not marks.has("two", range(2_000)).any()

    def test_a_filter_that_is_too_small_is_not_good(self) -> None:
        marks = MarkSet(MarkLimits(exact_max=100))
        marks.add("r", range(5_000))
        assert marks.has("r", range(5_000)).all()
        assert not marks.is_good
        larger = MarkSet(MarkLimits(exact_max=100, expected=int(marks.count * 1.1)))
        larger.add("r", range(5_000))
        assert larger.is_good

    def test_false_positives_differ_between_runs(self) -> None:
        wrong = []
        for _ in range(2):
            marks = MarkSet(MarkLimits(exact_max=100))
            marks.add("r", range(1_500))
            found = np.flatnonzero(marks.has("r", range(1_500, 100_000)))
            assert 0 < found.size < 50_000
            wrong.append(set(found.tolist()))
        both = wrong[0] & wrong[1]
        assert len(both) < 0.5 * len(wrong[0])
