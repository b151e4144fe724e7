"""Spilling into stripes: conditions, choice, splits and merges, and the list of stripes."""

import random

import msgspec
import pytest

from naksha.catalog.index import IndexLimits, SavedIndex, SortedIndex
from naksha.catalog.index.container import page_refs
from naksha.catalog.index.page import EMPTY, IndexPage
from naksha.catalog.objects import encode
from naksha.model import limits
from tests.catalog.index.store import TINY, Store, listed

SMALL = IndexLimits(embedded_bytes=1000, stripe_bytes=4000)


def numbered(count: int, begin: int = 0) -> dict[bytes, bytes]:
    return {b"key/%06d" % number: b"%d" % number for number in range(begin, begin + count)}


async def content(store: Store, saved: SavedIndex) -> dict[bytes, bytes]:
    return dict(await listed(store.open(saved.container).items()))


async def test_an_index_is_embedded_up_to_its_limit_and_then_spilled() -> None:
    store = Store(SMALL)
    index = store.open()
    for key, value in numbered(200).items():
        before = len(index.container.embedded)
        index.put(key, value)
        saved = await store.save(index)
        if saved.objects:
            assert before > SMALL.embedded_bytes - 50
            assert saved.container.embedded == EMPTY.data
            break
        assert saved.container.stripes == EMPTY.data
        assert len(saved.container.embedded) <= SMALL.embedded_bytes
    else:
        pytest.fail("it was never spilled")
    assert await content(store, saved) == numbered(len(await content(store, saved)))


@pytest.mark.parametrize("size", [200, 230, 250, 251, 260, 5_000, 400_000])
async def test_an_entry_of_more_than_a_quarter_of_the_limit_is_spilled(size: int) -> None:
    store = Store(SMALL)
    index = store.open()
    index.put(b"small", b"1")
    index.put(b"k", bytes(size - 1))
    saved = await store.save(index)
    assert bool(saved.objects) == (size > SMALL.embedded_bytes // 4)
    assert await content(store, saved) == {b"small": b"1", b"k": bytes(size - 1)}
    assert [made.parts for made in saved.objects if size == 400_000] in ([], [1, 2], [2, 1])


async def test_one_huge_entry_among_small_ones_does_not_make_them_a_large_stripe() -> None:
    store = Store(SMALL)
    items = numbered(1000)
    items[b"key/000500"] = bytes(1_000_000)
    saved = await store.filled(items.items())
    sizes = [ref.size for ref in store.stripes(saved.container)]
    assert sum(size > SMALL.stripe_bytes for size in sizes) == 1
    assert await content(store, saved) == items
    store.check(saved.container)
    index = store.open(saved.container)
    index.put(b"key/000500", b"small again")
    for key, value in numbered(300, 2000).items():
        index.put(key, value)
    saved = await store.save(index)
    assert max(ref.size for ref in store.stripes(saved.container)) <= SMALL.stripe_bytes
    store.check(saved.container)


@pytest.mark.parametrize(
    "count", [1, 2, 15, 16, 17, 31, 32, 33, 34, 127, 128, 129, 255, 256, 257, 16383, 16384, 16385]
)
async def test_any_number_of_keys_is_split_and_read(count: int) -> None:
    store = Store(IndexLimits(embedded_bytes=0, stripe_bytes=4000))
    saved = await store.filled(numbered(count).items())
    store.check(saved.container)
    assert await content(store, saved) == numbered(count)


async def test_stripes_are_split_at_exactly_their_limit() -> None:
    """By the real, compressed size, not by an estimate."""
    items = numbered(300)
    whole = Store(IndexLimits(embedded_bytes=0))
    (stripe,) = whole.stripes((await whole.filled(items.items())).container)
    for room, count in ((0, 1), (1, 1), (-1, 2)):
        store = Store(IndexLimits(embedded_bytes=0, stripe_bytes=stripe.size + room))
        stripes = store.stripes((await store.filled(items.items())).container)
        assert len(stripes) == count
        assert max(ref.size for ref in stripes) <= stripe.size + room


async def test_common_prefixes_do_not_make_more_stripes() -> None:
    """#4567: keys of 400 bytes that differ in the last ones are small once compressed."""
    plain, prefixed = Store(IndexLimits()), Store(IndexLimits())
    items = numbered(20_000)
    long = {b"p" * 390 + key: value for key, value in items.items()}
    few = plain.stripes((await plain.filled(items.items())).container)
    many = prefixed.stripes((await prefixed.filled(long.items())).container)
    raw = sum(len(key) + len(value) for key, value in long.items()) / limits.INDEX_STRIPE_BYTES_MAX
    assert len(few) >= 2
    assert len(many) < raw / 6
    assert len(many) <= 5 * len(few)


async def test_stripes_of_larger_limits_are_rewritten_under_smaller_ones() -> None:
    """I4: what an older configuration wrote is split when it is touched, also inside a block."""
    old = IndexLimits(embedded_bytes=0, block_entries=200, block_bytes=100_000)
    store = Store(old)
    items = numbered(1000)
    saved = await store.filled(items.items())
    assert len(store.stripes(saved.container)) == 1
    store.limits = IndexLimits(embedded_bytes=0, stripe_bytes=1000)
    index = store.open(saved.container)
    index.put(b"key/000500", b"new")
    saved = await store.save(index)
    items[b"key/000500"] = b"new"
    store.check(saved.container)
    assert await content(store, saved) == items


async def test_only_touched_stripes_are_read_in_one_call_and_written() -> None:
    store = Store(SMALL)
    saved = await store.filled(numbered(5000).items())
    before = {ref.ref.id: ref for ref in store.stripes(saved.container)}
    assert len(before) > 5
    index = store.open(saved.container)
    touched = list(before.values())[1:5:3]
    for ref in touched:
        index.put(ref.first + b"+", bytes(200))
    index.put(b"key/000000", bytes(SMALL.entry_bytes))
    store.reads.clear()
    saved = await store.save(index)
    expected = {ref.ref.id for ref in (*touched, next(iter(before.values())))}
    assert [{ref.id for ref in read} for read in store.reads] == [expected]
    after = {ref.ref.id for ref in store.stripes(saved.container)}
    assert before.keys() - after == expected
    assert after - before.keys() == {made.id for made in saved.objects}


async def test_a_stripe_that_a_spill_leaves_as_it_was_is_not_written() -> None:
    store = Store(SMALL)
    saved = await store.filled(numbered(500).items())
    index = store.open(saved.container)
    for key, value in numbered(300).items():
        index.put(key, value)
    again = await store.save(index)
    assert again == (saved.container, ())


async def remove_all(store: Store, index: SortedIndex, keys: list[bytes], step: int) -> list[int]:
    """Remove the keys, and save from time to time. The numbers of stripes."""
    counts = []
    for begin in range(0, len(keys), step):
        for key in keys[begin : begin + step]:
            index.remove(key)
        saved = await store.save(index)
        store.check(saved.container)
        counts.append(len(store.stripes(saved.container)))
    return counts


@pytest.mark.parametrize("order", ["up", "down", "random", "stripe by stripe"])
async def test_stripes_are_merged_when_keys_are_removed(order: str) -> None:
    """H9: the number of stripes follows the number of keys, whichever go first."""
    store = Store(IndexLimits(embedded_bytes=400, stripe_bytes=1000, stripes_inline=5))
    saved = await store.filled(numbered(2000).items())
    many = len(store.stripes(saved.container))
    assert many > 10
    keys = list(numbered(2000))
    kept = set(keys[::100])
    if order == "random":
        random.Random(9).shuffle(keys)
    elif order == "down":
        keys.reverse()
    elif order == "stripe by stripe":
        # Every second stripe first, so that none of them has a neighbour that is touched.
        keys = [key for odd in (0, 1) for key in keys if int(key[4:]) // 50 % 2 == odd]
    index = store.open(saved.container)
    counts = await remove_all(store, index, [key for key in keys if key not in kept], 90)
    assert counts[-1] == 1
    assert max(counts) <= many * 2
    assert dict(await listed(index.items())).keys() == kept
    await remove_all(store, index, sorted(kept), 7)
    index.put(b"last", bytes(200))
    saved = await store.save(index)
    assert len(store.stripes(saved.container)) == 1


async def test_neighbours_of_a_stripe_that_vanished_are_merged() -> None:
    store = Store(msgspec.structs.replace(TINY, embedded_bytes=0))
    saved = await store.filled([(b"a", bytes(20)), (b"b", bytes(150)), (b"c", bytes(20))])
    assert len(store.stripes(saved.container)) == 3
    index = store.open(saved.container)
    index.remove(b"b")
    saved = await store.save(index)
    assert [(ref.first, ref.last) for ref in store.stripes(saved.container)] == [(b"a", b"c")]


async def test_an_index_that_loses_all_its_keys_is_empty_again() -> None:
    store = Store(TINY)
    saved = await store.filled(numbered(100).items())
    index = store.open(saved.container)
    for key in numbered(100):
        index.remove(key)
    saved = await store.save(index)
    assert saved.container.embedded == saved.container.stripes == EMPTY.data
    assert saved.objects == ()


async def test_the_list_of_many_stripes_is_in_segments() -> None:
    store = Store(IndexLimits(embedded_bytes=0, stripe_bytes=500, segment_stripes=10))
    few = await store.filled(numbered(400).items())
    assert {made.ref.type for made in few.objects} == {"ix"}
    saved = await store.filled(numbered(4000).items())
    assert {made.ref.type for made in saved.objects} == {"ix", "ixs"}
    store.check(saved.container)
    assert await content(store, saved) == numbered(4000)
    segments = [made for made in saved.objects if made.ref.type == "ixs"]
    stripes = store.stripes(saved.container)
    assert len(segments) == -(-len(stripes) // 10)
    index = store.open(saved.container)
    index.put(b"key/002000+", b"")
    again = await store.save(index)
    written = [made.ref.type for made in again.objects]
    assert written.count("ixs") == 1
    assert written.count("ix") <= 2
    top = page_refs(IndexPage(again.container.stripes).scan())
    kept = {made.ref.id for made in segments} & {ref.ref.id for ref in top}
    assert len(kept) == len(segments) - 1


async def test_segments_grow_split_merge_and_vanish_with_the_index() -> None:
    store = Store(TINY)
    index = store.open()
    model: dict[bytes, bytes] = {}
    for begin in range(0, 600, 20):
        for key, value in numbered(20, begin).items():
            index.put(key, value)
            model[key] = value
        store.check((await store.save(index)).container)
    most = len(page_refs(IndexPage(index.container.stripes).scan()))
    assert most > 5
    await remove_all(store, index, [key for key in model if key[-2:] not in {b"07", b"57"}], 11)
    assert len(page_refs(IndexPage(index.container.stripes).scan())) < most / 2
    await remove_all(store, index, list(numbered(600))[20:], 13)
    assert dict(await listed(index.items())) == {b"key/000007": b"7"}


@pytest.mark.parametrize("count", [50_000, pytest.param(500_000, marks=pytest.mark.long)])
async def test_one_of_half_a_million_keys_is_read_with_one_stripe(count: int) -> None:
    """Or a tenth of it in stripes of a tenth, which are as many."""
    store = Store(IndexLimits(stripe_bytes=limits.INDEX_STRIPE_BYTES_MAX * count // 500_000))
    keys = [b"space/%03d/collection/%06d" % (n % 700, n) for n in range(count)]
    saved = await store.filled((key, b"%08d" % n) for n, key in enumerate(keys))
    assert len(store.stripes(saved.container)) > limits.INDEX_STRIPES_INLINE_MAX
    assert len(encode(saved.container)) < 1000
    assert sum(len(value) for _, value in store.rows.values()) / count < 22
    index = store.open(saved.container)
    for number in random.Random(5).sample(range(count), 50):
        store.reads.clear()
        index = store.open(saved.container)
        assert await index.get(keys[number]) == b"%08d" % number
        assert [[ref.type for ref in read] for read in store.reads] == [["ixs"], ["ix"]]
    store.reads.clear()
    found = await index.get_many(keys[:: count // 100])
    assert len(found) == 100
    assert len(store.reads) == 1
    index.put(keys[7] + b"+", b"new")
    changed = await store.save(index)
    assert changed.objects == ()
    assert len(encode(changed.container)) < 1000
