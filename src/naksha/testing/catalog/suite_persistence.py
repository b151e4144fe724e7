"""The catalog suite: objects of any size and type, and pointers, as a realm keeps them."""

from __future__ import annotations

import msgspec
import pytest

from naksha.catalog.objects import Object, ObjectRef, UnknownValue, object_type
from naksha.catalog.persistence import Persistence
from naksha.model import limits
from naksha.model.errors import (
    InvalidArgument,
    LimitExceeded,
    PointerExists,
    PointerNotFound,
    StorageCorrupt,
)
from naksha.spi.catalog import CatalogBackend, ObjectKey
from naksha.testing.catalog.suite_commits import persistence_on

ROW = limits.CATALOG_ROW_BYTES_MAX
SIZES = [50, 10_000, 200_000, 400_000, 1_000_000, 13_000_000]


@object_type("test-blob")
class Blob(msgspec.Struct, frozen=True):
    """An object with as many bytes as a test needs."""

    data: bytes


@object_type("test-other")
class Other(msgspec.Struct, frozen=True):
    """An object of another type."""

    text: str = ""


def encoded_in(size: int) -> Blob:
    """Return a blob whose encoding has exactly the given number of bytes."""
    around = len(msgspec.msgpack.encode(Blob(bytes(70_000)))) - 70_000
    blob = Blob(bytes(size - around))
    assert len(msgspec.msgpack.encode(blob)) == size
    return blob


@pytest.fixture
def persistence(catalog_backend: CatalogBackend, realm: str) -> Persistence:
    return persistence_on(catalog_backend, realm)


async def written(persistence: Persistence, *values: object) -> list[Object[object]]:
    return await persistence.write([Object(persistence.new_id(), value) for value in values])


class TestTypedObjects:
    """Objects of every size, hint and type."""

    @pytest.mark.parametrize("size", SIZES)
    async def test_any_size_round_trips(
        self, catalog_backend: CatalogBackend, realm: str, persistence: Persistence, size: int
    ) -> None:
        data = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
        (kept,) = await written(persistence, Blob(data))
        assert kept.parts == -(-len(msgspec.msgpack.encode(Blob(data))) // ROW)
        for hint in (0, 1, kept.parts, 30):
            fresh = persistence_on(catalog_backend, realm)
            found = await fresh.fetch(ObjectRef("test-blob", kept.id, hint), Blob)
            assert found is not None
            assert found.value.data == data
            assert found.ref == kept.ref

    @pytest.mark.parametrize(("size", "parts"), [(ROW - 1, 1), (ROW, 1), (ROW + 1, 2)])
    async def test_rows_are_filled_to_their_limit(
        self, persistence: Persistence, size: int, parts: int
    ) -> None:
        (kept,) = await written(persistence, encoded_in(size))
        assert kept.parts == parts

    async def test_two_large_ones_with_wrong_hints_at_once(
        self, catalog_backend: CatalogBackend, realm: str, persistence: Persistence
    ) -> None:
        values = [Blob(b"a" * 900_000), Blob(b"b" * 1_500_000)]
        kept = await written(persistence, *values)
        fresh = persistence_on(catalog_backend, realm)
        refs = [ObjectRef("test-blob", kept[0].id, 2), None, ObjectRef("test-blob", kept[1].id, 1)]
        found = await fresh.fetch_many(refs, Blob)
        assert [each and each.value for each in found] == [values[0], None, values[1]]

    async def test_a_part_that_is_missing_is_damage(
        self, catalog_backend: CatalogBackend, realm: str, persistence: Persistence
    ) -> None:
        (kept,) = await written(persistence, Blob(b"a" * 900_000))
        await catalog_backend.delete(realm, [ObjectKey(kept.id, 1)])
        with pytest.raises(StorageCorrupt, match="only 2 of its 3 parts were found"):
            await persistence_on(catalog_backend, realm).fetch(kept.ref, Blob)

    async def test_places_are_kept_and_absent_ones_are_none(self, persistence: Persistence) -> None:
        one, two = await written(persistence, Blob(b"1"), Blob(b"2"))
        absent = ObjectRef("test-blob", persistence.new_id())
        found = await persistence.fetch_many([two.ref, None, absent, one.ref], Blob)
        assert [each and each.value for each in found] == [two.value, None, None, one.value]
        assert await persistence.fetch_many([], Blob) == []

    async def test_rows_may_be_overwritten_and_deleted(
        self, catalog_backend: CatalogBackend, realm: str, persistence: Persistence
    ) -> None:
        (kept,) = await written(persistence, Blob(b"old"))
        await persistence.write([Object(kept.id, Blob(b"new"))])
        for each in (persistence, persistence_on(catalog_backend, realm)):
            found = await each.fetch(kept.ref, Blob)
            assert found is not None
            assert found.value == Blob(b"new")
        await persistence.delete([kept.ref])
        await persistence.delete([kept.ref])
        assert await persistence.fetch(kept.ref, Blob) is None

    async def test_another_type_than_expected_is_an_error(
        self, catalog_backend: CatalogBackend, realm: str, persistence: Persistence
    ) -> None:
        (kept,) = await written(persistence, Other("x"))
        for each in (persistence, persistence_on(catalog_backend, realm)):
            with pytest.raises(InvalidArgument, match=f"Object {kept.id} of type 'test-other'"):
                await each.fetch(kept.ref, Blob)
        with pytest.raises(InvalidArgument, match="but is read as 'test-blob'"):
            fresh = persistence_on(catalog_backend, realm)
            await fresh.fetch_many([ObjectRef("test-blob", kept.id)], Blob)

    async def test_an_unknown_type_survives(
        self, catalog_backend: CatalogBackend, realm: str, persistence: Persistence
    ) -> None:
        raw = msgspec.msgpack.encode({"from": "the future", "list": [1, None, {"a": b"\0"}]})
        (kept,) = await written(persistence, UnknownValue("test-future", raw))
        found = await persistence_on(catalog_backend, realm).fetch(kept.ref, UnknownValue)
        assert found is not None
        assert found.value.attributes["from"] == "the future"
        (again,) = await written(persistence, found.value)
        same = await persistence_on(catalog_backend, realm).fetch(again.ref, UnknownValue)
        assert same is not None
        assert same.value.raw == raw

    async def test_attributes_that_are_not_known_yet_are_left_out(
        self, catalog_backend: CatalogBackend, realm: str, persistence: Persistence
    ) -> None:
        raw = msgspec.msgpack.encode({"text": "hello", "colour": "red"})
        (kept,) = await written(persistence, UnknownValue("test-other", raw))
        found = await persistence_on(catalog_backend, realm).fetch(kept.ref, Other)
        assert found is not None
        assert found.value == Other("hello")

    async def test_conditional_writes_must_fit_one_row(self, persistence: Persistence) -> None:
        assert await persistence.insert(persistence.new_id(), encoded_in(ROW)) is not None
        with pytest.raises(LimitExceeded, match="conditional write allows at most"):
            await persistence.insert(persistence.new_id(), encoded_in(ROW + 1))

    async def test_a_conditional_object_is_changed_by_one_at_a_time(
        self, catalog_backend: CatalogBackend, realm: str, persistence: Persistence
    ) -> None:
        first = await persistence.insert(7, Other("1"))
        assert first is not None
        assert await persistence.insert(7, Other("2")) is None
        second = await persistence.replace(first, Other("2"))
        assert second is not None
        assert await persistence.replace(first, Other("3")) is None
        assert not await persistence.delete_if(first)
        with pytest.raises(InvalidArgument, match="type"):
            await persistence.replace(second, Blob(b""))
        seen = await persistence_on(catalog_backend, realm).fetch(second.ref, Other)
        assert seen == second
        assert await persistence.delete_if(second)
        assert not await persistence.delete_if(second)


class TestTypedPointers:
    """Current and previous targets of a pointer."""

    async def test_it_is_made_once_and_found(self, persistence: Persistence) -> None:
        with pytest.raises(PointerNotFound, match="'main'"):
            await persistence.pointer_now("main")
        made = await persistence.create_pointer("main")
        assert await persistence.pointer_now("main") == await persistence.pointer("main") == made
        with pytest.raises(PointerExists, match="'main'"):
            await persistence.create_pointer("main")

    async def test_where_it_may_go(self, persistence: Persistence) -> None:
        one, two, other = await written(persistence, Blob(b"1"), Blob(b"2"), Other())
        pointer = await persistence.create_pointer("main", one.ref)
        with pytest.raises(InvalidArgument, match="already points to object"):
            await persistence.move_pointer(pointer, one.ref)
        with pytest.raises(InvalidArgument, match="not 'test-other'"):
            await persistence.move_pointer(pointer, other.ref)
        moved = await persistence.move_pointer(pointer, two.ref)
        assert moved is not None
        assert (moved.target, moved.previous) == (two.ref, (one.id,))
        assert await persistence.move_pointer(pointer, two.ref) is None
        assert await persistence.pointer_now("main") == moved

    async def test_it_remembers_where_it_was(self, persistence: Persistence) -> None:
        pointer = await persistence.create_pointer("main")
        ids: list[int] = []
        for number in range(2 * limits.PREVIOUS_POINTERS_MAX + 1):
            target = ObjectRef("test-blob", 1_000 + number)
            moved = await persistence.move_pointer(pointer, target)
            assert moved is not None
            assert moved.previous == tuple(ids[: limits.PREVIOUS_POINTERS_MAX])
            ids.insert(0, target.id)
            pointer = moved
        assert await persistence.pointer_now("main") == pointer

    async def test_a_recreated_object_is_another_one(self, persistence: Persistence) -> None:
        old = await persistence.create_pointer("main")
        assert await persistence.delete_pointer(old)
        assert not await persistence.delete_pointer(old)
        new = await persistence.create_pointer("main")
        assert new.created != old.created
        assert await persistence.move_pointer(old, ObjectRef("test-blob", 1)) is None
        assert not await persistence.delete_pointer(old)
        assert await persistence.pointer_now("main") == new

    @pytest.mark.parametrize("existing", [0, 1, 2])
    @pytest.mark.parametrize("new", [1, 2, 3, 5, 10])
    async def test_missing_rows_are_created(
        self, persistence: Persistence, existing: int, new: int
    ) -> None:
        names = [f"p{number:02}" for number in range(existing + new)]
        targets = {name: ObjectRef("test-blob", 5) for name in names[-existing:] if existing}
        for name, target in targets.items():
            await persistence.create_pointer(name, target)
        await persistence.ensure_pointers(names)
        found = {pointer.name: pointer.target for pointer in await persistence.list_pointers()}
        assert found == {name: targets.get(name) for name in names}

    @pytest.mark.parametrize("name", ["", "a\0b", "x" * 513, "\ud800"])
    async def test_names_that_cannot_be_kept_are_refused(
        self, persistence: Persistence, name: str
    ) -> None:
        for use in (persistence.create_pointer, persistence.pointer_now):
            with pytest.raises(InvalidArgument, match="name"):
                await use(name)
