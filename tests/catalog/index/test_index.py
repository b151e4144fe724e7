"""Reading and changing an index: layers, reports, listings, concurrency."""

import asyncio
from collections.abc import Sequence

import pytest

from naksha.catalog.index import IndexContainer, IndexLimits, SortedIndex
from naksha.catalog.objects import ObjectRef
from naksha.model import limits
from naksha.model.errors import InvalidArgument
from tests.catalog.index.store import TINY, Store, listed


def numbered(count: int) -> dict[bytes, bytes]:
    return {b"key/%05d" % number: b"%d" % number for number in range(count)}


async def test_a_key_has_at_most_500_bytes() -> None:
    store = Store()
    index = store.open()
    longest = bytes(range(256)) + b"x" * 244
    assert index.put(longest, b"1") is True
    with pytest.raises(InvalidArgument, match="500") as caught:
        index.put(longest + b"x", b"1")
    assert caught.value.field == "key"
    with pytest.raises(InvalidArgument):
        index.remove(longest + b"x")
    saved = await store.save(index)
    assert await store.open(saved.container).get(longest) == b"1"
    assert await store.open(saved.container).get(longest + b"x") is None


async def test_the_empty_key_and_the_empty_value_are_a_key_and_a_value() -> None:
    store = Store()
    saved = await store.filled([(b"", b"")])
    index = store.open(saved.container)
    assert await index.get(b"") == b""
    assert await listed(index.items()) == [(b"", b"")]
    assert index.remove(b"") is True
    assert await index.get(b"") is None


async def test_keys_are_ordered_as_unsigned_bytes() -> None:
    store = Store()
    keys = [bytes([byte]) for byte in range(256)] + [bytes([byte, 0]) for byte in range(256)]
    saved = await store.filled((key, key) for key in keys)
    assert [key for key, _ in await listed(store.open(saved.container).items())] == sorted(keys)


async def test_an_entry_that_is_removed_and_added_again_is_new() -> None:
    """Whether it was embedded or striped, saved in between or not."""
    store = Store()
    items = numbered(50)
    for key in (b"key/00007", b"other"):
        index = store.open((await store.filled(items.items())).container)
        index.put(b"other", b"1")
        await index.get(key)
        for save_between in (False, True):
            assert index.remove(key) is True
            assert index.remove(key) is False
            if save_between:
                await store.save(index)
                assert index.remove(key) is False
            assert index.put(key, b"again") is True
            assert index.put(key, b"more") is False
            if save_between:
                await store.save(index)
                assert index.put(key, b"still more") is False
        assert await index.get(key) == b"still more"


async def test_whether_a_key_is_new_is_known_once_its_stripe_was_read() -> None:
    store = Store()
    container = (await store.filled(numbered(50).items())).container
    index = store.open(container)
    assert index.put(b"key/00007", b"x") is None
    assert index.remove(b"key/00010") is None
    assert index.put(b"a key below all", b"x") is True
    assert index.remove(b"zzz above all") is False
    assert store.reads == []
    index = store.open(container)
    await index.get_many([b"key/00007", b"key/00008x"])
    assert index.put(b"key/00007", b"x") is False
    assert index.put(b"key/00008x", b"x") is True


async def test_a_tombstone_that_hides_nothing_is_not_kept() -> None:
    store = Store()
    saved = await store.filled(numbered(50).items())
    index = store.open(saved.container)
    for key in (b"key/00007x", b"nothing", b""):
        index.remove(key)
    index.put(b"passing", b"1")
    index.remove(b"passing")
    assert (await store.save(index)).container == saved.container
    index.remove(b"key/00007")
    hidden = await store.save(index)
    assert hidden.container != saved.container
    index.put(b"key/00007", b"7")
    index.remove(b"key/00007")
    assert (await store.save(index)).container == hidden.container


async def test_putting_what_is_there_changes_nothing() -> None:
    store = Store()
    index = store.open((await store.filled([(b"a", b"1")])).container)
    assert index.put(b"a", b"1") is False
    assert not index.is_changed


async def test_an_unchanged_index_is_saved_as_the_same_bytes() -> None:
    """I5: also if the index is written again from its content."""
    store = Store()
    saved = await store.filled(numbered(50).items())
    index = store.open(saved.container)
    await listed(index.items())
    assert await index.save(store.new_id) == (saved.container, ())
    other = Store()
    again = await other.filled(await listed(store.open(saved.container).items()))
    assert again == saved
    assert [row for _, row in other.rows.items()] == [row for _, row in store.rows.items()]


async def test_a_caller_may_use_its_buffer_again() -> None:
    store = Store()
    index = store.open()
    buffer = bytearray(b"one")
    index.put(b"a", buffer)  # type: ignore[arg-type, unused-ignore]
    buffer[:] = b"two"
    assert await index.get(b"a") == b"one"


async def test_one_commit_after_the_other_keeps_its_own_container() -> None:
    """A chain, of which nothing is written before its end: stripes are read from memory."""
    store = Store()
    index = store.open()
    chain = []
    for key, value in numbered(200).items():
        index = index.copy()
        index.put(key, value)
        chain.append(await index.save(store.new_id))
        assert await index.get(key) == value
        assert await index.get(b"key/00000") == b"0"
    assert store.reads == []
    for saved in chain:
        store.write(saved)
    for length, saved in enumerate(chain, 1):
        found = await listed(store.open(saved.container).items())
        assert found == list(numbered(length).items())


async def test_after_an_error_nothing_was_saved_and_saving_works_again() -> None:
    store = Store()
    index = store.open((await store.filled(numbered(50).items())).container)
    for number in range(0, 50, 2):
        index.put(b"key/%05d" % number, b"even")
    before = index.container

    def no_id() -> int:
        raise RuntimeError("no lease")

    with pytest.raises(RuntimeError, match="no lease"):
        await index.save(no_id)
    assert index.is_changed
    assert index.container == before
    saved = await store.save(index)
    assert await store.open(saved.container).get(b"key/00010") == b"even"


# ---- Listings ------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [15, 16, 17, 31, 32, 33, 63, 64, 65, 255, 256, 257])
@pytest.mark.parametrize("reverse", [False, True])
async def test_a_listing_page_by_page_loses_nothing(count: int, reverse: bool) -> None:
    """I7: pages of one less, as many and one more than a block, a stripe, a bulk read have."""
    store = Store(IndexLimits(embedded_bytes=100, stripe_bytes=400, stripes_inline=5))
    items = numbered(count)
    index = store.open((await store.filled(items.items())).container)
    for page_length in (1, 15, 16, 17, count - 1, count, count + 1):
        found: list[tuple[bytes, bytes]] = []
        after: bytes | None = None
        while True:
            listing = index.prefix(b"key/", reverse=reverse, after=after)
            page = [await anext(listing, None) for _ in range(page_length)]
            found += [item for item in page if item is not None]
            if page[-1] is None:
                break
            after = found[-1][0]
        assert found == sorted(items.items(), reverse=reverse)


async def test_a_range_has_its_lower_bound_and_not_its_upper() -> None:
    store = Store()
    items = numbered(40)
    index = store.open((await store.filled(items.items())).container)
    keys = list(items)
    for begin in range(0, 40, 7):
        for end in range(0, 40, 3):
            found = await listed(index.items(keys[begin], keys[end]))
            assert [key for key, _ in found] == keys[begin:end]


async def test_a_prefix_of_the_highest_bytes_has_no_end() -> None:
    store = Store()
    keys = [b"\xfe", b"\xfe\xff", b"\xff", b"\xff\xff", b"\xff\xffa", b"\xff" * 500]
    index = store.open((await store.filled((key, b"") for key in keys)).container)
    for prefix in (b"", b"\xfe", b"\xff", b"\xff\xff", b"\xff" * 500):
        expected = [key for key in keys if key.startswith(prefix)]
        assert [key for key, _ in await listed(index.prefix(prefix))] == expected
        found = await listed(index.prefix(prefix, reverse=True))
        assert [key for key, _ in found] == expected[::-1]


async def test_a_listing_shows_the_state_at_its_start() -> None:
    store = Store()
    items = numbered(60)
    index = store.open((await store.filled(items.items())).container)
    listing = index.items()
    found = [await anext(listing)]
    for key in items:
        index.remove(key)
    index.put(b"new", b"")
    await store.save(index)
    found += await listed(listing)
    assert found == list(items.items())
    assert await listed(index.items()) == [(b"new", b"")]


async def test_a_listing_reads_in_bulk_and_no_more_than_it_needs() -> None:
    store = Store(IndexLimits(embedded_bytes=100, stripe_bytes=400, stripes_inline=1000))
    index = store.open((await store.filled(numbered(5000).items())).container)
    assert len(store.stripes(index.container)) > 100
    listing = index.prefix(b"key/")
    await anext(listing)
    assert [len(read) for read in store.reads] == [1]
    store.reads.clear()
    await listed(index.items())
    lengths = [len(read) for read in store.reads]
    assert lengths[:5] == [1, 2, 4, 8, 16]
    assert set(lengths[4:-1]) == {limits.INDEX_PREFETCH_STRIPES_MAX}
    store.reads.clear()
    assert len(await listed(index.items(b"key/02000", b"key/02010"))) == 10
    assert sum(len(read) for read in store.reads) <= 2


# ---- Concurrency ---------------------------------------------------------------------------------


class SlowStore(Store):
    """Every read waits, so that others run meanwhile."""

    async def fetch_many(self, refs: Sequence[ObjectRef]) -> list[object]:
        await asyncio.sleep(0)
        values = await super().fetch_many(refs)
        await asyncio.sleep(0)
        return values


async def test_many_tasks_read_one_index_at_once() -> None:
    """I6: what two of them load at once is right for both."""
    store = SlowStore(TINY)
    items = numbered(1200)
    index = store.open((await store.filled(items.items())).container)
    assert len(store.stripes(index.container)) > limits.INDEX_STRIPES_KEPT_MAX

    async def read(begin: int) -> None:
        keys = list(items)[begin::7]
        for key in keys:
            assert await index.get(key) == items[key]
        assert await index.get_many([*keys, b"nothing"]) == {key: items[key] for key in keys}
        assert await listed(index.items(keys[0])) == list(items.items())[begin:]

    await asyncio.gather(*(read(begin % 7) for begin in range(20)))


async def test_tasks_read_while_another_changes_and_spills() -> None:
    store = SlowStore(TINY)
    items = numbered(300)
    index = store.open((await store.filled(items.items())).container)
    is_over = False

    async def read() -> None:
        while not is_over:
            for key in list(items)[::29]:
                assert await index.get(key) == items[key]
            found = dict(await listed(index.items()))
            assert items.items() <= found.items()

    async def write() -> None:
        nonlocal is_over
        for number in range(60):
            index.put(b"new/%d" % number, b"")
            index.put(b"key/%05d+" % (number * 5), b"")
            await index.save(store.new_id)
        is_over = True

    await asyncio.gather(read(), read(), write())


# ---- Maintenance ---------------------------------------------------------------------------------


async def refs_of(store: Store, container: IndexContainer, seen: set[int]) -> set[int]:
    return {ref.id async for ref in store.open(container).stripe_refs(seen)}


async def test_all_objects_of_an_index_are_found_for_marking() -> None:
    store = Store()
    saved = await store.filled(numbered(100).items())
    assert await refs_of(store, saved.container, set()) == {made.id for made in saved.objects}
    inline = await store.filled(numbered(30).items())
    assert {made.ref.type for made in inline.objects} == {"ix"}
    assert await refs_of(store, inline.container, set()) == {made.id for made in inline.objects}


async def test_marking_a_later_commit_looks_only_at_what_is_new() -> None:
    """H10."""
    store = Store()
    first = await store.filled(numbered(400).items())
    index = store.open(first.container)
    index.put(b"key/00200", b"x" * 100)
    second = await store.save(index)
    seen: set[int] = set()
    await refs_of(store, first.container, seen)
    store.reads.clear()
    found = await refs_of(store, second.container, seen)
    assert found == {made.id for made in second.objects}
    assert {ref.type for read in store.reads for ref in read} == {"ixs"}
    assert sum(len(read) for read in store.reads) <= 2
    assert await refs_of(store, second.container, seen) == set()


def test_an_index_that_was_not_used_needs_nothing() -> None:
    store = Store()
    assert not SortedIndex(store.fetch_many).is_changed
    assert store.reads == []
