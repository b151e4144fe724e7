"""The catalog suite: scans, deletion of scanned rows, realms, and the end of a backend."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Awaitable, Callable

import pytest

from naksha.model.errors import NotSupported, Unavailable
from naksha.spi.catalog import CatalogBackend, ObjectKey, ObjectRow, PointerRow, Scanned
from naksha.testing.catalog.suite_support import (
    as_scanned,
    fresh_realm,
    get,
    get_pointer,
    holds,
    moved,
    pointer,
    scanned,
    thing,
)

MANY = 3_000
"""More rows than any backend reads at once."""

PAGES_DISTURBED = 20
"""Number of scan pages after which concurrent writers add and delete rows."""

COUNT = 20
"""Number of pointers and of objects in a small realm."""

PARTS = 3
"""Parts of each object; pages of most sizes end in the middle of one."""


async def fill(
    backend: CatalogBackend, realm: str, count: int = COUNT
) -> list[PointerRow | ObjectRow]:
    """Create pointers, and objects of several parts each."""
    pointers = [pointer(f"p{n}") for n in range(count)]
    objects = [thing(n, part=part, parts=PARTS) for n in range(count) for part in range(PARTS)]
    await backend.create_pointers(realm, pointers)
    await backend.write(realm, objects)
    return [*pointers, *objects]


class TestDatabaseTime:
    async def test_all_instances_get_the_same_time(
        self, catalog_backend: CatalogBackend, second_backend: CatalogBackend
    ) -> None:
        began = await catalog_backend.now_us()
        between = await second_backend.now_us()
        ended = await catalog_backend.now_us()
        assert began <= between <= ended
        # Test databases run on this machine, so their clock is ours.
        assert abs(time.time() * 1e6 - ended) < 60e6


class TestScan:
    async def test_it_gives_each_row_of_each_realm_once(
        self, catalog_backend: CatalogBackend, realm: str
    ) -> None:
        expected: list[Scanned] = []
        realms = [realm, realm + "a", realm + "-"]
        for each in realms:
            expected += [as_scanned(each, row) for row in await fill(catalog_backend, each)]
        assert Counter(await scanned(catalog_backend, *realms)) == Counter(expected)

    async def test_it_gives_all_of_many_rows(
        self, catalog_backend: CatalogBackend, realm: str
    ) -> None:
        rows = await fill(catalog_backend, realm, MANY)
        found = await scanned(catalog_backend, realm)
        assert Counter(found) == Counter(as_scanned(realm, row) for row in rows)

    async def test_rows_that_come_and_go_meanwhile_do_not_hide_others(
        self, catalog_backend: CatalogBackend, realm: str
    ) -> None:
        """Rows are added before, between and behind the existing ones, and others are deleted."""
        stays = [thing(1_000_000 * n) for n in range(1, MANY)]
        goes = [thing(1_000_000 * n + 500_000) for n in range(1, MANY)]
        names = [f"p{n:05}" for n in range(MANY)]
        pointers = [pointer(name) for name in names]
        await catalog_backend.write(realm, [*stays, *goes])
        await catalog_backend.create_pointers(realm, pointers)
        found: Counter[Scanned] = Counter()
        page_number = 0
        async for page in catalog_backend.scan():
            found.update(row for row in page if row.realm == realm)
            page_number += 1
            if page_number > PAGES_DISTURBED:
                continue  # otherwise a backend with small pages would never finish
            new = [thing(1_000_000 * n + page_number) for n in range(0, MANY, 50)]
            await catalog_backend.write(realm, new)
            await catalog_backend.delete(realm, [row.key for row in goes[page_number::100]])
            await catalog_backend.create_pointers(
                realm, [pointer(f"{name}+{page_number}") for name in names[::100]]
            )
        wanted = [as_scanned(realm, row) for row in stays]
        wanted += [as_scanned(realm, row) for row in pointers]
        assert {row: found[row] for row in wanted} == dict.fromkeys(wanted, 1)

    async def test_an_empty_realm_gives_nothing(
        self, catalog_backend: CatalogBackend, realm: str
    ) -> None:
        assert await scanned(catalog_backend, realm) == []

    async def test_it_may_be_given_up(self, catalog_backend: CatalogBackend, realm: str) -> None:
        await fill(catalog_backend, realm)
        for _ in range(30):
            async for _page in catalog_backend.scan():
                break
        assert len(await scanned(catalog_backend, realm)) == COUNT * (1 + PARTS)


class TestDeletingWhatWasScanned:
    async def test_each_is_deleted_as_it_was_seen(
        self, catalog_backend: CatalogBackend, realm: str
    ) -> None:
        rows = await fill(catalog_backend, realm)
        kept = rows[0], rows[-1]
        doomed = [as_scanned(realm, row) for row in rows[1:-1]]
        assert await catalog_backend.delete_scanned([]) == 0
        assert await catalog_backend.delete_scanned(doomed) == len(doomed)
        expected = Counter(as_scanned(realm, row) for row in kept)
        assert Counter(await scanned(catalog_backend, realm)) == expected
        assert await catalog_backend.delete_scanned(doomed) == 0

    async def test_rewritten_rows_stay(self, catalog_backend: CatalogBackend, realm: str) -> None:
        one, two = pointer("one"), pointer("two")
        await catalog_backend.create_pointers(realm, [one, two])
        old, same = thing(1, b"old", created_us=5), thing(2, created_us=5)
        await catalog_backend.write(realm, [old, same])
        seen = await scanned(catalog_backend, realm)
        new = thing(1, b"new", created_us=6)
        await catalog_backend.write(realm, [new])
        assert await catalog_backend.delete_pointer(realm, one)
        again = pointer("one")
        assert await catalog_backend.create_pointer(realm, again)
        assert await catalog_backend.delete_scanned([*seen, *seen]) == 2
        assert await get_pointer(catalog_backend, realm, "one") == again
        assert await get_pointer(catalog_backend, realm, "two") is None
        await holds(catalog_backend, realm, [new])
        assert await get(catalog_backend, realm, 2) is None

    async def test_rows_of_several_realms_and_many_of_them_go_together(
        self, catalog_backend: CatalogBackend, realm: str
    ) -> None:
        other = fresh_realm()
        rows = [as_scanned(realm, row) for row in await fill(catalog_backend, realm, MANY)]
        rows += [as_scanned(other, row) for row in await fill(catalog_backend, other)]
        foreign = await fill(catalog_backend, realm + "a")
        absent = [as_scanned("never-was", row) for row in foreign]
        assert await catalog_backend.delete_scanned([*absent, *rows]) == len(rows)
        assert await scanned(catalog_backend, realm, other) == []
        assert len(await scanned(catalog_backend, realm + "a")) == len(foreign)


class TestDeletingRealms:
    @pytest.mark.parametrize("count", [0, 1, 2, 3])
    async def test_everything_of_them_goes_and_nothing_else(
        self, catalog_backend: CatalogBackend, realm: str, count: int
    ) -> None:
        realms = [realm, realm + "a", realm + "_"]
        for each in realms:
            await fill(catalog_backend, each)
        if not catalog_backend.deletes_realms:
            with pytest.raises(NotSupported):
                await catalog_backend.delete_realms(realms[:count])
            return
        await catalog_backend.delete_realms([*realms[:count], "never-was"])
        assert await scanned(catalog_backend, *realms[:count]) == []
        for each in realms[:count]:
            assert await catalog_backend.list_pointers(each, "", "", 10) == []
            assert await get(catalog_backend, each, 1) is None
        for each in realms[count:]:
            assert len(await scanned(catalog_backend, each)) == COUNT * (1 + PARTS)

    async def test_a_large_realm_goes_whole(
        self, catalog_backend: CatalogBackend, realm: str
    ) -> None:
        if not catalog_backend.deletes_realms:
            pytest.skip("maintenance deletes what it scans")
        await fill(catalog_backend, realm, MANY)
        await catalog_backend.delete_realms([realm, realm])
        assert await scanned(catalog_backend, realm) == []
        assert await catalog_backend.create_pointer(realm, pointer("p1")) is True


class TestClosing:
    async def test_later_calls_are_unavailable(
        self, catalog_backend: CatalogBackend, second_backend: CatalogBackend, realm: str
    ) -> None:
        row, conditional = pointer("main"), thing(1, token="t")
        assert await second_backend.create_pointer(realm, row)
        await second_backend.close()
        await second_backend.close()
        for call in every_call(second_backend, realm, row, conditional):
            with pytest.raises(Unavailable):
                await call()
        assert await get_pointer(catalog_backend, realm, "main") == row
        assert await get(catalog_backend, realm, 1) is None

    async def test_the_next_instance_sees_earlier_writes(
        self, catalog_backend: CatalogBackend, second_backend: CatalogBackend, realm: str
    ) -> None:
        rows = [thing(n) for n in range(10)]
        row = pointer("main")
        assert await second_backend.create_pointer(realm, row)
        assert await second_backend.publish(realm, rows, row, moved(row, b"there"))
        await second_backend.close()
        await holds(catalog_backend, realm, rows)
        assert await get_pointer(catalog_backend, realm, "main") == moved(row, b"there")


def every_call(
    backend: CatalogBackend, realm: str, row: PointerRow, conditional: ObjectRow
) -> list[Callable[[], Awaitable[object]]]:
    """Return calls of every method of a backend."""
    key, after = ObjectKey(1), moved(row, b"late")
    calls: list[Callable[[], Awaitable[object]]] = [
        lambda: backend.create_pointer(realm, pointer("new")),
        lambda: backend.create_pointers(realm, [pointer("new")]),
        backend.now_us,
        lambda: backend.fetch_pointers(realm, ["main"]),
        lambda: backend.list_pointers(realm, "", "", 1),
        lambda: backend.swap_pointer(realm, row, after),
        lambda: backend.delete_pointer(realm, row),
        lambda: backend.fetch(realm, [key]),
        lambda: backend.write(realm, [conditional]),
        lambda: backend.delete(realm, [key]),
        lambda: backend.insert(realm, conditional),
        lambda: backend.replace(realm, conditional, "t"),
        lambda: backend.delete_if(realm, key, "t"),
        lambda: backend.publish(realm, [conditional], row, after),
        lambda: scanned(backend, realm),
        lambda: backend.delete_scanned([as_scanned(realm, row)]),
    ]
    if backend.deletes_realms:
        calls.append(lambda: backend.delete_realms([realm]))
    return calls
