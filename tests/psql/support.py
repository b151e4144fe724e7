"""Helpers of the PostgreSQL storage tests: plain SQL connections and checks of all invariants."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import Awaitable, Callable, Collection
from itertools import pairwise
from typing import Any

import asyncpg

from naksha.psql.connection.driver import Direct
from naksha.psql.maintenance.sequencer import ELECTED
from naksha.testing.servers.postgres import PostgresCluster

POLL_SECONDS = 0.01
POLLS_MAX = 6000


async def connect_to(dsn: str, schema: str = "naksha", **settings: str) -> Direct:
    """A connection whose search path is the schema of a storage."""
    return await asyncpg.connect(
        dsn, server_settings={"search_path": f'"{schema}", public, pg_temp', **settings}
    )


def restore(cluster: PostgresCluster, source: str, target: str, schema: str = "naksha") -> None:
    """Dump the schema of a storage and restore it in another database."""
    quoted = '"' + schema.replace('"', '""') + '"'
    dump = subprocess.run(
        [cluster.install.program("pg_dump"), f"--schema={quoted}", source],
        capture_output=True,
        check=True,
    )
    subprocess.run(
        [cluster.install.program("psql"), "-Xq", "-v", "ON_ERROR_STOP=1", target],
        input=dump.stdout,
        stdout=subprocess.DEVNULL,
        check=True,
    )


class Connect:
    """Makes connections and closes them at the end of the test."""

    def __init__(self, dsn: str) -> None:
        self.dsn = dsn
        self._opened: list[Direct] = []

    async def __call__(self, schema: str = "naksha", **settings: str) -> Direct:
        connection = await connect_to(self.dsn, schema, **settings)
        self._opened.append(connection)
        return connection

    async def close(self) -> None:
        """Ends all of them, whatever state they are in."""
        for connection in self._opened:
            connection.terminate()


async def begin(connection: Direct, app_id: str = "app", author: str | None = None) -> None:
    """Start a transaction that may write."""
    await connection.execute("BEGIN")
    await connection.execute("SELECT naksha_tx_start($1, $2)", app_id, author)


async def draw(connection: Direct) -> int:
    """The transaction's number, drawn when it has none."""
    number: int = await connection.fetchval("SELECT naksha_txn()")
    return number


async def sign(connection: Direct, message_id: str = "m") -> int:
    """Write the least that a transaction can write, a message; gives the transaction's number."""
    await connection.execute("SELECT naksha_tx_message($1, 'text')", message_id)
    return await draw(connection)


async def insert(connection: Direct, collection: str, *ids: str, **properties: Any) -> None:
    """Insert features with plain SQL."""
    await connection.execute(
        f'INSERT INTO "{collection}" (jsondata) SELECT jsonb_build_object('
        "'id', id, 'properties', $2::jsonb) FROM unnest($1::text[]) AS id",
        list(ids),
        json.dumps(properties),
    )


async def by_force(connection: Direct, statement: str, *values: Any) -> None:
    """Write to a guarded table; only tests do so."""
    async with connection.transaction():
        await connection.execute("SET LOCAL naksha.depth = '0'")
        await connection.execute(statement, *values)


async def publish(connection: Direct) -> int:
    """Publish what can be; gives the last version."""
    last: int = await connection.fetchval("SELECT last_seq FROM naksha_publish()")
    return last


async def published(connection: Direct) -> list[int]:
    """The transactions published so far, in the order of their versions."""
    rows = await connection.fetch("SELECT txn FROM naksha_version ORDER BY seq_number")
    return [row["txn"] for row in rows]


async def open_draws(connection: Direct) -> list[int]:
    """The backends that hold publication back."""
    rows = await connection.fetch("SELECT pid FROM naksha_open_draws ORDER BY txn")
    return [row["pid"] for row in rows]


async def check_log(connection: Direct, expected: Collection[int] | None = None) -> None:
    """Versions are dense from 1, one per transaction, in txn order, their time never decreases;
    all that is committed (and `expected`, when given) is published exactly once."""
    versions = await connection.fetch("SELECT * FROM naksha_version ORDER BY seq_number")
    numbers = [row["seq_number"] for row in versions]
    assert numbers == list(range(1, len(numbers) + 1))
    txns = [row["txn"] for row in versions]
    assert all(a < b for a, b in pairwise(txns)), "txn order"
    times = [row["seq_ts"] for row in versions]
    assert all(a <= b for a, b in pairwise(times)), "time order"
    log = await connection.fetch("SELECT DISTINCT txn, seq_number, seq_ts FROM naksha_tx")
    assert {tuple(row) for row in log} == {
        (row["txn"], row["seq_number"], row["seq_ts"]) for row in versions
    }
    if expected is not None:
        assert set(expected) <= set(txns)


async def advisory_locks(connection: Direct, *others: Direct) -> list[dict[str, Any]]:
    """Advisory locks held in this database by `others`, or by anybody when none are given."""
    rows = await connection.fetch(
        "SELECT pid, classid, objid, objsubid, mode FROM pg_locks WHERE locktype = 'advisory' AND"
        " database = (SELECT oid FROM pg_database WHERE datname = current_database())"
    )
    pids = {other.get_server_pid() for other in others}
    return [dict(row) for row in rows if not pids or row["pid"] in pids]


async def until(condition: Callable[[], Awaitable[object]]) -> None:
    """Wait for something that only looking can tell."""
    for _ in range(POLLS_MAX):
        if await condition():
            return
        await asyncio.sleep(POLL_SECONDS)
    raise AssertionError("it did not happen")


async def until_elected(watcher: Direct) -> None:
    """Wait until an open storage is the sequencer."""

    async def is_elected() -> bool:
        locks = await advisory_locks(watcher)
        return any((lock["objsubid"], lock["objid"]) == (2, ELECTED) for lock in locks)

    await until(is_elected)


async def until_blocked(watcher: Direct, blocked: Direct) -> None:
    """Wait until a backend waits for a lock."""
    pid = blocked.get_server_pid()

    async def waits() -> bool:
        found: bool = await watcher.fetchval(
            "SELECT EXISTS (SELECT FROM pg_locks WHERE pid = $1 AND NOT granted)", pid
        )
        return found

    await until(waits)
