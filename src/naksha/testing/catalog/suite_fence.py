"""The catalog suite: fences of realms when nodes are slow, die, or hold outdated records."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable
from random import Random

import pytest

from naksha.catalog import realms
from naksha.catalog.catalog import Catalog, Tuning
from naksha.catalog.objects import ObjectRef
from naksha.catalog.realms import Realm, RealmStatus
from naksha.model import limits
from naksha.model.errors import (
    Conflict,
    PointerExists,
    PointerNotFound,
    RealmChanged,
    RealmInactive,
    RealmNotFound,
    Retryable,
)
from naksha.spi.catalog import CatalogBackend, PointerRow
from naksha.testing.catalog.faulty import FaultyCatalog
from naksha.testing.catalog.suite_realms import Thing, put_thing, realm_in
from naksha.testing.catalog.suite_support import OpenCatalog

FLIPPED = {RealmStatus.ACTIVE: RealmStatus.INACTIVE, RealmStatus.INACTIVE: RealmStatus.ACTIVE}


class SlowCatalog(FaultyCatalog):
    """A backend that sleeps after listing pointers, if the test sets a sleep."""

    def __init__(self, backend: CatalogBackend) -> None:
        super().__init__(backend, lambda _: None)
        self.sleep: Callable[[], Awaitable[object]] = _not_at_all

    async def list_pointers(
        self, realm: str, prefix: str, after: str, limit: int
    ) -> list[PointerRow]:
        rows = await super().list_pointers(realm, prefix, after, limit)
        if rows:
            await self.sleep()
        return rows


async def _not_at_all() -> None:
    """The default sleep, which returns at once."""


async def with_config(catalog: Catalog) -> Realm:
    """Return an active realm with one pointer."""
    realm = await realm_in(catalog, RealmStatus.ACTIVE)
    await (await catalog.realm(realm.id)).persistence.ensure_pointers(["config"])
    return realm


async def keys_of(catalog: Catalog, realm: Realm) -> set[str]:
    snapshot = await (await catalog.realm(realm.id)).entities("config").now()
    return {key async for key, _ in snapshot.list("", Thing)}


async def left_behind(catalog: Catalog, realm: Realm, name: str) -> None:
    """Create a pointer as left behind by a writer that was fenced and then died."""
    row = PointerRow(name, b"", catalog.node.ids.next_id(), catalog.node.ids.next_id())
    assert await catalog.backend.create_pointer(realm.id, row)


def thing_ref(id: int) -> ObjectRef:
    return ObjectRef("test-thing", id)


class TestFencedInstance:
    """A fencing node may be suspended while others continue."""

    async def test_a_late_fencer_leaves_the_pointers_of_later_states_alone(
        self, open_catalog: OpenCatalog, catalog: Catalog
    ) -> None:
        backend = SlowCatalog(await open_catalog())
        slow = await Catalog.open(backend, tuning=Tuning(quarantine_seconds=0))
        realm = await with_config(slow)
        await (await slow.realm(realm.id)).entities("config").commit(put_thing("a"))
        sleeps, is_woken = asyncio.Event(), asyncio.Event()

        async def sleep() -> None:
            sleeps.set()
            await is_woken.wait()

        backend.sleep = sleep
        late = asyncio.create_task(slow.realms.update(realm, RealmStatus.INACTIVE))
        await sleeps.wait()
        await catalog.realms.update(await catalog.realms.get(realm.id), RealmStatus.ACTIVE)
        await (await catalog.realm(realm.id)).entities("config").commit(put_thing("b"))
        is_woken.set()
        # The other node set the realm inactive on its behalf, before it became active again.
        done = await late
        assert (done.status, done.is_fenced) == (RealmStatus.INACTIVE, True)
        assert await keys_of(catalog, realm) == {"a", "b"}
        await slow.close()

    async def test_an_instance_with_an_old_record_does_not_open_it(
        self, catalog: Catalog, other_node: Catalog, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        realm = await with_config(catalog)

        async def die(*_: object) -> None:
            raise RuntimeError("killed")

        with monkeypatch.context() as patched:
            patched.setattr(realms, "_stamp_pointers", die)
            with pytest.raises(RuntimeError, match="killed"):
                await catalog.realms.update(realm, RealmStatus.INACTIVE)
        old = await catalog.realms.get(realm.id)
        await other_node.realms.update(old, RealmStatus.ACTIVE)
        with pytest.raises(RealmChanged):
            await catalog.realms.fence(old)
        fresh = (await other_node.realm(realm.id)).persistence
        assert [pointer.name for pointer in await fresh.list_pointers()] == ["config"]

    async def test_one_of_two_concurrent_changes_wins(
        self, catalog: Catalog, other_node: Catalog
    ) -> None:
        realm = await with_config(catalog)
        for _ in range(4):
            results = await asyncio.gather(
                *(n.realms.update(realm, FLIPPED[realm.status]) for n in (catalog, other_node)),
                return_exceptions=True,
            )
            assert sum(isinstance(result, Conflict) for result in results) == 1
            (won,) = (result for result in results if isinstance(result, Realm))
            assert won == await catalog.realms.get(realm.id)
            realm = won
        rows = await catalog.backend.list_pointers(realm.id, "", "", 10)
        assert [(row.name, row.epoch) for row in rows] == [("config", realm.epoch)]

    async def test_commits_survive_two_concurrent_flips(
        self, open_catalog: OpenCatalog, catalog: Catalog
    ) -> None:
        random = Random(7)
        backends = [SlowCatalog(await open_catalog()) for _ in range(2)]
        nodes = [await Catalog.open(b, tuning=Tuning(quarantine_seconds=0)) for b in backends]
        realm = await with_config(catalog)
        for backend in backends:
            backend.sleep = lambda: asyncio.sleep(random.choice([0, 0, 0.15]))
        committed: set[str] = set()

        async def flip(node: Catalog) -> None:
            for _ in range(8):
                await asyncio.sleep(0.01)
                try:
                    found = await node.realms.get(realm.id)
                    await node.realms.update(found, FLIPPED[found.status])
                except (Conflict, RealmChanged):
                    continue

        async def write(node: Catalog, name: str) -> None:
            for number in range(30):
                try:
                    opened = await node.realm(realm.id)
                    await opened.entities("config").commit(put_thing(f"{name}-{number}"))
                    committed.add(f"{name}-{number}")
                except (Retryable, RealmInactive):
                    await asyncio.sleep(0.001)

        writers = [write(node, str(n)) for n, node in enumerate([*nodes, catalog])]
        await asyncio.gather(*writers, *map(flip, nodes))
        for node in nodes:
            await node.close()
        last = await catalog.realms.get(realm.id)
        if last.status is RealmStatus.INACTIVE:
            await catalog.realms.update(last, RealmStatus.ACTIVE)
        assert await keys_of(catalog, realm) == committed


class TestOtherEpochs:
    """State that one holder of a realm has read is useless to another one."""

    async def test_a_stale_holder_gets_nothing_out_of_the_cache_of_all(
        self, catalog: Catalog
    ) -> None:
        realm = await with_config(catalog)
        stale = (await catalog.realm(realm.id)).persistence
        inactive = await catalog.realms.update(realm, RealmStatus.INACTIVE)
        current = await catalog.persistence_of(inactive)
        pointer = await current.pointer_now("config")
        assert await current.pointer("config") == pointer
        with pytest.raises(RealmChanged):
            await stale.pointer("config")

    async def test_a_pointer_of_another_epoch_is_neither_moved_nor_deleted(
        self, catalog: Catalog
    ) -> None:
        realm = await with_config(catalog)
        stale = (await catalog.realm(realm.id)).persistence
        inactive = await catalog.realms.update(realm, RealmStatus.INACTIVE)
        current = await catalog.persistence_of(inactive)
        pointer = await current.pointer_now("config")
        with pytest.raises(RealmChanged):
            await stale.move_pointer(pointer, thing_ref(1))
        with pytest.raises(RealmChanged):
            await stale.delete_pointer(pointer)
        assert await current.pointer_now("config") == pointer

    async def test_nothing_is_cached_beyond_a_change_of_state(self, catalog: Catalog) -> None:
        realm = await with_config(catalog)
        await (await catalog.realm(realm.id)).persistence.pointer_now("config")
        assert catalog.cache.pointer(realm.id, "config") is not None
        await catalog.realms.update(realm, RealmStatus.INACTIVE)
        assert catalog.cache.pointer(realm.id, "config") is None

    async def test_a_new_life_serves_no_pointer_of_the_old_one(
        self, catalog: Catalog, other_node: Catalog
    ) -> None:
        """The other node has them in its cache, and no message has reached it."""
        realm = await with_config(catalog)
        await (await other_node.realm(realm.id)).entities("config").commit(put_thing("secret"))
        for status in (RealmStatus.INACTIVE, RealmStatus.PURGING, RealmStatus.PURGED):
            realm = await catalog.realms.update(realm, status)
        for row in await catalog.backend.list_pointers(realm.id, "", "", 10):
            assert await catalog.backend.delete_pointer(realm.id, row)
        await catalog.realms.delete(realm)
        realm = await catalog.realms.create(realm.id)
        for status in (RealmStatus.INITIALIZING, RealmStatus.ACTIVE):
            realm = await catalog.realms.update(realm, status)
        await other_node.realms.get(realm.id)
        with pytest.raises(PointerNotFound):
            await (await other_node.realm(realm.id)).entities("config").recent()

    async def test_a_realm_is_not_taken_for_its_former_life(self, catalog: Catalog) -> None:
        old = await realm_in(catalog, RealmStatus.LOADING)
        purged = old
        for status in (RealmStatus.PURGING, RealmStatus.PURGED):
            purged = await catalog.realms.update(purged, status)
        await catalog.realms.delete(purged)
        new = await catalog.realms.update(await catalog.realms.create(old.id), RealmStatus.LOADING)
        with pytest.raises(RealmChanged):
            await catalog.realm_for_setup(old)
        with pytest.raises(RealmChanged):
            await catalog.persistence_of(old)
        assert (await catalog.realm_for_setup(new)).realm == new.id

    async def test_a_stale_holder_does_not_see_an_empty_realm(
        self, catalog: Catalog, other_node: Catalog
    ) -> None:
        realm = await with_config(catalog)
        stale = (await other_node.realm(realm.id)).persistence
        await catalog.realms.update(realm, RealmStatus.INACTIVE)
        with pytest.raises(RealmChanged):
            await stale.list_pointers()


class TestLeftovers:
    """Pointers of fenced and dead writers count as missing."""

    async def test_one_is_created_over_it(self, catalog: Catalog) -> None:
        realm = await with_config(catalog)
        fresh = (await catalog.realm(realm.id)).persistence
        await left_behind(catalog, realm, "left")
        made = await fresh.create_pointer("left")
        assert await fresh.pointer_now("left") == made
        with pytest.raises(PointerExists):
            await fresh.create_pointer("left")

    async def test_it_is_not_what_must_be_there(self, catalog: Catalog) -> None:
        realm = await with_config(catalog)
        fresh = (await catalog.realm(realm.id)).persistence
        kept = await fresh.pointer_now("config")
        await left_behind(catalog, realm, "left")
        await fresh.ensure_pointers(["config", "left", "new"])
        names = [pointer.name for pointer in await fresh.list_pointers()]
        assert names == ["config", "left", "new"]
        assert await fresh.pointer_now("config") == kept

    async def test_a_page_is_full_in_spite_of_them(self, catalog: Catalog) -> None:
        realm = await with_config(catalog)
        fresh = (await catalog.realm(realm.id)).persistence
        await fresh.ensure_pointers(["b", "d", "f"])
        for name in ("a", "c", "e", "g"):
            await left_behind(catalog, realm, name)
        pages, after = [], ""
        while page := await fresh.list_pointers(after=after, limit=2):
            pages.append([pointer.name for pointer in page])
            after = page[-1].name
        assert pages == [["b", "config"], ["d", "f"]]
        assert await fresh.list_pointers(limit=0) == []


class TestOpenRealms:
    """The state that a node keeps of its open realms."""

    async def test_it_is_open_once(self, catalog: Catalog) -> None:
        realm = await realm_in(catalog, RealmStatus.ACTIVE)
        one, *others = await asyncio.gather(*(catalog.realm(realm.id) for _ in range(4)))
        assert all(other is one for other in others)
        changed = await catalog.realms.update(realm, RealmStatus.ACTIVE, {"a": 1})
        assert await catalog.realm(realm.id) is one
        assert one.realm == changed
        for status in (RealmStatus.INACTIVE, RealmStatus.ACTIVE):
            changed = await catalog.realms.update(changed, status)
        assert await catalog.realm(realm.id) is not one

    async def test_inactive_realms_are_forgotten(self, catalog: Catalog) -> None:
        realm = await realm_in(catalog, RealmStatus.ACTIVE)
        await catalog.realm(realm.id)
        for status in (RealmStatus.INACTIVE, RealmStatus.PURGING, RealmStatus.PURGED):
            realm = await catalog.realms.update(realm, status)
        await catalog.realms.delete(realm)
        with pytest.raises(RealmNotFound):
            await catalog.realm(realm.id)
        assert realm.id not in catalog._open
        assert realm.id not in catalog._kept

    async def test_the_number_of_unused_open_realms_is_limited(
        self, catalog: Catalog, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(limits, "OPEN_REALMS_MAX", 2)
        ids = [(await realm_in(catalog, RealmStatus.ACTIVE)).id for _ in range(4)]
        used = await catalog.realm(ids[0])
        for id in ids[1:]:
            await catalog.realm(id)
        gc.collect()
        assert sorted(catalog._open) == sorted([ids[0], ids[2], ids[3]])
        assert await catalog.realm(ids[0]) is used
