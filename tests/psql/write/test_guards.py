"""Guarding pins under plain SQL, in any order of pin and write."""

from __future__ import annotations

import asyncio

import asyncpg
import pytest

from naksha.psql.connection.driver import Direct
from tests.psql.support import Connect, begin, publish, until_blocked

CHANGES = {
    "drop": "SELECT naksha_collection_drop('roads')",
    "disable": "SELECT naksha_collection_disable_history('roads')",
    "change": "SELECT naksha_collection_change('roads', '{\"historyEnabled\": false}')",
    "delete": "SELECT naksha_collection_change('roads', '{\"deleteAt\": 1}')",
    "release": "SELECT naksha_release('roads', 'old_roads', true)",
}


async def last_txn(connection: Direct) -> int:
    await publish(connection)
    txn: int = await connection.fetchval("SELECT max(txn) FROM naksha_version")
    return txn


async def in_transaction(connection: Direct, statement: str) -> None:
    await begin(connection)
    try:
        await connection.execute(statement)
    except BaseException:
        await connection.execute("ROLLBACK")
        raise
    await connection.execute("COMMIT")


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("collection", ["roads", None])
async def test_plain_sql_is_refused_with_a_reason(
    connect: Connect, change: str, collection: str | None
) -> None:
    shell = await connect()
    txn = await last_txn(shell)
    await shell.execute("SELECT naksha_pin_set('branch:x', $1, $2, true)", txn, collection)
    with pytest.raises(asyncpg.PostgresError) as error:
        await in_transaction(shell, CHANGES[change])
    assert error.value.sqlstate == "N0007"
    assert "branch:x" in str(error.value)
    assert "naksha_pin_remove" in str(error.value.hint)
    await shell.execute("SELECT naksha_pin_remove('branch:x')")
    await in_transaction(shell, CHANGES[change])


@pytest.mark.parametrize("change", CHANGES)
async def test_a_pin_does_not_guard_what_was_made_after_it(connect: Connect, change: str) -> None:
    shell = await connect()
    txn = await last_txn(shell)
    await in_transaction(shell, "SELECT naksha_collection_create('later')")
    await shell.execute("SELECT naksha_pin_set('old', $1, NULL, true)", txn)
    await in_transaction(shell, CHANGES[change].replace("roads", "later"))


async def test_a_change_waits_for_a_concurrent_pin(connect: Connect) -> None:
    pinner, changer, watcher = await connect(), await connect(), await connect()
    txn = await last_txn(watcher)
    await pinner.execute("BEGIN")
    await pinner.execute("SELECT naksha_pin_set('open', $1, 'roads', true)", txn)
    task = asyncio.create_task(in_transaction(changer, CHANGES["drop"]))
    await until_blocked(watcher, changer)
    await pinner.execute("COMMIT")
    with pytest.raises(asyncpg.PostgresError, match="open"):
        await task
