"""Two-phase commit: PREPARE TRANSACTION with an open storage whose sequencer may be asleep."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import asyncpg
import pytest

from naksha.model.query import Query
from naksha.model.version import AtSeq
from naksha.psql import PsqlStorage
from naksha.psql.connection.driver import Direct
from naksha.testing.servers.postgres import PostgresCluster
from tests.psql.support import begin, check_log, connect_to, insert, until

pytestmark = pytest.mark.postgres


@pytest.fixture(scope="module")
def dsn() -> Iterator[str]:
    with PostgresCluster({"fsync": False, "max_prepared_transactions": 4}) as cluster:
        dsn = cluster.create_database("store")
        cluster.execute("CREATE EXTENSION postgis SCHEMA public", "store")
        yield dsn


@pytest.fixture
async def storage(dsn: str) -> AsyncIterator[PsqlStorage]:
    opened = await PsqlStorage.open(dsn, "test")
    yield opened
    await opened.close()


@pytest.fixture
async def shell(dsn: str, storage: PsqlStorage) -> AsyncIterator[Direct]:
    """A session beside a storage whose sequencer has nothing to do."""
    connection = await connect_to(dsn)
    await begin(connection)
    if await connection.fetchval("SELECT to_regclass('roads') IS NULL"):
        await connection.execute("SELECT naksha_collection_create('roads')")
    await connection.execute("COMMIT")
    await connection.execute("SELECT naksha_publish()")
    yield connection
    connection.terminate()


async def test_a_transaction_that_says_so_can_be_prepared(
    shell: Direct, storage: PsqlStorage
) -> None:
    before = (await storage.publication()).last_seq_number
    await begin(shell)
    await shell.execute("SET LOCAL naksha.two_phase = 'on'")
    await insert(shell, "roads", "a")
    await shell.execute("PREPARE TRANSACTION 'a'")
    assert await storage.count("roads", Query(ids=("a",))) == 0
    await shell.execute("COMMIT PREPARED 'a'")
    await shell.execute("SELECT naksha_publish()")
    assert (await storage.publication()).last_seq_number == before + 1
    assert await storage.count("roads", Query(ids=("a",)), AtSeq(before + 1)) == 1
    await check_log(shell)


async def test_a_transaction_that_does_not_say_so_cannot_be_prepared_while_the_sequencer_sleeps(
    shell: Direct, storage: PsqlStorage
) -> None:
    async def is_refused() -> bool:
        await begin(shell)
        await insert(shell, "roads", "b")
        try:
            await shell.execute("PREPARE TRANSACTION 'b'")
        except asyncpg.FeatureNotSupportedError as error:
            return "NOTIFY" in str(error)
        # The sequencer was still awake: it needed no notification.
        await shell.execute("ROLLBACK PREPARED 'b'")
        return False

    await until(is_refused)
    assert await storage.count("roads", Query(ids=("b",))) == 0
