"""Write session: one transaction on one connection."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from typing import Any, Final, TypeAlias

import asyncpg
import msgspec

from naksha.model.collection import CollectionChange, CollectionInfo
from naksha.model.errors import NotSupported
from naksha.model.identity.names import check_collection_id
from naksha.model.identity.storage_identity import StorageIdentity
from naksha.model.state import State, WriteOutcome
from naksha.model.version import Version
from naksha.psql.connection.driver import Connection, Direct
from naksha.psql.connection.errors import translated
from naksha.psql.connection.lock_watch import LockWatch
from naksha.psql.read.checked_statement import KnownFacts
from naksha.psql.read.layers import NO_BRANCH, Branch, check_layers, is_overlay
from naksha.psql.read.reader import PsqlReader
from naksha.psql.sql import queries
from naksha.psql.write.batch import Batch
from naksha.spi.storage import BranchLayer, StorageReader
from naksha.spi.support.write_input import CheckedSession, Locks, Mode, WriteBatch

_INFO: Final = msgspec.json.Decoder(CollectionInfo)
Prepare: TypeAlias = Callable[[Connection, str], Awaitable[None]]


class PsqlSession(PsqlReader, CheckedSession):
    """Write session on PostgreSQL; see `naksha.spi.storage.WriteSession`."""

    def __init__(
        self,
        connection: Connection,
        connect: Callable[[], Awaitable[Direct]],
        storage: StorageIdentity,
        branch: Branch = NO_BRANCH,
        prepare: Prepare | None = None,
        scope: Collection[str] | None = None,
        facts: KnownFacts | None = None,
    ) -> None:
        """Wrap a connection with an open transaction.

        `connect` opens further connections; `prepare` creates the tables that a write to a
        collection needs; `scope` lists the collections that may be written to.
        """
        super().__init__(facts)
        self._scope = scope
        self._branch = branch
        self._prepare = prepare
        self._prepared: set[str] = set()
        self._seen: set[str] = set()
        self._own = connection
        self._connect = connect
        self._storage_info = storage
        self._txn: int | None = None
        self.collections_written: set[str] = set()
        self.features_written: Counter[str] = Counter()
        self.is_committing = False

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
            if isinstance(error.__cause__, asyncpg.PostgresError | asyncio.CancelledError):
                self._break(error)  # The server has ended the transaction.
            raise

    @property
    def _may_fail(self) -> bool:
        return False

    def _is_known(self, collection: str) -> bool:
        is_own = collection in self._prepared or collection in self._seen
        return is_own or super()._is_known(collection)

    def _learn(self, info: CollectionInfo) -> None:
        """Remember it in the session only: its transaction may have created the collection."""
        self._seen.add(info.id)

    async def _publish(self) -> None:
        """Do nothing: inside a transaction the published versions do not change."""

    def _streaming(self, connection: Connection) -> AbstractAsyncContextManager[object]:
        """Stream in the session's own transaction.

        A savepoint for the stream would be rolled back when an abandoned stream is collected,
        together with everything written since.
        """
        return nullcontext()

    async def call(self, name: str, collection: str | None, *values: Any) -> list[Any]:
        """Call a function of the schema; any error ends the session."""
        self.check_usable()
        if collection is not None:
            self.collections_written.add(collection)
        try:
            with translated(), LockWatch(self._connect, self._own.get_server_pid()):
                rows = await self._own.fetch(queries()[name], *values)
                if self._txn is None:
                    self._txn = await self._own.fetchval(queries()["tx_number"])
        except BaseException as error:
            self._break(error)
            raise
        return list(rows)

    async def call_features(self, name: str, collection: str, *values: Any) -> list[Any]:
        """Call a function of the schema that writes features.

        Missing tables are created first, in another transaction: created in this one, they would
        block all other writers that need them until its commit.
        """
        self.check_usable()
        if self._prepare is not None and collection not in self._prepared:
            try:
                await self._prepare(self._own, collection)
            except BaseException as error:
                self._break(error)
                raise
            self._prepared.add(collection)
        rows = await self.call(name, collection, *values)
        self.features_written[collection] += len(rows)
        return rows

    async def create_collection(self, info: CollectionInfo) -> CollectionInfo:
        check_collection_id(info.id, field="id")
        settings = msgspec.json.encode(info).decode()
        rows = await self.call("collection_create", None, info.id, settings)
        self._prepared.add(info.id)  # No other transaction needs its tables yet.
        return _INFO.decode(rows[0][0])

    async def change_collection(self, collection: str, change: CollectionChange) -> CollectionInfo:
        settings = msgspec.json.encode(change).decode()
        rows = await self.call("collection_change", collection, collection, settings)
        return _INFO.decode(rows[0][0])

    async def drop_collection(self, collection: str, delete_at: int | None = None) -> None:
        await self.call("collection_drop", collection, collection, delete_at)

    async def restore_collection(self, collection: str) -> CollectionInfo:
        rows = await self.call("collection_restore", collection, collection)
        return _INFO.decode(rows[0][0])

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

    async def _info(self, collection: str) -> CollectionInfo:
        return await self.collection(collection)

    async def _write(
        self, collection: str, mode: Mode, batch: WriteBatch, returning: bool
    ) -> list[WriteOutcome]:
        rows = Batch.of(batch.prepared.ids)
        columns = Batch.columns(batch)
        values = (mode, rows.counts, *(rows.pick(column) for column in columns), returning)
        found = await self.call_features("put", collection, collection, *values)
        return _outcomes(found, batch.prepared.ids)

    async def _delete(
        self,
        collection: str,
        ids: list[str],
        locks: Locks,
        returning: bool,
        masks: bool = True,
    ) -> list[WriteOutcome]:
        mode = "delete" if masks else "unmask"
        return await self._by_ids("delete", collection, ids, locks, values=(returning, mode))

    async def _restore(
        self, collection: str, ids: list[str], returning: bool
    ) -> list[WriteOutcome]:
        return await self._by_ids("restore", collection, ids, values=(returning,))

    async def _purge(self, collection: str, ids: list[str]) -> list[WriteOutcome]:
        return await self._by_ids("purge", collection, ids)

    async def _by_ids(
        self,
        name: str,
        collection: str,
        ids: list[str],
        *columns: Sequence[Any],
        values: Sequence[Any] = (),
    ) -> list[WriteOutcome]:
        rows = Batch.of(ids)
        picked = [rows.pick(column) for column in (ids, *columns)]
        found = await self.call_features(
            name, collection, collection, rows.counts, *picked, *values
        )
        return _outcomes(found, ids)

    async def _before_merge(self, collection: str, ids: list[str]) -> None:
        rows = Batch.of(ids)
        await self.call_features("lock_rows", collection, collection, rows.pick(ids), rows.counts)

    async def _message(
        self, id: str, text: str | None, attachment: str | None, binary: bytes | None
    ) -> None:
        await self.call("tx_message", None, id, text, attachment, binary)

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

    def _learn(self, info: CollectionInfo) -> None:
        self._session._learn(info)

    def _streaming(self, connection: Connection) -> AbstractAsyncContextManager[object]:
        return self._session._streaming(connection)

    async def _publish(self) -> None:
        """Do nothing: inside a transaction the published versions do not change."""


def _outcomes(rows: Sequence[Any], ids: Sequence[str]) -> list[WriteOutcome]:
    """Return the outcomes in the order of the input."""
    by_id = {
        row["id"]: WriteOutcome(
            row["id"],
            row["action"],
            row["uuid"],
            row["version"],
            None if row["feature"] is None else State(row["id"], row["feature"]),
        )
        for row in rows
    }
    return [by_id[i] for i in ids]
