"""One maintenance round: sweep, mend triggers, remove, expire, merge, refresh, prepare.

Every step is a transaction of its own and may be repeated, so an interrupted round leaves nothing
half done. No step waits long for a lock: it is left to the next round instead. A failed step does
not prevent the others (`naksha.spi.maintenance`), and the short steps of all collections precede
the long ones.

Old partitions of history and log are merged in three steps. First, the merged table is built beside
them. Second, the round waits for transactions that began before it existed, because their snapshots
would see it empty. Third, it replaces the old partitions within a moment.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final

import asyncpg

from naksha.model import limits
from naksha.model.errors import Retryable
from naksha.psql.connection.driver import Connection
from naksha.psql.connection.errors import of
from naksha.psql.maintenance.cells import fold_cells, sweep_cells
from naksha.psql.maintenance.growth import index_tables
from naksha.psql.sql import ident, queries, sql
from naksha.spi.maintenance import StepPostponed, StorageRound, StorageVitals

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
_LOG_TABLE: Final = "naksha_tx"
_FOLDING: Final = "folding of tile cells"

Step = Callable[[], Awaitable[None]]
_random = random.SystemRandom()
_POSTPONED: Final = (
    asyncpg.LockNotAvailableError,
    asyncpg.QueryCanceledError,
    asyncpg.DeadlockDetectedError,
    asyncpg.SerializationError,
)
"""Errors caused by another transaction; the next round retries the step."""


async def maintain(connection: Connection, now_ms: int | None, record: StorageRound) -> None:
    """Run one maintenance round, alone on the storage."""
    async with alone(connection):
        now: int = await connection.fetchval(queries()["maintain_now"], now_ms)
        await MaintenanceRound(connection, now, record).run()


async def preview(connection: Connection, now_ms: int | None, record: StorageRound) -> None:
    """Record what a round would remove; nothing is locked or changed."""
    now: int = await connection.fetchval(queries()["maintain_now"], now_ms)
    for row in await connection.fetch(queries()["maintain_due"], now):
        record.did("%s of %s", row["what"], row["subject"])
    record.vitals = await vitals(connection)


async def vitals(connection: Connection) -> StorageVitals:
    """Measure the figures that show whether the storage needs attention."""
    row = await connection.fetchrow(queries()["maintain_vitals"])
    assert row is not None
    return StorageVitals(
        row["partitions"], row["partitioned"] or "", row["pin"] or "", row["pin_ms"]
    )


async def expire(connection: Connection, collection: str, cutoff: int) -> None:
    """Expire the history of a collection; see `Storage.expire`."""
    async with alone(connection):
        await MaintenanceRound(connection, 0, StorageRound()).expire_before(collection, cutoff)


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

    def __init__(self, connection: Connection, now_ms: int, record: StorageRound) -> None:
        self._run = connection
        self._now_ms = now_ms
        self._record = record
        self._memory = record.memory

    async def run(self) -> None:
        await self._try("sweep", self._sweep)
        await self._try("sweep of loads", self._sweep_loads)
        for row in await self._run.fetch(queries()["tables_to_mend"]):
            await self._try(f"triggers of {row['tbl']}", partial(self._mend, row["tbl"]))
        for collection in await self._collections():
            await self._light(collection)
        await self._try("missing indices", self._index)
        await self._try(_FOLDING, self._fold_cells)
        await self._try("expiry of the log", self._expire_log)
        for collection in await self._collections():  # some were removed above, with overlays
            if not collection["dropped_at"]:
                await self._heavy(collection)
        await self._try("merge of the log", self._merge_log, is_heavy=True)
        await self._try("preparing of the log", lambda: self._prepare(_LOG_TABLE))
        self._record.vitals = await vitals(self._run)

    async def _collections(self) -> list[Any]:
        """Return the collections to maintain, first those for which the last round had no time."""
        found = await self._run.fetch(queries()["maintain_collections"], self._now_ms)
        return sorted(found, key=self._is_not_late)

    def _is_not_late(self, collection: Any) -> bool:
        return not any(step.endswith(f" of {collection['id']}") for step in self._memory.late)

    async def _light(self, collection: Any) -> None:
        """Run the short steps of a collection, which never wait for long ones of others."""
        name: str = collection["id"]
        if collection["dropped_at"]:
            await self._try(f"removal of {name}", lambda: self._destroy(name))
            return
        if collection["expires"]:
            await self._try(f"expiry of {name}", lambda: self._expire(name))

    async def _heavy(self, collection: Any) -> None:
        name, written = collection["id"], collection["written"]
        if collection["merges"]:
            await self._try(
                f"merge of {name}",
                lambda: self._merge(f"merge of {name}", name + "_hst", collection["max_age"]),
                is_heavy=True,
            )
        if written is None or self._memory.refreshed.get(name) != written:
            await self._try(f"statistics of {name}", lambda: self._refresh(name, written))
        if collection["prepares"]:  # after the merge: among many days it would create a month
            await self._try(f"preparing of {name}", lambda: self._prepare(name + "_hst"))

    async def _try(self, what: str, step: Step, *, is_heavy: bool = False) -> None:
        """Run a step; if another transaction blocks it, it is left to the next round."""

        async def run() -> None:
            try:
                await step()
            except _POSTPONED as error:
                raise StepPostponed(str(error)) from error
            except asyncpg.PostgresError as error:
                if self._run.is_closed():
                    self._memory.backoff.failed(what)
                    raise
                raise of(error) from error

        await self._record.attempt(what, run, is_heavy=is_heavy)

    async def _mend(self, table: str) -> None:
        await self._run.execute(queries()["mend_triggers"], table)
        self._record.did("installation of missing or outdated triggers of table %s", table)

    async def _index(self) -> None:
        for table in await index_tables(self._run):
            self._record.did("secondary indices of %s", table)

    async def _sweep(self) -> None:
        for row in await self._run.fetch(queries()["pending_detaches"]):
            await self._ddl("detach_finalize", parent=row["parent"], part=row["part"])
        dropped = await self._run.fetchval(queries()["sweep"])
        if dropped:
            self._record.did("removal of abandoned tables: %s", ", ".join(dropped))

    async def _sweep_loads(self) -> None:
        dropped = await self._run.fetchval(queries()["sweep_staging"])
        if dropped:
            self._record.did("removal of %d tables of interrupted bulk loads", dropped)
        while dropped := await self._run.fetchval(queries()["sweep_staged"], self._now_ms):
            self._record.did("removal of %d staged parts that were never applied", dropped)
        kept_ms = limits.JOB_KEPT_DAYS * 86_400_000
        await self._run.fetchval(queries()["sweep_jobs"], self._now_ms - kept_ms)

    async def _destroy(self, name: str) -> None:
        if await self._run.fetchval(queries()["destroy_due"], name, self._now_ms):
            self._record.did("removal of the collection %s", name)

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
            if row["how"] == "detach":
                await self._detach(name + "_hst", row["part"])
            self._record.did("expiry of %s (%s)", row["part"], row["how"])
            if not self._record.has_time:
                self._record.late(f"expiry of {name}")
                return

    async def _fold_cells(self) -> None:
        while await fold_cells(self._run) or await sweep_cells(self._run):
            if not self._record.has_time:
                self._record.late(_FOLDING)
                return

    async def _expire_log(self) -> None:
        while part := await self._run.fetchval(queries()["log_expire_next"], self._now_ms):
            await self._detach(_LOG_TABLE, part)
            self._record.did("expiry of %s", part)

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

    async def _merge_log(self) -> None:
        keep_days = await self._run.fetchval(queries()["log_keep_days"])
        await self._merge("merge of the log", _LOG_TABLE, keep_days)

    async def _merge(self, step: str, parent: str, keep_days: int) -> None:
        while True:
            period = await self._run.fetchrow(queries()["merge_next"], parent, keep_days)
            assert period is not None
            if period["label"] is None:
                await self._run.fetchval(queries()["sweep_merges"], parent)
                return
            if not self._record.has_time:
                self._record.late(step)
                return
            built = await self._run.fetchval(queries()["merge_build"], parent, *period)
            older = await self._run.fetchval(queries()["running"], None)
            await self._run.execute(sql("merge_vacuum", part=ident(built)))
            await self._swap(parent, period, older)
            self._record.did("merge of %s into %s", parent, period["label"])

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
