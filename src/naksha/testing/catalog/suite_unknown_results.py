"""The catalog suite: fences of realms when calls fail and responses are lost."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from random import Random
from typing import Any

import pytest

from naksha.catalog.catalog import Catalog, Tuning
from naksha.catalog.objects import Object
from naksha.catalog.persistence import Persistence
from naksha.catalog.realms import Realm, RealmStatus
from naksha.model import limits
from naksha.model.errors import (
    OutcomeUnknown,
    RealmChanged,
    Retryable,
)
from naksha.testing.catalog.faulty import Fault, FaultyCatalog, random_faults, scripted_faults
from naksha.testing.catalog.suite_fence import FLIPPED, keys_of, left_behind, thing_ref, with_config
from naksha.testing.catalog.suite_realms import Thing, put_thing, realm_in
from naksha.testing.catalog.suite_support import OpenCatalog

REFUSED = Fault.REFUSED


@pytest.fixture
async def faults(open_catalog: OpenCatalog) -> FaultyCatalog:
    """The faulty connection between the node and the database; initially without faults."""
    return FaultyCatalog(await open_catalog(), lambda _: None)


@pytest.fixture
async def faulty_node(faults: FaultyCatalog) -> AsyncIterator[Catalog]:
    """A node whose calls fail as the test specifies."""
    opened = await Catalog.open(faults, tuning=Tuning(quarantine_seconds=0))
    yield opened
    faults.plan = lambda _: None
    await opened.close()


Write = Callable[[Persistence, Object[Thing]], Awaitable[object]]
WRITES: dict[str, Write] = {
    "insert": lambda p, _: p.insert(2, Thing("new")),
    "replace": lambda p, kept: p.replace(kept, Thing("new")),
    "delete_if": lambda p, kept: p.delete_if(kept),
    "create_pointer": lambda p, _: p.create_pointer("new"),
    "create_pointers": lambda p, _: p.ensure_pointers(["new"]),
}
"""The writes that no existing row can fence, by the name of the call."""
UNDO = {
    "insert": "delete_if",
    "replace": "replace",
    "delete_if": "insert",
    "create_pointer": "delete_pointer",
    "create_pointers": "delete_pointer",
}


class TestAfterTheWrite:
    """No error claims that nothing was written when something was."""

    @pytest.mark.parametrize("call", WRITES)
    async def test_it_is_in_doubt_when_the_realm_cannot_be_looked_at(
        self, faulty_node: Catalog, faults: FaultyCatalog, call: str
    ) -> None:
        realm = await with_config(faulty_node)
        persistence = (await faulty_node.realm(realm.id)).persistence
        kept = await persistence.insert(1, Thing("kept"))
        assert kept is not None
        faults.plan = scripted_faults(fetch_pointers=[REFUSED])
        with pytest.raises(OutcomeUnknown, match="before you repeat the write"):
            await WRITES[call](persistence, kept)

    @pytest.mark.parametrize("call", WRITES)
    async def test_it_is_in_doubt_when_it_cannot_be_taken_back(
        self, catalog: Catalog, faulty_node: Catalog, faults: FaultyCatalog, call: str
    ) -> None:
        realm = await with_config(catalog)
        stale = (await faulty_node.realm(realm.id)).persistence
        kept = await stale.insert(1, Thing("kept"))
        assert kept is not None
        await catalog.realms.update(realm, RealmStatus.INACTIVE)
        script: list[Fault | None] = [None, REFUSED] if UNDO[call] == call else [REFUSED]
        faults.plan = scripted_faults(**{UNDO[call]: script})
        with pytest.raises(OutcomeUnknown, match="could not be undone"):
            await WRITES[call](stale, kept)

    @pytest.mark.parametrize("call", WRITES)
    async def test_without_a_write_the_outcome_is_known(
        self, faulty_node: Catalog, faults: FaultyCatalog, call: str
    ) -> None:
        realm = await with_config(faulty_node)
        persistence = (await faulty_node.realm(realm.id)).persistence
        kept = await persistence.insert(1, Thing("kept"))
        assert kept is not None
        faults.plan = scripted_faults(**{call: [REFUSED]})
        with pytest.raises(Retryable, match="injected"):
            await WRITES[call](persistence, kept)

    @pytest.mark.parametrize("call", ["insert", "replace", "create_pointer", "create_pointers"])
    async def test_unacknowledged_writes_of_a_fenced_instance_are_undone(
        self, catalog: Catalog, faulty_node: Catalog, faults: FaultyCatalog, call: str
    ) -> None:
        realm = await with_config(catalog)
        stale = (await faulty_node.realm(realm.id)).persistence
        kept = await stale.insert(1, Thing("kept"))
        assert kept is not None
        inactive = await catalog.realms.update(realm, RealmStatus.INACTIVE)
        faults.plan = scripted_faults(**{call: [Fault.LOST_ANSWER]})
        with pytest.raises(OutcomeUnknown, match="injected"):
            await WRITES[call](stale, kept)
        rows = await catalog.backend.list_pointers(realm.id, "", "", 10)
        assert [row.name for row in rows] == ["config"]
        await catalog.realms.update(inactive, RealmStatus.ACTIVE)
        fresh = (await catalog.realm(realm.id)).persistence
        assert await fresh.fetch_many([thing_ref(1), thing_ref(2)], Thing) == [kept, None]

    async def test_the_rightful_holder_does_not_notice_what_was_taken_back(
        self, catalog: Catalog, other_node: Catalog
    ) -> None:
        realm = await with_config(catalog)
        stale = (await other_node.realm(realm.id)).persistence
        one, two = [await stale.insert(id, Thing("kept")) for id in (1, 2)]
        assert one is not None
        assert two is not None
        inactive = await catalog.realms.update(realm, RealmStatus.INACTIVE)
        await catalog.realms.update(inactive, RealmStatus.ACTIVE)
        fresh = (await catalog.realm(realm.id)).persistence
        read = await fresh.fetch_many([thing_ref(1), thing_ref(2)], Thing)
        with pytest.raises(RealmChanged):
            await stale.replace(one, Thing("never"))
        with pytest.raises(RealmChanged):
            await stale.delete_if(two)
        for each in read:
            assert each is not None
            assert await fresh.replace(each, Thing("mine")) is not None


class TestFenceInDoubt:
    """A committed change of state is completed, or reported as in doubt."""

    @pytest.mark.parametrize(
        "script",
        [
            {"list_pointers": [REFUSED] * 3},
            {"swap_pointer": [REFUSED, Fault.LOST_REQUEST]},
            {"swap_pointer": [Fault.LOST_ANSWER]},
        ],
    )
    async def test_the_fence_is_tried_again(
        self, faulty_node: Catalog, faults: FaultyCatalog, script: dict[str, Any]
    ) -> None:
        realm = await with_config(faulty_node)
        faults.plan = scripted_faults(**script)
        inactive = await faulty_node.realms.update(realm, RealmStatus.INACTIVE)
        assert faults.injected
        assert inactive == await faulty_node.realms.get(realm.id)
        assert inactive.is_fenced
        rows = await faults.list_pointers(realm.id, "", "", 10)
        assert [row.epoch for row in rows] == [inactive.epoch]

    async def test_a_leftover_is_removed_again_too(
        self, faulty_node: Catalog, faults: FaultyCatalog
    ) -> None:
        realm = await with_config(faulty_node)
        await left_behind(faulty_node, realm, "left")
        faults.plan = scripted_faults(delete_pointer=[REFUSED, Fault.LOST_ANSWER])
        await faulty_node.realms.update(realm, RealmStatus.INACTIVE)
        rows = await faults.list_pointers(realm.id, "", "", 10)
        assert [row.name for row in rows] == ["config"]

    async def test_an_unfinished_commit_is_in_doubt_and_the_next_one_continues(
        self,
        catalog: Catalog,
        faulty_node: Catalog,
        faults: FaultyCatalog,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        realm = await realm_in(catalog, RealmStatus.INITIALIZING)
        await (await catalog.realm_for_setup(realm)).ensure_pointers(["config"])
        monkeypatch.setattr(limits, "FENCE_SECONDS_MAX", 0.05)
        faults.plan = lambda name: Fault.LOST_REQUEST if name == "swap_pointer" else None
        with pytest.raises(OutcomeUnknown, match="is now ACTIVE, but"):
            await faulty_node.realms.update(realm, RealmStatus.ACTIVE)
        with pytest.raises(Retryable, match="could not all be marked"):
            await faulty_node.realm(realm.id)
        assert not (await catalog.realms.get(realm.id)).is_fenced
        await (await catalog.realm(realm.id)).entities("config").commit(put_thing("a"))
        assert await keys_of(catalog, realm) == {"a"}

    @pytest.mark.parametrize("seed", range(3))
    async def test_the_reported_outcome_of_a_change_is_true(
        self, catalog: Catalog, faulty_node: Catalog, faults: FaultyCatalog, seed: int
    ) -> None:
        realm = await with_config(catalog)
        faults.plan = random_faults(Random(seed), rate=0.1)
        for _ in range(25):
            wanted = FLIPPED[realm.status]
            try:
                said: Realm | None = await faulty_node.realms.update(realm, wanted)
            except Retryable:
                said = realm
            except OutcomeUnknown:
                said = None
            await faults.settled()
            found = await catalog.realms.get(realm.id)
            assert said in (None, found)
            realm = await catalog.realms.fence(found)
            (row,) = await catalog.backend.list_pointers(realm.id, "", "", 10)
            assert row.epoch == realm.epoch
        assert faults.injected
