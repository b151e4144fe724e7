"""Write session: one transaction on one connection."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    asynccontextmanager,
    contextmanager,
    nullcontext,
    suppress,
)
from typing import Any, Final, NamedTuple, TypeAlias

import asyncpg
import msgspec
from asyncpg.transaction import Transaction

from naksha.model.collection import CollectionChange, CollectionInfo
from naksha.model.errors import NotSupported, Retryable
from naksha.model.identity.names import check_collection_id
from naksha.model.identity.storage_identity import StorageIdentity
from naksha.model.state import State, WriteOutcome
from naksha.model.version import Version
from naksha.psql.connection.driver import Connection, Direct, is_lost
from naksha.psql.connection.errors import DRIVER_ERRORS, translated
from naksha.psql.connection.lock_watch import LockWatch
from naksha.psql.read.checked_statement import KnownCollection, KnownFacts
from naksha.psql.read.layers import NO_BRANCH, Branch, check_layers, is_overlay
from naksha.psql.read.reader import PsqlReader
from naksha.psql.sql import queries
from naksha.psql.write.batch import Rows, write_values
from naksha.spi.storage import BranchLayer, StorageReader
from naksha.spi.support.write_input import Batch, CheckedSession, TransactionMessage

_INFO: Final = msgspec.json.Decoder(CollectionInfo)
Prepare: TypeAlias = Callable[[Connection, str], Awaitable[None]]


class Start(NamedTuple):
    """Parameters of naksha_tx_start; `is_import` for a transaction with a past time."""

    app_id: str
    author: str | None
    at_ms: int | None
    is_import: bool


class PsqlSession(PsqlReader, CheckedSession):
    """Write session on PostgreSQL; see `naksha.spi.storage.WriteSession`.

    The transaction begins with the first write. A first write that also commits is a statement
    outside of any transaction block.
    """

    def __init__(
        self,
        connection: Connection,
        connect: Callable[[], Awaitable[Direct]],
        storage: StorageIdentity,
        start: Start,
        branch: Branch = NO_BRANCH,
        prepare: Prepare | None = None,
        scope: Collection[str] | None = None,
        facts: KnownFacts | None = None,
        trusts_facts: bool = False,
    ) -> None:
        """Wrap a connection.

        `connect` opens further connections; `prepare` creates the tables that a write to a
        collection needs; `scope` lists the collections that may be written to. With `trusts_facts`
        collections that are known are not read again.
        """
        PsqlReader.__init__(self, facts)
        CheckedSession.__init__(self)
        self._scope = scope
        self._branch = branch
        self._prepare = prepare
        self._prepared: set[str] = set()
        self._own = connection
        self._connect = connect
        self._storage_info = storage
        self._start = start
        self._transaction: Transaction | None = None
        self._is_started = False
        self._txn: int | None = None
        self._trusts_facts = trusts_facts
        self.resolved: dict[str, KnownCollection] = {}
        self.unverified: dict[str, KnownCollection] = {}
        """Collections that are known from before, and that no write has compared yet."""
        self.collections_written: set[str] = set()
        self.features_written: Counter[str] = Counter()
        self.is_unsure = False
        """Whether the response to the commit was lost, so that it may have taken place."""

    @property
    def is_committed(self) -> bool:
        return self._is_committed

    @property
    def txn(self) -> int | None:
        return self._txn

    @property
    def _storage(self) -> StorageIdentity:
        return self._storage_info

    @property
    def _pins_head(self) -> bool:
        return False

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[Connection]:
        self.check_usable()
        try:
            with translated():
                yield self._own
        except BaseException as error:
            is_failed = isinstance(error.__cause__, asyncpg.PostgresError)
            if is_failed and not self._may_fail:
                self._break(error)  # The server has ended the transaction.
            elif isinstance(error.__cause__, asyncio.CancelledError):
                self._break(error)
            raise

    @property
    def _may_fail(self) -> bool:
        return self._transaction is None

    def _is_known(self, collection: str) -> bool:
        is_own = collection in self._prepared or collection in self.resolved
        return is_own or super()._is_known(collection)

    def _learn(self, known: KnownCollection) -> None:
        """Keep it in the session only: this transaction may have created the collection."""
        self.resolved.setdefault(known.info.id, known)

    async def _publish(self) -> None:
        """Do nothing: inside a transaction the published versions do not change."""

    @asynccontextmanager
    async def _streaming(self, connection: Connection) -> AsyncIterator[None]:
        """Stream in the session's own transaction.

        A savepoint for the stream would be rolled back when an abandoned stream is collected,
        together with everything written since.
        """
        await self._begin()
        yield

    # ---- The transaction ---------------------------------------------------------------------

    async def _begin(self) -> None:
        """Open the transaction block, if it is not open."""
        if self._transaction is None:
            transaction = self._own.transaction()
            await transaction.start()
            self._transaction = transaction

    async def _begin_write(self) -> None:
        """Open the transaction block and declare the writer, unless a write has done so."""
        await self._begin()
        if self._is_started:
            return
        await self._own.fetchval(queries()["tx_start"], *self._start)
        if self._branch != NO_BRANCH:
            await self._own.fetchval(queries()["tx_branch"], *self._layers())
        self._is_started = True

    def _layers(self) -> tuple[list[int] | None, list[int | None] | None]:
        """Return overlays and transactions of the branch, as SQL takes them."""
        if self._branch == NO_BRANCH:
            return None, None
        return [layer.overlay for layer in self._branch], [layer.txn for layer in self._branch]

    async def commit(self) -> None:
        """Commit what was written, if that has not been done."""
        if self._transaction is not None and not self._is_committed:
            await self._add_messages()
            with translated(), self._committing():
                await self._transaction.commit()

    async def rollback(self) -> None:
        """Roll back, unless the session was committed."""
        if self._transaction is not None and not self._is_committed:
            # A lost connection has rolled back by itself.
            with suppress(*DRIVER_ERRORS):
                await self._transaction.rollback()

    async def _commit(self) -> None:
        with self._breaking():
            await self.commit()

    @contextmanager
    def _committing(self) -> Iterator[None]:
        """Record whether the outcome is unknown: the response is lost with the connection."""
        try:
            yield
        except BaseException:
            self.is_unsure = is_lost(self._own)
            raise
        self._is_committed = True

    @contextmanager
    def _breaking(self) -> Iterator[None]:
        """End the session with any error of a write."""
        try:
            with translated(), LockWatch(self._connect, self._own.get_server_pid()):
                yield
        except BaseException as error:
            self._break(error)
            raise

    async def call(self, name: str, collection: str | None, *values: Any) -> list[Any]:
        """Call a function of the schema; any error ends the session."""
        self.check_usable()
        if collection is not None:
            self.collections_written.add(collection)
        with self._breaking():
            await self._begin_write()
            return self._noted(await self._own.fetch(queries()[name], *values))

    def _noted(self, rows: list[Any]) -> list[Any]:
        """Take the transaction number from the result, if it has it."""
        if rows and self._txn is None:
            self._txn = rows[0].get("logged")
        return rows

    async def call_features(self, name: str, collection: str, *values: Any) -> list[Any]:
        """Call a function of the schema that writes features."""
        self.check_usable()
        await self._prepare_tables(collection)
        rows = await self.call(name, collection, *values)
        self.features_written[collection] += len(rows)
        return rows

    async def _prepare_tables(self, collection: str) -> None:
        """Create missing tables, in another transaction.

        Created in this one, they would block all other writers that need them until its commit.
        """
        if self._prepare is None or collection in self._prepared:
            return
        try:
            await self._prepare(self._own, collection)
        except BaseException as error:
            self._break(error)
            raise
        self._prepared.add(collection)

    # ---- Collections -------------------------------------------------------------------------

    async def resolve_collection(self, collection: str) -> CollectionInfo:
        if collection not in self.resolved and self._trusts_facts:
            known = self._facts.collection(collection)
            if known is not None:
                self.resolved[collection] = self.unverified[collection] = known
        if collection not in self.resolved:
            await self.collection(collection)
        return self.resolved[collection].info

    async def check_resolved(self) -> None:
        """Check the collections that are known from before, unless a write has done so."""
        if not self._is_committed and not await self._are_current(self.unverified.values()):
            raise Retryable("A collection was changed since it was read; repeat the transaction")

    def _changed(self, rows: list[Any]) -> CollectionInfo:
        """Return the info of a changed collection, which has to be resolved again."""
        info = _INFO.decode(rows[0]["info"])
        self.resolved.pop(info.id, None)
        self.unverified.pop(info.id, None)
        self._trusts_facts = False
        return info

    async def create_collection(self, info: CollectionInfo) -> CollectionInfo:
        check_collection_id(info.id, field="id")
        settings = msgspec.json.encode(info).decode()
        rows = await self.call("collection_create", None, info.id, settings)
        self._prepared.add(info.id)  # No other transaction needs its tables yet.
        return self._changed(rows)

    async def change_collection(self, collection: str, change: CollectionChange) -> CollectionInfo:
        settings = msgspec.json.encode(change).decode()
        return self._changed(await self.call("collection_change", collection, collection, settings))

    async def drop_collection(self, collection: str, delete_at: int | None = None) -> None:
        self._changed(await self.call("collection_drop", collection, collection, delete_at))

    async def restore_collection(self, collection: str) -> CollectionInfo:
        return self._changed(await self.call("collection_restore", collection, collection))

    async def close_gates(self, collections: Sequence[str]) -> None:
        for collection in sorted(collections):
            await self.call_features("close_gate", collection, collection)

    def on_branch(self, layers: Sequence[BranchLayer]) -> StorageReader:
        return InSession(self, check_layers(layers))

    async def branch_off(self, below: Sequence[BranchLayer]) -> int:
        if self._branch != NO_BRANCH or self.collections_written or self._txn is not None:
            raise NotSupported(
                "A branch can only be created by a session on main that has not written yet",
                field="below",
            )
        overlay = await self.new_overlay()
        branch = check_layers((BranchLayer(overlay, None), *below))
        overlays, txns = [each.overlay for each in branch], [each.txn for each in branch]
        await self.call("tx_branch", None, overlays, txns)
        # This session creates the overlay's tables itself: no other session can wait for them.
        self._branch = branch
        return overlay

    async def new_overlay(self) -> int:
        rows = await self.call("overlay_new", None)
        overlay: int = rows[0][0]
        return overlay

    async def freeze_overlay(self, overlay: int) -> None:
        await self.call("overlay_freeze", None, overlay)

    async def drop_overlay(self, overlay: int) -> None:
        if is_overlay(overlay):
            await self.call("overlay_drop", None, overlay)

    # ---- Writes of checked input (see CheckedSession) ----------------------------------------

    def _reader(self) -> PsqlSession:
        return self

    async def _write(
        self, collection: str, batches: Sequence[Batch], *, returning: bool, commit: bool
    ) -> list[list[WriteOutcome]]:
        values = write_values(batches, self.resolved[collection].txn, returning=returning)
        if self._is_started:
            rows = await self.call_features("write", collection, collection, *values)
        else:
            rows = await self._write_first(collection, values, commit=commit)
        self.unverified.pop(collection, None)
        if commit and not self._is_committed:
            await self._commit()
        by_id = {row["id"]: _outcome(row) for row in rows}
        return [[by_id[i] for i in batch.ids] for batch in batches]

    async def _write_first(
        self, collection: str, values: Sequence[Any], *, commit: bool
    ) -> list[Any]:
        """Start the transaction with a write of features, and commit it with the same statement."""
        self.check_usable()
        await self._prepare_tables(collection)
        self.collections_written.add(collection)
        messages = self._messages_if_changed
        has_texts_only = all(m.json is None and m.binary is None for m in messages.values())
        is_whole = commit and self._transaction is None and has_texts_only
        texts = [message.text for message in messages.values()]
        with self._breaking():
            if not is_whole:
                await self._begin()
            with self._committing() if is_whole else nullcontext():
                rows = await self._own.fetch(
                    queries()["write_first"],
                    *self._start,
                    *self._layers(),
                    *((list(messages), texts) if is_whole and messages else (None, None)),
                    collection,
                    *values,
                )
        self._is_started = True
        self.features_written[collection] += len(rows)
        return self._noted(rows)

    async def _purge(self, collection: str, ids: list[str]) -> list[WriteOutcome]:
        rows = Rows.of(ids)
        resolved = self.resolved[collection].txn
        found = await self.call_features(
            "purge", collection, collection, rows.counts, rows.pick(ids), resolved
        )
        self.unverified.pop(collection, None)
        by_id = {row["id"]: _outcome(row) for row in found}
        return [by_id[i] for i in ids]

    async def _before_merge(self, collection: str, ids: list[str]) -> None:
        rows = Rows.of(ids)
        resolved = self.resolved[collection].txn
        await self.call_features(
            "lock_rows", collection, collection, rows.pick(ids), rows.counts, resolved
        )

    async def _message(self, id: str, message: TransactionMessage) -> None:
        await self.call("tx_message", None, id, message.text, message.json, message.binary)

    async def _store_object(self, kind: str, id: str, json: str, expected: int | None) -> int:
        rows = await self.call("keep", None, kind, id, json, expected)
        revision: int = rows[0][0]
        return revision

    async def _remove_object(self, kind: str, id: str, expected: int | None) -> None:
        await self.call("forget", None, kind, id, expected)

    async def _pin(self, name: str, at: Version, collection: str | None, guards: bool) -> None:
        await self.call("pin", None, name, at.txn, collection, guards)
        try:
            with translated():
                # Expiry locks the pins, so history that exists now is kept.
                await self._check_kept(self._own, at, collection)
        except BaseException as error:
            self._break(error)
            raise

    async def _unpin(self, name: str) -> None:
        await self.call("unpin", None, name)


class InSession(PsqlReader):
    """Reader of other layers on the connection of a session."""

    def __init__(self, session: PsqlSession, branch: Branch) -> None:
        super().__init__(session._facts)
        self._session = session
        self._branch = branch

    @property
    def _storage(self) -> StorageIdentity:
        return self._session._storage

    @property
    def _pins_head(self) -> bool:
        return False

    def _connection(self) -> AbstractAsyncContextManager[Connection]:
        return self._session._connection()

    @property
    def _may_fail(self) -> bool:
        return self._session._may_fail

    def _is_known(self, collection: str) -> bool:
        return self._session._is_known(collection)

    def _learn(self, known: KnownCollection) -> None:
        self._session._learn(known)

    def _streaming(self, connection: Connection) -> AbstractAsyncContextManager[object]:
        return self._session._streaming(connection)

    async def _publish(self) -> None:
        """Do nothing: inside a transaction the published versions do not change."""


def _outcome(row: Any) -> WriteOutcome:
    feature = row["feature"]
    state = None if feature is None else State(row["id"], feature)
    return WriteOutcome(row["id"], row["action"], row["uuid"], row["version"], state)
