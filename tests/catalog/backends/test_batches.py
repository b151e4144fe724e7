"""Batches limited by count and size, and name ranges that match a prefix."""

import pytest

from naksha.model import limits
from naksha.spi.support.batches import batches, name_range


@pytest.mark.parametrize(
    ("items", "cut"),
    [
        ([], []),
        (["a"], [["a"]]),
        (["a", "b", "c"], [["a", "b", "c"]]),
        (["a", "b", "c", "d"], [["a", "b", "c"], ["d"]]),
        (["aaa", "bbb"], [["aaa"], ["bbb"]]),
        (["aaa", "b", "c", "ddd"], [["aaa", "b", "c"], ["ddd"]]),
        (["a", "a thing too large", "b", "c"], [["a"], ["a thing too large"], ["b", "c"]]),
    ],
)
def test_batches_are_cut_by_count_and_size(items: list[str], cut: list[list[str]]) -> None:
    assert list(batches(items, 3, 5, size=len)) == cut


def test_without_a_size_only_the_count_matters() -> None:
    assert [len(batch) for batch in batches(range(10), 4)] == [4, 4, 2]


@pytest.mark.parametrize(
    ("prefix", "after", "first", "end"),
    [
        ("a", "", "a", "b"),
        ("a", "ab", "ab", "b"),
        ("b", "a", "b", "c"),
        ("a\U0010ffff", "", "a\U0010ffff", "b"),
        ("\ud7ff", "", "\ud7ff", "\ue000"),
    ],
)
def test_a_range_holds_a_prefix(prefix: str, after: str, first: str, end: str) -> None:
    assert name_range(prefix, after) == (first, end)


@pytest.mark.parametrize("prefix", ["", "\U0010ffff"])
def test_a_range_without_an_end_holds_the_greatest_name(prefix: str) -> None:
    greatest = "\U0010ffff" * (limits.POINTER_NAME_BYTES_MAX // 4)
    first, end = name_range(prefix, "")
    assert first == prefix
    assert greatest < end
