"""The byte format of a page: frozen, complete for keys and values, with detection of damage."""

import random
from pathlib import Path
from zlib import crc32

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from naksha.catalog.index import EMPTY_CONTAINER, IndexContainer, IndexLimits, PageRef, Stripe
from naksha.catalog.index.blocks import MISSING, Entry, cut, read_varint, shared_length, varint
from naksha.catalog.index.page import EMPTY, IndexPage
from naksha.catalog.objects import ObjectRef, decode, encode
from naksha.model.errors import StorageCorrupt
from tests.catalog.index.machine import KEYS
from tests.catalog.index.store import TINY, Store, listed, run

GOLDEN = Path(__file__).parent / "data"
LIMITS = IndexLimits()


def page_of(entries: dict[bytes, bytes | None], limits: IndexLimits = LIMITS) -> IndexPage:
    return IndexPage.of(list(cut(sorted(entries.items()), limits)))


def crc(data: bytes) -> bytes:
    return crc32(data).to_bytes(4, "big")


# ---- Version 1, byte for byte --------------------------------------------------------------------


def test_a_page_of_version_1_is_laid_out_as_documented() -> None:
    long = b"k" * 300
    page = page_of({b"": b"", b"ab": b"one", b"ac\xff": None, long: b"v" * 200, long + b"\0": b"2"})
    block = (
        b"\x00\x00" + b"\x01"
        b"\x00\x02ab" + b"\x04one"
        b"\x01\x02c\xff" + b"\x00"
        b"\x00\xac\x02" + long + b"\xc9\x01" + b"v" * 200 + b"\xac\x02\x01\x00" + b"\x022"
    )
    head = b"\x01" + b"\x00\x00\x00\x01" + len(block).to_bytes(4, "big") + crc(block)
    assert page.data == head + crc(head) + block


def test_a_page_of_two_blocks_of_version_1_is_laid_out_as_documented() -> None:
    limits = IndexLimits(block_entries=1)
    page = page_of({b"aa": b"1", b"ab": b"2", b"ac": b"3"}, limits)
    blocks = [b"\x00\x02aa\x021", b"\x00\x02ab\x022", b"\x00\x02ac\x023"]
    head = b"\x01\x00\x00\x00\x03" + bytes([0, 0, 0, 6, 0, 0, 0, 12, 0, 0, 0, 18])
    head += b"".join(map(crc, blocks))
    assert page.data == head + crc(head) + b"".join(blocks)


def test_an_empty_page_of_version_1_is_frozen() -> None:
    assert EMPTY.data.hex() == "0100000000" + "fb42dead"
    assert encode(EMPTY_CONTAINER).hex() == (
        "82a8656d626564646564c4090100000000fb42deada773747269706573c4090100000000fb42dead"
    )


def golden_entries() -> dict[bytes, bytes | None]:
    """Paths, prefix chains, all byte values, tombstones: never to be changed."""
    entries: dict[bytes, bytes | None] = {
        b"space/%03d/collection" % n: b"%d" % n for n in range(40)
    }
    entries |= {b"x" * n: bytes([n % 256]) * (n % 130) for n in range(0, 501, 25)}
    entries |= {bytes([n]): None if n % 5 == 0 else bytes([255 - n]) for n in range(256)}
    return entries


def test_a_golden_page_of_version_1_is_written_and_read() -> None:
    golden = bytes.fromhex((GOLDEN / "page_v1.hex").read_text())
    assert page_of(golden_entries()).data == golden
    assert dict(IndexPage(golden).scan()) == golden_entries()


def test_a_golden_index_of_version_1_is_written_and_read() -> None:
    """Container, stripes and segments, as a spill writes them."""
    golden = [bytes.fromhex(part) for part in (GOLDEN / "index_v1.hex").read_text().split("\n\n")]
    items = {key: value or b"" for key, value in golden_entries().items()}
    store = Store(IndexLimits(embedded_bytes=300, stripe_bytes=1000, stripes_inline=2))
    index = store.open(run(store.filled(items.items())).container)
    index.put(b"space/007/collection", b"bond")
    index.remove(b"space/013/collection")
    saved = run(store.save(index))
    written = [encode(saved.container), *(value for _, value in store.rows.values())]
    assert written == golden
    expected = items | {b"space/007/collection": b"bond"}
    del expected[b"space/013/collection"]
    assert dict(run(listed(store.open(saved.container).items()))) == expected


# ---- Keys and values -----------------------------------------------------------------------------


@given(st.integers(0, 2**40))
def test_a_varint_is_read_as_written(number: int) -> None:
    data = b"\xff" + varint(number)
    assert read_varint(data, 1) == (number, len(data))


@given(KEYS, KEYS)
def test_the_shared_length_is_that_of_the_common_prefix(one: bytes, other: bytes) -> None:
    length = shared_length(one, other)
    assert one[:length] == other[:length]
    assert length == min(len(one), len(other)) or one[length] != other[length]


@given(
    st.dictionaries(KEYS, st.none() | st.binary(max_size=300), max_size=80),
    st.sampled_from([LIMITS, TINY, IndexLimits(block_entries=1, block_bytes=1)]),
    KEYS,
)
def test_a_page_is_read_as_written(
    entries: dict[bytes, bytes | None], limits: IndexLimits, other: bytes
) -> None:
    page = IndexPage(page_of(entries, limits).data)
    assert list(page.scan()) == sorted(entries.items())
    assert list(page.scan(reverse=True)) == sorted(entries.items(), reverse=True)
    for key in (*entries, other, other + b"\0", other[:-1]):
        assert page.find(key) == entries.get(key, MISSING)
        below: list[Entry] = [entry for entry in entries.items() if entry[0] <= key]
        assert page.floor(key) == max(below, default=None)


@pytest.mark.parametrize("byte", range(256))
def test_a_key_of_any_500_equal_bytes_is_read_as_written(byte: int) -> None:
    """H8: escaping must not make a key longer than what can be read."""
    entries: dict[bytes, bytes | None] = {
        bytes([byte]) * n: b"%d" % n for n in (0, 1, 251, 499, 500)
    }
    assert dict(IndexPage(page_of(entries).data).scan()) == entries


def test_common_prefixes_are_written_once() -> None:
    keys = [b"p" * 480 + b"%05d" % number for number in range(1000)]
    page = page_of(dict.fromkeys(keys, b"v"))
    assert page.block_count == 1000 // LIMITS.block_entries
    assert len(page.data) < 1000 * 10 + page.block_count * 500


# ---- Damage --------------------------------------------------------------------------------------


def read_all(page: bytes, keys: list[bytes]) -> None:
    opened = IndexPage(page)
    for key in keys:
        opened.find(key)


def test_every_flipped_bit_of_a_page_is_noticed_or_not_looked_at() -> None:
    entries: dict[bytes, bytes | None] = {b"key/%02d" % n: b"%d" % n for n in range(40)}
    good = page_of(entries).data
    for bit in range(len(good) * 8):
        bad = bytearray(good)
        bad[bit // 8] ^= 1 << bit % 8
        with pytest.raises(StorageCorrupt):
            dict(IndexPage(bytes(bad)).scan())
        for key in (b"key/00", b"key/17", b"key/39", b"key/170", b""):
            try:
                found = IndexPage(bytes(bad)).find(key)
            except StorageCorrupt:
                continue
            assert found == entries.get(key, MISSING)


def test_every_truncation_and_extension_of_a_page_is_noticed() -> None:
    good = page_of({b"key/%02d" % n: b"%d" % n for n in range(40)}).data
    for length in range(len(good)):
        with pytest.raises(StorageCorrupt):
            IndexPage(good[:length])
    with pytest.raises(StorageCorrupt):
        IndexPage(good + b"\0")


@pytest.mark.parametrize("version", [0, 2, 255])
def test_a_page_of_another_version_is_refused(version: int) -> None:
    head = bytes([version]) + EMPTY.data[1:5]
    with pytest.raises(StorageCorrupt, match=f"version {version}"):
        IndexPage(head + crc(head))


@given(st.binary(max_size=60))
def test_a_malformed_block_is_refused_even_with_a_correct_checksum(block: bytes) -> None:
    head = b"\x01" + b"\x00\x00\x00\x01" + len(block).to_bytes(4, "big") + crc(block)
    page = IndexPage(head + crc(head) + block)
    try:
        entries = list(page.scan())
        page.find(b"k")
    except StorageCorrupt:
        return
    assert sum(len(value or b"") for _, value in entries) <= len(block)


def small_index() -> tuple[Store, IndexContainer, dict[bytes, bytes]]:
    """An index with something of everything: embedded values, tombstones, stripes, segments."""
    store = Store()
    items = {b"key/%02d" % n: b"%d" % n for n in range(70)}
    index = store.open(run(store.filled(items.items())).container)
    index.put(b"key/07", b"bond")
    index.remove(b"key/13")
    items[b"key/07"] = b"bond"
    del items[b"key/13"]
    container = run(store.save(index)).container
    assert {type_id for type_id, _ in store.rows.values()} == {"ix", "ixs"}
    return store, container, items


def answers(store: Store, container: IndexContainer) -> None:
    """Read everything in every way; the answers are right, or there is none."""
    _, _, items = small_index()
    for key in (b"key/00", b"key/07", b"key/13", b"key/44", b"key/699", b""):
        try:
            found = run(store.open(container).get(key))
        except StorageCorrupt:
            continue
        assert found == items.get(key)
    assert dict(run(listed(store.open(container).items()))) == items


def flips(data: bytes, count: int) -> list[bytes]:
    chosen = random.Random(len(data)).sample(range(len(data) * 8), min(count, len(data) * 8))
    return [
        data[: bit // 8] + bytes([data[bit // 8] ^ 1 << bit % 8]) + data[bit // 8 + 1 :]
        for bit in chosen
    ]


def test_flipped_bits_of_a_container_are_noticed() -> None:
    store, container, _ = small_index()
    for bad in flips(encode(container), 400):
        with pytest.raises((StorageCorrupt, msgspec.DecodeError)):
            answers(store, msgspec.msgpack.decode(bad, type=IndexContainer))


def test_flipped_bits_of_stripes_and_segments_are_noticed() -> None:
    store, container, _ = small_index()
    needed = {ref.ref.id for ref in store.stripes(container)}
    needed |= {id for id, (type_id, _) in store.rows.items() if type_id == "ixs"}
    for id in needed:
        type_id, good = store.rows[id]
        for bad in flips(good, 40):
            store.rows[id] = (type_id, bad)
            with pytest.raises(StorageCorrupt):
                answers(store, container)
        store.rows[id] = (type_id, good)
    answers(store, container)


def test_a_missing_stripe_is_named() -> None:
    store, container, _ = small_index()
    ref = store.stripes(container)[1]
    del store.rows[ref.ref.id]
    with pytest.raises(StorageCorrupt, match=rf"\b{ref.ref.id}\b.*missing"):
        run(store.open(container).get(ref.first))


def test_an_object_that_is_not_the_stripe_is_refused() -> None:
    store, container, _ = small_index()
    one, other = store.stripes(container)[:2]
    store.rows[one.ref.id] = store.rows[other.ref.id]
    with pytest.raises(StorageCorrupt, match=rf"\b{one.ref.id}\b"):
        run(store.open(container).get(one.first))
    store.rows[one.ref.id] = ("ix", encode(Stripe(EMPTY.data)))
    with pytest.raises(StorageCorrupt, match=rf"\b{one.ref.id}\b"):
        run(store.open(container).get(one.first))


def test_listed_entries_must_be_references_to_stripes() -> None:
    ref = PageRef(b"a", b"b", ObjectRef("ix", 7, 3), 1234)
    assert PageRef.from_entry(ref.to_entry()) == ref
    bad_type = ref._replace(ref=ObjectRef("other", 7)).to_entry()
    for entry in ((b"a", None), (b"a", b"123"), (b"a", bytes(5)), bad_type):
        with pytest.raises(StorageCorrupt):
            PageRef.from_entry(entry)


def test_a_stripe_is_an_object_of_the_catalog() -> None:
    stripe = Stripe(EMPTY.data)
    assert decode("ix", encode(stripe)) == stripe
