"""Reads while the history gets a new day: no state is missing between HEAD and the history.

The moment between the planning of a statement and its snapshot is held open by a lock on an index
of the day that is there already, which the planner must take.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime, timedelta

import asyncpg
import pytest

from naksha.model.query import Query, States
from naksha.model.state import State
from naksha.model.version import HEAD, AtSeq, Version
from naksha.psql import PsqlStorage
from naksha.psql.connection.driver import Direct
from naksha.psql.read.reader import PsqlReader
from naksha.spi.storage import WriteSession
from naksha.testing.storage.suite_support import point
from tests.psql.support import Connect, begin, insert, until, until_blocked

FIRST_DAY = datetime(2031, 3, 1, 12, tzinfo=UTC)
Read = Callable[[PsqlReader, Version, str], Awaitable[list[int]]]


class Days:
    """A feature `x` that gets the next number on the next day."""

    def __init__(self, bare: str) -> None:
        self.bare = bare
        self.number = -1
        self.uuid = ""
        self.storage: PsqlStorage

    def now_ms(self) -> int:
        return int((FIRST_DAY + timedelta(days=self.number)).timestamp() * 1000)

    async def write(self) -> Version:
        self.number += 1

        async def work(session: WriteSession) -> None:
            (outcome,) = await session.upsert("roads", [point("x", n=self.number)])
            assert outcome.uuid is not None
            self.uuid = outcome.uuid

        await self.storage.run(work, "app")
        return await self.storage.resolve(HEAD)


@pytest.fixture
async def days(bare: str) -> AsyncIterator[Days]:
    made = Days(bare)
    made.storage = await PsqlStorage.open(bare, "test", clock=made)
    yield made
    await made.storage.close()


@pytest.fixture
async def onlooker(connect: Connect) -> Direct:
    return await connect()


@pytest.fixture
async def holder(connect: Connect) -> Direct:
    return await connect()


def numbers(states: list[State]) -> list[int]:
    return [state.feature["properties"]["n"] for state in states]


async def by_page(reader: PsqlReader, at: Version, _: str) -> list[int]:
    return numbers((await reader.page("roads", Query(limit=9), AtSeq(at.seq_number))).states)


async def by_count(reader: PsqlReader, at: Version, _: str) -> list[int]:
    return [await reader.count("roads", Query(), AtSeq(at.seq_number))]


async def by_stream(reader: PsqlReader, at: Version, _: str) -> list[int]:
    return numbers([s async for s in reader.states("roads", Query(), AtSeq(at.seq_number))])


async def by_state_id(reader: PsqlReader, _: Version, uuid: str) -> list[int]:
    return numbers([await reader.state(uuid)])


READS: dict[str, Read] = {
    "page": by_page,
    "count": by_count,
    "stream": by_stream,
    "state id": by_state_id,
}


async def blocked_on(onlooker: Direct, index: str) -> bool:
    found: bool = await onlooker.fetchval(
        "SELECT EXISTS (SELECT FROM pg_locks WHERE relation = $1::regclass AND NOT granted)", index
    )
    return found


async def while_planning(
    days: Days, holder: Direct, onlooker: Direct, read: Awaitable[list[int]]
) -> list[int]:
    """The result of `read` if the next day begins after it was planned."""
    day = await onlooker.fetchval(
        "SELECT max(inhrelid)::regclass::text FROM pg_inherits WHERE inhparent = $1::regclass",
        "roads_hst",
    )
    async with holder.transaction():
        # The planner wants to know every index; who makes a day looks at the table only.
        await holder.execute(f"REINDEX INDEX {day}_i")
        reading = asyncio.ensure_future(read)
        await until(lambda: blocked_on(onlooker, f"{day}_i"))
        await days.write()
        assert not reading.done()
    return await reading


@pytest.mark.parametrize("read", READS)
async def test_a_day_between_plan_and_snapshot(
    days: Days, holder: Direct, onlooker: Direct, read: str
) -> None:
    await days.write()
    version = await days.write()
    reader = await PsqlStorage.open(days.bare, "test")
    found = await while_planning(days, holder, onlooker, READS[read](reader, version, days.uuid))
    assert found == [1]
    await reader.close()


async def test_all_states_of_head(days: Days, holder: Direct, onlooker: Direct) -> None:
    await days.write()
    await days.write()
    reader = await PsqlStorage.open(days.bare, "test")

    async def read() -> list[int]:
        return numbers((await reader.page("roads", Query(states=States.ALL))).states)

    assert sorted(await while_planning(days, holder, onlooker, read())) == [0, 1, 2]
    await reader.close()


@pytest.mark.parametrize("read", READS)
async def test_a_day_between_plan_and_snapshot_of_a_session(
    days: Days, holder: Direct, onlooker: Direct, read: str
) -> None:
    await days.write()
    version = await days.write()
    other = await PsqlStorage.open(days.bare, "test")
    async with other.write("app") as session:
        assert isinstance(session, PsqlReader)
        reading = READS[read](session, version, days.uuid)
        assert await while_planning(days, holder, onlooker, reading) == [1]
    await other.close()


@pytest.mark.parametrize("read", READS)
async def test_a_session_that_has_read_before(days: Days, read: str) -> None:
    await days.write()
    version = await days.write()
    uuid = days.uuid
    other = await PsqlStorage.open(days.bare, "test")
    async with other.write("app") as session:
        assert isinstance(session, PsqlReader)
        for _ in range(3):
            assert await READS[read](session, version, uuid) == [1]
            await days.write()
    await other.close()


async def test_new_features_make_no_day(days: Days, connect: Connect) -> None:
    connection = await connect()
    parts = "SELECT count(*) FROM pg_inherits WHERE inhparent = 'roads_hst'::regclass"
    await days.write()
    assert await connection.fetchval(parts) == 0
    await days.write()
    assert await connection.fetchval(parts) == 1
    assert await connection.fetchval("SELECT count(*) FROM roads_hst") == 1


async def test_a_feature_that_comes_while_the_number_is_drawn_keeps_its_history(
    connect: Connect,
) -> None:
    """It was not there to be locked, so no day was made for what it leaves behind."""
    other, holder, writer = await connect(), await connect(), await connect()
    await begin(other)
    await insert(other, "roads", "x")
    await holder.execute("SELECT pg_advisory_lock(last_value) FROM naksha_tx_object_id_seq")
    await begin(writer)
    writing = asyncio.create_task(
        writer.execute("""SELECT naksha_upsert('roads', '{"id": "x", "properties": {"n": 1}}')""")
    )
    await until_blocked(holder, writer)
    await other.execute("COMMIT")
    await holder.execute("SELECT pg_advisory_unlock_all()")
    with pytest.raises(asyncpg.SerializationError):
        await writing
    await writer.execute("ROLLBACK")
    await begin(writer)
    await writer.execute("""SELECT naksha_upsert('roads', '{"id": "x", "properties": {"n": 1}}')""")
    await writer.execute("COMMIT")
    assert await holder.fetchval("SELECT count(*) FROM roads_hst") == 1
