"""One maintenance round: sweep, mend triggers, remove, expire, merge, refresh, prepare.

Every step is a transaction of its own and may be repeated, so an interrupted round leaves nothing
half done. No step waits long for a lock: it is left to the next round instead. A failed step does
not prevent the others: the round continues, and reports all failures at its end. In the background
a failed step is retried after increasing pauses.

Old partitions of history and log are merged in three steps. First, the merged table is built beside
them. Second, the round waits for transactions that began before it existed, because their snapshots
would see it empty. Third, it replaces the old partitions within a moment.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final

import asyncpg

from naksha.model import limits
from naksha.model.errors import NakshaError, Retryable
from naksha.psql.connection.driver import Connection
from naksha.psql.connection.errors import of
from naksha.psql.maintenance.growth import index_tables
from naksha.psql.sql import ident, queries, sql

_MAINTENANCE: Final = 4
"""Number of the advisory lock; see naksha_lock_class in the schema."""
_OTHER_WAIT_S_MAX: Final = 60.0
"""Longest wait for another maintainer."""
SNAPSHOT_WAIT_S_MAX: Final = 30.0
"""Longest wait for transactions that are older than a merged table."""
SWAP_TRIES_MAX: Final = 40
DETACH_MS_MAX: Final = 30_000
"""Timeout of DETACH CONCURRENTLY, which waits for readers; a later round finalizes it."""
PAUSE_S: Final = 0.1
_BACKOFF_S_MIN: Final = 60.0
_BACKOFF_S_MAX: Final = 86_400.0
"""Pauses before a failed step is retried in the background; each is twice the last."""
_LOG_TABLE: Final = "naksha_tx"

Step = Callable[[], Awaitable[None]]
_log = logging.getLogger(__name__)
_random = random.SystemRandom()
_POSTPONED: Final = (
    asyncpg.LockNotAvailableError,
    asyncpg.QueryCanceledError,
    asyncpg.DeadlockDetectedError,
    asyncpg.SerializationError,
)
"""Errors caused by another transaction; the next round retries the step."""


class StepBackoff:
    """The steps that failed in earlier rounds, and when each of them is retried."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._failed: dict[str, tuple[int, float]] = {}

    def is_due(self, step: str) -> bool:
        return step not in self._failed or self._now_s() >= self._failed[step][1]

    def failed(self, step: str) -> None:
        count = self._failed.get(step, (0, 0.0))[0] + 1
        pause = min(_BACKOFF_S_MIN * 2 ** min(count - 1, 20), _BACKOFF_S_MAX)
        self._failed[step] = (count, self._now_s() + pause)

    def done(self, step: str) -> None:
        self._failed.pop(step, None)


class RoundMemory:
    """State that a maintainer keeps from one round to the next."""

    def __init__(self) -> None:
        self.backoff: Final = StepBackoff()
        self.refreshed: Final[dict[str, str]] = {}
        """The server's counters of a collection when its statistics were last refreshed."""


async def maintain(
    connection: Connection, now_ms: int | None, memory: RoundMemory | None = None
) -> None:
    """Run one maintenance round, alone on the storage.

    Without `memory` the round includes steps that failed just before, and refreshes the statistics
    of all collections.

    Raises:
        NakshaError: Some steps failed, which the message names; all others are done.
    """
    async with alone(connection):
        now: int = await connection.fetchval(queries()["maintain_now"], now_ms)
        await MaintenanceRound(connection, now, memory).run()


async def expire(connection: Connection, collection: str, cutoff: int) -> None:
    """Expire the history of a collection; see `Storage.expire`."""
    async with alone(connection):
        await MaintenanceRound(connection, 0).expire_before(collection, cutoff)


@asynccontextmanager
async def alone(connection: Connection) -> Any:
    """Hold the maintenance lock of the storage for a block.

    Raises:
        Retryable: Another maintainer holds it for long.
    """
    deadline = time.monotonic() + _OTHER_WAIT_S_MAX
    while not await connection.fetchval(queries()["try_lock"], _MAINTENANCE):
        if time.monotonic() > deadline:
            raise Retryable("Another process is maintaining this storage; retry later")
        await asyncio.sleep(PAUSE_S)
    try:
        yield
    finally:
        if not connection.is_closed():
            await connection.fetchval(queries()["unlock"], _MAINTENANCE)


class MaintenanceRound:
    """One round on one connection, which holds the maintenance lock."""

    def __init__(
        self, connection: Connection, now_ms: int, memory: RoundMemory | None = None
    ) -> None:
        self._run = connection
        self._now_ms = now_ms
        self._memory = memory or RoundMemory()
        self._failures: list[tuple[str, NakshaError]] = []

    async def run(self) -> None:
        await self._try("sweep", self._sweep)
        await self._try("sweep of loads", self._sweep_loads)
        for row in await self._run.fetch(queries()["tables_to_mend"]):
            await self._try(f"triggers of {row['tbl']}", partial(self._mend, row["tbl"]))
        for collection in await self._run.fetch(queries()["maintain_collections"], self._now_ms):
            await self._collection(collection)
        await self._try("missing indices", self._index)
        await self._try("expiry of the log", self._expire_log)
        keep_days = await self._run.fetchval(queries()["log_keep_days"])
        await self._try("merge of the log", lambda: self._merge(_LOG_TABLE, keep_days))
        await self._try("preparing the log", lambda: self._prepare(_LOG_TABLE))
        if self._failures:
            reasons = "; ".join(f"{what}: {error}" for what, error in self._failures)
            raise type(self._failures[0][1])(
                "Maintenance of the storage is incomplete and continues in the next round: "
                f"{reasons}"
            )

    async def _collection(self, collection: Any) -> None:
        name: str = collection["id"]
        if collection["dropped_at"]:
            await self._try(f"removal of {name}", lambda: self._destroy(name))
            return
        history, written = name + "_hst", collection["written"]
        if collection["expires"]:
            await self._try(f"expiry of {name}", lambda: self._expire(name))
        if collection["merges"]:
            await self._try(f"merge of {name}", lambda: self._merge(history, collection["max_age"]))
        if written is None or self._memory.refreshed.get(name) != written:
            await self._try(f"statistics of {name}", lambda: self._refresh(name, written))
        if collection["prepares"]:
            await self._try(f"preparing {name}", lambda: self._prepare(history))

    async def _try(self, what: str, step: Step) -> None:
        """Run a step, unless it failed a short while ago.

        If another transaction blocks the step it is left to the next round; any other failure is
        reported at the end of this one.
        """
        if not self._memory.backoff.is_due(what):
            return
        try:
            await step()
        except _POSTPONED as error:
            _log.info("Maintenance postponed: %s (%s)", what, error)
        except asyncpg.PostgresError as error:
            if self._run.is_closed():
                raise
            self._memory.backoff.failed(what)
            self._failures.append((what, of(error)))
        else:
            self._memory.backoff.done(what)

    async def _mend(self, table: str) -> None:
        await self._run.execute(queries()["mend_triggers"], table)
        _log.warning("Maintenance installed missing or outdated triggers of table %s", table)

    async def _index(self) -> None:
        for table in await index_tables(self._run):
            _log.info("Maintenance created the secondary indices of %s", table)

    async def _sweep(self) -> None:
        for row in await self._run.fetch(queries()["pending_detaches"]):
            await self._ddl("detach_finalize", parent=row["parent"], part=row["part"])
        dropped = await self._run.fetchval(queries()["sweep"])
        if dropped:
            _log.info("Maintenance dropped abandoned tables: %s", ", ".join(dropped))

    async def _sweep_loads(self) -> None:
        dropped = await self._run.fetchval(queries()["sweep_staging"])
        if dropped:
            _log.info("Maintenance dropped %d tables of interrupted bulk loads", dropped)
        while dropped := await self._run.fetchval(queries()["sweep_staged"], self._now_ms):
            _log.info("Maintenance dropped %d staged parts that were never applied", dropped)
        kept_ms = limits.JOB_KEPT_DAYS * 86_400_000
        await self._run.fetchval(queries()["sweep_jobs"], self._now_ms - kept_ms)

    async def _destroy(self, name: str) -> None:
        if await self._run.fetchval(queries()["destroy_due"], name, self._now_ms):
            _log.info("Maintenance removed the collection %s", name)

    async def _expire(self, name: str) -> None:
        await self._expire_all(name, "expire_next", self._now_ms)

    async def expire_before(self, name: str, cutoff: int) -> None:
        """Drop the history that ended before a transaction, which is the first one of a day."""
        await self._expire_all(name, "expire_before", cutoff)

    async def _expire_all(self, name: str, query: str, until: int) -> None:
        while True:
            row = await self._run.fetchrow(queries()[query], name, until)
            if row is None or row["part"] is None or row["how"] == "busy":
                return
            _log.info("Maintenance expires %s (%s)", row["part"], row["how"])
            if row["how"] == "detach":
                await self._detach(name + "_hst", row["part"])

    async def _expire_log(self) -> None:
        while part := await self._run.fetchval(queries()["log_expire_next"], self._now_ms):
            _log.info("Maintenance expires %s", part)
            await self._detach(_LOG_TABLE, part)

    async def _detach(self, parent: str, part: str) -> None:
        await self._ddl("detach", parent=parent, part=part)
        await self._ddl("drop_detached", part=part)

    async def _ddl(self, name: str, **tables: str) -> None:
        slots = {slot: ident(table) for slot, table in tables.items()}
        await self._run.fetchval(queries()["maintain_timeouts"], str(DETACH_MS_MAX))
        try:
            await self._run.execute(sql(name, **slots))
        finally:
            await self._run.fetchval(queries()["maintain_timeouts"], "0")

    async def _merge(self, parent: str, keep_days: int) -> None:
        while True:
            period = await self._run.fetchrow(queries()["merge_next"], parent, keep_days)
            assert period is not None
            if period["label"] is None:
                await self._run.fetchval(queries()["sweep_merges"], parent)
                return
            built = await self._run.fetchval(queries()["merge_build"], parent, *period)
            older = await self._run.fetchval(queries()["running"], None)
            await self._run.execute(sql("merge_vacuum", part=ident(built)))
            await self._swap(parent, period, older)
            _log.info("Maintenance merged %s into %s", parent, period["label"])

    async def _swap(self, parent: str, period: Any, older: list[str]) -> None:
        """Replace the old partitions by the merged table, or leave it to the next round."""
        deadline = time.monotonic() + SNAPSHOT_WAIT_S_MAX
        while older := await self._run.fetchval(queries()["running"], older):
            if time.monotonic() > deadline:
                raise asyncpg.LockNotAvailableError("older transactions are still open")
            await asyncio.sleep(PAUSE_S)
        for attempt in range(SWAP_TRIES_MAX):
            try:
                await self._run.fetchval(queries()["merge_swap"], parent, *period)
            except asyncpg.LockNotAvailableError:
                if attempt + 1 == SWAP_TRIES_MAX:
                    raise
            else:
                return
            await asyncio.sleep(PAUSE_S * (1 + _random.random()))

    async def _refresh(self, name: str, written: str | None) -> None:
        await self._run.fetchval(queries()["refresh_statistics"], name)
        if written is not None:
            self._memory.refreshed[name] = written

    async def _prepare(self, parent: str) -> None:
        await self._run.fetchval(queries()["prepare_tomorrow"], parent, self._now_ms)
