"""Upgrades of a storage in use: changes under a strong lock, indices, and triggers.

A strong lock is requested with a short timeout and retried, because every later statement on the
table queues behind a waiting request. An index of a partitioned table is created on the parent
alone, which takes a moment, then on one partition after the other, without a lock that blocks
writers. Until all partitions have it, it is not used; new partitions get it from the beginning.
What an interrupted build leaves behind is found and rebuilt. Triggers are replaced table by table,
because writers of a table wait meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
import random
import re
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final, TypeVar

import asyncpg

from naksha.psql.connection.driver import Connection
from naksha.psql.sql import ident, queries, sql

LOCK_MS_MAX: Final = 200
"""How long others may have to queue behind our request for a lock that is not granted."""
_LOCK_TRIES_MAX: Final = 150
PAUSE_S: Final = 0.2
T = TypeVar("T")
_CREATE_INDEX: Final = re.compile(r"^CREATE INDEX (\w+) ON (\w+) (.+);$", re.MULTILINE)
_log = logging.getLogger(__name__)
_random = random.SystemRandom()


async def patiently(work: Callable[[], Awaitable[T]]) -> T:
    """Retry work that sets its own lock timeout until the locks are free."""
    for _ in range(_LOCK_TRIES_MAX - 1):
        try:
            return await work()
        except (asyncpg.LockNotAvailableError, asyncpg.DeadlockDetectedError):
            await asyncio.sleep(PAUSE_S * (1 + _random.random()))
    return await work()


async def run_step(connection: Connection, step: str) -> None:
    """Run an online step: build the indices it names, and replace triggers if it calls for that."""
    await _build_indices(connection, step)
    if "naksha_mend_triggers" in step:
        await mend_triggers(connection)


async def mend_triggers(connection: Connection) -> list[str]:
    """Install missing triggers and replace outdated ones; return the names of those tables.

    A table that is locked for long is left to the next maintenance round.
    """
    mended: list[str] = []
    for row in await connection.fetch(queries()["tables_to_mend"]):
        table: str = row["tbl"]
        try:
            await patiently(partial(connection.execute, queries()["mend_triggers"], table))
        except asyncpg.LockNotAvailableError:
            _log.warning(
                "Table %s is locked; the next maintenance round replaces its triggers", table
            )
        else:
            mended.append(table)
    return mended


async def _build_indices(connection: Connection, step: str) -> None:
    """Create the indices of a step that are missing.

    The caller ensures that no other session adds or merges partitions permanently meanwhile.
    """
    for index, table, columns in _CREATE_INDEX.findall(step):
        await IndexBuild(connection, table, index, columns).build()


class IndexBuild:
    """Build of one index of a partitioned table, on a connection outside of any transaction."""

    def __init__(self, connection: Connection, table: str, index: str, columns: str) -> None:
        self._run = connection
        self._table = table
        self._index = index
        self._columns = columns

    async def build(self) -> None:
        if not await self._run.fetchval(queries()["online_index_there"], self._index):
            await self._briefly("online_index", index=self._index, table=self._table)
        suffix = self._index.removeprefix(self._table)
        while rows := await self._run.fetch(queries()["online_partitions"], self._table, suffix):
            for row in rows:
                await self._of_partition(row)

    async def _of_partition(self, row: Any) -> None:
        part, index = row["part"], row["index"]
        if row["built"] is False:
            await self._run.execute(sql("online_partition_drop", index=ident(index)))
        if not row["built"]:
            slots = {"index": ident(index), "part": ident(part), "columns": self._columns}
            await self._run.execute(sql("online_partition_index", **slots))
            _log.info("Built index %s", index)
        await self._briefly("online_partition_attach", parent=self._index, index=index)

    async def _briefly(self, name: str, **names: str) -> None:
        slots = {slot: ident(given) for slot, given in names.items()}
        text = sql(name, columns=self._columns, **slots)

        async def work() -> None:
            async with self._run.transaction():
                await self._run.fetchval(queries()["lock_timeout"], str(LOCK_MS_MAX), True)
                await self._run.execute(text)

        await patiently(work)
