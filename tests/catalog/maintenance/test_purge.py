"""Realms during a purge."""

from __future__ import annotations

import pytest

from naksha.catalog.maintenance import RealmOutcome
from naksha.catalog.realms import Realm, RealmStatus
from naksha.spi.catalog import ObjectKey, ObjectRow
from tests.catalog.maintenance.support import Store


async def purging(store: Store, id: str = "gone") -> Realm:
    realm = await store.realm(id)
    await store.put({str(number): "x" for number in range(250)}, id)
    await store.write(5, id)
    realm = await store.catalog.realms.update(realm, RealmStatus.INACTIVE)
    return await store.catalog.realms.update(realm, RealmStatus.PURGING)


class TestPurge:
    async def test_where_realms_can_be_deleted_one_run_is_enough(self, store: Store) -> None:
        await purging(store)
        await store.realm()
        await store.put({"a": "1"})
        maintenance = await store.maintenance()
        run = await maintenance.run()
        assert await store.rows("gone") == []
        assert (await store.catalog.realms.get("gone")).status is RealmStatus.PURGED
        assert (await maintenance.runs.report(run.id)).realms["gone"].outcome is RealmOutcome.PURGED
        assert await store.texts() == {"a": "1"}
        await store.catalog.realms.delete(await store.catalog.realms.get("gone"))

    async def test_where_they_cannot_two_are(self, scanned_store: Store) -> None:
        store = scanned_store
        await purging(store)
        doomed = len(await store.rows("gone"))
        await store.realm()
        await store.put({"a": "1"})
        maintenance = await store.maintenance()
        first = await maintenance.run()
        assert await store.rows("gone") == []
        assert (await store.catalog.realms.get("gone")).status is RealmStatus.PURGING
        assert first.purged == doomed > 250
        second = await maintenance.run()
        assert (await store.catalog.realms.get("gone")).status is RealmStatus.PURGED
        assert (await maintenance.runs.report(second.id)).realms[
            "gone"
        ].outcome is RealmOutcome.PURGED
        assert await store.texts() == {"a": "1"}

    async def test_it_needs_neither_age_nor_a_claim_nor_health(self, scanned_store: Store) -> None:
        store = scanned_store
        await purging(store)
        head = await store.head("gone")
        await store.backend.delete("gone", [ObjectKey(head.id)])
        await (await store.maintenance()).run()
        assert await store.rows("gone") == []

    async def test_late_writes_into_a_purged_realm_are_removed(self, store: Store) -> None:
        await purging(store)
        maintenance = await store.maintenance()
        await maintenance.run()
        await store.backend.write("gone", [ObjectRow(1, 0, 1, "maintained-thing", b"\x80", 1)])
        await maintenance.run()
        assert await store.rows("gone") == []
        assert (await store.catalog.realms.get("gone")).status is RealmStatus.PURGED

    async def test_a_new_life_of_the_name_is_not_touched(self, scanned_store: Store) -> None:
        """The new realm is created after the run has listed the purged realms."""
        store = scanned_store
        realm = await store.catalog.realms.create("phoenix")
        realm = await store.catalog.realms.update(realm, RealmStatus.PURGING)
        realms = store.catalog.realms

        async def create_again() -> None:
            store.between.before_page = None
            await realms.delete(await realms.update(realm, RealmStatus.PURGED))
            await store.realm("phoenix")
            await store.put({"a": "new"}, "phoenix")

        store.between.before_page = create_again
        # The rows of the new life are in the first page, if the backend scans that late.
        maintenance = await store.maintenance()
        await maintenance.run()
        assert await store.texts("phoenix") == {"a": "new"}
        assert (await realms.get("phoenix")).status is RealmStatus.ACTIVE

    async def test_rows_of_a_recreated_realm_differ_from_the_old_ones(
        self, scanned_store: Store
    ) -> None:
        """The new realm is created between the scan of a row and its deletion."""
        store = scanned_store
        realm = await purging(store, "phoenix")
        realms = store.catalog.realms
        real = realms.get

        async def get(id: str) -> Realm:
            if id == "phoenix" and (await real(id)).status is RealmStatus.PURGING:
                await store.backend.delete_realms(["phoenix"])
                await realms.delete(await realms.update(realm, RealmStatus.PURGED))
                await store.realm("phoenix")
                await store.put({"a": "new"}, "phoenix")
            return await real(id)

        maintenance = await store.maintenance()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(realms, "get", get)
            run = await maintenance.run()
        assert await store.texts("phoenix") == {"a": "new"}
        report = (await maintenance.runs.report(run.id)).realms["phoenix"]
        assert report.outcome is RealmOutcome.CHANGED
