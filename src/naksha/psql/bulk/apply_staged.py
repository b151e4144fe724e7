"""Staged writes, on main and on branches: attempts, and applying what they staged."""

from __future__ import annotations

import asyncio
import time
from abc import abstractmethod
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

import msgspec

from naksha.model import limits
from naksha.model.collection import CollectionInfo
from naksha.model.errors import (
    CollectionExists,
    Conflict,
    InvalidArgument,
    NakshaError,
    NotFound,
    OutcomeUnknown,
    Retryable,
    Unavailable,
)
from naksha.model.identity.names import check_collection_id
from naksha.model.query import Query
from naksha.psql.bulk.fill import TABLES_AT_ONCE, StagedTable, fill
from naksha.psql.bulk.stage import AttemptContext, PsqlStagingAttempt
from naksha.psql.connection.driver import acquired
from naksha.psql.connection.errors import translated
from naksha.psql.connection.servers import DatabaseServer
from naksha.psql.read.layers import NO_BRANCH
from naksha.psql.sql import queries
from naksha.psql.write.session import PsqlSession
from naksha.psql.write.sessions import Writing
from naksha.spi.staging import (
    JOB,
    MESSAGE,
    AppliedWrite,
    StagedPart,
    StagedWrite,
    StagingAttempt,
    WriteMode,
    applied_there,
    check_job,
    check_settings,
    check_write,
    key_of,
    not_staged,
    record_of,
)
from naksha.spi.storage import WriteSession
from naksha.spi.support.write_input import IdBatch

AT_ONCE: Final = 20_000
"""Features written by one statement, unless they are larger than STAGED_CHUNK_BYTES together.

A larger write closes the write gate first: to lock each row would take as long as to write it, and
a conflict after that would waste all of it.
"""
_FILL_FEATURES_MIN: Final = 10_000
"""Features from which a new or empty collection is filled by the bulk path.

That path leaves it with sixteen partitions, which a small collection should not have.
"""
CHUNK: Final = 5_000
"""Features written by one statement behind the gate."""

_LEAVES: Final = list(range(16))


class _AppliedBefore(Exception):
    """Another process applied the job already."""


class _NotApplied(Exception):
    """The job is not applied, and no running transaction is about to apply it."""


class StagedWrites(Writing):
    """Staged writes on PostgreSQL; see `naksha.spi.staging.StagingStorage`."""

    @property
    @abstractmethod
    def _server(self) -> DatabaseServer:
        """Server for connections outside of the pool."""

    # ---- Staging -----------------------------------------------------------------------------

    async def stage(self, job: str, info: CollectionInfo) -> StagingAttempt:
        check_job(job)
        check_collection_id(info.id, field="id")
        if self._branch == NO_BRANCH:
            found, _ = await self._existing(info.id)
            info = found or info
        else:
            info = await self.collection(info.id)
        await self._sweep_staged()
        return await PsqlStagingAttempt.open(
            self._server, AttemptContext(job, info, self._info, self._clock)
        )

    async def drop_staged(self, job: str) -> None:
        check_job(job)
        async with self._connection() as connection:
            await connection.fetchval(queries()["staged_release"], job, None)
        await self._sweep_staged()

    async def _existing(self, collection: str) -> tuple[CollectionInfo | None, bool]:
        """Return the collection, if it exists, and whether the bulk path may fill it."""
        async with self._connection() as connection:
            row = await connection.fetchrow(queries()["staged_look"], collection)
        assert row is not None
        return _info_of(row), row["is_empty"]

    async def _sweep_staged(self) -> None:
        now_ms = None if self._clock is None else self._clock.now_ms()
        async with self._connection() as connection:
            while await connection.fetchval(queries()["sweep_staged"], now_ms):
                pass

    # ---- Applying ----------------------------------------------------------------------------

    async def apply_staged(self, write: StagedWrite, parts: Sequence[StagedPart]) -> AppliedWrite:
        check_write(write, parts)
        applied = await self._applied(write)
        if applied is None:
            applied = await self._apply(write, parts)
        if applied.repeated:
            with suppress(NakshaError):  # it is swept later
                await self.drop_staged(write.job)
        return applied

    async def _apply(self, write: StagedWrite, parts: Sequence[StagedPart]) -> AppliedWrite:
        applying = _StagedApply(self, write, parts)
        try:
            return await self.run(applying.work, write.app_id, write.author)
        except _AppliedBefore:
            applied = await self._applied(write)
            assert applied is not None
            return applied
        except Unavailable as error:
            if not applying.is_unsure:
                raise
            return await self._determine_outcome(write, error)
        finally:
            await self._tidy_up()

    async def _determine_outcome(self, write: StagedWrite, error: Unavailable) -> AppliedWrite:
        """Determine the outcome of a write after the response to its commit was lost."""
        try:
            async with asyncio.timeout(limits.STAGED_OUTCOME_SECONDS_MAX):
                applied = await self._outcome(write)
        except (NakshaError, TimeoutError) as reason:
            raise OutcomeUnknown(
                f"The storage did not report whether job {write.job!r} was applied; read its "
                f"result before you repeat it ({error.message})",
                field="job",
                collection_id=write.info.id,
            ) from reason
        if applied is None:
            raise error
        return msgspec.structs.replace(applied, repeated=False)

    async def _outcome(self, write: StagedWrite) -> AppliedWrite | None:
        """Return the result of a write whose transaction has ended or will end soon.

        None if it was not applied, and no running transaction is about to apply it.
        """

        async def ask(session: WriteSession) -> None:
            # This waits for a transaction that is still running although its client is gone.
            await session.store_object(JOB, write.job, {}, expected=0)
            raise _NotApplied

        while True:
            try:
                with suppress(Conflict):
                    await self.run(ask, write.app_id, write.author)
                return await self._applied(write)
            except _NotApplied:
                return None
            except Unavailable:
                await asyncio.sleep(limits.RETRY_DELAY_MS_MAX / 1000)

    async def _applied(self, write: StagedWrite) -> AppliedWrite | None:
        kept = await self.stored_object(JOB, write.job)
        if kept is None:
            return None
        overlay = self._branch[0].overlay
        return applied_there(kept.value, write.job, write.info.id, overlay)

    async def _tidy_up(self) -> None:
        """Drop tables that are not needed any more; what cannot be dropped now is swept later."""
        with suppress(NakshaError):
            await self._sweep_staged()
            async with self._connection() as connection:
                await connection.fetchval(queries()["sweep_staging"])


class _StagedApply:
    """A staged write that is applied in one or more sessions."""

    def __init__(
        self, storage: StagedWrites, write: StagedWrite, parts: Sequence[StagedPart]
    ) -> None:
        self._storage = storage
        self._write = write
        self._given = parts
        self._gathered: str | None = None
        self._session: PsqlSession | None = None

    @property
    def is_unsure(self) -> bool:
        """Whether its last session was committing, so that the commit may have taken place."""
        return self._session is not None and self._session.is_unsure

    async def work(self, session: WriteSession) -> AppliedWrite:
        assert isinstance(session, PsqlSession)
        self._session = session
        write = self._write
        try:
            # A second process that applies the job waits here for the first.
            await session.store_object(JOB, write.job, {}, expected=0)
        except Conflict as error:
            raise _AppliedBefore from error
        counts = await self._do(session)
        if session.txn is not None:
            await session.message(JOB, write.job)
            if write.message is not None:
                await session.message(MESSAGE, write.message)
        applied = AppliedWrite(
            session.txn,
            counts["CREATED"],
            counts["UPDATED"],
            counts["DELETED"],
            counts["RETAINED"],
        )
        clock = self._storage._clock
        at_ms = int(time.time() * 1000) if clock is None else clock.now_ms()
        record = record_of(write.info.id, self._storage._branch[0].overlay, applied, at_ms)
        await session.store_object(JOB, write.job, record, expected=1)
        await session.call("staged_release", None, write.job, None)
        return applied

    async def _do(self, session: PsqlSession) -> Counter[str]:
        """Write all features the way that fits the collection; return the count of each action."""
        rows = await self._rows(session)
        parts = [StagedTable(row["name"], row["counts"]) for row in rows]
        collection = self._write.info.id
        info, is_empty = await self._existing(session)
        wanted = info or self._write.info
        for row in rows:
            staged = CollectionInfo(
                id=collection, id_prefix=row["id_prefix"], points_only=row["points_only"]
            )
            check_settings(staged, wanted)
        features = sum(sum(part.counts) for part in parts)
        is_worth_16 = features >= (1 if wanted.partitions > 1 else _FILL_FEATURES_MIN)
        if is_empty and is_worth_16 and not any(row["has_locks"] for row in rows):
            server = self._storage._server
            return Counter(CREATED=await fill(session, server, wanted, parts, is_new=info is None))
        if info is None:
            await self._make(session)
        size = sum(row["bytes"] for row in rows)
        is_large = features > AT_ONCE or size > limits.STAGED_CHUNK_BYTES
        return await self._write_to(session, parts, features, is_large)

    async def _rows(self, session: PsqlSession) -> list[Any]:
        """Return the parts to apply, as the storage knows them.

        They are kept until the session ends.
        """
        names = [part.table for part in self._given]
        rows = await session.call("staged_parts", None, self._write.job, names)
        found = {row["name"]: row for row in rows}
        for part in self._given:
            row = found.get(part.table)
            if row is None or sum(row["counts"]) != part.features:
                raise not_staged(part)
            if row["collection"] != self._write.info.id:
                raise InvalidArgument(
                    f"The staged part {part.table!r} belongs to collection {row['collection']!r}, "
                    f"not {self._write.info.id!r}; stage it again",
                    field="parts",
                )
        return rows

    async def _existing(self, session: PsqlSession) -> tuple[CollectionInfo | None, bool]:
        """Return the collection, if it exists, and whether the bulk path may be taken."""
        collection = self._write.info.id
        if self._storage._branch != NO_BRANCH:
            return await session.collection(collection), False
        (look,) = await session.call("staged_look", None, collection)
        return _info_of(look), look["is_empty"]

    async def _make(self, session: PsqlSession) -> None:
        try:
            await session.create_collection(self._write.info)
        except CollectionExists as error:
            raise Retryable(
                f"Another transaction created collection {self._write.info.id!r}; repeat the write"
            ) from error

    # ---- Collections that have features ------------------------------------------------------

    async def _write_to(
        self, session: PsqlSession, parts: Sequence[StagedTable], features: int, is_large: bool
    ) -> Counter[str]:
        collection, mode = self._write.info.id, self._write.mode
        await session._open(collection)
        deletes = mode in (WriteMode.REPLACE, WriteMode.MIRROR)
        if deletes or is_large:
            await session.close_gates([collection])
        tables = await self._tables(parts)
        verb = "create" if mode is WriteMode.CREATE else "upsert"
        counts: Counter[str] = Counter()
        for leaves in [[leaf] for leaf in _LEAVES] if is_large else [_LEAVES]:
            most = (CHUNK if is_large else AT_ONCE, limits.STAGED_CHUNK_BYTES)
            values = (verb, tables, leaves, *most)
            for row in await session.call_features("staged_put", collection, collection, *values):
                counts[row["action"]] += row["features"]
        session.features_written.update({collection: features})
        if sum(counts.values()) != features:
            raise NotFound(
                f"Only {sum(counts.values())} of the {features} features staged by job "
                f"{self._write.job!r} still exist; stage them again"
            )
        if deletes:
            counts["DELETED"] += await self._delete(session, tables)
        return counts

    async def _tables(self, parts: Sequence[StagedTable]) -> list[str]:
        """Return the tables of the staged features, gathered into one if there are too many.

        A single transaction locks each of them.
        """
        if len(parts) <= TABLES_AT_ONCE:
            return [part.table for part in parts]
        if self._gathered is None:
            self._gathered = await self._gather(parts)
        return [self._gathered]

    async def _gather(self, parts: Sequence[StagedTable]) -> str:
        storage, write = self._storage, self._write
        attempt = AttemptContext(write.job, write.info, storage._info, storage._clock)
        names = [part.table for part in parts]
        async with acquired(storage._connections) as connection:
            with translated():
                table: str = await connection.fetchval(
                    queries()["staged_open"], write.job, write.info.id, None, False, *attempt.lease
                )
                for start in range(0, len(names), TABLES_AT_ONCE):
                    some = names[start : start + TABLES_AT_ONCE]
                    await connection.fetchval(queries()["staged_gather"], table, some)
                await connection.fetchval(
                    queries()["staged_close"], table, [0] * len(_LEAVES), False, *attempt.lease
                )
        return table

    async def _delete(self, session: PsqlSession, tables: list[str]) -> int:
        """Delete the features that are not staged; return their number."""
        collection, key = self._write.info.id, self._write.key
        if self._storage._branch == NO_BRANCH:
            values = (tables, key, CHUNK)
            (row,) = await session.call_features("staged_delete", collection, collection, *values)
            return int(row[0])
        await self._compare(session, tables)
        deleted, last = 0, ""
        while rows := await session.call("staged_absent", None, last, CHUNK):
            ids = [row[0] for row in rows]
            batch = IdBatch("delete", ids, [None] * len(ids))
            await session._write(collection, [batch], returning=False, commit=False)
            deleted, last = deleted + len(ids), ids[-1]
        return deleted

    async def _compare(self, session: PsqlSession, tables: list[str]) -> None:
        """Find the features to delete on a branch, which is read through its layers.

        The database holds both sides, since neither the existing nor the staged features need to
        fit into memory here.
        """
        key = self._write.key
        await session.call("staged_note", None, tables, key)
        async for states in session.chunks(self._write.info.id, Query()):
            ids, found = [state.id for state in states], None
            if key is not None:
                values = (key_of(state.feature, key) for state in states)
                found = [None if value is None else value.decode() for value in values]
            await session.call("staged_compare", None, ids, found)


def _info_of(row: Any) -> CollectionInfo | None:
    if row["info"] is None:
        return None
    return msgspec.json.decode(row["info"], type=CollectionInfo)
