"""The catalog suite: creation, names, listing and compare-and-swap of pointers."""

from __future__ import annotations

import unicodedata

import pytest

from naksha.model import limits
from naksha.spi.catalog import CatalogBackend, PointerRow
from naksha.testing.catalog.suite_support import (
    fresh_number,
    fresh_realm,
    get_pointer,
    moved,
    pointer,
)

MANY = 3_000
"""More rows than any backend sends at once."""

NAMES = [
    "main",
    "Main",
    "MAIN",
    " main",
    "main ",
    "main  ",
    "main\t",
    "main\n",
    "ma in",
    "ma  in",
    "0",
    "00",
    "007",
    "7",
    "7.0",
    "Straße",
    "Strasse",
    "STRASSE",
    "ö",
    "o",
    "Ö",
    "oe",
    unicodedata.normalize("NFC", "ångström"),
    unicodedata.normalize("NFD", "ångström"),
    "ﬁ",
    "fi",
    "İ",
    "i",
    "ı",
    "null",
    "NULL",
    "%",
    "_",
    "\\",
    "a%b",
    "a_b",
    "a\\b",
    "'",
    '"',
    "`",
    "{a}",
    "*",
    "?",
    "[a]",
    ":",
    "::",
    "a:b",
    "\x01",
    "\x7f",
    "\u200b",
    "\ufeff",
    "\uffff",
    "\U00010000",
    "\U0010ffff",
    "\U0001f5fa",
    "x" * limits.POINTER_NAME_BYTES_MAX,
    "x" * (limits.POINTER_NAME_BYTES_MAX - 1),
    "x" * (limits.POINTER_NAME_BYTES_MAX - 1) + "y",
    "ü" * (limits.POINTER_NAME_BYTES_MAX // 2),
    "\U0001f5fa" * (limits.POINTER_NAME_BYTES_MAX // 4),
]
"""Names that some database confuses with each other, sorts in its own order or truncates."""


def in_byte_order(names: list[str]) -> list[str]:
    return sorted(names, key=lambda name: name.encode())


class TestPointerLife:
    async def test_missing_entries_are_left_out(
        self, catalog_backend: CatalogBackend, realm: str
    ) -> None:
        assert await catalog_backend.fetch_pointers(realm, ["none"]) == {}
        assert await catalog_backend.fetch_pointers(realm, []) == {}

    async def test_it_is_read_as_it_was_made(
        self, catalog_backend: CatalogBackend, realm: str
    ) -> None:
        rows = [
            pointer("empty"),
            pointer("full", bytes(range(256)), previous=bytes(reversed(range(256)))),
            pointer("least", b"\0", created=0, epoch=0),
            pointer("most", b"\xff", created=limits.INT8_MAX, epoch=limits.INT8_MAX),
        ]
        for row in rows:
            assert await catalog_backend.create_pointer(realm, row) is True
        found = await catalog_backend.fetch_pointers(realm, [row.name for row in rows] + ["none"])
        assert found == {row.name: row for row in rows}

    async def test_a_second_one_of_a_name_changes_nothing(
        self, catalog_backend: CatalogBackend, realm: str
    ) -> None:
        first = pointer("main", b"first")
        assert await catalog_backend.create_pointer(realm, first)
        assert await catalog_backend.create_pointer(realm, pointer("main", b"second")) is False
        assert await catalog_backend.create_pointer(realm, first) is False
        assert await get_pointer(catalog_backend, realm, "main") == first

    @pytest.mark.parametrize("existing", [0, 1, 2])
    @pytest.mark.parametrize("new", [1, 2, 3, 5, 10])
    async def test_many_are_made_around_those_that_are_there(
        self, catalog_backend: CatalogBackend, realm: str, existing: int, new: int
    ) -> None:
        there = [pointer(f"p{2 * n}", b"old") for n in range(existing)]
        for row in there:
            assert await catalog_backend.create_pointer(realm, row)
        if there:  # one of which has moved since its creation
            there[0], before = moved(there[0], b"moved"), there[0]
            assert await catalog_backend.swap_pointer(realm, before, there[0])
        wanted = [pointer(f"p{n}") for n in range(new + existing)]
        made = await catalog_backend.create_pointers(realm, wanted)
        expected = {row.name: row for row in wanted} | {row.name: row for row in there}
        assert made == len(expected) - existing
        assert await catalog_backend.fetch_pointers(realm, list(expected)) == expected
        assert await catalog_backend.create_pointers(realm, wanted) == 0
        assert await catalog_backend.fetch_pointers(realm, list(expected)) == expected

    async def test_a_batch_may_be_empty_long_or_name_one_twice(
        self, catalog_backend: CatalogBackend, realm: str
    ) -> None:
        assert await catalog_backend.create_pointers(realm, []) == 0
        first, second = pointer("twice", b"first"), pointer("twice", b"second")
        assert await catalog_backend.create_pointers(realm, [first, second]) == 1
        assert await get_pointer(catalog_backend, realm, "twice") == first
        many = [pointer(f"many {n}", b"%d" % n) for n in range(MANY)]
        assert await catalog_backend.create_pointers(realm, many) == MANY
        names = [row.name for row in many]
        found = await catalog_backend.fetch_pointers(realm, [*names, *names[:10], "none"])
        assert found == {row.name: row for row in many}

    async def test_it_is_deleted_only_as_it_is(
        self, catalog_backend: CatalogBackend, realm: str
    ) -> None:
        row = pointer("main", b"here")
        assert await catalog_backend.delete_pointer(realm, row) is False
        assert await catalog_backend.create_pointer(realm, row)
        for wrong in not_quite(row):
            assert await catalog_backend.delete_pointer(realm, wrong) is False
        assert await get_pointer(catalog_backend, realm, "main") == row
        assert await catalog_backend.delete_pointer(realm, row) is True
        assert await catalog_backend.delete_pointer(realm, row) is False
        assert await get_pointer(catalog_backend, realm, "main") is None
        assert await catalog_backend.list_pointers(realm, "", "", 10) == []


class TestPointerNames:
    async def test_no_name_is_taken_for_another(
        self, catalog_backend: CatalogBackend, realm: str
    ) -> None:
        rows = {name: pointer(name, name.encode()) for name in NAMES}
        for row in rows.values():
            assert await catalog_backend.create_pointer(realm, row), repr(row.name)
        assert await catalog_backend.fetch_pointers(realm, NAMES) == rows
        moved_rows = {name: moved(row, b"moved " + row.target) for name, row in rows.items()}
        for name, row in rows.items():
            assert await catalog_backend.swap_pointer(realm, row, moved_rows[name]), repr(name)
        assert await catalog_backend.fetch_pointers(realm, NAMES) == moved_rows

    async def test_a_batch_keeps_them_apart_too(
        self, catalog_backend: CatalogBackend, realm: str
    ) -> None:
        rows = [pointer(name, name.encode()) for name in NAMES]
        assert await catalog_backend.create_pointers(realm, rows) == len(NAMES)
        assert await catalog_backend.fetch_pointers(realm, NAMES) == {r.name: r for r in rows}

    async def test_pointers_are_listed_in_the_order_of_their_bytes(
        self, catalog_backend: CatalogBackend, realm: str
    ) -> None:
        rows = {name: pointer(name) for name in NAMES}
        await catalog_backend.create_pointers(realm, list(rows.values()))
        listed = await catalog_backend.list_pointers(realm, "", "", len(NAMES) + 1)
        assert listed == [rows[name] for name in in_byte_order(NAMES)]

    @pytest.mark.parametrize("after", ["", "0", "main", "main ", "ö", "\uffff", "\U0010ffff"])
    async def test_the_list_goes_on_after_any_name(
        self, catalog_backend: CatalogBackend, realm: str, after: str
    ) -> None:
        await catalog_backend.create_pointers(realm, [pointer(name) for name in NAMES])
        expected = [name for name in in_byte_order(NAMES) if name.encode() > after.encode()]
        for limit in (1, 3, len(NAMES)):
            listed = await catalog_backend.list_pointers(realm, "", after, limit)
            assert [row.name for row in listed] == expected[:limit]

    async def test_realms_with_a_common_prefix_are_separate(
        self, catalog_backend: CatalogBackend
    ) -> None:
        start = f"r{fresh_number()}"
        realms = [start, start + "a", start + "-", start + "A", start + "_", start + "a_b"]
        realms.append((start + "-" * limits.REALM_ID_LENGTH_MAX)[: limits.REALM_ID_LENGTH_MAX])
        rows = {realm: pointer("main", realm.encode()) for realm in realms}
        for realm, row in rows.items():
            assert await catalog_backend.create_pointer(realm, row)
        for realm, row in rows.items():
            assert await get_pointer(catalog_backend, realm, "main") == row
            assert await catalog_backend.list_pointers(realm, "", "", 10) == [row]
            foreign = rows[realms[0] if realm != realms[0] else realms[1]]
            assert not await catalog_backend.swap_pointer(realm, foreign, moved(foreign, b"x"))
        assert await catalog_backend.delete_pointer(realms[1], rows[realms[1]])
        assert await get_pointer(catalog_backend, realms[0], "main") == rows[realms[0]]


class TestPointerList:
    async def test_there_is_nothing_in_an_empty_realm(
        self, catalog_backend: CatalogBackend, realm: str
    ) -> None:
        assert await catalog_backend.list_pointers(realm, "", "", 10) == []

    @pytest.mark.parametrize(
        ("prefix", "expected"),
        [
            ("", ["%", "%a", "A/", "\\", "\\a", "_", "_a", "a", "a/", "a/1", "a/2", "a0"]),
            ("a", ["a", "a/", "a/1", "a/2", "a0"]),
            ("a/", ["a/", "a/1", "a/2"]),
            ("A", ["A/"]),
            ("%", ["%", "%a"]),
            ("_", ["_", "_a"]),
            ("\\", ["\\", "\\a"]),
            ("a/1x", []),
            ("*", []),
            ("?", []),
        ],
    )
    async def test_a_prefix_is_taken_as_it_is(
        self, catalog_backend: CatalogBackend, realm: str, prefix: str, expected: list[str]
    ) -> None:
        names = ["a", "a/", "a/1", "a/2", "a0", "A/", "%", "%a", "_", "_a", "\\", "\\a"]
        await catalog_backend.create_pointers(realm, [pointer(name) for name in names])
        listed = await catalog_backend.list_pointers(realm, prefix, "", 100)
        assert [row.name for row in listed] == expected

    @pytest.mark.parametrize("last", ["\x7f", "ÿ", "\u07ff", "\ud7ff", "\uffff", "\U0010ffff"])
    async def test_a_prefix_may_end_at_any_edge_of_utf8(
        self, catalog_backend: CatalogBackend, realm: str, last: str
    ) -> None:
        inside = [f"a{last}", f"a{last}a", f"a{last}{last}"]
        outside = ["a", "b", "a\ue000", "a\U00010000", "ab"]
        outside = [name for name in outside if not name.startswith(f"a{last}")]
        await catalog_backend.create_pointers(realm, [pointer(n) for n in inside + outside])
        listed = await catalog_backend.list_pointers(realm, f"a{last}", "", 100)
        assert [row.name for row in listed] == in_byte_order(inside)

    @pytest.mark.parametrize("after", ["", "a", "b/0", "b/1", "b/1x", "b/5", "b/9", "c", "z"])
    async def test_prefix_and_after_hold_both(
        self, catalog_backend: CatalogBackend, realm: str, after: str
    ) -> None:
        inside = [f"b/{n}" for n in range(8)]
        names = ["a", "b", *inside, "b0", "c"]
        await catalog_backend.create_pointers(realm, [pointer(name) for name in names])
        listed = await catalog_backend.list_pointers(realm, "b/", after, 100)
        assert [row.name for row in listed] == [name for name in inside if name > after]

    @pytest.mark.parametrize("size", [1, 2, 7, 99, 100, 101])
    async def test_pages_of_any_size_give_each_once(
        self, catalog_backend: CatalogBackend, realm: str, size: int
    ) -> None:
        names = [f"p{n:03}" for n in range(100)]
        await catalog_backend.create_pointers(realm, [pointer(name) for name in names])
        found: list[str] = []
        while page := await catalog_backend.list_pointers(
            realm, "p", found[-1] if found else "", size
        ):
            assert len(page) <= size
            found += [row.name for row in page]
        assert found == names

    async def test_a_page_size_of_zero_returns_no_rows(
        self, catalog_backend: CatalogBackend, realm: str
    ) -> None:
        await catalog_backend.create_pointer(realm, pointer())
        assert await catalog_backend.list_pointers(realm, "", "", 0) == []


class TestSwap:
    async def test_it_moves_from_nothing_and_on(
        self, catalog_backend: CatalogBackend, realm: str
    ) -> None:
        row = pointer("main")
        assert await catalog_backend.create_pointer(realm, row)
        for target in (b"one", b"two", b"\0", b"\xff" * 45):
            after = moved(row, target)
            assert await catalog_backend.swap_pointer(realm, row, after) is True
            assert await catalog_backend.swap_pointer(realm, row, moved(row, b"late")) is False
            assert await get_pointer(catalog_backend, realm, "main") == after
            row = after

    async def test_nothing_moves_what_is_not_as_expected(
        self, catalog_backend: CatalogBackend, realm: str
    ) -> None:
        row = pointer("main", b"here", created=fresh_number() + 10, epoch=5)
        assert await catalog_backend.create_pointer(realm, row)
        for wrong in not_quite(row):
            assert await catalog_backend.swap_pointer(realm, wrong, moved(wrong, b"x")) is False
        assert await get_pointer(catalog_backend, realm, "main") == row

    async def test_former_targets_of_a_pointer_are_not_compared(
        self, catalog_backend: CatalogBackend, realm: str
    ) -> None:
        row = pointer("main", b"here", previous=b"before")
        assert await catalog_backend.create_pointer(realm, row)
        blurred = PointerRow(row.name, row.target, row.created, row.epoch, b"")
        after = moved(row, b"there")
        assert await catalog_backend.swap_pointer(realm, blurred, after) is True
        assert await get_pointer(catalog_backend, realm, "main") == after

    async def test_nothing_moves_what_is_not_there(
        self, catalog_backend: CatalogBackend, realm: str
    ) -> None:
        row = pointer("main")
        assert await catalog_backend.swap_pointer(realm, row, moved(row, b"x")) is False
        assert await get_pointer(catalog_backend, realm, "main") is None
        assert await catalog_backend.create_pointer(realm, row)
        elsewhere = fresh_realm()
        assert await catalog_backend.swap_pointer(elsewhere, row, moved(row, b"x")) is False

    async def test_a_swap_for_the_same_succeeds(
        self, catalog_backend: CatalogBackend, realm: str
    ) -> None:
        """Some databases count the rows that changed, others those that matched."""
        row = pointer("main", b"here")
        assert await catalog_backend.create_pointer(realm, row)
        assert await catalog_backend.swap_pointer(realm, row, row) is True
        assert await catalog_backend.swap_pointer(realm, row, row) is True

    async def test_a_new_epoch_fences_those_of_the_old_one(
        self, catalog_backend: CatalogBackend, realm: str
    ) -> None:
        row = pointer("main", b"here", epoch=1)
        assert await catalog_backend.create_pointer(realm, row)
        fenced = PointerRow("main", row.target, row.created, 2)
        assert await catalog_backend.swap_pointer(realm, row, fenced) is True
        assert await catalog_backend.swap_pointer(realm, row, moved(row, b"late")) is False
        assert await catalog_backend.delete_pointer(realm, row) is False
        assert await get_pointer(catalog_backend, realm, "main") == fenced
        assert await catalog_backend.swap_pointer(realm, fenced, moved(fenced, b"next")) is True

    async def test_a_recreated_pointer_is_not_the_old_one(
        self, catalog_backend: CatalogBackend, realm: str
    ) -> None:
        old = pointer("main", b"same")
        assert await catalog_backend.create_pointer(realm, old)
        assert await catalog_backend.delete_pointer(realm, old)
        new = pointer("main", b"same")
        assert await catalog_backend.create_pointer(realm, new)
        assert await catalog_backend.swap_pointer(realm, old, moved(old, b"late")) is False
        assert await catalog_backend.publish(realm, [], old, moved(old, b"late")) is False
        assert await catalog_backend.delete_pointer(realm, old) is False
        assert await get_pointer(catalog_backend, realm, "main") == new

    async def test_a_target_is_compared_byte_by_byte(
        self, catalog_backend: CatalogBackend, realm: str
    ) -> None:
        targets = [b"a", b"A", b"a ", b"a\0", b"a\0\0", b"\xe4", "ä".encode(), b"", b"\0"]
        for target in targets:
            row = pointer(f"to {target.hex()}", target)
            assert await catalog_backend.create_pointer(realm, row)
            for other in targets:
                if other != target:
                    wrong = PointerRow(row.name, other, row.created, row.epoch)
                    after = moved(row, b"moved")
                    assert await catalog_backend.swap_pointer(realm, wrong, after) is False

    async def test_another_instance_sees_it_at_once(
        self, catalog_backend: CatalogBackend, second_backend: CatalogBackend, realm: str
    ) -> None:
        row = pointer("main")
        assert await catalog_backend.create_pointer(realm, row)
        for n in range(50):
            one, other = catalog_backend, second_backend
            if n % 2:
                one, other = other, one
            after = moved(row, b"%d" % n)
            assert await one.swap_pointer(realm, row, after)
            assert await get_pointer(other, realm, "main") == after
            assert await other.swap_pointer(realm, row, moved(row, b"late")) is False
            row = after


def not_quite(row: PointerRow) -> list[PointerRow]:
    """Return rows that differ from the given one in a single compared field."""
    return [
        PointerRow(row.name, row.target + b"\0", row.created, row.epoch),
        PointerRow(row.name, b"", row.created, row.epoch),
        PointerRow(row.name, row.target, row.created + 1, row.epoch),
        PointerRow(row.name, row.target, row.created, row.epoch + 1),
        PointerRow(row.name, row.target, row.created, row.epoch - 1),
        PointerRow(row.name + "x", row.target, row.created, row.epoch),
    ]
