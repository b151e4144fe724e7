"""Waiting for versions published by others: plain SQL, other processes, and lost connections.

Waiters never poll here, so that only a notification can wake them."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator

import pytest

from naksha.psql import PsqlStorage
from naksha.psql.connection.driver import Direct
from tests.psql.maintenance import sequencer_process
from tests.psql.support import Connect, begin, insert, publish, until

FOREVER_S = 3600.0
PATIENCE_S = 60.0


@pytest.fixture
async def deaf(bare: str) -> AsyncIterator[PsqlStorage]:
    """An open storage whose waiters never poll."""
    opened = await PsqlStorage.open(bare, "test", pool_max=2)
    opened._sequencer.version_signal._poll_s = FOREVER_S
    yield opened
    await opened.close()


async def write(connection: Direct, feature_id: str) -> None:
    await begin(connection)
    await insert(connection, "roads", feature_id)
    await connection.execute("COMMIT")


async def is_listening(storage: PsqlStorage, watcher: Direct) -> bool:
    """Whether its listener has said what it listens to, and asks for nothing now."""
    listener = storage._sequencer._listener
    if listener is None or listener.is_closed() or not storage._sequencer._elected:
        return False
    state = await watcher.fetchval(
        "SELECT state FROM pg_stat_activity WHERE pid = $1", listener.get_server_pid()
    )
    return bool(state == "idle")


async def test_writes_of_plain_sql_wake_waiters(deaf: PsqlStorage, connect: Connect) -> None:
    writer = await connect()
    last = await deaf.wait_beyond(-1, 0)
    for n in range(5):
        waiting = [asyncio.create_task(deaf.wait_beyond(last, PATIENCE_S)) for _ in range(10)]
        await write(writer, f"r{n}")
        assert await asyncio.gather(*waiting) == [last + 1] * 10
        last += 1


async def test_publications_of_plain_sql_wake_waiters(deaf: PsqlStorage, connect: Connect) -> None:
    """Published in the transaction that wrote it next, before any sequencer can have a look."""
    writer, watcher = await connect(), await connect()
    last = await deaf.wait_beyond(-1, 0)
    await until(lambda: is_listening(deaf, watcher))
    waiting = asyncio.create_task(deaf.wait_beyond(last + 1, PATIENCE_S))
    await write(writer, "a")
    await write(writer, "b")
    assert await publish(writer) == last + 2
    assert await waiting == last + 2


async def test_publications_of_another_process_wake_waiters(
    bare: str, deaf: PsqlStorage, connect: Connect
) -> None:
    writer, watcher = await connect(), await connect()
    await until(lambda: is_listening(deaf, watcher))
    last = await deaf.wait_beyond(-1, 0)
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        sequencer_process.__file__,
        bare,
        "test",
        "the other one",
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        assert await process.stdout.readline() == b"ready\n"
        # Ours is not elected any more, as if it had been paused.
        await deaf._sequencer.close()
        deaf._sequencer._listener = None
        await deaf._sequencer._listen()
        waiting = asyncio.create_task(deaf.wait_beyond(last + 1, PATIENCE_S))
        await write(writer, "a")
        await write(writer, "b")
        assert await waiting == last + 2
    finally:
        process.kill()
        await process.wait()


async def test_a_lost_connection_loses_no_version(deaf: PsqlStorage, connect: Connect) -> None:
    """A version is published while the connection is lost, and no other version follows."""
    writer, watcher = await connect(), await connect()
    last = await deaf.wait_beyond(-1, 0)
    for n in range(3):
        await until(lambda: is_listening(deaf, watcher))
        listener = deaf._sequencer._listener
        assert listener is not None
        waiting = [asyncio.create_task(deaf.wait_beyond(last, PATIENCE_S)) for _ in range(5)]
        await asyncio.sleep(0)
        await watcher.execute("SELECT pg_terminate_backend($1, 10000)", listener.get_server_pid())
        await write(writer, f"r{n}")
        await publish(writer)
        assert await asyncio.gather(*waiting) == [last + 1] * 5
        last += 1


async def test_a_silently_lost_connection_only_delays_versions(
    storage: PsqlStorage, connect: Connect
) -> None:
    writer, watcher = await connect(), await connect()
    await until(lambda: is_listening(storage, watcher))
    await storage._sequencer.close()
    last = await storage.wait_beyond(-1, 0)
    waiting = [asyncio.create_task(storage.wait_beyond(last, PATIENCE_S)) for _ in range(20)]
    await asyncio.sleep(0.01)
    await write(writer, "a")
    assert await asyncio.gather(*waiting) == [last + 1] * 20


async def test_no_connection_is_held_while_waiting(deaf: PsqlStorage, connect: Connect) -> None:
    """There are two connections, and many more who wait."""
    writer = await connect()
    last = await deaf.wait_beyond(-1, 0)
    waiting = [asyncio.create_task(deaf.wait_beyond(last, PATIENCE_S)) for _ in range(100)]
    await deaf.collections()
    await until(lambda: nobody_uses(deaf))
    await write(writer, "a")
    assert set(await asyncio.gather(*waiting)) == {last + 1}


async def nobody_uses(storage: PsqlStorage) -> bool:
    return storage.connections()["used"] == 0
