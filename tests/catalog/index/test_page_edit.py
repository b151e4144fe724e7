"""Changes of a page: only touched blocks are written, and their sizes stay within limits."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from naksha.catalog.index import IndexLimits
from naksha.catalog.index.blocks import MISSING, Missing, decode_block, encode_block
from naksha.catalog.index.page import EMPTY, IndexPage, page_size
from naksha.catalog.index.page_edit import Change, changed, split

LIMITS = IndexLimits()


def key(number: int) -> bytes:
    return b"key/%05d" % number


def edit(page: IndexPage, changes: list[Change]) -> IndexPage:
    return IndexPage.of(changed(page, sorted(changes, key=lambda change: change[0]), LIMITS))


def full(count: int) -> IndexPage:
    return edit(EMPTY, [(key(number), b"%d" % number) for number in range(count)])


def lengths(page: IndexPage) -> list[int]:
    return [len(decode_block(block)) for block in page.blocks()]


@pytest.mark.parametrize("changes_at_once", [1, 7])
@pytest.mark.parametrize("order", ["up", "down", "random"])
def test_blocks_stay_full_enough_whatever_is_removed(order: str, changes_at_once: int) -> None:
    page = full(320)
    numbers = list(range(320))
    if order == "random":
        random.Random(3).shuffle(numbers)
    elif order == "down":
        numbers.reverse()
    while numbers:
        gone, numbers = numbers[:changes_at_once], numbers[changes_at_once:]
        page = edit(page, [(key(number), MISSING) for number in gone])
        assert [found for found, _ in page.scan()] == sorted(map(key, numbers))
        if len(lengths(page)) > 1:
            assert min(lengths(page)) >= LIMITS.block_entries // 2
    assert page.data == EMPTY.data


@pytest.mark.parametrize("order", ["up", "down", "random"])
def test_blocks_stay_small_enough_whatever_is_added(order: str) -> None:
    page = EMPTY
    numbers = list(range(400))
    if order == "random":
        random.Random(4).shuffle(numbers)
    elif order == "down":
        numbers.reverse()
    for number in numbers:
        page = edit(page, [(key(number), b"%d" % number)])
        assert max(lengths(page)) <= 2 * LIMITS.block_entries
    assert list(page.scan()) == [(key(number), b"%d" % number) for number in range(400)]
    assert min(lengths(page)) >= LIMITS.block_entries // 2


def test_only_the_block_of_a_changed_key_is_written_again() -> None:
    page = full(320)
    after = edit(page, [(key(100), b"new")])
    assert len(after.blocks()) == len(page.blocks())
    differing = [a != b for a, b in zip(page.blocks(), after.blocks(), strict=True)]
    assert differing.count(True) == 1
    assert differing[page.block_of(key(100))]


def test_taking_out_what_is_not_there_changes_nothing() -> None:
    page = full(100)
    assert (
        edit(page, [(b"", MISSING), (key(50) + b"x", MISSING), (b"z", MISSING)]).data == page.data
    )
    assert edit(EMPTY, [(b"a", MISSING)]).data == EMPTY.data


@pytest.mark.parametrize("pieces", range(1, 14))
def test_a_page_is_split_into_few_pages_of_like_size(pieces: int) -> None:
    blocks = full(3000).blocks()
    limit = page_size(blocks) // pieces + 400
    found = split(blocks, IndexLimits(stripe_bytes=limit))
    assert [block for page in found for block in page] == list(blocks)
    fewest = -(-page_size(blocks) // limit)
    assert fewest <= len(found) <= fewest + 1
    assert max(map(page_size, found)) <= limit
    assert min(map(page_size, found)) > limit * 0.4


_keys = st.binary(max_size=3) | st.binary(min_size=130, max_size=131)
_values = st.none() | st.binary(max_size=3) | st.binary(min_size=126, max_size=129)


@given(
    st.dictionaries(_keys, _values, min_size=1, max_size=8),
    st.lists(st.tuples(_keys, _values | st.just(MISSING)), max_size=6),
)
def test_an_edited_block_is_the_one_that_its_entries_make(
    entries: dict[bytes, bytes | None], changes: list[Change]
) -> None:
    before = encode_block(sorted(entries.items()))
    stored = type(before)(before.data, before.crc, before.first)
    for key, value in changes:
        if isinstance(value, Missing):
            entries.pop(key, None)
        else:
            entries[key] = value
    after = encode_block(sorted(entries.items())) if entries else None
    for block in (before, stored):
        edited = block.with_changes(changes)
        assert edited == after
        if edited is not None and after is not None:
            assert (edited.first, edited.crc) == (after.first, after.crc)
            assert edited.decoded == after.decoded
            assert [edited.find(key) for key in entries] == list(entries.values())
