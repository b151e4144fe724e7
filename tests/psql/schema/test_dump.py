"""pg_dump and restore: the first to open the copy publishes what was unpublished."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from datetime import UTC, date, datetime, timedelta

import asyncpg
import pytest

from naksha.model.query import Query, States
from naksha.model.version import AtSeq
from naksha.psql import PsqlStorage
from naksha.testing.fixtures import DatabaseFactory
from naksha.testing.servers.postgres import PostgresCluster
from tests.psql.aging import Aging, aging_storage, place
from tests.psql.support import begin, check_log, connect_to, draw, insert, restore

TODAY = datetime.now(UTC).date()


@pytest.fixture
async def aging(database: str) -> AsyncIterator[Aging]:
    """A storage with history in merged partitions and in days, and a dropped collection."""
    async with aging_storage(database, date(2024, 1, 30)) as made:
        await made.create()
        await made.create("gone")
        await made.write_days(date(2024, 1, 30), 4)
        await made.storage.run(lambda s: s.drop_collection("gone"), "app")
        await made.storage.maintain()
        await made.write_days(TODAY, 2, 0)
        yield made


@pytest.fixture
def copy(database_factory: DatabaseFactory) -> Iterator[str]:
    with database_factory.fresh() as dsn:
        yield dsn


async def all_reads(storage: PsqlStorage, last: int) -> list[list[bytes]]:
    found = []
    for seq_number in range(1, last + 1):
        for kind in States:
            page = await storage.page("roads", Query(states=kind), AtSeq(seq_number))
            found.append(sorted(state.raw for state in page.states))
    return found


async def test_a_restored_storage_is_the_same_and_goes_on(
    aging: Aging, copy: str, postgres_cluster: PostgresCluster
) -> None:
    holder = await connect_to(aging.dsn)
    await begin(holder)
    held = await draw(holder)
    waiting = await aging.storage.run(lambda s: s.upsert("roads", [place("late", 1)]), "app")
    restore(postgres_cluster, aging.dsn, copy)
    assert (await aging.storage.publication()).unpublished == 1
    plain = await connect_to(copy)
    assert await plain.fetchval("SELECT count(*) FROM naksha_tx WHERE seq_number IS NULL") == 1

    storage = await PsqlStorage.open(copy, "test")
    try:
        await storage.resolve(AtSeq(len(aging.versions)))
        last = (await storage.publication()).last_seq_number
        await holder.execute("ROLLBACK")
        await aging.storage.resolve(AtSeq(last))
        assert await all_reads(storage, last) == await all_reads(aging.storage, last)
        assert (await storage.state(waiting[0].uuid or "")).id == "late"
        await check_log(plain)
        await goes_on(storage, plain, max(held, (await storage.resolve(AtSeq(last))).txn))
        before = await all_reads(storage, last)
        await storage.maintain()
        assert await all_reads(storage, last) == before
    finally:
        holder.terminate()
        plain.terminate()
        await storage.close()


async def goes_on(storage: PsqlStorage, plain: asyncpg.Connection, last: int) -> None:
    """Writing through the library and through plain SQL, with all its guards."""

    async def work(session: object) -> int | None:
        await session.upsert("roads", [place("always", 99)])  # type: ignore[attr-defined]
        return session.txn  # type: ignore[attr-defined, no-any-return]

    assert (await storage.run(work, "app") or 0) > last
    await begin(plain)
    await insert(plain, "roads", "by-hand", n=1)
    await plain.execute("COMMIT")
    assert (await storage.page("roads", Query(ids=("by-hand",)))).states[0].xyz["version"] == 1
    for forbidden in (
        "TRUNCATE roads",
        "DELETE FROM roads_hst",
        "DELETE FROM naksha_tx",
        "DELETE FROM naksha_collection",
        "TRUNCATE roads_meta",
    ):
        with pytest.raises(asyncpg.PostgresError) as caught:
            await plain.execute(forbidden)
        assert caught.value.sqlstate == "N0008"
    with pytest.raises(asyncpg.PostgresError) as caught:
        await insert(plain, "roads", "nobody")
    assert caught.value.sqlstate == "N0000"


async def test_tomorrow_works_in_a_copy(
    aging: Aging, copy: str, postgres_cluster: PostgresCluster
) -> None:
    restore(postgres_cluster, aging.dsn, copy)
    aging.clock.day = TODAY + timedelta(days=3)
    storage = await PsqlStorage.open(copy, "test", clock=aging.clock)
    try:
        outcomes = await storage.run(lambda s: s.upsert("roads", [place("always", 77)]), "app")
        assert outcomes[0].action == "UPDATED"
    finally:
        await storage.close()
