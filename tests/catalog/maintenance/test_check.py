"""The check of a store: detection of every kind of damage, and repair where possible."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import msgspec
import pytest

from naksha.catalog.commits import ANCHOR_STEPS
from naksha.catalog.entities import EntitiesCommit
from naksha.catalog.index import Stripe
from naksha.catalog.maintenance.pointer_walk import index_of
from naksha.catalog.maintenance.realm_reader import RealmReader
from naksha.catalog.maintenance.store_check import repair_head, repair_log
from naksha.catalog.maintenance.verification import Consistency, FindingKind, PointerCheck
from naksha.catalog.objects import ObjectRef, encode
from naksha.catalog.realms import RealmStatus
from naksha.catalog.system_objects import SYSTEM_REALM
from naksha.model import limits
from naksha.model.errors import Conflict, PointerNotFound, StorageCorrupt, Unavailable
from naksha.spi.catalog import ObjectKey, ObjectRow
from tests.catalog.maintenance.support import GRACE, SHORT, Store, Thing

BIG = "x" * (2 * limits.CATALOG_ROW_BYTES_MAX + 1)


@pytest.fixture
async def filled(store: Store) -> Store:
    """A realm with a log of 30 commits, an index in stripes, and a big entity."""
    random = Random(5)
    await store.realm()
    keys = [random.randbytes(150).hex() for _ in range(300)]
    await store.put({**dict.fromkeys(keys, "0"), "big": BIG})
    for number in range(29):
        await store.put({"a": str(number)})
    await store.put({"b": "other"}, pointer="other")
    return store


async def checked(store: Store, pointer: str = "config") -> PointerCheck:
    [realm] = await store.check()
    [check] = [check for check in realm.pointers if check.pointer == pointer]
    others = {each.consistency for each in realm.pointers if each.pointer != pointer}
    assert others <= {Consistency.CONSISTENT}
    assert realm.consistency is check.consistency
    return check


async def row_of(store: Store, id: int, part: int = 0) -> ObjectRow:
    key = ObjectKey(id, part)
    return (await store.backend.fetch("maps", [key]))[key]


async def rewrite(store: Store, row: ObjectRow, value: bytes) -> None:
    await store.backend.write("maps", [msgspec.structs.replace(row, value=value)])


async def delete(store: Store, id: int, part: int = 0) -> None:
    await store.backend.delete("maps", [ObjectKey(id, part)])


async def recommit(
    store: Store, seq: int, change: Callable[[EntitiesCommit], EntitiesCommit]
) -> None:
    """Put another commit in the place of one, as no program would."""
    [commit] = [commit for commit in await store.log() if commit.value.seq == seq]
    await rewrite(store, await row_of(store, commit.id), encode(change(commit.value)))


async def entity(store: Store, key: str) -> ObjectRef:
    snapshot = await (await store.catalog.realm("maps")).entities("config").now()
    ref = await snapshot.ref(key)
    assert ref is not None
    return ref


def only(check: PointerCheck, problem: FindingKind, seq: int) -> bool:
    return {(finding.problem, finding.seq) for finding in check.findings} == {(problem, seq)}


class TestCheck:
    async def test_a_whole_store_is_consistent(self, filled: Store) -> None:
        for realm in await filled.check("maps", SYSTEM_REALM):
            assert realm.consistency is Consistency.CONSISTENT
            assert realm.orphans == 0
        check = await checked(filled)
        assert (check.seq, check.oldest, check.findings) == (30, 1, [])

    async def test_the_service_checks_all_realms_that_serve(self, filled: Store) -> None:
        await filled.realm("making", RealmStatus.INITIALIZING)
        await filled.realm("empty")
        checks = await (await filled.maintenance()).check()
        assert {check.realm for check in checks} == {SYSTEM_REALM, "maps", "empty"}
        assert {check.consistency for check in checks} == {Consistency.CONSISTENT}

    async def test_a_log_that_was_cut_is_consistent(self, filled: Store) -> None:
        filled.time.passes(GRACE + 1)
        await (await filled.maintenance(rules=[SHORT])).run()
        check = await checked(filled)
        assert (check.oldest, check.consistency) == (30, Consistency.CONSISTENT)

    async def test_a_long_log_has_its_anchors(self, store: Store) -> None:
        await store.realm()
        for number in range(ANCHOR_STEPS[0] + 30):
            await store.put({"a": str(number)})
        check = await checked(store)
        assert (check.oldest, check.consistency) == (1, Consistency.CONSISTENT)
        await recommit(
            store,
            ANCHOR_STEPS[0] + 10,
            lambda commit: msgspec.structs.replace(commit, anchors=(1,)),
        )
        check = await checked(store)
        assert FindingKind.LOG_WRONG in {finding.problem for finding in check.findings}
        assert check.consistency is Consistency.COMMIT_MISSING

    async def test_orphans_are_counted_once_they_are_old(self, filled: Store) -> None:
        await filled.write(7)
        await filled.write(1, text=BIG)
        persistence = await filled.persistence()
        await persistence.insert(persistence.new_id(), Thing("conditional"))
        [check] = await filled.check()
        assert check.orphans == 0
        filled.time.passes(limits.MAINTENANCE_GRACE_SECONDS_MIN + 1)
        await filled.write(1)
        [check] = await filled.check()
        assert check.orphans == 7 + 3
        assert check.consistency is Consistency.CONSISTENT

    async def test_a_database_that_is_away_is_not_a_damage(self, filled: Store) -> None:
        await filled.backend.close()
        with pytest.raises(Unavailable):
            await filled.check()


class TestDamage:
    async def test_a_head_that_is_missing(self, filled: Store) -> None:
        await delete(filled, (await filled.head()).id)
        check = await checked(filled)
        assert only(check, FindingKind.HEAD_MISSING, 0)
        assert check.consistency is Consistency.COMMIT_MISSING

    async def test_a_head_that_cannot_be_read(self, filled: Store) -> None:
        row = await row_of(filled, (await filled.head()).id)
        await rewrite(filled, row, row.value[:-10])
        assert only(await checked(filled), FindingKind.HEAD_UNREADABLE, 0)

    async def test_a_head_of_another_type(self, filled: Store) -> None:
        row = await row_of(filled, (await filled.head()).id)
        await filled.backend.write("maps", [msgspec.structs.replace(row, type="realm")])
        assert only(await checked(filled), FindingKind.HEAD_UNREADABLE, 0)

    @pytest.mark.parametrize("changes", [{"target": b"\xff\x00"}, {"previous": b"\x01\x02\x03"}])
    async def test_a_pointer_that_cannot_be_read(
        self, filled: Store, changes: dict[str, bytes]
    ) -> None:
        row = (await filled.backend.fetch_pointers("maps", ["config"]))["config"]
        assert await filled.backend.delete_pointer("maps", row)
        broken = msgspec.structs.replace(row, **changes)
        assert await filled.backend.create_pointer("maps", broken)
        assert only(await checked(filled), FindingKind.POINTER_UNREADABLE, 0)

    @pytest.mark.parametrize("seq", [29, 15, 10, 9, 1])
    async def test_a_commit_that_is_missing(self, filled: Store, seq: int) -> None:
        [commit] = [each for each in await filled.log() if each.value.seq == seq]
        await delete(filled, commit.id)
        check = await checked(filled)
        assert only(check, FindingKind.COMMIT_MISSING, seq)
        assert check.oldest == seq + 1

    async def test_a_commit_that_cannot_be_read(self, filled: Store) -> None:
        [commit] = [each for each in await filled.log() if each.value.seq == 15]
        await rewrite(filled, await row_of(filled, commit.id), b"\xc1")
        check = await checked(filled)
        assert {finding.problem for finding in check.findings} == {FindingKind.COMMIT_UNREADABLE}
        assert check.consistency is Consistency.COMMIT_MISSING

    @pytest.mark.parametrize("changes", [{"seq": 99}, {"at_us": 5}, {"anchors": (7,)}])
    async def test_a_commit_that_does_not_fit(
        self, filled: Store, changes: dict[str, object]
    ) -> None:
        await recommit(filled, 30, lambda commit: msgspec.structs.replace(commit, **changes))
        check = await checked(filled)
        assert FindingKind.LOG_WRONG in {finding.problem for finding in check.findings}
        assert check.consistency is Consistency.COMMIT_MISSING

    async def test_a_commit_whose_tail_is_too_short(self, filled: Store) -> None:
        await recommit(
            filled, 30, lambda commit: msgspec.structs.replace(commit, tail=commit.tail[:3])
        )
        assert only(await checked(filled), FindingKind.LOG_WRONG, 30)

    async def test_an_entity_that_is_missing(self, filled: Store) -> None:
        await delete(filled, (await entity(filled, "a")).id)
        check = await checked(filled)
        assert only(check, FindingKind.OBJECT_MISSING, 30)
        assert check.consistency is Consistency.CONTENT_MISSING

    async def test_an_entity_of_an_older_commit_that_is_missing(self, filled: Store) -> None:
        [commit] = [each for each in await filled.log() if each.value.seq == 12]
        ref = ObjectRef.from_bytes(commit.value.changes[0].ref)
        assert ref is not None
        await delete(filled, ref.id)
        assert only(await checked(filled), FindingKind.OBJECT_MISSING, 13)

    @pytest.mark.parametrize("part", [1, 2])
    async def test_a_part_of_a_big_object_that_is_missing(self, filled: Store, part: int) -> None:
        await delete(filled, (await entity(filled, "big")).id, part)
        assert only(await checked(filled), FindingKind.OBJECT_UNREADABLE, 30)

    async def test_an_entity_of_another_type(self, filled: Store) -> None:
        ref = await entity(filled, "a")
        row = await row_of(filled, ref.id)
        await filled.backend.write("maps", [msgspec.structs.replace(row, type="realm")])
        assert only(await checked(filled), FindingKind.OBJECT_UNREADABLE, 30)

    async def test_a_stripe_that_is_missing(self, filled: Store) -> None:
        stripes = await filled.ids(kind="ix")
        assert stripes
        await delete(filled, min(stripes))
        assert FindingKind.INDEX_DAMAGED in {
            finding.problem for finding in (await checked(filled)).findings
        }

    @pytest.mark.parametrize("place", [0, 3, 60, 5_000, -1])
    async def test_a_stripe_with_a_wrong_byte(self, filled: Store, place: int) -> None:
        row = await row_of(filled, min(await filled.ids(kind="ix")))
        page = bytearray(msgspec.msgpack.decode(row.value, type=Stripe).page)
        page[place] ^= 1
        await rewrite(filled, row, encode(Stripe(bytes(page))))
        check = await checked(filled)
        assert FindingKind.INDEX_DAMAGED in {finding.problem for finding in check.findings}
        assert check.consistency is Consistency.CONTENT_MISSING

    @pytest.mark.parametrize("is_missing", [True, False])
    async def test_a_stripe_that_only_older_commits_have(
        self, filled: Store, is_missing: bool
    ) -> None:
        old = await filled.ids(kind="ix")
        keys = list(await filled.texts())
        await filled.put(dict.fromkeys(keys[:200], "1"))
        index = index_of((await filled.head()).value, RealmReader(filled.backend, "maps"))
        stripe = min(old - {ref.id async for ref in index.stripe_refs()})
        if is_missing:
            await delete(filled, stripe)
        else:
            row = await row_of(filled, stripe)
            page = bytearray(msgspec.msgpack.decode(row.value, type=Stripe).page)
            page[-1] ^= 1
            await rewrite(filled, row, encode(Stripe(bytes(page))))
        assert only(await checked(filled), FindingKind.INDEX_DAMAGED, 30)

    async def test_an_embedded_index_with_a_wrong_byte(self, filled: Store) -> None:
        def damaged(commit: EntitiesCommit) -> EntitiesCommit:
            embedded = bytearray(commit.index.embedded)
            embedded[-1] ^= 1
            index = msgspec.structs.replace(commit.index, embedded=bytes(embedded))
            return msgspec.structs.replace(commit, index=index)

        await recommit(filled, 20, damaged)
        assert only(await checked(filled), FindingKind.INDEX_DAMAGED, 20)

    async def test_many_findings_are_counted(self, store: Store) -> None:
        await store.realm()
        await store.put({str(number): "x" for number in range(limits.MAINTENANCE_NOTES_MAX + 11)})
        for id in await store.ids(kind="maintained-thing"):
            await delete(store, id)
        check = await checked(store)
        assert (len(check.findings), check.more) == (limits.MAINTENANCE_NOTES_MAX, 11)


class TestRepair:
    async def test_a_head_is_reset_to_the_newest_intact_state(self, filled: Store) -> None:
        states = [await filled.texts_of(commit) for commit in await filled.log()]
        before = await (await filled.persistence()).pointer_now("config")
        log = await filled.log()
        await delete(filled, log[0].id)
        changed = ObjectRef.from_bytes(log[1].value.changes[0].ref)
        assert changed is not None
        await delete(filled, changed.id)
        reader = RealmReader(filled.backend, "maps")
        repaired = await repair_head(reader, "config")
        assert repaired.target == ObjectRef("entities", log[2].id)
        assert repaired.previous == before.previous[2:]
        assert await filled.texts() == states[2]
        assert await filled.is_consistent()
        filled.catalog.cache.evict_realm("maps")
        await filled.put({"a": "again"})
        assert (await filled.head()).value.seq == 29
        assert await filled.is_consistent()

    async def test_an_intact_pointer_is_not_repaired(self, filled: Store) -> None:
        reader = RealmReader(filled.backend, "maps")
        with pytest.raises(Conflict, match="not damaged"):
            await repair_head(reader, "config")
        with pytest.raises(PointerNotFound):
            await repair_head(reader, "none")
        with pytest.raises(Conflict, match="No commit"):
            await repair_log(await filled.persistence(), "config")

    async def test_a_pointer_without_an_intact_state_cannot_be_repaired(
        self, filled: Store
    ) -> None:
        await delete(filled, (await filled.head(pointer="other")).id)
        with pytest.raises(StorageCorrupt, match="none of its previous targets is intact"):
            await repair_head(RealmReader(filled.backend, "maps"), "other")

    async def test_a_log_may_begin_behind_a_gap(self, filled: Store) -> None:
        [commit] = [each for each in await filled.log() if each.value.seq == 12]
        await delete(filled, commit.id)
        assert (await checked(filled)).consistency is Consistency.COMMIT_MISSING
        horizon = await repair_log(await filled.persistence(), "config")
        assert horizon.seq == 13
        check = await checked(filled)
        assert (check.oldest, check.consistency) == (13, Consistency.CONSISTENT)
        filled.time.passes(GRACE + 1)
        run = await (await filled.maintenance()).run()
        assert run.purged > 11
        assert await filled.is_consistent()
