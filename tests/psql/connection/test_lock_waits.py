"""Lock waits that end in time-outs naming the holder of the lock."""

from __future__ import annotations

import asyncio

import asyncpg
import pytest

from naksha.model import limits
from naksha.model.collection import CollectionChange
from naksha.model.errors import Retryable
from naksha.psql import PsqlStorage
from naksha.spi.storage import WriteSession
from naksha.testing.storage.suite_support import point
from tests.psql.support import Connect, begin, insert, until_blocked

HANGS_S = 60
CHANGE = "SELECT naksha_collection_change('roads', '{\"maxAge\": 5}')"


async def test_a_change_of_a_collection_does_not_wait_for_an_idle_writer_for_ever(
    bare: str, connect: Connect
) -> None:
    """Before, it waited, and all writers of the collection behind it."""
    idle, admin = await connect(application_name="idle one"), await connect()
    writer = await connect()
    await begin(idle)
    await insert(idle, "roads", "a")
    await admin.execute("SET naksha.lock_timeout = '1s'")
    await begin(admin)
    change = asyncio.create_task(admin.execute(CHANGE))
    await until_blocked(idle, admin)
    await begin(writer)
    writing = asyncio.create_task(insert(writer, "roads", "b"))
    holder = rf"held by backend {idle.get_server_pid()} \(idle one\), idle in transaction since "
    with pytest.raises(asyncpg.LockNotAvailableError, match=holder):
        async with asyncio.timeout(HANGS_S):
            await change
    async with asyncio.timeout(HANGS_S):
        await writing
    await writer.execute("COMMIT")


async def test_a_waiting_writer_names_the_holder_of_the_write_gate(
    bare: str, connect: Connect
) -> None:
    admin, writer = await connect(application_name="admin"), await connect(lock_timeout="500ms")
    await begin(admin)
    await admin.execute(CHANGE)
    await begin(writer)
    match = r"longer than 0.5 s for the write gate of collection 'roads', held by backend .*admin"
    with pytest.raises(asyncpg.LockNotAvailableError, match=match):
        await insert(writer, "roads", "b")


async def test_the_library_reports_the_holder(storage: PsqlStorage, connect: Connect) -> None:
    idle = await connect(application_name="idle one")
    await begin(idle)
    await insert(idle, "roads", "a")
    match = rf"backend {idle.get_server_pid()} \(idle one\)"
    async with asyncio.timeout(HANGS_S):
        with pytest.raises(Retryable, match=match):
            async with storage.write("app") as session:
                await session.change_collection("roads", CollectionChange(max_age=5))
        await storage.run(lambda session: session.upsert("roads", [point("b")]), "app")
    await idle.execute("ROLLBACK")


async def test_a_transaction_waits_once_for_a_closed_collection(
    bare: str, connect: Connect
) -> None:
    """Before, `run` repeated the transaction, and with it the wait, ten times."""
    admin = await connect(application_name="admin")
    await admin.execute(
        f"ALTER DATABASE {await admin.fetchval('SELECT quote_ident(current_database())')} "
        "SET naksha.lock_timeout = '500ms'"
    )
    storage = await PsqlStorage.open(bare, "test")
    calls = 0

    async def write(session: WriteSession) -> None:
        nonlocal calls
        calls += 1
        await session.upsert("roads", [point("a")])

    await begin(admin)
    await admin.execute(CHANGE)
    async with asyncio.timeout(HANGS_S):
        with pytest.raises(Retryable, match=r"longer than 0.5 s for the write gate .*admin"):
            await storage.run(write, "app")
    assert calls == 1
    await storage.close()


async def test_a_row_that_stays_locked_names_its_holder(
    bare: str, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "LOCK_WAIT_SECONDS_MAX", 4)
    storage = await PsqlStorage.open(bare, "test")
    idle = await connect(application_name="idle one")
    await storage.run(lambda session: session.upsert("roads", [point("a")]), "app")
    await begin(idle)
    await idle.execute("UPDATE roads SET jsondata = jsonb_set(jsondata, '{a}', '1')")
    match = (
        rf"longer than 4 s for a lock held by backend {idle.get_server_pid()} \(idle one\), idle"
    )
    async with asyncio.timeout(HANGS_S):
        with pytest.raises(Retryable, match=match):
            await storage.run(lambda session: session.upsert("roads", [point("a", n=1)]), "app")
    await storage.close()
