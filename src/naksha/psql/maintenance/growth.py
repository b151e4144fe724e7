"""Growth of collections: secondary indices for large tables, and sixteen leaves instead of one.

The SQL is in `schema/122_grow.sql`. To grow a collection, one transaction blocks its writers from
beginning to end. Meanwhile other connections fill and index the new leaves and commit them, so that
the leaves are older than every snapshot that can see them after the first transaction commits. If
any of the connections fails, the collection is unchanged, and tables that were not attached are
swept.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
from collections import Counter
from collections.abc import Mapping
from functools import partial
from typing import Any, Final

import asyncpg

from naksha.model.errors import NakshaError, Retryable
from naksha.psql.bulk.lanes import CLOSE_S, LANES, Lanes
from naksha.psql.bulk.splits import LEAVES
from naksha.psql.connection.background_task import BackgroundTask
from naksha.psql.connection.driver import Direct
from naksha.psql.connection.errors import translated
from naksha.psql.connection.servers import DatabaseServer
from naksha.psql.sql import ident, queries, sql

GROW_ROWS: Final = 100_000
"""Number of features from which a collection has sixteen leaves."""
NOTICED_ROWS: Final = 1_000
"""Number of features written to a collection after which the storage checks its tables."""
_BEGIN_TRIES_MAX: Final = 20
"""Attempts to block writers; a plain SQL writer already locks tables when it waits for the gate."""
OLDER_WAIT_S_MAX: Final = 10.0
"""Longest wait, which writers share, for transactions that are older than the new leaves."""
SWAP_TRIES_MAX: Final = 20
PAUSE_S: Final = 0.1
_AGAIN_S: Final = 60.0
"""Pause after a collection could not grow."""
SETTLE_S: Final = 1.0
"""Time that the server needs to count the rows of a transaction."""

_log = logging.getLogger(__name__)
_random = random.SystemRandom()


async def index_tables(connection: Any, collection: str | None = None) -> list[str]:
    """Create the missing indices of large tables; return the names of those tables.

    A table whose lock is not available is left to the next call.
    """
    done: list[str] = []
    for row in await connection.fetch(queries()["tables_to_index"], collection):
        try:
            if await connection.fetchval(queries()["index_table"], *row):
                done.append(row["tbl"])
        except (asyncpg.LockNotAvailableError, asyncpg.DeadlockDetectedError) as error:
            _log.info("Could not create the indices of table %s; will retry: %s", row["tbl"], error)
        except asyncpg.UndefinedTableError:
            _log.info("Table %s was dropped before its indices were created", row["tbl"])
    return done


async def grow(server: DatabaseServer, collection: str) -> bool:
    """Split a collection into sixteen leaves; return False if it has them already.

    Raises:
        Retryable: Readers, writers or older transactions were in the way for too long.
        InUse: An object that a user created needs the only leaf.
    """
    with translated():
        return await _GrowthRun(server, collection).run()


class _GrowthRun:
    def __init__(self, server: DatabaseServer, collection: str) -> None:
        self._server = server
        self._collection = collection

    async def run(self) -> bool:
        await self._wait_for_older()
        control = await self._server.connect()
        try:
            transaction = await self._begin(control)
            if transaction is None:
                return False
            lanes = await Lanes.open(self._server, LANES)
            try:
                job = await lanes.own()
                await self._fill(lanes, job)
                await self._older_ended(control)
                await self._swap(control, job)
                await transaction.commit()
            finally:
                # Tables that are not attached by now have no owner any more, and are swept.
                await lanes.close()
        finally:
            with contextlib.suppress(Exception):
                await control.close(timeout=CLOSE_S)
        _log.info("Collection %s was split into sixteen partitions", self._collection)
        return True

    async def _wait_for_older(self) -> None:
        """Wait for long transactions, which would block the swap, before writers are blocked."""
        connection = await self._server.connect()
        try:
            await self._older_ended(connection)
        finally:
            await connection.close()

    async def _begin(self, control: Direct) -> asyncpg.transaction.Transaction | None:
        """Begin to block writers; return None if the collection has grown already."""
        for attempt in range(_BEGIN_TRIES_MAX):
            transaction = control.transaction()
            await transaction.start()
            try:
                if await control.fetchval(queries()["grow_begin"], self._collection) == 1:
                    return transaction
                await transaction.rollback()
                return None
            except (asyncpg.LockNotAvailableError, asyncpg.DeadlockDetectedError):
                await transaction.rollback()
                if attempt + 1 == _BEGIN_TRIES_MAX:
                    raise
            await asyncio.sleep(PAUSE_S * (1 + _random.random()))
        raise AssertionError("unreachable")

    async def _fill(self, lanes: Lanes, job: int) -> None:
        await lanes.first("grow_fill", self._collection, job)
        points_only = await lanes.first("points_only", self._collection)

        async def index(connection: Direct, leaf: int) -> None:
            await connection.fetchrow(queries()["staged_index"], job, LEAVES[leaf], points_only)
            table = ident(f"naksha_stage_{job}_p{LEAVES[leaf]}")
            await connection.execute(sql("analyze", table=table))

        await lanes.each(index)

    async def _older_ended(self, connection: Direct) -> None:
        deadline = time.monotonic() + OLDER_WAIT_S_MAX
        older: list[str] | None = None
        while older := await connection.fetchval(queries()["grow_older"], self._collection, older):
            if time.monotonic() > deadline:
                raise Retryable(
                    f"Collection {self._collection!r} cannot be split into partitions while "
                    f"{len(older)} older transactions are open; retry later",
                    collection_id=self._collection,
                )
            await asyncio.sleep(PAUSE_S)

    async def _swap(self, control: Direct, job: int) -> None:
        for attempt in range(SWAP_TRIES_MAX):
            try:
                async with control.transaction():
                    await control.fetchval(queries()["grow_swap"], self._collection, job)
            except asyncpg.LockNotAvailableError:
                if attempt + 1 == SWAP_TRIES_MAX:
                    raise
            else:
                return
            await asyncio.sleep(PAUSE_S * (1 + _random.random()))


async def grow_due(server: DatabaseServer, rows_min: int | None = None) -> bool:
    """Grow all collections that are large enough; return False if one must be retried.

    Raises:
        NakshaError: Some collections cannot grow, which the message names; all others were tried.
    """
    with translated():
        connection = await server.connect()
        try:
            rows = await connection.fetch(queries()["collections_to_grow"], rows_min or GROW_ROWS)
        finally:
            await connection.close()
    is_done = True
    failures: list[tuple[str, NakshaError]] = []
    for row in rows:
        try:
            await grow(server, row[0])
        except Retryable as error:
            _log.info(
                "Could not split collection %s into partitions; will retry: %s", row[0], error
            )
            is_done = False
        except NakshaError as error:
            failures.append((row[0], error))
    if failures:
        reasons = "; ".join(f"growth of {name}: {error}" for name, error in failures)
        raise type(failures[0][1])(reasons)
    return is_done


class GrowthTask(BackgroundTask):
    """Background task that checks the tables of collections after many writes to them."""

    title = "Growing collections"

    def __init__(self, server: DatabaseServer) -> None:
        super().__init__()
        self._server = server
        self._written: Counter[str] = Counter()
        self._due: set[str] = set()
        self._is_due = asyncio.Event()

    def written(self, features: Mapping[str, int]) -> None:
        """Count features that were written to collections."""
        for collection, count in features.items():
            self._written[collection] += count
            if self._written[collection] >= NOTICED_ROWS:
                del self._written[collection]
                self._due.add(collection)
                self._is_due.set()

    async def _loop(self) -> None:
        while True:
            await self._is_due.wait()
            await asyncio.sleep(SETTLE_S)
            self._is_due.clear()
            due, self._due = self._due, set()
            await self._attempt(partial(self._look, due))

    async def _look(self, collections: set[str]) -> None:
        with translated():
            connection = await self._server.connect()
            try:
                for collection in collections:
                    await index_tables(connection, collection)
            finally:
                await connection.close()
        if not await grow_due(self._server):
            await asyncio.sleep(_AGAIN_S * (0.5 + _random.random()))
            self._is_due.set()
