"""The life of a store on every database.

It is written, pinned, swept, purged, exported, imported and checked.
"""

from __future__ import annotations

import pytest

from naksha.catalog.commit_log import CommitLog
from naksha.catalog.entities import EntitiesCommit
from naksha.catalog.maintenance import LogHorizons
from naksha.catalog.realms import RealmStatus
from naksha.catalog.system_objects import SYSTEM_REALM
from naksha.catalog.transfer import export_realm, import_realm
from naksha.model import limits
from tests.catalog.maintenance.support import GRACE, SHORT, Store


@pytest.fixture(params=["memory", "sqlite", "postgresql", "redis", "mariadb"])
def database_name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.parametrize("deletes_realms", [True, False])
async def test_a_store_is_kept_in_order(store: Store, deletes_realms: bool) -> None:
    store.between.deletes_realms = deletes_realms and store.backend.deletes_realms
    big = "x" * (limits.CATALOG_ROW_BYTES_MAX + 1)
    await store.realm()
    await store.put({f"k{number:0>240}": "0" for number in range(400)} | {"big": big})
    for number in range(25):
        await store.put({f"k{number:0>240}": str(number), "last": str(number)})
    gone = await store.realm("gone")
    await store.put({"a": "1"}, "gone")
    gone = await store.catalog.realms.update(gone, RealmStatus.INACTIVE)
    await store.catalog.realms.update(gone, RealmStatus.PURGING)

    log = CommitLog(await store.persistence(), "config", EntitiesCommit)
    cursor = (await log.oldest_first(limit=20)).cursor
    await LogHorizons(await store.persistence()).pin("config", "search", cursor)
    await store.write(150)
    await store.write(2, text=big)
    store.time.passes(GRACE + 1)
    before = await store.texts()

    maintenance = await store.maintenance(rules=[SHORT])
    dry = await maintenance.run(is_dry=True)
    run = await maintenance.run()
    assert run.purged > 150 + 2 * 2
    assert dry.purged == run.purged + (2 + 1 if store.between.deletes_realms else 0)
    assert (await store.log())[-1].value.seq == 20
    assert await store.texts() == before
    await maintenance.run()
    assert (await store.catalog.realms.get("gone")).status is RealmStatus.PURGED
    assert await store.rows("gone") == []
    [check, _] = await store.check("maps", SYSTEM_REALM)
    assert (check.consistency, check.orphans) == ("CONSISTENT", 0)
    assert await store.is_consistent("maps", SYSTEM_REALM)

    await import_realm(
        store.catalog, "copy", export_realm(store.backend, "maps", store.time.clock.now_us())
    )
    assert await store.texts("copy") == before
    await store.put({"last": "one more"}, "copy")
    assert await store.is_consistent("maps", "copy")
