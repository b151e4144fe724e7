"""Storage contract: the behaviour that all storages have in common.

A write session is one transaction. A read at a version returns the same bytes forever, or raises
`Expired`. The conformance suite (`naksha.testing.storage.suite`) is this contract in executable
form.
"""

from __future__ import annotations

from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Mapping,
    Sequence,
)
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol, TypeVar

import msgspec
import pyarrow as pa

from naksha.model.collection import CollectionChange, CollectionInfo
from naksha.model.errors import InvalidArgument
from naksha.model.geo.tiles import VectorTile
from naksha.model.identity.storage_identity import StorageIdentity
from naksha.model.query import Query, SortKey, States
from naksha.model.state import MatchingState, State, WriteOutcome
from naksha.model.statistics import Statistics
from naksha.model.transaction import MAIN_LOG, LogFilter, PublicationStatus, Transaction
from naksha.model.version import HEAD, Version, VersionSelector
from naksha.spi.changes import Change
from naksha.spi.maintenance import MaintainedStorage
from naksha.spi.partitioning import Partitioning
from naksha.spi.staging import StagingStorage
from naksha.spi.tile_cells import TileCellStorage

Feature = Mapping[str, Any]
T = TypeVar("T")


class StatePage(msgspec.Struct, frozen=True):
    """States and, when there are more, the cursor for the next page.

    All pages of one cursor are read at the version of the first page.
    """

    states: list[State]
    cursor: str | None


class Split(msgspec.Struct, frozen=True):
    """Part of a bulk read: small and picklable, readable by any process with the same storage.

    The storage is identified by its id and number: another storage with the same id has other
    transactions.

    `states` and `leaf` describe the table that it reads, for consistency checks: it has only states
    of one kind (ALL for the history), and only ids whose hash begins with a digit. They are None if
    the split reads other data as well, or if the storage does not separate them.
    """

    storage: tuple[str, int]
    collection: str
    payload: bytes
    states: States | None = None
    leaf: str | None = None

    def check_storage(self, storage: tuple[str, int]) -> None:
        """Refuse another storage, including one that replaced the original."""
        if self.storage == storage:
            return
        problem = (
            f"The split belongs to the storage {self.storage[0]!r}, not to {storage[0]!r}; "
            "read it from the storage that planned it"
        )
        if self.storage[0] == storage[0]:
            problem = (
                f"The storage {storage[0]!r} was replaced since the split was planned;"
                " plan the read again"
            )
        raise InvalidArgument(problem, field="split")


class BranchLayer(msgspec.Struct, frozen=True):
    """Layer of a branch: an overlay (or MAIN), and the last visible transaction of it.

    None stands for HEAD, which only the top layer of a branch has.
    """

    overlay: int
    txn: int | None


class Mismatch(msgspec.Struct, frozen=True):
    """Inconsistency between redundant data of a storage, in an overlay or on MAIN.

    `id` is None if the feature is unknown, and `is_of_log` marks data of the log about versions.
    """

    overlay: int
    id: str | None
    txn: int | None
    message: str
    is_of_log: bool = False


class StoredObject(msgspec.Struct, frozen=True):
    """Small object stored beside the data: a tag, a branch, a conflict.

    `revision` is 1 at first and grows by one with every change.
    """

    kind: str
    id: str
    value: Any
    revision: int


class StorageReader(Protocol):
    """Read access, outside a transaction (published or HEAD) or inside (sees its own writes)."""

    async def collections(self, *, dropped: bool = False) -> list[CollectionInfo]:
        """Return all collections in name order; dropped ones only with `dropped`."""

    async def collection(self, collection: str, *, dropped: bool = False) -> CollectionInfo:
        """Return the info of one collection, or raise CollectionNotFound."""

    async def page(self, collection: str, query: Query, at: VersionSelector = HEAD) -> StatePage:
        """Return one page of states; a query without `limit` returns all of them and no cursor."""

    def states(
        self, collection: str, query: Query, at: VersionSelector = HEAD
    ) -> AsyncIterator[State]:
        """Stream all states of the query."""

    def chunks(
        self, collection: str, query: Query, at: VersionSelector = HEAD
    ) -> AsyncIterator[list[State]]:
        """Stream the states of the query in chunks, which are never empty, for forwarding.

        This is not paging: a limit returns any such number of states in any order, HEAD is the
        current state, and a cursor is ignored. A small result is one chunk.
        """

    async def matching_states(
        self,
        collection: str,
        query: Query,
        at: VersionSelector = HEAD,
        *,
        sort: Sequence[SortKey] = (),
        after: MatchingState | None = None,
    ) -> list[MatchingState]:
        """Return references to the matching states, sorted by keys and then by ids.

        They are those `after` a previous one, as many as the limit of the query. HEAD is the
        current state; cursor and space are ignored. Only one state of each feature can be
        requested.
        """

    async def count(self, collection: str, query: Query, at: VersionSelector = HEAD) -> int:
        """Return the number of states of the query, ignoring limit and cursor."""

    async def tile(
        self, collection: str, query: Query, at: VersionSelector, tile: VectorTile
    ) -> bytes:
        """Return the states of the query that meet the tile, as a Mapbox Vector Tile.

        It is empty when there are none. A limit truncates as in a page; cursor and space are
        ignored.
        """

    async def statistics(
        self, collection: str, at: VersionSelector = HEAD, *, fast: bool = False
    ) -> Statistics:
        """Return the statistics of the collection.

        All of it is read, unless `fast` is set: then large collections are sampled and the rest is
        estimated.
        """

    async def state(self, state_id: str) -> State:
        """Return the state with this GUID or UUID (at HEAD, deleted, in history or overlays)."""

    async def resolve(self, at: VersionSelector, collection: str | None = None) -> Version:
        """Resolve a selector to a published version; HEAD is the last published one.

        Raises:
            VersionNotFound: The version does not exist.
            NotYetPublished: The version is not published yet.
            Expired: Its history (of the given collection) was removed.
        """

    async def stored_object(self, kind: str, id: str) -> StoredObject | None:
        """Return a stored object, or None if it does not exist."""

    async def stored_objects(self, kind: str, prefix: str = "") -> list[StoredObject]:
        """Return all objects of a kind whose ids start with a prefix, by id (code points)."""


class WriteSession(StorageReader, Protocol):
    """One transaction; leaving the context normally commits it, an exception rolls it back.

    A call with `commit` commits as well, which saves round trips. No other call may follow, and an
    exception that the caller raises afterwards undoes nothing.
    """

    @property
    def txn(self) -> int | None:
        """Transaction number; None until the first change."""

    async def resolve_collection(self, collection: str) -> CollectionInfo:
        """Return the info of a collection that the session writes to.

        It is read once, or known from before in `Storage.run`, which repeats work that relied on an
        outdated info. A write to a collection that was changed since raises Retryable at once.
        """

    async def create_collection(self, info: CollectionInfo) -> CollectionInfo: ...

    async def change_collection(
        self, collection: str, change: CollectionChange
    ) -> CollectionInfo: ...

    async def drop_collection(self, collection: str, delete_at: int | None = None) -> None:
        """Hide a collection.

        It can be restored until `delete_at` (epoch ms; default now), when maintenance removes it.
        """

    async def restore_collection(self, collection: str) -> CollectionInfo: ...

    async def apply(
        self,
        collection: str,
        changes: Sequence[Change],
        *,
        returning: bool = False,
        commit: bool = False,
    ) -> list[list[WriteOutcome]]:
        """Write several changes of different features at once; return the outcomes of each."""

    async def create(
        self,
        collection: str,
        features: Sequence[Feature],
        *,
        lock: bool = True,
        after: Sequence[int] | None = None,
        returning: bool = False,
        commit: bool = False,
    ) -> list[WriteOutcome]:
        """Create features; a live feature with the same id raises FeatureExists.

        Missing ids are generated. With `lock`, a feature whose namespace has a `uuid` of this
        collection is written only over that state, else Conflict; without, that `uuid` is ignored.
        `after`, one for each feature or 0, are versions that the features had elsewhere: the
        version of the new state is that number, plus the one of a tombstone, plus one.
        """

    async def update(
        self,
        collection: str,
        features: Sequence[Feature],
        *,
        merge: bool = False,
        lock: bool = True,
        returning: bool = False,
        commit: bool = False,
    ) -> list[WriteOutcome]:
        """Replace the content of live features; an absent one raises FeatureNotFound.

        With `merge`, a feature whose `uuid` is not HEAD's is merged three-way by property (base =
        that state) instead of being a Conflict; it is a Conflict only when both sides changed the
        same property. `lock` is as in `create`; a merge always reads the `uuid`, which identifies
        its base.
        """

    async def upsert(
        self,
        collection: str,
        features: Sequence[Feature],
        *,
        merge: bool = False,
        muuids: Sequence[str | None] | None = None,
        lock: bool = True,
        returning: bool = False,
        commit: bool = False,
    ) -> list[WriteOutcome]:
        """Create features or replace existing ones.

        `muuids`, one for each feature or None, are the states that were merged into them; they
        cannot be combined with `merge`. `lock` is as in `create`.
        """

    async def delete(
        self,
        collection: str,
        ids: Sequence[str],
        *,
        uuids: Sequence[str | None] | None = None,
        masks: bool = True,
        returning: bool = False,
        commit: bool = False,
    ) -> list[WriteOutcome]:
        """Delete features; one that does not exist is RETAINED.

        `uuids` are locks, one per id or None; a lock on a missing feature is a Conflict. With
        `masks=False` the namespace of the tombstones has `masks: false`: views then show the
        feature with the same id of a lower layer.
        """

    async def restore(
        self, collection: str, ids: Sequence[str], *, returning: bool = False, commit: bool = False
    ) -> list[WriteOutcome]:
        """Restore deleted features from their tombstones; without one, raise FeatureNotFound."""

    async def purge(
        self, collection: str, ids: Sequence[str], *, commit: bool = False
    ) -> list[WriteOutcome]:
        """Remove published tombstones; a live feature is a Conflict, a missing one RETAINED."""

    async def message(
        self,
        id: str,
        text: str | None = None,
        *,
        json: Any = None,
        binary: bytes | None = None,
        if_changed: bool = False,
    ) -> None:
        """Add a message to the transaction, replacing one with the same id.

        With `if_changed` it is added at the commit, and only to a transaction that has changed
        something.
        """

    async def store_object(
        self, kind: str, id: str, value: Any, *, expected: int | None = None
    ) -> StoredObject:
        """Store an object (JSON).

        `expected` is the required current revision, 0 for none; otherwise it is a Conflict. Objects
        are not part of the log or of versions.
        """

    async def remove_object(self, kind: str, id: str, *, expected: int | None = None) -> None:
        """Remove an object; it may be missing, unless a revision is expected."""

    async def pin(
        self, name: str, at: Version, collection: str | None = None, *, guards: bool = False
    ) -> None:
        """Keep the data for reading at this version (of one or all collections) until unpinned.

        The pin takes effect at commit; the same name moves it. A guarding pin also forbids, with
        InUse, to drop the collections it covers and to disable their history.
        """

    async def unpin(self, name: str) -> None: ...

    async def close_gates(self, collections: Sequence[str]) -> None:
        """Exclude other writers from collections (of the session's branch) until the session ends.

        What the session reads from now on does not change. It waits for current writers; later ones
        wait for it. It must be called first, by a writer that lost too many races.
        """

    def on_branch(self, layers: Sequence[BranchLayer]) -> StorageReader:
        """Return a reader of a branch or main inside this session: see `Storage.on_branch`."""

    async def branch_off(self, below: Sequence[BranchLayer]) -> int:
        """Create an overlay over these layers, switch the session to it and return its number.

        Only allowed on main and before any write; the overlay exists only if the session commits.
        """

    async def new_overlay(self) -> int:
        """Allocate the number of a new overlay, which is never reused.

        An overlay is a set of tables for the changes on a branch, created for each collection at
        its first write.
        """

    async def freeze_overlay(self, overlay: int) -> None:
        """Make an overlay read-only from the commit on; later writes to it raise Conflict.

        The call waits a while for current writers, and then raises Retryable.
        """

    async def drop_overlay(self, overlay: int) -> None:
        """Discard everything written to an overlay; maintenance removes the tables."""


class Storage(StorageReader, StagingStorage, MaintainedStorage, TileCellStorage, Protocol):
    """Storage: collections, their history, and one transaction log."""

    @property
    def identity(self) -> StorageIdentity:
        """Id and number, and those that the storage had before it was forked."""

    @property
    def id(self) -> str: ...

    @property
    def number(self) -> int: ...

    async def close(self) -> None: ...

    def write(
        self, app_id: str, author: str | None = None, *, at_ms: int | None = None
    ) -> AbstractAsyncContextManager[WriteSession]:
        """Return a session that is committed on leaving the context.

        `at_ms` backdates the transaction (history import); it is refused when it is in the future,
        or when the storage has later transactions.
        """

    async def run(
        self,
        work: Callable[[WriteSession], Awaitable[T]],
        app_id: str,
        author: str | None = None,
        *,
        at_ms: int | None = None,
    ) -> T:
        """Run `work` in a session and commit; repeat it after a conflict between transactions.

        The last attempts run under the write gate of its collections, so that it terminates.
        """

    async def transaction(self, txn: int | str) -> Transaction:
        """Return the transaction with this txn or UUID, or raise VersionNotFound."""

    async def transactions(
        self,
        after: int = 0,
        limit: int = 1000,
        where: LogFilter = MAIN_LOG,
        *,
        newest_first: bool = False,
    ) -> list[Transaction]:
        """Return published transactions with `seq_number` > after, in order.

        With `newest_first`, return those with `seq_number` < after in descending order; 0 then
        stands for the end of the log.
        """

    async def wait_published(self, txn: int, timeout_s: float = 5.0) -> Version | None:
        """Wait until the transaction is published; None after the timeout."""

    async def wait_beyond(self, seq_number: int, timeout_s: float) -> int:
        """Return the last published `seq_number` once it exceeds the given one, or after a timeout.

        Pending transactions are published first. It holds no connection while it waits.
        """

    async def publication(self) -> PublicationStatus: ...

    async def pin(
        self, name: str, at: Version, collection: str | None = None, *, guards: bool = False
    ) -> None:
        """Set a pin in its own transaction, see `WriteSession.pin`."""

    async def unpin(self, name: str) -> None: ...

    def on_branch(
        self, layers: Sequence[BranchLayer], collections: Collection[str] | None = None
    ) -> Storage:
        """Return a view of the storage as seen by a branch, topmost layer first, MAIN last.

        With `collections` only these can be written to (others: NotSupported).

        Reading: a feature that has any state in a layer's overlay is taken from there, at the
        layer's version, else from the layers below; at a version, the top layer is read at it and
        the ones below at theirs (or at it, when it is older). Writing goes to the top overlay, as
        if everything below were in it: a state is followed by a state with its `uuid` as `puuid`,
        its `version` + 1 and its `createdAt`. State ids name the collection, not the overlay, and
        are unique in the storage. Collections are those of MAIN at its layer's version; they can be
        changed on MAIN only, and cannot be loaded in bulk here (NotSupported). The log is that of
        the top overlay. Closing the view has no effect.
        """

    async def partitioning(self, collection: str) -> dict[str, int]:
        """Return the optimal partitioning of the last published version: quad-key prefix -> count.

        The key "" stands for the features without geometry. It is computed when missing or
        outdated.
        """

    async def feature_size(self, collection: str) -> int:
        """Return the size of the largest feature as GeoJSON, as far as known.

        It determines the cells of the optimal partitioning.
        """

    async def mismatches(self, collection: str, limit: int) -> list[Mismatch]:
        """Return inconsistencies between redundant data of a collection, on main and all overlays.

        Checked are the storage's own indices beside the tables, values copied to columns, and the
        numbers of versions. Everything is read; the first `limit` ones are returned, none for a
        sound storage.
        """

    async def store_partitioning(self, collection: str, found: Partitioning) -> None:
        """Store a partitioning computed by the caller, until the collection is written to."""

    async def meta(self, collection: str, id: str) -> dict[str, Any] | None:
        """Return a meta feature of the collection, or None."""

    async def all_meta(self, collection: str) -> list[dict[str, Any]]:
        """Return all meta features of the collection, sorted by id."""

    async def put_meta(self, collection: str, feature: Mapping[str, Any]) -> None:
        """Write a meta feature, replacing one with the same id; see `naksha.spi.meta`.

        It is not part of any version.
        """

    async def remove_meta(self, collection: str, id: str) -> bool:
        """Remove a meta feature; return whether it existed."""

    async def plan(
        self, collection: str, query: Query, at: VersionSelector = HEAD, *, hidden: bool = False
    ) -> list[Split]:
        """Divide a bulk read into splits that together return each state exactly once.

        With `States.ALL`, `hidden` adds hidden states: those that were replaced inside their own
        transaction, and backups of tombstones. No reader ever saw them, but other states follow
        them. On main their splits read the current data: history that expired meanwhile does not
        raise Expired, because a caller that checks it can determine itself from when on the history
        is complete.
        """

    def read(
        self, split: Split, columns: Sequence[str] | None = None
    ) -> AsyncIterator[pa.RecordBatch]:
        """Return the states of a split as Arrow batches.

        They have the given columns of `naksha.spi.arrow.COLUMNS`, in that order, or those of
        `naksha.spi.arrow.STATES`.
        """
