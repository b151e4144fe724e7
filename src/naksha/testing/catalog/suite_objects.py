"""The catalog suite: plain and conditional writes of objects, and writes with a swap."""

from __future__ import annotations

from typing import cast

import pytest

from naksha.model import limits
from naksha.spi.catalog import CatalogBackend, ObjectKey, ObjectRow
from naksha.testing.catalog.suite_support import (
    fresh_realm,
    get,
    get_pointer,
    holds,
    moved,
    pointer,
    thing,
)

MANY = 3_000
"""More rows than any backend sends at once."""

LARGE = 40
"""Rows of the largest size: more bytes than any backend sends at once."""


class TestObjects:
    async def test_missing_entries_are_left_out(
        self, catalog_backend: CatalogBackend, realm: str
    ) -> None:
        assert await catalog_backend.fetch(realm, [ObjectKey(1), ObjectKey(1, 1)]) == {}
        assert await catalog_backend.fetch(realm, []) == {}

    async def test_objects_are_read_as_they_were_written(
        self, catalog_backend: CatalogBackend, realm: str
    ) -> None:
        rows = [
            thing(0, b""),
            thing(1, bytes(range(256)), kind="xx", created_us=0),
            thing(2**53 + 1, b"\0", kind="t" * limits.OBJECT_TYPE_BYTES_MAX),
            thing(limits.INT8_MAX, b"last", created_us=limits.INT8_MAX, token="Ta% _\\'ö"),
            thing(5, b"first part", part=0, parts=3),
            thing(5, b"last part", part=2, parts=3),
            thing(6, "ö".encode("latin-1"), kind="a:b/c d-_%"),
            thing(7, part=2**31 - 1, parts=2**31 - 1),
        ]
        await catalog_backend.write(realm, rows)
        await holds(catalog_backend, realm, rows)
        keys = [row.key for row in rows]
        absent = [ObjectKey(5, 1), ObjectKey(8), ObjectKey(0, 1)]
        found = await catalog_backend.fetch(realm, [*absent, *keys, *keys[:2]])
        assert set(found) == set(keys)
        assert all(type(row.value) is bytes for row in found.values())

    async def test_a_write_goes_over_whatever_is_there(
        self, catalog_backend: CatalogBackend, realm: str
    ) -> None:
        await catalog_backend.write(realm, [thing(1, b"long before", kind="one", token="t")])
        row = thing(1, b"new", kind="other")
        await catalog_backend.write(realm, [row])
        await holds(catalog_backend, realm, [row])
        await catalog_backend.write(realm, [row])
        await holds(catalog_backend, realm, [row])

    async def test_the_last_row_of_a_key_counts(
        self, catalog_backend: CatalogBackend, realm: str
    ) -> None:
        rows = [thing(1, b"first"), thing(2), thing(1, b"second", part=1), thing(1, b"last")]
        await catalog_backend.write(realm, rows)
        await holds(catalog_backend, realm, rows[1:])

    async def test_deleted_are_the_named_rows_only(
        self, catalog_backend: CatalogBackend, realm: str
    ) -> None:
        rows = [thing(1, part=part, parts=3) for part in range(3)] + [thing(2), thing(3)]
        await catalog_backend.write(realm, rows)
        await catalog_backend.delete(realm, [ObjectKey(1, 1), ObjectKey(3), ObjectKey(9)])
        assert await get(catalog_backend, realm, 1, 1) is None
        assert await get(catalog_backend, realm, 3) is None
        await holds(catalog_backend, realm, [rows[0], rows[2], rows[3]])
        await catalog_backend.delete(realm, [ObjectKey(1, 1), ObjectKey(9)])
        await holds(catalog_backend, realm, [rows[0], rows[2], rows[3]])

    async def test_all_parts_of_one_object_are_deleted_together(
        self, catalog_backend: CatalogBackend, realm: str
    ) -> None:
        rows = [thing(1, part=part, parts=25) for part in range(25)]
        await catalog_backend.write(realm, rows)
        await catalog_backend.delete(realm, [row.key for row in rows])
        assert await catalog_backend.fetch(realm, [row.key for row in rows]) == {}

    async def test_a_batch_may_be_empty_or_long(
        self, catalog_backend: CatalogBackend, realm: str
    ) -> None:
        await catalog_backend.write(realm, [])
        await catalog_backend.delete(realm, [])
        rows = [thing(n, b"%d" % n, part=n % 3, parts=3) for n in range(MANY)]
        await catalog_backend.write(realm, rows)
        await holds(catalog_backend, realm, rows)
        await catalog_backend.delete(realm, [row.key for row in rows[:-1]])
        assert await catalog_backend.fetch(realm, [r.key for r in rows]) == {rows[-1].key: rows[-1]}

    @pytest.mark.parametrize("less", [0, 1])
    async def test_a_row_may_be_as_large_as_the_limit(
        self, catalog_backend: CatalogBackend, realm: str, less: int
    ) -> None:
        pattern = bytes(range(256)) * 1400
        value = pattern[: limits.CATALOG_ROW_BYTES_MAX - less]
        assert len(value) == limits.CATALOG_ROW_BYTES_MAX - less
        plain, conditional = thing(1, value), thing(2, value, token="t")
        await catalog_backend.write(realm, [plain])
        assert await catalog_backend.insert(realm, conditional)
        await holds(catalog_backend, realm, [plain, conditional])
        again = thing(2, value[::-1], token="u")
        assert await catalog_backend.replace(realm, again, "t")
        await holds(catalog_backend, realm, [plain, again])

    async def test_many_large_rows_go_in_one_batch(
        self, catalog_backend: CatalogBackend, realm: str
    ) -> None:
        rows = [
            thing(1, bytes([n]) * limits.CATALOG_ROW_BYTES_MAX, part=n, parts=LARGE)
            for n in range(LARGE)
        ]
        await catalog_backend.write(realm, rows)
        await holds(catalog_backend, realm, rows)

    async def test_the_same_ids_in_two_realms_are_two_objects(
        self, catalog_backend: CatalogBackend, realm: str
    ) -> None:
        longer, other = realm + "a", fresh_realm()
        rows = {each: thing(1, each.encode(), token="t") for each in (realm, longer, other)}
        for each, row in rows.items():
            assert await catalog_backend.insert(each, row)
        await catalog_backend.delete(longer, [ObjectKey(1)])
        assert await get(catalog_backend, longer, 1) is None
        await holds(catalog_backend, realm, [rows[realm]])
        assert await catalog_backend.delete_if(other, ObjectKey(1), "t")
        await holds(catalog_backend, realm, [rows[realm]])

    async def test_later_changes_of_the_callers_buffer_have_no_effect(
        self, catalog_backend: CatalogBackend, realm: str
    ) -> None:
        buffer = bytearray(b"as it was")
        kept = cast(bytes, buffer)
        await catalog_backend.write(realm, [thing(1, kept)])
        assert await catalog_backend.insert(realm, thing(2, kept, token="t"))
        assert await catalog_backend.insert(realm, thing(3, b"old", token="t"))
        assert await catalog_backend.replace(realm, thing(3, kept, token="u"), "t")
        row = pointer("main", kept)
        assert await catalog_backend.create_pointer(realm, row)
        before = await get_pointer(catalog_backend, realm, "main")
        assert before is not None
        assert await catalog_backend.publish(realm, [thing(4, kept)], before, row)
        buffer[:] = b"different"
        for id in range(1, 5):
            found = await get(catalog_backend, realm, id)
            assert found is not None
            assert found.value == b"as it was"
        assert await get_pointer(catalog_backend, realm, "main") == before


class TestConditionalWrites:
    async def test_a_row_is_inserted_once(
        self, catalog_backend: CatalogBackend, realm: str
    ) -> None:
        row = thing(1, b"first", token="t")
        assert await catalog_backend.insert(realm, row) is True
        assert await catalog_backend.insert(realm, row) is False
        assert await catalog_backend.insert(realm, thing(1, b"second", token="u")) is False
        assert await catalog_backend.insert(realm, thing(1, b"part", part=1, token="u")) is True
        await holds(catalog_backend, realm, [row])

    async def test_a_row_is_replaced_by_its_token_only(
        self, catalog_backend: CatalogBackend, realm: str
    ) -> None:
        row = thing(1, b"first", token="t")
        assert await catalog_backend.replace(realm, thing(1, token="u"), "t") is False
        assert await catalog_backend.insert(realm, row)
        for token in ("u", "T", "t ", "", "tt"):
            assert await catalog_backend.replace(realm, thing(1, token="u"), token) is False
        other_type = thing(1, b"other", kind="other", token="u")
        assert await catalog_backend.replace(realm, other_type, "t") is False
        assert await catalog_backend.replace(realm, thing(1, part=1, token="u"), "t") is False
        await holds(catalog_backend, realm, [row])
        after = thing(1, b"after", token="u")
        assert await catalog_backend.replace(realm, after, "t") is True
        assert await catalog_backend.replace(realm, thing(1, b"late", token="v"), "t") is False
        await holds(catalog_backend, realm, [after])

    async def test_a_row_may_be_replaced_by_an_equal_one(
        self, catalog_backend: CatalogBackend, realm: str
    ) -> None:
        row = thing(1, b"same", token="t")
        assert await catalog_backend.insert(realm, row)
        assert await catalog_backend.replace(realm, row, "t") is True
        await holds(catalog_backend, realm, [row])

    async def test_a_row_is_deleted_by_its_token_only(
        self, catalog_backend: CatalogBackend, realm: str
    ) -> None:
        row = thing(1, token="t")
        assert await catalog_backend.delete_if(realm, row.key, "t") is False
        assert await catalog_backend.insert(realm, row)
        assert await catalog_backend.delete_if(realm, row.key, "u") is False
        assert await catalog_backend.delete_if(realm, ObjectKey(1, 1), "t") is False
        await holds(catalog_backend, realm, [row])
        assert await catalog_backend.delete_if(realm, row.key, "t") is True
        assert await catalog_backend.delete_if(realm, row.key, "t") is False
        assert await get(catalog_backend, realm, 1) is None
        assert await catalog_backend.insert(realm, row) is True

    async def test_a_plain_write_has_no_token_to_match(
        self, catalog_backend: CatalogBackend, realm: str
    ) -> None:
        plain = thing(1, b"plain")
        await catalog_backend.write(realm, [plain])
        assert await catalog_backend.insert(realm, thing(1, token="t")) is False
        for token in ("", "None", "null", "NULL"):
            assert await catalog_backend.replace(realm, thing(1, token="t"), token) is False
            assert await catalog_backend.delete_if(realm, plain.key, token) is False
        await holds(catalog_backend, realm, [plain])
        conditional = thing(2, token="t")
        assert await catalog_backend.insert(realm, conditional)
        await catalog_backend.write(realm, [thing(2, b"over it")])
        assert await catalog_backend.replace(realm, thing(2, token="u"), "t") is False


class TestPublish:
    async def test_rows_are_written_and_the_pointer_moves(
        self, catalog_backend: CatalogBackend, realm: str
    ) -> None:
        row = pointer("main")
        assert await catalog_backend.create_pointer(realm, row)
        for n in range(3):
            rows = [thing(10 * n + k, b"%d" % n) for k in range(4)]
            after = moved(row, b"%d" % n)
            assert await catalog_backend.publish(realm, rows, row, after) is True
            await holds(catalog_backend, realm, rows)
            assert await get_pointer(catalog_backend, realm, "main") == after
            row = after

    async def test_without_rows_it_is_a_swap(
        self, catalog_backend: CatalogBackend, realm: str
    ) -> None:
        row = pointer("main")
        after = moved(row, b"there")
        assert await catalog_backend.publish(realm, [], row, after) is False
        assert await catalog_backend.create_pointer(realm, row)
        assert await catalog_backend.publish(realm, [], row, after) is True
        assert await get_pointer(catalog_backend, realm, "main") == after

    async def test_a_lost_swap_leaves_the_rows_written(
        self, catalog_backend: CatalogBackend, realm: str
    ) -> None:
        """A retry need not write the rows again."""
        row = pointer("main")
        assert await catalog_backend.create_pointer(realm, row)
        wrong = [
            pointer("main", created=row.created + 1),
            pointer("main", created=row.created, epoch=row.epoch + 1),
            pointer("main", b"elsewhere", created=row.created),
            pointer("none", created=row.created),
        ]
        for n, expected in enumerate(wrong):
            rows = [thing(2 * n), thing(2 * n + 1)]
            after = moved(expected, b"x")
            assert await catalog_backend.publish(realm, rows, expected, after) is False
            await holds(catalog_backend, realm, rows)
        assert await get_pointer(catalog_backend, realm, "main") == row

    async def test_rows_may_be_many_and_large_and_over_others(
        self, catalog_backend: CatalogBackend, realm: str
    ) -> None:
        row = pointer("main")
        assert await catalog_backend.create_pointer(realm, row)
        await catalog_backend.write(realm, [thing(1, b"old"), thing(2, b"old", token="t")])
        large = [
            thing(MANY + n, bytes([n]) * limits.CATALOG_ROW_BYTES_MAX, part=n, parts=LARGE)
            for n in range(LARGE)
        ]
        rows: list[ObjectRow] = [*(thing(n, b"%d" % n) for n in range(MANY)), *large]
        after = moved(row, b"there")
        assert await catalog_backend.publish(realm, [thing(1), *rows], row, after) is True
        await holds(catalog_backend, realm, rows)
        assert await get_pointer(catalog_backend, realm, "main") == after
