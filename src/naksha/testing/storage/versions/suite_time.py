"""Conformance: days only roll forward, and an imported history keeps its own dates."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

import pytest

from naksha.model.collection import CollectionInfo
from naksha.model.errors import Conflict, InvalidArgument
from naksha.model.identity.txn import date_of, sequence_of
from naksha.model.transaction import LogFilter
from naksha.model.version import AtSeq, AtTime
from naksha.spi.storage import Storage, WriteSession
from naksha.testing.storage.suite_support import (
    APP,
    Handle,
    MovableClock,
    StorageMaker,
    ids_of,
    new_collection,
    point,
    published,
    seq,
)

REFUSED = (InvalidArgument, Conflict)


def ms(day: date, hour: int = 0, minute: int = 0, second: int = 0) -> int:
    """Return the epoch milliseconds of a time in UTC."""
    moment = datetime(day.year, day.month, day.day, hour, minute, second, tzinfo=UTC)
    return int(moment.timestamp() * 1000)


def tomorrow() -> date:
    return datetime.now(UTC).date() + timedelta(days=1)


class TestDays:
    """The clock is set to the future, because a storage never goes back to an earlier day."""

    async def test_the_day_is_in_txn_guid_and_times(self, make_storage: StorageMaker) -> None:
        day = tomorrow()
        clock = MovableClock(ms(day, 12))
        handle = await new_collection(await make_storage(clock=clock))
        await handle.create(point("x"))
        state = await handle.get("x")
        assert date_of(state.txn) == day
        assert f":{day.year}:{day.month}:{day.day}:" in state.uuid
        assert state.xyz["updatedAt"] == ms(day, 12)

    async def test_a_new_day_begins_after_midnight_utc(self, make_storage: StorageMaker) -> None:
        day = tomorrow()
        clock = MovableClock(ms(day, 23, 59, 59))
        handle = await new_collection(await make_storage(clock=clock))
        await handle.create(point("x", n=1))
        before = await handle.published()
        clock.time_ms += 1_000
        await handle.update(point("x", n=2))
        after = await handle.published()
        assert (date_of(before.txn), date_of(after.txn)) == (day, day + timedelta(days=1))
        assert sequence_of(after.txn) < 10
        assert after.seq_number == before.seq_number + 1
        assert [s.feature["properties"]["n"] for s in await handle.live(seq(before))] == [1]
        assert [s.feature["properties"]["n"] for s in await handle.live(seq(after))] == [2]

    async def test_a_transaction_begun_before_midnight_takes_the_new_day_after_it(
        self, make_storage: StorageMaker
    ) -> None:
        """It draws its number after another one rolled the day over; numbers only increase."""
        day = tomorrow()
        clock = MovableClock(ms(day, 23, 59, 58))
        storage = await make_storage(clock=clock)
        handle = await new_collection(storage)
        async with storage.write(APP) as late:
            await late.collections()
            clock.time_ms += 10_000
            await handle.create(point("early bird"))
            rolled = (await handle.get("early bird")).txn
            await late.create(handle.name, [point("late")])
            assert late.txn is not None
            assert late.txn > rolled
        state = await handle.get("late")
        assert date_of(state.txn) == day + timedelta(days=1)
        await handle.create(point("next"))
        assert (await handle.get("next")).txn > state.txn
        await handle.published()
        log = await storage.transactions()
        assert [t.seq_number for t in log] == list(range(1, len(log) + 1))

    async def test_a_clock_that_goes_back_does_not_take_numbers_back(
        self, make_storage: StorageMaker
    ) -> None:
        day = tomorrow()
        clock = MovableClock(ms(day, 12))
        handle = await new_collection(await make_storage(clock=clock))
        await handle.create(point("x", n=1))
        first = await handle.published()
        clock.time_ms -= 24 * 3_600_000
        await handle.update(point("x", n=2))
        second = await handle.published()
        assert second.txn > first.txn
        assert second.seq_number == first.seq_number + 1
        assert second.published_ms >= first.published_ms

    async def test_years_and_leap_days(self, make_storage: StorageMaker) -> None:
        year = tomorrow().year + 4 - tomorrow().year % 4
        clock = MovableClock(ms(date(year, 2, 28), 23, 59, 59))
        handle = await new_collection(await make_storage(clock=clock))
        wanted = [date(year, 2, 28), date(year, 2, 29), date(year, 12, 31), date(year + 1, 1, 1)]
        for n, day in enumerate(wanted):
            clock.time_ms = ms(day, 12)
            await handle.upsert(point("x", n=n))
        await handle.published()
        assert [date_of(s.txn) for s in await handle.all()] == wanted

    async def test_versions_of_many_days_stay_readable(self, make_storage: StorageMaker) -> None:
        day = tomorrow()
        clock = MovableClock(ms(day, 12))
        storage = await make_storage(clock=clock)
        handle = await new_collection(storage)
        versions = []
        for n in range(40):
            clock.time_ms = ms(day + timedelta(days=n), 12)
            await handle.upsert(point("x", n=n))
            versions.append(await handle.published())
        await storage.maintain()
        for n, version in enumerate(versions):
            (state,) = await handle.live(seq(version))
            assert state.feature["properties"]["n"] == n
            assert (await storage.state(state.uuid)).feature["properties"]["n"] == n


PAST = date(2019, 5, 4)
OLD_DAYS = [date(1950, 7, 1), date(1969, 12, 31), date(999, 12, 31), date(1, 1, 2)]
"""Before the epoch, across it, from three-digit to four-digit years, and the first years."""


async def write_at(storage: Storage, name: str, day: date, n: int) -> None:
    async def work(session: WriteSession) -> None:
        if n == 0:
            await session.create_collection(CollectionInfo(id=name, max_age=1_000_000))
        await session.upsert(name, [point("x", n=n)])

    await storage.run(work, "import", "historian", at_ms=ms(day, 12))


class TestDatedTransactions:
    async def test_past_times_everywhere(self, empty_storage: Storage) -> None:
        days = [PAST, PAST + timedelta(days=1), PAST + timedelta(days=400)]
        for n, day in enumerate(days):
            await write_at(empty_storage, "old", day, n)
        await published(empty_storage)
        handle = Handle(empty_storage, "old")
        log = await empty_storage.transactions()
        assert [t.started_ms for t in log] == [ms(day, 12) for day in days]
        assert [t.published_ms for t in log] == [ms(day, 12) for day in days]
        assert [date_of(t.txn) for t in log] == days
        assert [s.xyz["updatedAt"] for s in await handle.all()] == [ms(day, 12) for day in days]
        for n, day in enumerate(days):
            version = await empty_storage.resolve(AtTime(ms(day, 12)))
            assert version.seq_number == n + 1
            (state,) = await handle.live(AtTime(ms(day, 12)))
            assert state.feature["properties"]["n"] == n
        assert await handle.live(AtTime(ms(PAST, 11))) == []

    async def test_several_at_the_same_time(self, empty_storage: Storage) -> None:
        for n in range(3):
            await write_at(empty_storage, "old", PAST, n)
        await published(empty_storage)
        version = await empty_storage.resolve(AtTime(ms(PAST, 12)))
        assert version.seq_number == 3

    async def test_refused_when_there_are_later_transactions(self, empty_storage: Storage) -> None:
        await write_at(empty_storage, "old", PAST, 0)
        await published(empty_storage)
        with pytest.raises(REFUSED):
            await write_at(empty_storage, "old", PAST - timedelta(days=1), 1)
        handle = Handle(empty_storage, "old")
        await handle.create(point("today"))
        await published(empty_storage)
        with pytest.raises(REFUSED) as caught:
            await write_at(empty_storage, "old", PAST + timedelta(days=1), 2)
        assert "later" in str(caught.value)
        assert ids_of(await handle.live()) == ["today", "x"]
        assert len(await empty_storage.transactions()) == 2

    async def test_setting_up_a_storage_writes_no_transaction(self, empty_storage: Storage) -> None:
        assert await empty_storage.transactions() == []
        await empty_storage.maintain()
        await write_at(empty_storage, "old", PAST, 0)
        assert (await published(empty_storage)).seq_number == 1

    async def test_today_goes_on_after_an_import(self, empty_storage: Storage) -> None:
        await write_at(empty_storage, "old", PAST, 0)
        handle = Handle(empty_storage, "old")
        await handle.update(point("x", n="today"))
        version = await published(empty_storage)
        assert date_of(version.txn) >= date(2023, 1, 1)
        assert version.seq_number == 2
        (state,) = await handle.live(AtTime(ms(PAST + timedelta(days=100))))
        assert state.feature["properties"]["n"] == 0
        (state,) = await handle.live(seq(version))
        assert state.xyz["createdAt"] == ms(PAST, 12)

    async def test_the_session_form(self, empty_storage: Storage) -> None:
        async with empty_storage.write("import", at_ms=ms(PAST, 1)) as session:
            await session.create_collection(CollectionInfo(id="old"))
            await session.create("old", [point("x")])
        state = await Handle(empty_storage, "old").get("x")
        assert (state.xyz["createdAt"], date_of(state.txn)) == (ms(PAST, 1), PAST)

    @pytest.mark.parametrize("first", OLD_DAYS, ids=str)
    async def test_years_before_1970_and_before_1000(
        self, empty_storage: Storage, first: date
    ) -> None:
        """Transactions, publication, times, states and differences of a day long ago."""
        days = [first, first + timedelta(days=1), first + timedelta(days=400)]
        for n, day in enumerate(days):
            await write_at(empty_storage, "old", day, n)
        await published(empty_storage)
        handle = Handle(empty_storage, "old")
        log = await empty_storage.transactions()
        assert [date_of(t.txn) for t in log] == days
        assert [t.started_ms for t in log] == [ms(day, 12) for day in days]
        assert [t.published_ms for t in log] == [ms(day, 12) for day in days]
        for n, day in enumerate(days):
            version = await empty_storage.resolve(AtTime(ms(day, 12)))
            assert (version.seq_number, version.published_ms) == (n + 1, ms(day, 12))
            (state,) = await handle.live(AtTime(ms(day, 12)))
            assert state.feature["properties"]["n"] == n
            assert state.xyz["updatedAt"] == ms(day, 12)
            assert (await empty_storage.state(state.uuid)).feature["properties"]["n"] == n
        assert await handle.live(AtTime(ms(days[0], 11))) == []
        during = LogFilter(from_ms=ms(days[1]), to_ms=ms(days[2]))
        assert [t.seq_number for t in await empty_storage.transactions(where=during)] == [2]

    @pytest.mark.parametrize("first", OLD_DAYS, ids=str)
    async def test_old_versions_survive_maintenance_and_today(
        self, empty_storage: Storage, first: date
    ) -> None:
        days = [first, first + timedelta(days=1), first + timedelta(days=400)]
        for n, day in enumerate(days):
            await write_at(empty_storage, "old", day, n)
        await published(empty_storage)
        handle = Handle(empty_storage, "old")
        await handle.update(point("x", n="today"))
        await empty_storage.keep_log(1_000_000)
        version = await published(empty_storage)
        assert version.published_ms > ms(date(2023, 1, 1))
        await empty_storage.maintain()
        for n in range(len(days)):
            (state,) = await handle.live(AtSeq(n + 1))
            assert state.feature["properties"]["n"] == n
        (state,) = await handle.live(seq(version))
        assert state.xyz["createdAt"] == ms(first, 12)

    async def test_a_time_beyond_now_is_refused(self, empty_storage: Storage) -> None:
        for day in (tomorrow(), date(2062, 1, 1)):
            with pytest.raises(InvalidArgument, match="future") as caught:
                await write_at(empty_storage, "old", day, 0)
            assert caught.value.field == "at_ms"
        assert await empty_storage.transactions() == []
        await write_at(empty_storage, "old", PAST, 0)
        handle = Handle(empty_storage, "old")
        await handle.update(point("x", n="today"))
        assert date_of((await handle.get("x")).txn) < tomorrow() + timedelta(days=1)

    async def test_the_time_is_that_of_the_storage_clock(self, make_storage: StorageMaker) -> None:
        clock = MovableClock(ms(PAST, 12))
        storage = await make_storage(clock=clock)
        with pytest.raises(InvalidArgument, match="future"):
            await write_at(storage, "old", PAST + timedelta(days=1), 0)
        await write_at(storage, "old", PAST, 0)
