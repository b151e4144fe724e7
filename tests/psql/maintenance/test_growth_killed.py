"""Connections and clients that are killed while they grow a collection."""

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from naksha.model.errors import Retryable
from naksha.psql import PsqlStorage
from naksha.psql.connection.driver import Direct
from naksha.psql.maintenance import growth
from naksha.psql.maintenance.growth import grow
from naksha.testing.storage.suite_support import Handle, point
from tests.psql.bulk.tables import staging_tables, until_swept
from tests.psql.maintenance.test_growth import all_versions, edited, partitions_of
from tests.psql.support import Connect, check_log, until


@asynccontextmanager
async def growing(dsn: str, step: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """A process that has begun to grow the collection, as far as the step."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.psql.maintenance.growth_process", dsn, "ways", step),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        async with asyncio.timeout(60):
            assert await process.stdout.readline() == b"reached\n"
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def check_usable(storage: PsqlStorage, connection: Direct, before: list[Any]) -> None:
    """A collection reads as before, takes writes, and grows; nothing unattached is left."""
    handle = Handle(storage, "ways")
    async with asyncio.timeout(30):
        assert await all_versions(handle) == before
        await handle.update(point("w1", 5, 5))
        await until_swept(storage, connection)
        await grow(storage._server, "ways")
    assert await partitions_of(connection, "ways") == 16
    await handle.update(point("w2", 6, 6))
    after = await all_versions(handle)
    assert [after[n] for n in range(4, len(before))] == before[4:]
    assert await staging_tables(connection) == 0
    await check_log(connection)


@pytest.mark.parametrize(
    ("step", "staged"), [("begun", 0), ("copied", 16), ("filled", 16), ("swapped", 16)]
)
async def test_a_client_killed_while_it_grows_a_collection_leaves_it_as_it_was(
    storage: PsqlStorage, bare: str, connect: Connect, step: str, staged: int
) -> None:
    connection, handle = await connect(), await edited(storage)
    before = await all_versions(handle)
    async with growing(bare, step) as process:
        assert await staging_tables(connection) == staged
        process.kill()
        await process.wait()
    assert await partitions_of(connection, "ways") == 1
    await check_usable(storage, connection, before)


async def test_a_client_killed_in_naksha_grow_leaves_a_whole_collection(
    storage: PsqlStorage, bare: str, connect: Connect
) -> None:
    """The server may notice late that the client is gone, and complete the statement."""
    connection, reader = await connect(), await connect()
    before = await all_versions(await edited(storage))
    await reader.execute("BEGIN")
    await reader.fetchval("SELECT count(*) FROM ways")
    active = "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE query ~ '^SELECT naksha_grow' "
    active += "AND state = 'active' AND datname = current_database())"

    async def is_active() -> bool:
        return bool(await connection.fetchval(active))

    async def is_idle() -> bool:
        return not await is_active()

    async with growing(bare, "sql") as process:
        await until(is_active)
        process.kill()
        await process.wait()
    await reader.execute("COMMIT")
    await until(is_idle)
    await check_usable(storage, connection, before)


async def test_killed_in_the_middle_it_leaves_the_collection_as_it_was(
    storage: PsqlStorage, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle, connection = await edited(storage), await connect()
    before = await all_versions(handle)

    async def die(self: Any, control: Direct, job: int) -> None:
        assert await staging_tables(connection) == 16
        await connection.execute("SELECT pg_terminate_backend($1)", control.get_server_pid())
        await control.fetchval("SELECT naksha_grow_swap('ways', $1)", job)

    monkeypatch.setattr(growth._GrowthRun, "_swap", die)
    with pytest.raises(Retryable):
        await grow(storage._server, "ways")
    assert await partitions_of(connection, "ways") == 1
    assert await all_versions(handle) == before
    await handle.update(point("w1", 5, 5))
    await storage.maintain()
    assert await staging_tables(connection) == 0
    monkeypatch.undo()
    assert await grow(storage._server, "ways")
