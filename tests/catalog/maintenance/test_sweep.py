"""Mark and sweep: unreferenced objects are deleted, all others stay."""

from __future__ import annotations

from collections.abc import AsyncIterator
from random import Random

import msgspec
import pytest

from naksha.catalog.maintenance import (
    MaintenanceSettings,
    RealmIdentifier,
    RealmOutcome,
    Retention,
    RetentionRule,
)
from naksha.catalog.maintenance.realm_reader import RealmReader
from naksha.catalog.maintenance.sweep import Pace
from naksha.catalog.objects import Object, ObjectRef, UnknownValue, object_type
from naksha.catalog.pointers import Pointer
from naksha.catalog.realms import RealmStatus
from naksha.catalog.system_objects import SYSTEM_REALM
from naksha.model import limits
from naksha.spi.catalog import ObjectKey, ObjectRow, PointerRow
from tests.catalog.maintenance.support import GRACE, SHORT, Store, Thing

BIG = "x" * (2 * limits.CATALOG_ROW_BYTES_MAX + 1)
"""Three rows."""


@object_type("maintained-list")
class Listing(msgspec.Struct, frozen=True):
    """Something that refers to other things."""

    refs: tuple[bytes, ...] = ()


class ListingIdentifier:
    """Knows to what a listing refers."""

    type = "maintained-list"

    async def references(
        self, kept: Object[Listing], reader: RealmReader
    ) -> AsyncIterator[ObjectRef]:
        for data in kept.value.refs:
            ref = ObjectRef.from_bytes(data)
            assert ref is not None
            yield ref


class Claiming(RealmIdentifier):
    """Claims realms by their names, and has opinions."""

    def __init__(
        self,
        *realms: str,
        roots: list[ObjectRef] | None = None,
        drops: str = "",
        conditional: bool | None = None,
    ) -> None:
        self._realms = realms
        self._roots = roots or []
        self._drops = drops
        self._conditional = conditional

    def claims(self, realm: str) -> bool:
        return realm in self._realms

    def keeps_pointer(self, realm: str, pointer: Pointer) -> bool | None:
        return False if pointer.name == self._drops else None

    def keeps_conditional(self, realm: str, kind: str) -> bool | None:
        return self._conditional

    def retention(self, realm: str, pointer: str) -> Retention | None:
        return SHORT.retention

    async def roots(self, reader: RealmReader) -> AsyncIterator[ObjectRef]:
        for ref in self._roots:
            yield ref


class TestWhatIsSwept:
    async def test_a_new_catalog_has_nothing_to_sweep(self, store: Store) -> None:
        before = await store.ids(SYSTEM_REALM)
        store.time.passes(GRACE + 1)
        run = await (await store.maintenance(rules=[SHORT])).run()
        assert run.purged == 0
        assert before <= await store.ids(SYSTEM_REALM)

    async def test_orphans_go_and_what_pointers_lead_to_stays(self, store: Store) -> None:
        await store.realm()
        await store.put({"a": "1", "b": "2"})
        await store.put({"a": "3", "b": None})
        needed = await store.ids()
        orphans = {thing.id for thing in await store.write(250)}
        store.time.passes(GRACE + 1)
        maintenance = await store.maintenance()
        run = await maintenance.run()
        assert await store.ids() == needed
        assert run.purged == len(orphans)
        assert await store.texts() == {"a": "3"}
        counts = (await maintenance.runs.report(run.id)).realms["maps"].types["maintained-thing"]
        assert (counts.scanned, counts.retained, counts.purged) == (253, 3, 250)
        assert await store.is_consistent("maps", SYSTEM_REALM)

    async def test_recent_objects_are_retained(self, store: Store) -> None:
        await store.realm()
        old = {thing.id for thing in await store.write()}
        store.time.passes(GRACE - 60)
        new = {thing.id for thing in await store.write()}
        store.time.passes(120)
        maintenance = await store.maintenance()
        run = await maintenance.run()
        assert await store.ids() == new
        counts = (await maintenance.runs.report(run.id)).realms["maps"].types["maintained-thing"]
        assert (counts.newer, counts.purged) == (1, 1)
        assert old.isdisjoint(await store.ids())

    async def test_the_grace_has_a_floor(self, store: Store) -> None:
        await store.realm()
        await store.write()
        store.time.passes(limits.COMMIT_SECONDS_MAX * 10)
        maintenance = await store.maintenance(settings=MaintenanceSettings(grace_seconds=0))
        assert (await maintenance.run()).purged == 0
        store.time.passes(limits.MAINTENANCE_GRACE_SECONDS_MIN)
        assert (await maintenance.run()).purged == 1

    async def test_each_part_of_a_big_object_goes(self, store: Store) -> None:
        await store.realm()
        await store.put({"big": BIG})
        needed = await store.rows()
        await store.write(40, text=BIG)
        assert len(await store.rows()) == len(needed) + 40 * 3
        store.time.passes(GRACE + 1)
        run = await (await store.maintenance()).run()
        assert run.purged == 40 * 3
        assert sorted(await store.rows(), key=str) == sorted(needed, key=str)
        assert await store.texts() == {"big": BIG}

    async def test_conditional_objects_stay_unless_an_identifier_releases_them(
        self, store: Store
    ) -> None:
        await store.realm()
        persistence = await store.persistence()
        held = await persistence.insert(persistence.new_id(), Thing("lock"))
        assert held is not None
        store.time.passes(GRACE + 1)
        await (await store.maintenance(Claiming("maps"))).run()
        assert await store.ids() == {held.id}
        await (await store.maintenance(Claiming("maps", conditional=False))).run()
        assert await store.ids() == set()

    async def test_unknown_types_stay(self, store: Store) -> None:
        await store.realm()
        persistence = await store.persistence()
        strange = Object(persistence.new_id(), UnknownValue("of-the-future", b"\x01"))
        await persistence.write([strange])
        await store.write()
        store.time.passes(GRACE + 1)
        await (await store.maintenance()).run()
        assert await store.ids() == {strange.id}

    async def test_objects_that_an_unknown_object_may_reference_are_retained(
        self, store: Store
    ) -> None:
        await store.realm()
        persistence = await store.persistence()
        [thing] = await store.write()
        raw = msgspec.msgpack.encode({"refs": [thing.ref.to_bytes()]})
        strange = Object(persistence.new_id(), UnknownValue("of-the-future", raw))
        await persistence.write([strange])
        await persistence.create_pointer("strange", strange.ref)
        store.time.passes(GRACE + 1)
        maintenance = await store.maintenance()
        run = await maintenance.run()
        assert await store.ids() == {thing.id, strange.id}
        report = (await maintenance.runs.report(run.id)).realms["maps"]
        assert report.outcome is RealmOutcome.NOT_UNDERSTOOD
        assert "of-the-future" in report.note

    async def test_objects_written_again_since_the_scan_stay(self, store: Store) -> None:
        """A writer that reuses an object writes it again, before the sweep deletes it."""
        await store.realm()
        [reused, _] = await store.write(2)
        store.time.passes(GRACE + 1)

        async def reuse(rows: object) -> None:
            await (await store.persistence()).write([reused])

        store.between.before_delete = reuse
        await (await store.maintenance()).run()
        assert await store.ids() == {reused.id}


class TestWhichRealmsAreSwept:
    async def test_an_unclaimed_realm_is_left_alone(self, store: Store) -> None:
        await store.realm("mine")
        await store.realm("yours")
        await store.write(3, "mine")
        await store.write(3, "yours")
        store.time.passes(GRACE + 1)
        maintenance = await store.maintenance(Claiming("mine"))
        run = await maintenance.run()
        assert len(await store.ids("mine")) == 0
        assert len(await store.ids("yours")) == 3
        report = (await maintenance.runs.report(run.id)).realms["yours"]
        assert report.outcome is RealmOutcome.UNCLAIMED
        assert report.types["maintained-thing"].retained == 3

    async def test_an_unlisted_object_is_left_alone(self, store: Store) -> None:
        await store.backend.write("lost", [ObjectRow(1, 0, 1, "maintained-thing", b"\x90", 1)])
        maintenance = await store.maintenance()
        run = await maintenance.run()
        assert await store.ids("lost") == {1}
        report = (await maintenance.runs.report(run.id)).realms["lost"]
        assert report.outcome is RealmOutcome.UNLISTED

    @pytest.mark.parametrize(
        "status", [RealmStatus.CREATED, RealmStatus.LOADING, RealmStatus.INITIALIZING]
    )
    async def test_an_unfinished_realm_is_left_alone(
        self, store: Store, status: RealmStatus
    ) -> None:
        await store.realm("maps", status)
        await store.backend.write("maps", [ObjectRow(1, 0, 1, "maintained-thing", b"\x90", 1)])
        maintenance = await store.maintenance()
        run = await maintenance.run()
        assert await store.ids() == {1}
        report = (await maintenance.runs.report(run.id)).realms["maps"]
        assert report.outcome is RealmOutcome.IN_THE_MAKING

    async def test_an_inactive_one_is_swept(self, store: Store) -> None:
        realm = await store.realm()
        for number in range(5):
            await store.put({"a": str(number)})
        await store.catalog.realms.update(realm, RealmStatus.INACTIVE)
        store.time.passes(GRACE + 1)
        await (await store.maintenance(rules=[SHORT])).run()
        assert len(await store.log()) == 1
        assert await store.texts() == {"a": "4"}

    @pytest.mark.parametrize("age", [0, 1, 5])
    async def test_a_damaged_object_is_left_alone(self, store: Store, age: int) -> None:
        await store.realm("bad")
        await store.realm("good")
        for realm in ("bad", "good"):
            for number in range(7):
                await store.put({"a": str(number)}, realm)
            await store.write(1, realm)
        lost = (await store.log("bad"))[age]
        await store.backend.delete("bad", [ObjectKey(lost.id)])
        left = await store.ids("bad")
        store.time.passes(GRACE + 1)
        maintenance = await store.maintenance()
        run = await maintenance.run()
        assert await store.ids("bad") == left
        assert len(await store.ids("good")) == 2 * 7
        report = (await maintenance.runs.report(run.id)).realms["bad"]
        assert report.outcome is RealmOutcome.DAMAGED
        assert f"{lost.id if age == 0 else lost.value.seq}" in report.note

    async def test_a_realm_with_an_unreadable_pointer_is_left_alone(self, store: Store) -> None:
        await store.realm()
        await store.write(2)
        broken = PointerRow("broken", b"", 7, 0, previous=b"\x01\x02")
        assert await store.backend.create_pointer("maps", broken)
        store.time.passes(GRACE + 1)
        maintenance = await store.maintenance()
        run = await maintenance.run()
        assert len(await store.ids()) == 2
        report = (await maintenance.runs.report(run.id)).realms["maps"]
        assert report.outcome is RealmOutcome.DAMAGED
        assert "broken" in report.note

    async def test_a_realm_with_a_foreign_history_is_left_alone(self, store: Store) -> None:
        await store.realm()
        [thing, _] = await store.write(2)
        await (await store.persistence()).create_pointer("history", thing.ref)
        store.time.passes(GRACE + 1)
        maintenance = await store.maintenance()
        run = await maintenance.run()
        assert len(await store.ids()) == 2
        report = (await maintenance.runs.report(run.id)).realms["maps"]
        assert report.outcome is RealmOutcome.DAMAGED
        assert "history" in report.note


class TestIdentifiers:
    async def test_roots_are_retained(self, store: Store) -> None:
        await store.realm()
        [root, _] = await store.write(2)
        store.time.passes(GRACE + 1)
        await (await store.maintenance(Claiming("maps", roots=[root.ref]))).run()
        assert await store.ids() == {root.id}

    async def test_references_inside_of_objects_are_followed(self, store: Store) -> None:
        await store.realm()
        persistence = await store.persistence()
        [leaf, other, _] = await store.write(3)
        # Two that refer to each other must not keep the marking going for ever.
        ids = [persistence.new_id(), persistence.new_id()]
        refs = [ObjectRef("maintained-list", id).to_bytes() for id in ids]
        inner = Object(ids[0], Listing((leaf.ref.to_bytes(), refs[1])))
        outer = Object(ids[1], Listing((refs[0], other.ref.to_bytes())))
        await persistence.write([inner, outer])
        await persistence.create_pointer("list", outer.ref)
        store.time.passes(GRACE + 1)
        await (await store.maintenance(types=[ListingIdentifier()])).run()
        assert await store.ids() == {leaf.id, other.id, *ids}

    async def test_a_dropped_pointer_is_removed_with_all_its_objects(self, store: Store) -> None:
        await store.realm()
        await store.put({"a": "1"}, pointer="draft")
        await store.put({"a": "1"}, pointer="config")
        store.time.passes(GRACE + 1)
        maintenance = await store.maintenance(Claiming("maps", drops="draft"))
        run = await maintenance.run()
        assert await store.texts() == {"a": "1"}
        assert await store.backend.fetch_pointers("maps", ["draft"]) == {}
        assert len(await store.ids()) == 2
        assert (await maintenance.runs.report(run.id)).realms["maps"].pointers.purged == 1

    async def test_a_pointer_that_moved_lately_stays(self, store: Store) -> None:
        await store.realm()
        store.time.passes(GRACE + 1)
        await store.put({"a": "1"}, pointer="draft")
        await (await store.maintenance(Claiming("maps", drops="draft"))).run()
        assert await store.texts(pointer="draft") == {"a": "1"}

    async def test_an_object_needed_by_one_pointer_is_not_dropped_by_another(
        self, store: Store
    ) -> None:
        class Keeping(Claiming):
            def keeps_pointer(self, realm: str, pointer: Pointer) -> bool | None:
                return True

        await store.realm()
        await store.put({"a": "1"}, pointer="draft")
        store.time.passes(GRACE + 1)
        await (await store.maintenance(Claiming("maps", drops="draft"), Keeping("maps"))).run()
        assert await store.texts(pointer="draft") == {"a": "1"}


class TestRetainedHistory:
    @pytest.mark.parametrize(
        ("retention", "kept"),
        [
            (Retention(commits=1, seconds=0), 1),
            (Retention(commits=7, seconds=0), 7),
            (Retention(commits=30, seconds=0), 12),
            # A commit counts as old from when it was no longer the newest.
            (Retention(commits=1, seconds=GRACE + 5_000), 6),
            (Retention(commits=3, seconds=GRACE + 5_000), 6),
        ],
    )
    async def test_as_much_is_kept_as_the_rule_says(
        self, store: Store, retention: Retention, kept: int
    ) -> None:
        await store.realm()
        for number in range(12):
            store.time.passes(1_000)
            await store.put({"a": str(number), str(number): "x", str(number - 3): None})
        states = [await store.texts_of(commit) for commit in await store.log()]
        store.time.passes(GRACE + 1)
        rules = [RetentionRule("con*", retention), SHORT]
        await (await store.maintenance(rules=rules)).run()
        commits = await store.log()
        assert [commit.value.seq for commit in commits] == list(range(12, 12 - kept, -1))
        assert [await store.texts_of(commit) for commit in commits] == states[:kept]
        assert await store.is_consistent()
        [check] = await store.check()
        assert check.orphans == 0

    async def test_the_default_is_generous(self, store: Store) -> None:
        await store.realm()
        for number in range(5):
            store.time.passes(365 * 24 * 3600)
            await store.put({"a": str(number)})
        store.time.passes(365 * 24 * 3600)
        assert (await (await store.maintenance()).run()).purged == 0
        assert len(await store.log()) == 5

    async def test_the_newest_commit_within_the_grace_period_is_kept(self, store: Store) -> None:
        """Another client may have read the pointer while the commit was the newest."""
        await store.realm()
        await store.put({"a": "1"})
        store.time.passes(10 * GRACE)
        await store.put({"a": "2"})
        await store.put({"a": "3"})
        await (await store.maintenance(rules=[SHORT])).run()
        assert [await store.texts_of(commit) for commit in await store.log()] == [
            {"a": "3"},
            {"a": "2"},
            {"a": "1"},
        ]

    @pytest.mark.parametrize("seed", range(3))
    async def test_every_state_that_is_kept_is_whole(self, store: Store, seed: int) -> None:
        """Older commits are marked by what was changed, which is as good as walking each."""
        random = Random(seed)
        await store.realm()
        keys = [random.randbytes(110).hex() for _ in range(400)]
        await store.put(dict.fromkeys(keys, "0"))
        for number in range(1, 30):
            some = random.sample(keys, random.choice([1, 5, 60]))
            await store.put({key: random.choice([None, str(number)]) for key in some})
        states = [await store.texts_of(commit) for commit in await store.log()]
        store.time.passes(GRACE + 1)
        rule = RetentionRule("*", Retention(commits=20, seconds=0))
        run = await (await store.maintenance(rules=[rule])).run()
        assert run.purged > 0
        assert [await store.texts_of(commit) for commit in await store.log()] == states[:20]
        [check] = await store.check()
        assert (check.consistency, check.orphans) == ("CONSISTENT", 0)

    async def test_a_long_log_of_a_large_index_is_walked_once(self, store: Store) -> None:
        random = Random(1)
        await store.realm()
        keys = [random.randbytes(240).hex() for _ in range(800)]
        await store.put(dict.fromkeys(keys, "0"))
        for number in range(40):
            await store.put({f"new/{number}": "x"})
        stripes = len(await store.ids(kind="ix"))
        assert stripes >= 3
        store.time.passes(GRACE + 1)
        maintenance = await store.maintenance()
        store.between.fetched = 0
        await maintenance.run()
        # The commits, the stripes once for their list and once for their entries, and what the
        # record of the run takes; not the stripes of each commit.
        assert store.between.fetched < 41 + 3 * stripes + 60

    async def test_many_stripes_are_listed_in_segments_that_are_kept(self, store: Store) -> None:
        random = Random(1)
        await store.realm()
        keys = [random.randbytes(249).hex() for _ in range(7_000)]
        for begin in range(0, len(keys), 3_500):
            await store.put(dict.fromkeys(keys[begin : begin + 3_500], "0"))
        assert len(await store.ids(kind="ixs")) > 0
        await store.put({keys[0]: "1"})
        before = await store.texts()
        store.time.passes(GRACE + 1)
        await (await store.maintenance(rules=[SHORT])).run()
        assert await store.texts() == before
        [check] = await store.check()
        assert (check.consistency, check.orphans) == ("CONSISTENT", 0)


class TestWhileOthersWrite:
    async def test_commits_during_the_sweep_lose_nothing(self, store: Store) -> None:
        await store.realm()
        for number in range(50):
            await store.put({f"k{number % 7}": str(number)})
        await store.write(1_500)
        store.time.passes(GRACE + 1)
        expected = await store.texts()
        pages = 0

        async def commit() -> None:
            nonlocal pages
            pages += 1
            if pages > 30:
                return  # else the scan would never come to an end of what is new
            changes: dict[str, str | None] = {f"k{pages % 7}": f"page {pages}", f"p{pages}": "x"}
            await store.put(changes)
            expected.update((key, text) for key, text in changes.items() if text is not None)

        async def commit_before_delete(rows: object) -> None:
            await commit()

        store.between.before_page = commit
        store.between.before_delete = commit_before_delete
        run = await (await store.maintenance(rules=[SHORT])).run()
        assert run.purged > 1_500
        assert pages > 3
        assert await store.texts() == expected
        assert await store.is_consistent("maps", SYSTEM_REALM)

    async def test_objects_of_a_running_commit_are_retained(self, store: Store) -> None:
        """Written before the run begins, pointed to while it sweeps."""
        await store.realm()
        store.time.passes(GRACE + 1)
        persistence = await store.persistence()
        await persistence.ensure_pointers(["main"])
        [thing] = await store.write()
        store.time.passes(limits.COMMIT_SECONDS_MAX)

        async def move() -> None:
            store.between.before_page = None
            pointer = await persistence.pointer_now("main")
            assert await persistence.move_pointer(pointer, thing.ref) is not None

        store.between.before_page = move
        settings = MaintenanceSettings(grace_seconds=0)
        await (await store.maintenance(settings=settings)).run()
        assert await store.ids() == {thing.id}
        assert await store.is_consistent()


class TestPace:
    async def test_it_is_kept_on_average(self) -> None:
        now = 0.0

        async def sleep(seconds: float) -> None:
            nonlocal now
            now += seconds

        pace = Pace(100, monotonic=lambda: now, sleep=sleep)
        for count in (50, 1, 200, 49, 100):
            await pace.take(count)
        assert now == pytest.approx(3.0)
        now += 100
        await pace.take(1_000)
        assert now == pytest.approx(103.0)
        await pace.take(1)
        assert now == pytest.approx(113.0)

    async def test_a_sweep_keeps_it(self, store: Store) -> None:
        await store.realm()
        await store.write(300)
        store.time.passes(GRACE + 1)
        settings = MaintenanceSettings(delete_rows_per_second=1_000)
        began = store.time.clock.now_us()
        await (await store.maintenance(settings=settings)).run()
        assert store.time.clock.now_us() - began >= 200_000
        assert await store.ids() == set()
