"""Conformance: history that is off, expired or pinned, and a truncated log."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime

import pytest

from naksha.model.collection import CollectionChange
from naksha.model.errors import CollectionNotFound, Expired, InvalidArgument, VersionNotFound
from naksha.model.limits import INT8_MAX
from naksha.model.query import Query, States
from naksha.model.version import AtSeq, AtTime, AtTxn, Version
from naksha.spi.maintenance import RoundMemory, StorageRound
from naksha.spi.storage import Storage
from naksha.testing.storage.suite_support import (
    APP,
    DAY_MS,
    Handle,
    MovableClock,
    StorageMaker,
    content,
    ids_of,
    new_collection,
    point,
    published,
    seq,
)
from naksha.testing.storage.versions.suite_versions import snapshot


def every_read(handle: Handle, version: Version) -> list[Callable[[], Awaitable[object]]]:
    """Return the results of all reads of a collection at a version."""
    storage, name, at = handle.storage, handle.name, seq(version)
    return [
        lambda: handle.live(at),
        lambda: handle.deleted(AtTxn(version.txn)),
        lambda: storage.page(name, Query(limit=1, states=States.ALL), at),
        lambda: storage.count(name, Query(), at),
        lambda: storage.resolve(at, name),
        lambda: storage.plan(name, Query(), at),
        lambda: handle.states(Query(replaced_since=version.txn)),
        lambda: storage.plan(name, Query(replaced_since=version.txn)),
    ]


class TestHistoryOff:
    async def test_the_first_write_makes_earlier_versions_expire(self, storage: Storage) -> None:
        handle = await new_collection(storage)
        await handle.create(point("x", n=1), point("y"))
        first = await handle.published()
        await handle.change(history_enabled=False)
        switched = await handle.published()
        assert ids_of(await handle.live(seq(first))) == ["x", "y"]
        await handle.update(point("x", n=2))
        written = await handle.published()
        for version in (first, switched):
            for call in every_read(handle, version):
                with pytest.raises(Expired) as caught:
                    await call()
                assert caught.value.oldest == written.seq_number
        assert await storage.resolve(seq(first)) == first
        assert content((await handle.live(seq(written)))[0])["properties"] == {"n": 2}

    async def test_each_write_moves_the_oldest_version_on(self, storage: Storage) -> None:
        handle = await new_collection(storage, history_enabled=False)
        versions = []
        for n in range(3):
            await handle.upsert(point("x", n=n))
            versions.append(await handle.published())
        for version in versions[:-1]:
            with pytest.raises(Expired) as caught:
                await handle.live(seq(version))
            assert caught.value.oldest == versions[-1].seq_number
        assert content((await handle.live(seq(versions[-1])))[0])["properties"] == {"n": 2}

    async def test_on_again_versions_from_the_last_write_on_are_kept(
        self, storage: Storage
    ) -> None:
        handle = await new_collection(storage, history_enabled=False)
        await handle.create(point("x", n=1))
        old = await handle.published()
        await handle.update(point("x", n=2))
        oldest = await handle.published()
        await handle.change(history_enabled=True)
        await handle.update(point("x", n=3))
        await handle.delete("x")
        await handle.published()
        with pytest.raises(Expired) as caught:
            await handle.live(seq(old))
        assert caught.value.oldest == oldest.seq_number
        assert content((await handle.live(seq(oldest)))[0])["properties"] == {"n": 2}
        assert [s.feature["properties"]["n"] for s in await handle.all()] == [2, 3, 3]

    async def test_off_written_and_on_in_one_transaction(self, places: Handle) -> None:
        await places.create(point("x", n=1))
        before = await places.published()
        async with places.storage.write(APP) as session:
            await session.change_collection(places.name, CollectionChange(history_enabled=False))
            await session.update(places.name, [point("x", n=2)])
            await session.change_collection(places.name, CollectionChange(history_enabled=True))
        after = await places.published()
        with pytest.raises(Expired):
            await places.live(seq(before))
        assert content((await places.live(seq(after)))[0])["properties"] == {"n": 2}

    async def test_without_a_write_nothing_expires(self, places: Handle) -> None:
        await places.create(point("x", n=1))
        version = await places.published()
        await places.change(history_enabled=False)
        await places.update(point("x", n=1))
        await places.delete("nobody")
        await places.change(history_enabled=True)
        await places.update(point("x", n=2))
        await places.published()
        assert content((await places.live(seq(version)))[0])["properties"] == {"n": 1}

    async def test_other_collections_keep_their_history(self, storage: Storage) -> None:
        off, on = await new_collection(storage), await new_collection(storage)
        await on.create(point("x", n=1))
        await off.create(point("x", n=1))
        version = await published(storage)
        await off.change(history_enabled=False)
        await off.update(point("x", n=2))
        await on.update(point("x", n=2))
        await published(storage)
        assert content((await on.live(seq(version)))[0])["properties"] == {"n": 1}
        with pytest.raises(Expired):
            await off.live(seq(version))

    async def test_deletes_leave_tombstones_all_the_same(self, storage: Storage) -> None:
        handle = await new_collection(storage, history_enabled=False)
        await handle.create(point("x", n=1))
        await handle.update(point("x", n=2))
        await handle.delete("x")
        (tombstone,) = await handle.deleted()
        assert tombstone.xyz["version"] == 3
        await handle.restore("x")
        assert (await handle.get("x")).xyz["version"] == 4


async def aged(
    storage: Storage, max_age: int = 1, **settings: object
) -> tuple[Handle, list[Version]]:
    """Create a collection that keeps a day of history, with three versions."""
    handle = await new_collection(storage, max_age=max_age, **settings)
    versions = []
    for n in range(3):
        await handle.upsert(point("x", n=n), point(f"y{n}"))
        if n:
            await handle.delete(f"y{n - 1}")
        versions.append(await handle.published())
    return handle, versions


def later(version: Version, days: int) -> int:
    return version.published_ms + days * DAY_MS


class TestMaxAge:
    async def test_young_history_stays(self, empty_storage: Storage) -> None:
        handle, versions = await aged(empty_storage)
        before = [await snapshot(handle, seq(v)) for v in versions]
        await empty_storage.maintain(later(versions[-1], 0))
        await empty_storage.maintain()
        assert [await snapshot(handle, seq(v)) for v in versions] == before

    async def test_old_history_is_expired_and_the_oldest_version_named(
        self, empty_storage: Storage
    ) -> None:
        handle, versions = await aged(empty_storage)
        head = await snapshot(handle, seq(versions[-1]))
        await empty_storage.maintain(later(versions[-1], 3))
        for version in versions[:-1]:
            for call in every_read(handle, version):
                with pytest.raises(Expired) as caught:
                    await call()
                oldest = caught.value.oldest
                assert oldest is not None
                assert version.seq_number < oldest <= versions[-1].seq_number
                await handle.live(AtSeq(oldest))
        live, dead, _ = await snapshot(handle, seq(versions[-1]))
        assert [live, dead] == head[:2]

    async def test_only_collections_that_keep_less_lose_it(self, empty_storage: Storage) -> None:
        handle, versions = await aged(empty_storage)
        keeper = await new_collection(empty_storage)
        await keeper.create(point("x", n=1))
        version = await keeper.published()
        await keeper.update(point("x", n=2))
        await keeper.published()
        before = await snapshot(keeper, seq(version))
        await empty_storage.maintain(later(version, 3))
        assert await snapshot(keeper, seq(version)) == before
        with pytest.raises(Expired):
            await handle.live(seq(versions[0]))

    async def test_writing_goes_on_after_maintenance(self, empty_storage: Storage) -> None:
        handle, versions = await aged(empty_storage)
        await empty_storage.maintain(later(versions[-1], 3))
        await handle.update(point("x", n=77))
        after = await handle.published()
        assert (await handle.get("x", seq(after))).feature["properties"]["n"] == 77
        assert (await handle.get("x", seq(versions[-1]))).feature["properties"]["n"] == 2

    async def test_history_may_be_kept_for_ever(self, empty_storage: Storage) -> None:
        handle, versions = await aged(empty_storage, max_age=INT8_MAX)
        before = [await snapshot(handle, seq(v)) for v in versions]
        await empty_storage.maintain(later(versions[-1], 3))
        assert (await empty_storage.collection(handle.name)).max_age == INT8_MAX
        assert [await snapshot(handle, seq(v)) for v in versions] == before

    async def test_maintenance_twice_is_maintenance_once(self, empty_storage: Storage) -> None:
        handle, versions = await aged(empty_storage)
        for _ in range(2):
            await empty_storage.maintain(later(versions[-1], 3))
        assert len(await handle.live()) == 2


class TestExpiry:
    """Explicit expiry of history, independent of the collection's own retention."""

    async def test_states_that_ended_before_a_day_expire(self, empty_storage: Storage) -> None:
        handle, versions = await aged(empty_storage, max_age=INT8_MAX)
        head = await snapshot(handle, seq(versions[-1]))
        await empty_storage.expire(handle.name, day_after(versions[-1], 2))
        for version in versions[:-1]:
            with pytest.raises(Expired):
                await handle.live(seq(version))
        live, dead, _ = await snapshot(handle, seq(versions[-1]))
        assert [live, dead] == head[:2]
        assert (await empty_storage.collection(handle.name)).max_age == INT8_MAX

    async def test_states_that_ended_later_are_kept(self, empty_storage: Storage) -> None:
        handle, versions = await aged(empty_storage)
        before = [await snapshot(handle, seq(v)) for v in versions]
        await empty_storage.expire(handle.name, day_after(versions[0], 0))
        assert [await snapshot(handle, seq(v)) for v in versions] == before

    async def test_pinned_states_are_kept(self, empty_storage: Storage) -> None:
        handle, versions = await aged(empty_storage)
        before = (await snapshot(handle, seq(versions[1])))[:2]
        await empty_storage.pin("archive-test", versions[1])
        await empty_storage.expire(handle.name, day_after(versions[-1], 2))
        assert (await snapshot(handle, seq(versions[1])))[:2] == before
        with pytest.raises(Expired):
            await handle.live(seq(versions[0]))

    async def test_a_collection_that_is_not_there(self, empty_storage: Storage) -> None:
        with pytest.raises(CollectionNotFound):
            await empty_storage.expire("nobody", date(2020, 1, 1))


class TestRounds:
    """Limited rounds, and the record of what they did."""

    async def test_a_dry_round_reports_and_changes_nothing(self, empty_storage: Storage) -> None:
        handle, versions = await aged(empty_storage)
        dropped = await new_collection(empty_storage)
        async with empty_storage.write(APP) as session:
            await session.drop_collection(dropped.name)
        before = [await snapshot(handle, seq(v)) for v in versions]
        record = StorageRound(is_dry=True)
        await empty_storage.maintain(later(versions[-1], 3), record=record)
        assert f"removal of the collection {dropped.name}" in record.done
        assert any(text.startswith("expiry of") and handle.name in text for text in record.done)
        assert [await snapshot(handle, seq(v)) for v in versions] == before
        assert (await empty_storage.collection(dropped.name, dropped=True)).dropped_at

    async def test_a_round_records_what_it_did(self, empty_storage: Storage) -> None:
        handle, versions = await aged(empty_storage)
        record = StorageRound()
        await empty_storage.maintain(later(versions[-1], 3), record=record)
        assert any(text.startswith("expiry of") and handle.name in text for text in record.done)
        assert (record.postponed, record.failures) == ([], [])
        again = StorageRound(is_dry=True)
        await empty_storage.maintain(later(versions[-1], 3), record=again)
        assert again.done == []

    async def test_a_round_without_time_does_nothing_yet(self, empty_storage: Storage) -> None:
        handle, versions = await aged(empty_storage)
        memory = RoundMemory()
        record = StorageRound(seconds=0, memory=memory)
        await empty_storage.maintain(later(versions[-1], 3), record=record)
        assert record.done == []
        assert f"expiry of {handle.name}" in memory.late
        await handle.live(seq(versions[0]))
        await empty_storage.maintain(later(versions[-1], 3), record=StorageRound(memory=memory))
        assert not memory.late
        with pytest.raises(Expired):
            await handle.live(seq(versions[0]))

    async def test_a_round_ends_when_its_check_fails(self, empty_storage: Storage) -> None:
        """As when the lease of the maintainer is lost."""
        handle, versions = await aged(empty_storage)

        def lost() -> None:
            raise LookupError("lost")

        with pytest.raises(LookupError):
            record = StorageRound(check=lost)
            await empty_storage.maintain(later(versions[-1], 3), record=record)
        await handle.live(seq(versions[0]))
        await empty_storage.maintain(later(versions[-1], 3))

    async def test_the_oldest_pin_is_measured(self, empty_storage: Storage) -> None:
        _, versions = await aged(empty_storage)
        record = StorageRound()
        await empty_storage.pin("old", versions[0])
        await empty_storage.pin("young", versions[1])
        await empty_storage.maintain(record=record)
        assert record.vitals.oldest_pin == "old"
        assert record.vitals.oldest_pin_ms is not None
        assert 0 <= versions[0].published_ms - record.vitals.oldest_pin_ms < 2 * DAY_MS


def day_after(version: Version, days: int) -> date:
    return datetime.fromtimestamp(later(version, days) / 1000, UTC).date()


class TestPins:
    async def test_a_pinned_version_stays_readable(self, empty_storage: Storage) -> None:
        handle, versions = await aged(empty_storage)
        pinned = versions[1]
        before = (await snapshot(handle, seq(pinned)))[:2]
        await empty_storage.pin("tag:one", pinned)
        await empty_storage.maintain(later(versions[-1], 3))
        assert (await snapshot(handle, seq(pinned)))[:2] == before
        await empty_storage.unpin("tag:one")
        await empty_storage.maintain(later(versions[-1], 3))
        with pytest.raises(Expired):
            await handle.live(seq(pinned))

    async def test_a_pin_may_be_of_one_collection(self, empty_storage: Storage) -> None:
        one, versions = await aged(empty_storage)
        two, others = await aged(empty_storage)
        before = await two.live(seq(others[0]))
        await empty_storage.pin("only two", others[0], two.name)
        await empty_storage.maintain(later(others[-1], 3))
        assert [s.raw for s in await two.live(seq(others[0]))] == [s.raw for s in before]
        with pytest.raises(Expired):
            await one.live(seq(versions[0]))

    async def test_unpinned_versions_are_correct_or_expired(self, empty_storage: Storage) -> None:
        """A pin may keep more than it names, but never allows a wrong result."""
        handle, versions = await aged(empty_storage)
        before = [(await snapshot(handle, seq(v)))[:2] for v in versions]
        await empty_storage.pin("one", versions[1])
        await empty_storage.maintain(later(versions[-1], 3))
        for version, wanted in zip(versions, before, strict=True):
            try:
                assert (await snapshot(handle, seq(version)))[:2] == wanted
            except Expired:
                assert version == versions[0]

    async def test_a_name_pinned_again_moves(self, empty_storage: Storage) -> None:
        handle, versions = await aged(empty_storage)
        await empty_storage.pin("position", versions[0])
        await empty_storage.pin("position", versions[1])
        await empty_storage.maintain(later(versions[-1], 3))
        await handle.live(seq(versions[1]))
        with pytest.raises(Expired):
            await handle.live(seq(versions[0]))

    async def test_expired_versions_cannot_be_pinned(self, empty_storage: Storage) -> None:
        handle, versions = await aged(empty_storage)
        await empty_storage.maintain(later(versions[-1], 3))
        with pytest.raises(Expired):
            await empty_storage.pin("late", versions[0], handle.name)


DAYS = 8
NOON = 1_930_392_000_000
"""2031-03-04, 12:00."""


@dataclass
class LoggedDays:
    """A storage with one version per day, and its clock at the last of them."""

    handle: Handle
    clock: MovableClock
    versions: list[Version]

    @property
    def storage(self) -> Storage:
        return self.handle.storage

    async def write(self) -> Version:
        await self.handle.upsert(point("x", n=len(self.versions)))
        self.versions.append(await self.handle.published())
        return self.versions[-1]

    async def kept(self) -> list[int]:
        """Return the transactions that the log still has."""
        log = await self.storage.transactions(newest_first=True)
        return [transaction.txn for transaction in reversed(log)]


@pytest.fixture
async def logged(make_storage: StorageMaker) -> LoggedDays:
    clock = MovableClock(NOON)
    made = LoggedDays(await new_collection(await make_storage(clock=clock)), clock, [])
    for day in range(DAYS):
        clock.time_ms = NOON + day * DAY_MS
        await made.write()
    return made


class TestLogRetention:
    async def test_days_beyond_it_are_gone(self, logged: LoggedDays) -> None:
        await logged.storage.keep_log(2)
        await logged.storage.maintain()
        gone, kept = logged.versions[4], logged.versions[5:]
        assert await logged.kept() == [v.txn for v in kept]
        reads: list[Callable[[], Awaitable[object]]] = [
            logged.storage.transactions,
            lambda: logged.storage.transaction(gone.txn),
            lambda: logged.storage.resolve(AtSeq(gone.seq_number)),
            lambda: logged.storage.resolve(AtTxn(gone.txn)),
            lambda: logged.storage.resolve(AtTime(gone.published_ms - 1)),
        ]
        for read in reads:
            with pytest.raises(Expired) as caught:
                await read()
            assert caught.value.oldest == kept[0].seq_number
        with pytest.raises(VersionNotFound):
            await logged.storage.transaction(kept[1].txn + 77)
        assert (await logged.write()).seq_number == kept[-1].seq_number + 1

    async def test_newest_first_it_ends_where_it_ends(self, logged: LoggedDays) -> None:
        await logged.storage.keep_log(2)
        await logged.storage.maintain()
        whole = await logged.storage.transactions(newest_first=True)
        oldest = whole[-1].seq_number
        assert oldest == logged.versions[5].seq_number
        assert await logged.storage.transactions(oldest - 1) == whole[::-1]
        assert await logged.storage.transactions(oldest, newest_first=True) == []
        with pytest.raises(Expired) as caught:
            await logged.storage.transactions(oldest - 1, newest_first=True)
        assert caught.value.oldest == oldest

    async def test_it_is_kept_from_a_pin_on(self, logged: LoggedDays) -> None:
        await logged.storage.keep_log(0)
        await logged.storage.pin("subscriber", logged.versions[2], logged.handle.name)
        await logged.storage.maintain(logged.clock.time_ms + 90 * DAY_MS)
        assert await logged.kept() == [v.txn for v in logged.versions[2:]]

    async def test_the_last_version_stays_known(self, logged: LoggedDays) -> None:
        await logged.storage.keep_log(0)
        logged.clock.time_ms += 100 * DAY_MS
        await logged.storage.maintain()
        last = logged.versions[-1]
        assert await logged.storage.resolve(AtSeq(last.seq_number)) == last
        assert (await logged.write()).seq_number == last.seq_number + 1

    async def test_the_last_setting_counts(self, logged: LoggedDays) -> None:
        before = await logged.kept()
        await logged.storage.keep_log(0)
        await logged.storage.keep_log(INT8_MAX)
        await logged.storage.maintain()
        assert await logged.kept() == before

    async def test_without_history_versions_stay_expired(self, logged: LoggedDays) -> None:
        await logged.handle.change(history_enabled=False)
        written = await logged.write()
        logged.clock.time_ms += 30 * DAY_MS
        await logged.storage.run(lambda s: s.message("m", "later"), APP)
        await published(logged.storage)
        await logged.storage.keep_log(5)
        await logged.storage.maintain()
        assert written.txn not in await logged.kept()
        with pytest.raises(Expired):
            await logged.handle.live(AtTxn(written.txn - 1))
        assert ids_of(await logged.handle.live(seq(await published(logged.storage)))) == ["x"]

    @pytest.mark.parametrize("days", [-1, INT8_MAX + 1])
    async def test_no_number_of_days(self, storage: Storage, days: int) -> None:
        with pytest.raises(InvalidArgument) as caught:
            await storage.keep_log(days)
        assert caught.value.field == "days"
