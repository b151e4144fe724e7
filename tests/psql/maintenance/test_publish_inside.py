"""`naksha_publish()` called inside a transaction: refused, or harmless and reported."""

from __future__ import annotations

import asyncio

import asyncpg
import pytest

from naksha.model.query import Query
from naksha.model.version import HEAD
from naksha.psql import PsqlStorage
from naksha.testing.storage.suite_support import point
from tests.psql.support import Connect, begin, insert, sign

HANGS_S = 60


async def test_a_transaction_that_writes_does_not_publish(bare: str, connect: Connect) -> None:
    writer = await connect()
    await begin(writer)
    await insert(writer, "roads", "a")
    with pytest.raises(asyncpg.PostgresError, match="must not be called in a transaction"):
        await writer.execute("SELECT naksha_publish()")


async def test_an_open_publisher_stops_no_reader_and_is_named(
    storage: PsqlStorage, connect: Connect
) -> None:
    culprit, writer = await connect(application_name="culprit"), await connect()
    version = await storage.resolve(HEAD)
    # The storage may publish first; what the culprit publishes must be its own.
    await begin(writer)
    await sign(writer)
    await culprit.execute("BEGIN")
    await culprit.execute("SELECT naksha_publish()")
    await writer.execute("COMMIT")
    async with asyncio.timeout(HANGS_S):
        await storage.run(lambda session: session.upsert("roads", [point("a")]), "app")
        assert await storage.count("roads", Query()) == 1
        assert (await storage.resolve(HEAD)).seq_number == version.seq_number
        status = await storage.publication()
    assert status.unpublished == 2
    assert status.held_back_by is not None
    assert f"backend {culprit.get_server_pid()} (culprit), idle in transaction" in (
        status.held_back_by
    )
    await culprit.execute("COMMIT")
    async with asyncio.timeout(HANGS_S):
        assert (await storage.resolve(HEAD)).seq_number == version.seq_number + 2
