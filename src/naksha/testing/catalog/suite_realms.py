"""The catalog suite: realms, their states, and the fence against writers with an outdated state."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from itertools import product
from typing import Any

import msgspec
import pytest

from naksha.catalog import realms
from naksha.catalog.catalog import Catalog, Tuning
from naksha.catalog.entities import EntityEdit
from naksha.catalog.objects import ObjectRef, object_type
from naksha.catalog.realms import Realm, RealmStatus
from naksha.model.errors import (
    Conflict,
    InvalidArgument,
    PointerNotFound,
    RealmChanged,
    RealmInactive,
    RealmNotFound,
)
from naksha.spi.catalog import CatalogBackend
from naksha.testing.catalog.suite_support import OpenCatalog, fresh_number

PATHS: dict[RealmStatus, list[RealmStatus]] = {
    RealmStatus.CREATED: [],
    RealmStatus.LOADING: [RealmStatus.LOADING],
    RealmStatus.INITIALIZING: [RealmStatus.INITIALIZING],
    RealmStatus.ACTIVE: [RealmStatus.INITIALIZING, RealmStatus.ACTIVE],
    RealmStatus.INACTIVE: [RealmStatus.INITIALIZING, RealmStatus.INACTIVE],
    RealmStatus.PURGING: [RealmStatus.PURGING],
    RealmStatus.PURGED: [RealmStatus.PURGING, RealmStatus.PURGED],
}
"""The steps by which a new realm reaches each state."""


FOLLOWING = """
             CREATED LOADING INITIALIZING ACTIVE INACTIVE PURGING PURGED
CREATED      yes     yes     yes          no     no       yes     no
LOADING      no      no      no           yes    yes      yes     no
INITIALIZING no      no      no           yes    yes      yes     no
ACTIVE       no      no      no           yes    yes      no      no
INACTIVE     no      no      no           yes    yes      yes     no
PURGING      no      no      no           no     no       yes     yes
PURGED       no      no      no           no     no       no      yes
"""
"""Whether the state of the column may follow that of the row."""


def steps() -> list[tuple[RealmStatus, RealmStatus, bool]]:
    columns, *rows = (line.split() for line in FOLLOWING.strip().splitlines())
    return [
        (RealmStatus(status), RealmStatus(following), response == "yes")
        for status, *responses in rows
        for following, response in zip(columns, responses, strict=True)
    ]


@object_type("test-thing")
class Thing(msgspec.Struct, frozen=True):
    """An entity of the tests."""

    text: str


@pytest.fixture
async def catalog(open_catalog: OpenCatalog) -> AsyncIterator[Catalog]:
    """A node of the catalog whose realms need no quarantine."""
    opened = await Catalog.open(await open_catalog(), tuning=Tuning(quarantine_seconds=0))
    yield opened
    await opened.close()


@pytest.fixture
async def other_node(open_catalog: OpenCatalog) -> AsyncIterator[Catalog]:
    """A second node on the same catalog."""
    opened = await Catalog.open(await open_catalog(), tuning=Tuning(quarantine_seconds=0))
    yield opened
    await opened.close()


async def realm_in(catalog: Catalog, status: RealmStatus) -> Realm:
    realm = await catalog.realms.create(f"realm-{fresh_number()}")
    for step in PATHS[status]:
        realm = await catalog.realms.update(realm, step)
    return realm


class TestRealms:
    """The life of a realm."""

    async def test_it_is_created_once(self, catalog: Catalog) -> None:
        realm = await catalog.realms.create(f"realm-{fresh_number()}", {"region": "eu"})
        assert realm.status is RealmStatus.CREATED
        assert await catalog.realms.get(realm.id) == realm
        assert realm in await catalog.realms.list()
        with pytest.raises(Conflict, match="already exists"):
            await catalog.realms.create(realm.id)

    async def test_only_one_of_many_creators_wins(
        self, catalog: Catalog, other_node: Catalog
    ) -> None:
        name = f"realm-{fresh_number()}"
        results = await asyncio.gather(
            *(node.realms.create(name) for node in (catalog, other_node) * 3),
            return_exceptions=True,
        )
        assert sum(isinstance(result, Realm) for result in results) == 1
        assert sum(isinstance(result, Conflict) for result in results) == 5

    @pytest.mark.parametrize("id", ["", "::system::", "a b", "ä", "x" * 129, "a/b", "a\0"])
    async def test_bad_ids_are_refused(self, catalog: Catalog, id: str) -> None:
        with pytest.raises(InvalidArgument, match="realm"):
            await catalog.realms.create(id)

    async def test_an_unknown_one_is_not_found(self, catalog: Catalog) -> None:
        with pytest.raises(RealmNotFound):
            await catalog.realms.get("nobody")
        with pytest.raises(RealmNotFound):
            await catalog.realm("nobody")

    async def test_the_states_follow_each_other_as_the_table_says(self, catalog: Catalog) -> None:
        assert {(status, following) for status, following, _ in steps()} == set(
            product(RealmStatus, RealmStatus)
        )
        for status, following, is_allowed in steps():
            realm = await realm_in(catalog, status)
            if is_allowed:
                changed = await catalog.realms.update(realm, following)
                assert changed.status is following
                assert changed.is_fenced
                assert (changed.epoch != realm.epoch) == (following is not status)
            else:
                with pytest.raises(Conflict, match="cannot become"):
                    await catalog.realms.update(realm, following)
                assert await catalog.realms.get(realm.id) == realm

    async def test_its_properties_cannot_be_changed_in_the_cache(self, catalog: Catalog) -> None:
        given: dict[str, Any] = {"region": "eu", "owners": ["a"]}
        realm = await catalog.realms.create(f"realm-{fresh_number()}", given)
        given["owners"].append("b")
        realm.properties["region"] = "nowhere"
        (await catalog.realms.get(realm.id)).properties["owners"].append("c")
        found = await catalog.realms.get(realm.id)
        assert found.properties == {"region": "eu", "owners": ["a"]}
        changed = await catalog.realms.update(found, RealmStatus.CREATED, {"a": None})
        assert changed.properties == {"a": None}
        with pytest.raises(InvalidArgument, match="plain JSON"):
            await catalog.realms.update(changed, RealmStatus.CREATED, {"a": object()})

    async def test_it_must_be_as_expected(self, catalog: Catalog) -> None:
        old = await realm_in(catalog, RealmStatus.ACTIVE)
        await catalog.realms.update(old, RealmStatus.ACTIVE, {"a": 1})
        with pytest.raises(Conflict, match="changed concurrently"):
            await catalog.realms.update(old, RealmStatus.INACTIVE)

    async def test_only_a_purged_one_can_be_deleted(self, catalog: Catalog) -> None:
        for status in RealmStatus:
            realm = await realm_in(catalog, status)
            if status is RealmStatus.PURGED:
                await catalog.realms.delete(realm)
                with pytest.raises(RealmNotFound):
                    await catalog.realms.get(realm.id)
            else:
                with pytest.raises(Conflict, match="PURGED"):
                    await catalog.realms.delete(realm)

    async def test_only_an_active_one_serves(self, catalog: Catalog) -> None:
        for status in RealmStatus:
            realm = await realm_in(catalog, status)
            if status is RealmStatus.ACTIVE:
                assert (await catalog.realm(realm.id)).realm == realm
            else:
                with pytest.raises(RealmInactive, match=status):
                    await catalog.realm(realm.id)

    async def test_a_realm_that_has_served_waits_before_its_purge(
        self, open_catalog: OpenCatalog
    ) -> None:
        catalog = await Catalog.open(await open_catalog(), tuning=Tuning(quarantine_seconds=3600))
        try:
            realm = await realm_in(catalog, RealmStatus.INACTIVE)
            with pytest.raises(Conflict, match=r"yet: 1\.0 hours"):
                await catalog.realms.update(realm, RealmStatus.PURGING)
            back = await catalog.realms.update(realm, RealmStatus.ACTIVE)
            assert (await catalog.realm(realm.id)).realm == back
        finally:
            await catalog.close()


class TestFence:
    """A node that opened a realm before its state changed can write nothing."""

    async def test_a_fenced_instance_cannot_commit(
        self, catalog: Catalog, other_node: Catalog
    ) -> None:
        realm = await realm_in(catalog, RealmStatus.ACTIVE)
        stale = await other_node.realm(realm.id)
        await stale.persistence.ensure_pointers(["config"])
        await stale.entities("config").commit(put_thing("a"))
        inactive = await catalog.realms.update(realm, RealmStatus.INACTIVE)
        with pytest.raises(RealmChanged):
            await stale.entities("config").commit(put_thing("b"))
        await catalog.realms.update(inactive, RealmStatus.ACTIVE)
        with pytest.raises(RealmChanged):
            await stale.entities("config").commit(put_thing("b"))
        fresh = await catalog.realm(realm.id)
        keys = [key async for key, _ in (await fresh.entities("config").now()).list("", Thing)]
        assert keys == ["a"]
        await (await other_node.realm(realm.id)).entities("config").commit(put_thing("c"))

    async def test_a_fenced_instance_can_neither_create_nor_move_nor_delete_a_pointer(
        self, catalog: Catalog, other_node: Catalog
    ) -> None:
        realm = await realm_in(catalog, RealmStatus.ACTIVE)
        stale = (await other_node.realm(realm.id)).persistence
        old = await stale.create_pointer("old")
        inactive = await catalog.realms.update(realm, RealmStatus.INACTIVE)
        with pytest.raises(RealmChanged):
            await stale.create_pointer("new")
        with pytest.raises(RealmChanged):
            await stale.ensure_pointers(["newer"])
        assert await stale.move_pointer(old, ObjectRef("test-thing", 1)) is None
        assert not await stale.delete_pointer(old)
        await catalog.realms.update(inactive, RealmStatus.ACTIVE)
        fresh = (await catalog.realm(realm.id)).persistence
        assert [pointer.name for pointer in await fresh.list_pointers()] == ["old"]
        assert (await fresh.pointer_now("old")).target is None

    async def test_a_fenced_instance_cannot_write_a_conditional_object(
        self, catalog: Catalog, other_node: Catalog
    ) -> None:
        realm = await realm_in(catalog, RealmStatus.ACTIVE)
        stale = (await other_node.realm(realm.id)).persistence
        kept, other = [await stale.insert(id, Thing("kept")) for id in (1, 2)]
        assert kept is not None
        assert other is not None
        inactive = await catalog.realms.update(realm, RealmStatus.INACTIVE)
        with pytest.raises(RealmChanged):
            await stale.insert(3, Thing("never"))
        with pytest.raises(RealmChanged):
            await stale.replace(kept, Thing("never"))
        with pytest.raises(RealmChanged):
            await stale.delete_if(other)
        await catalog.realms.update(inactive, RealmStatus.ACTIVE)
        fresh = (await catalog.realm(realm.id)).persistence
        refs = [ObjectRef("test-thing", id) for id in (1, 2, 3)]
        found = await fresh.fetch_many(refs, Thing)
        assert [each and each.value.text for each in found] == ["kept", "kept", None]

    async def test_leftovers_of_a_fenced_instance_have_no_effect(
        self, catalog: Catalog, catalog_backend: CatalogBackend
    ) -> None:
        """The writer died between creating the pointer and checking the realm."""
        realm = await realm_in(catalog, RealmStatus.ACTIVE)
        stale = (await catalog.realm(realm.id)).persistence
        pointer = await stale.create_pointer("left")
        assert await stale.delete_pointer(pointer)
        inactive = await catalog.realms.update(realm, RealmStatus.INACTIVE)
        assert await catalog_backend.create_pointer(realm.id, pointer.to_row())
        await catalog.realms.update(inactive, RealmStatus.ACTIVE)
        fresh = (await catalog.realm(realm.id)).persistence
        assert await fresh.list_pointers() == []
        with pytest.raises(PointerNotFound):
            await fresh.pointer_now("left")

    async def test_a_fence_that_was_not_finished_is_finished_by_the_next_one(
        self, catalog: Catalog, other_node: Catalog, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        realm = await realm_in(catalog, RealmStatus.ACTIVE)
        stale = await other_node.realm(realm.id)
        await stale.persistence.ensure_pointers(["config"])

        async def die(*_: object) -> None:
            raise RuntimeError("killed")

        with monkeypatch.context() as patched:
            patched.setattr(realms, "_stamp_pointers", die)
            with pytest.raises(RuntimeError, match="killed"):
                await catalog.realms.update(realm, RealmStatus.INACTIVE)
        unfinished = await other_node.realms.get(realm.id)
        assert not unfinished.is_fenced
        active = await other_node.realms.update(unfinished, RealmStatus.ACTIVE)
        assert active.is_fenced
        with pytest.raises(RealmChanged):
            await stale.entities("config").commit(put_thing("a"))


def put_thing(key: str) -> Callable[[EntityEdit], Awaitable[None]]:
    async def change(edit: EntityEdit) -> None:
        edit.put(key, Thing(key))

    return change
