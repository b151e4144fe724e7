"""Deletion of a query's results, and purging of deleted features."""

from functools import partial

import pytest

from naksha.hub.pipeline.requests import PurgeFeatures
from naksha.model import limits
from naksha.model.errors import InvalidArgument
from naksha.model.query import Op, Query
from naksha.model.query import Test as PropertyTest
from naksha.spi.storage import WriteSession
from tests.hub.write.support import CONTEXT, Desk, feature


async def test_a_deletion_by_query_is_one_transaction(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "READ_CHUNK_FEATURES", 7)
    made = [feature(f"f{n:03}", {"tags": ["odd"] if n % 2 else ["even"]}, n=n) for n in range(50)]
    await desk.put(*made)
    odd = await desk.delete(Query(tags=(("odd",),)), message="no odd ones")
    assert (odd.count, len(odd.ids)) == (25, 25)
    assert odd.version is not None
    assert odd.txn is not None
    storage = await desk.storage()
    assert "no odd ones" in str(await storage.transaction(odd.txn))
    few = await desk.delete(Query(where=PropertyTest(("properties", "n"), Op.LT, 10)))
    assert few.ids == ("f000", "f002", "f004", "f006", "f008")
    named = await desk.delete(Query(ids=("f010", "f011", "f012")))
    assert named.ids == ("f010", "f012")
    assert len(await desk.states()) == 18
    everything = await desk.delete()
    assert everything.count == 18
    assert await desk.states() == {}
    again = await desk.delete()
    assert (again.count, again.txn, again.version) == (0, None, None)


async def test_of_many_ids_only_some_are_named(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "READ_CHUNK_FEATURES", 4)
    monkeypatch.setattr(limits, "DELETED_IDS_MAX", 6)
    await desk.put(*[feature(f"f{n}") for n in range(10)])
    deleted = await desk.delete()
    assert (deleted.count, len(deleted.ids)) == (10, 6)


async def test_a_deletion_has_no_limit(desk: Desk) -> None:
    with pytest.raises(InvalidArgument):
        await desk.delete(Query(limit=5))


async def test_recently_deleted_features_can_be_purged(desk: Desk) -> None:
    """Only published tombstones are purged, and another client may not have waited for that."""
    storage = await desk.storage()
    (collection,) = desk.scope.collections or ()
    ids = tuple(f"f{n}" for n in range(5))
    await desk.put(*map(feature, ids))
    for id in ids:
        await storage.run(partial(_delete, collection=collection, id=id), "app")
        done = await desk.realm.send(desk.space_id, PurgeFeatures(ids=(id,)), CONTEXT)
        assert (done.purged, done.retained) == ((id,), ())


async def _delete(session: WriteSession, *, collection: str, id: str) -> None:
    await session.delete(collection, [id])
