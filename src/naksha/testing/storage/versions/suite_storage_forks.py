"""Conformance: a copied storage gets its own id and number, and accepts its former ones."""

from __future__ import annotations

from typing import Any, Protocol

import pytest

from naksha.model.collection import CollectionInfo
from naksha.model.errors import Conflict, NotFound, VersionNotFound
from naksha.model.identity.guid import Guid
from naksha.model.identity.uuids import Uuid
from naksha.model.state import State
from naksha.spi.storage import Storage
from naksha.testing.storage.branch_case import branch_of
from naksha.testing.storage.suite_support import APP, Handle, new_collection, point, with_xyz
from naksha.testing.storage.write.suite_namespace import uuid_form


class StorageForker(Protocol):
    """Copies the data of a storage, forks the copy, and closes it when the test ends."""

    async def __call__(self, source: Storage, id: str, *, number: int | None = None) -> Storage:
        """Return the open copy, with a new id."""


async def written(places: Handle, id: str, **properties: Any) -> State:
    """Write a feature without a lock and return its state."""
    await places.upsert(point(id, **properties))
    return await places.get(id)


def in_storage(storage: Storage, places: Handle) -> Handle:
    """Return the same collection in another storage."""
    return Handle(storage, places.name)


class TestForks:
    async def test_the_copy_has_a_new_identity_and_remembers_the_former(
        self, places: Handle, fork_storage: StorageForker
    ) -> None:
        state = await written(places, "x", n=1)
        source = places.storage
        copy = await fork_storage(source, "copy", number=4711)
        assert (copy.id, copy.number) == ("copy", 4711)
        (former,) = copy.identity.former
        assert (former.id, former.number) == (source.id, source.number)
        assert former.last_i[places.name] == Guid.parse(state.uuid).i
        assert source.identity.former == ()
        assert (await in_storage(copy, places).get("x")).raw == state.raw

    async def test_old_states_keep_their_ids_and_are_found_by_them(
        self, places: Handle, fork_storage: StorageForker
    ) -> None:
        old = await written(places, "x", n=1)
        old_uuid = await uuid_form(places.storage, old)
        copy = await fork_storage(places.storage, "copy")
        new = await written(in_storage(copy, places), "x", n=2)
        assert Guid.parse(new.uuid).storage_id == "copy"
        assert new.xyz["puuid"] == old.uuid
        for id in (new.uuid, await uuid_form(copy, new)):
            assert (await copy.state(id)).feature["properties"]["n"] == 2
        for id in (old.uuid, old_uuid):
            found = await copy.state(id)
            assert (found.uuid, found.feature["properties"]["n"]) == (old.uuid, 1)
        with pytest.raises(NotFound):  # the old state never had the new id
            await copy.state(old.uuid.replace(f"{places.storage.id}:", "copy:"))

    async def test_later_states_of_the_original_are_not_those_of_the_copy(
        self, places: Handle, fork_storage: StorageForker
    ) -> None:
        await written(places, "x", n=1)
        copy = await fork_storage(places.storage, "copy")
        there = in_storage(copy, places)
        theirs, ours = await written(places, "x", n=2), await written(there, "x", n=3)
        assert Guid.parse(theirs.uuid).i == Guid.parse(ours.uuid).i
        for id in (theirs.uuid, await uuid_form(places.storage, theirs)):
            with pytest.raises(NotFound):
                await copy.state(id)
            # A uuid of another storage is not a lock.
            (outcome,) = await there.update(with_xyz(point("x", n=id), uuid=id))
            assert outcome.action == "UPDATED"
        for id in (ours.uuid, await uuid_form(copy, ours)):
            with pytest.raises(NotFound):
                await places.storage.state(id)

    async def test_old_ids_lock_as_before(
        self, places: Handle, fork_storage: StorageForker
    ) -> None:
        first = await written(places, "x", n=1)
        old_head = await written(places, "x", n=2)
        stale = (first.uuid, await uuid_form(places.storage, first))
        heads = (old_head.uuid, await uuid_form(places.storage, old_head))
        copy = in_storage(await fork_storage(places.storage, "copy"), places)
        for lock in stale:
            with pytest.raises(Conflict) as caught:
                await copy.update(with_xyz(point("x", n=3), uuid=lock))
            assert caught.value.feature_id == "x"
        (outcome,) = await copy.update(with_xyz(point("x", n=3), uuid=heads[0]))
        assert outcome.action == "UPDATED"
        for lock in heads:  # HEAD has an id of the copy by now
            with pytest.raises(Conflict):
                await copy.update(with_xyz(point("x", n=4), uuid=lock))

    async def test_transactions_are_found_by_their_former_ids(
        self, places: Handle, fork_storage: StorageForker
    ) -> None:
        old, source = await written(places, "x", n=1), places.storage
        copy = await fork_storage(source, "copy")
        theirs = await written(places, "x", n=2)
        ours = await written(in_storage(copy, places), "x", n=3)
        for txn, number in ((old.txn, source.number), (ours.txn, copy.number)):
            assert (await copy.transaction(str(Uuid.of_txn(txn, number)))).txn == txn
        for txn, number in ((old.txn, copy.number), (theirs.txn, source.number)):
            with pytest.raises(VersionNotFound):
                await copy.transaction(str(Uuid.of_txn(txn, number)))

    async def test_a_fork_of_a_fork_knows_all_its_ids(
        self, places: Handle, fork_storage: StorageForker
    ) -> None:
        states = [await written(places, "x", n=0)]
        storages = [places.storage]
        for n in (1, 2):
            storages.append(await fork_storage(storages[-1], f"copy-{n}"))
            states.append(await written(in_storage(storages[-1], places), "x", n=n))
        last = storages[-1]
        assert last.identity.former_ids == [places.storage.id, "copy-1"]
        for storage, state in zip(storages, states, strict=True):
            for id in (state.uuid, await uuid_form(storage, state)):
                assert (await last.state(id)).uuid == state.uuid
        beyond = await written(in_storage(storages[1], places), "x", n=9)
        with pytest.raises(NotFound):
            await last.state(beyond.uuid)

    async def test_new_collections_of_both_are_distinguished(
        self, places: Handle, fork_storage: StorageForker
    ) -> None:
        copy = await fork_storage(places.storage, "copy")
        made = await new_collection(places.storage)
        theirs = await written(made, "x", n=1)
        ours = in_storage(copy, made)
        await copy.run(lambda s: s.create_collection(CollectionInfo(id=made.name)), APP)
        own = await written(ours, "x", n=2)
        for id in (theirs.uuid, await uuid_form(places.storage, theirs)):
            with pytest.raises(NotFound):
                await copy.state(id)
        assert (await copy.state(own.uuid)).feature["properties"]["n"] == 2

    async def test_states_of_branches_are_found_by_their_former_ids(
        self, places: Handle, fork_storage: StorageForker
    ) -> None:
        await written(places, "x", n=1)
        branch = await branch_of(places.storage)
        on_branch = await written(branch.on(places), "x", n=2)
        copy = await fork_storage(places.storage, "copy")
        assert (await copy.state(on_branch.uuid)).uuid == on_branch.uuid
