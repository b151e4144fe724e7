"""The storage contract: what every storage does, in the same way.

A write session is one transaction. Reading at a version gives the same bytes for ever, or
`Expired`. The shipped conformance suite (`naksha.testing.storage.suite`) is this contract in
executable form.
"""

from __future__ import annotations

from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Iterable,
    Mapping,
    Sequence,
)
from contextlib import AbstractAsyncContextManager
from datetime import date
from typing import Any, Protocol, TypeVar

import msgspec
import pyarrow as pa

from naksha.model.collection import CollectionChange, CollectionInfo
from naksha.model.errors import InvalidArgument
from naksha.model.geo.tiles import VectorTile
from naksha.model.identity.storage_identity import StorageIdentity
from naksha.model.query import Query, SortKey, States
from naksha.model.state import Found, Outcome, State
from naksha.model.statistics import Statistics
from naksha.model.transaction import MAIN_LOG, LogFilter, PublicationStatus, Transaction
from naksha.model.version import HEAD, Version, VersionSelector
from naksha.spi.partitioning import Partitioning
from naksha.spi.staging import Staging

Feature = Mapping[str, Any]
T = TypeVar("T")


class Page(msgspec.Struct, frozen=True):
    """Some states and, when there are more, the cursor to go on with. Pages of one cursor are
    all read at the version that the first page was read at."""

    states: list[State]
    cursor: str | None


class Split(msgspec.Struct, frozen=True):
    """A part of a bulk read: small, picklable, readable by any process with the same storage, which
    is known by its id and its number: another one of the same id has other transactions.

    `states` and `leaf` say what is in the table that it reads, for those who check it: only states
    of one kind (ALL for the history), only ids whose hash begins with a digit. None where it reads
    something else as well, or where the storage does not keep them apart.
    """

    storage: tuple[str, int]
    collection: str
    payload: bytes
    states: States | None = None
    leaf: str | None = None

    def check_storage(self, storage: tuple[str, int]) -> None:
        """Refuse to be read by another storage, or by another one that took its place."""
        if self.storage == storage:
            return
        problem = f"The split is of storage {self.storage[0]!r}"
        if self.storage[0] == storage[0]:
            problem = (
                f"The storage {storage[0]!r} is not the one that the split was planned for: it was"
                " replaced meanwhile; plan again"
            )
        raise InvalidArgument(problem, field="split")


class Layer(msgspec.Struct, frozen=True):
    """A layer of a branch: an overlay (or MAIN), and the last transaction of it that is seen;
    None for HEAD, which only the top of a branch has."""

    overlay: int
    txn: int | None


class Mismatch(msgspec.Struct, frozen=True):
    """Something that a storage keeps twice, and not the same, in an overlay or on MAIN. `id` is
    None where nobody knows which feature it is about, and `is_of_log` is for what the log tells of
    versions."""

    overlay: int
    id: str | None
    txn: int | None
    message: str
    is_of_log: bool = False


class KeptObject(msgspec.Struct, frozen=True):
    """Something small that is kept in the storage beside the data: a tag, a branch, a conflict.
    `revision` is 1 at first and grows by one with every change."""

    kind: str
    id: str
    value: Any
    revision: int


class Reader(Protocol):
    """Reading, outside a transaction (published or HEAD) or inside one (sees its own writes)."""

    async def collections(self, *, dropped: bool = False) -> list[CollectionInfo]:
        """All collections in name order; softly dropped ones only when asked for."""

    async def collection(self, collection: str, *, dropped: bool = False) -> CollectionInfo:
        """The info of one collection, else CollectionNotFound."""

    async def page(self, collection: str, query: Query, at: VersionSelector = HEAD) -> Page:
        """One page of states; a query without `limit` gives all of them and no cursor."""

    def states(
        self, collection: str, query: Query, at: VersionSelector = HEAD
    ) -> AsyncIterator[State]:
        """All states of the query, streamed."""

    def chunks(
        self, collection: str, query: Query, at: VersionSelector = HEAD
    ) -> AsyncIterator[list[State]]:
        """The states of the query, streamed some at a time (never none), for those who pass them
        on. This is no page that others follow: a limit gives any so many of them, in any order,
        HEAD is what it is now, and a cursor is ignored. What is few comes at once."""

    async def found(
        self,
        collection: str,
        query: Query,
        at: VersionSelector = HEAD,
        *,
        sort: Sequence[SortKey] = (),
        after: Found | None = None,
    ) -> list[Found]:
        """What the query finds without its content, in the order of some keys and then of the ids;
        the first ones `after` one of them, as many as the limit says. HEAD is what it is now;
        cursor and space are ignored. Of a feature only one state can be asked for."""

    async def count(self, collection: str, query: Query, at: VersionSelector = HEAD) -> int:
        """How many states the query gives, ignoring limit and cursor."""

    async def tile(
        self, collection: str, query: Query, at: VersionSelector, tile: VectorTile
    ) -> bytes:
        """The states of the query, as far as they meet the tile, as a Mapbox Vector Tile; empty
        when there are none. A limit cuts as it does in a page; cursor and space are ignored."""

    async def statistics(
        self, collection: str, at: VersionSelector = HEAD, *, fast: bool = False
    ) -> Statistics:
        """What there is in the collection. All of it is read, unless it may be `fast`: then only
        a part of a large collection, from which the rest is estimated."""

    async def state(self, state_id: str) -> State:
        """The state with this GUID or UUID, wherever it is (HEAD, deleted, history, overlay)."""

    async def resolve(self, at: VersionSelector, collection: str | None = None) -> Version:
        """The published version meant. VersionNotFound, NotYetPublished and Expired (for the
        given collection) are told apart; HEAD gives the last published version."""

    async def kept(self, kind: str, id: str) -> KeptObject | None:
        """An object that is kept in the storage, if it is there."""

    async def all_kept(self, kind: str, prefix: str = "") -> list[KeptObject]:
        """All objects of a kind whose ids start with a prefix, ordered by id (code points)."""


class WriteSession(Reader, Protocol):
    """One transaction. Leaving the context normally commits it, an exception rolls it back."""

    @property
    def txn(self) -> int | None:
        """The transaction number; None until something was changed."""

    async def create_collection(self, info: CollectionInfo) -> CollectionInfo: ...

    async def change_collection(
        self, collection: str, change: CollectionChange
    ) -> CollectionInfo: ...

    async def drop_collection(self, collection: str, delete_at: int | None = None) -> None:
        """Hide a collection. It can be restored until `delete_at` (epoch ms; default now), when
        maintenance removes it."""

    async def restore_collection(self, collection: str) -> CollectionInfo: ...

    async def create(
        self,
        collection: str,
        features: Sequence[Feature],
        *,
        lock: bool = True,
        after: Sequence[int] | None = None,
        returning: bool = False,
    ) -> list[Outcome]:
        """Create features; a live feature with the same id raises FeatureExists. Missing ids are
        generated. With `lock`, a feature whose namespace holds a `uuid` of this collection is
        written only over that state, else Conflict; without, that `uuid` is ignored. `after`, one
        for each feature or 0, are versions that the features had elsewhere: the version of the new
        state is that, plus the one of a tombstone, plus one."""

    async def update(
        self,
        collection: str,
        features: Sequence[Feature],
        *,
        merge: bool = False,
        lock: bool = True,
        returning: bool = False,
    ) -> list[Outcome]:
        """Replace the content of live features; an absent one is FeatureNotFound. With `merge`,
        a feature whose `uuid` is not HEAD's is merged three-way by property (base = that state)
        instead of being a Conflict; Conflict only when both sides changed the same property.
        `lock` as in `create`; a merge always reads the `uuid`, which names its base."""

    async def upsert(
        self,
        collection: str,
        features: Sequence[Feature],
        *,
        merge: bool = False,
        muuids: Sequence[str | None] | None = None,
        lock: bool = True,
        returning: bool = False,
    ) -> list[Outcome]:
        """Create or update, as the case may be. `muuids`, one for each feature or None, are the
        states that were merged into them; not together with `merge`. `lock` as in `create`."""

    async def delete(
        self,
        collection: str,
        ids: Sequence[str],
        *,
        uuids: Sequence[str | None] | None = None,
        masks: bool = True,
        returning: bool = False,
    ) -> list[Outcome]:
        """Delete; what is not there is RETAINED. `uuids` are locks, one per id or None. With
        `masks=False` the namespace of the tombstones has `masks: false`: views then show the
        feature of the same id in a lower layer."""

    async def restore(
        self, collection: str, ids: Sequence[str], *, returning: bool = False
    ) -> list[Outcome]:
        """Bring deleted features back from their tombstones; none there is FeatureNotFound."""

    async def purge(self, collection: str, ids: Sequence[str]) -> list[Outcome]:
        """Remove published tombstones; a live feature is a Conflict, nothing there RETAINED."""

    async def message(
        self,
        id: str,
        text: str | None = None,
        *,
        json: Any = None,
        binary: bytes | None = None,
    ) -> None:
        """Add a message to the transaction; the same id again replaces it."""

    async def keep(
        self, kind: str, id: str, value: Any, *, expected: int | None = None
    ) -> KeptObject:
        """Keep an object (JSON). `expected` is the revision that must be there, 0 for none at
        all; anything else is a Conflict. Objects are no part of the log or of versions."""

    async def forget(self, kind: str, id: str, *, expected: int | None = None) -> None:
        """Remove an object; what is not there is fine, unless a revision is expected."""

    async def pin(
        self, name: str, at: Version, collection: str | None = None, *, guards: bool = False
    ) -> None:
        """Keep what reading at this version needs (of one collection, or of all), from the commit
        on until unpinned. The same name again moves the pin. One that guards also forbids, as
        InUse, to drop the collections it covers and to switch their history off."""

    async def unpin(self, name: str) -> None: ...

    async def close_gates(self, collections: Sequence[str]) -> None:
        """Nobody else writes to these collections (of the branch that the session is on) until it
        ends: what it reads from now on stays so. Who writes now is waited for, who comes later
        waits. To be done first, by who was overtaken too often."""

    def on_branch(self, layers: Sequence[Layer]) -> Reader:
        """What a branch, or main, holds, read inside this session: see `Storage.on_branch`."""

    async def branch_off(self, below: Sequence[Layer]) -> int:
        """Make a new overlay over these layers, and be a session of that branch from now on; gives
        its number. On main only, and before anything was written; nothing is left of it unless
        the session commits."""

    async def new_overlay(self) -> int:
        """The number of a new overlay: tables for what is changed on a branch, made for each
        collection at the first write to it. Never given out again."""

    async def freeze_overlay(self, overlay: int) -> None:
        """From the commit on nobody writes to an overlay: that is a Conflict then. Who does so now
        is waited for a while, then it is Retryable."""

    async def drop_overlay(self, overlay: int) -> None:
        """Forget all that was written to an overlay; maintenance removes the tables."""


class BulkWriter(Protocol):
    """Loads one new collection (or fills an empty one) as one transaction, in parallel."""

    async def add(self, features: Iterable[Feature]) -> int:
        """Stage features; may be called concurrently. Returns how many were staged. Of features
        with the same id the last one counts; a uuid of this collection is a Conflict, since
        nothing is there that the feature could follow. After a failure only `abort` is left."""

    async def commit(self) -> int:
        """Make all staged features visible as one transaction; returns its txn. Conflict when
        somebody wrote to the collection meanwhile, Retryable when it was changed. It ends the
        load in any case."""

    async def abort(self) -> None:
        """Forget everything staged."""


class Storage(Reader, Staging, Protocol):
    """A storage: collections, their history, and one transaction log."""

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
        """A session, committed on leaving the context. `at_ms` dates the transaction in the past
        (history import); it is refused when it lies in the future, and when the storage has later
        transactions."""

    async def run(
        self,
        work: Callable[[WriteSession], Awaitable[T]],
        app_id: str,
        author: str | None = None,
        *,
        at_ms: int | None = None,
    ) -> T:
        """Run `work` in a session and commit; repeats it when a concurrent transaction got in
        between, in the end under the write gate of its collections, so that it ends."""

    async def transaction(self, txn: int | str) -> Transaction:
        """The transaction with this txn or UUID, else VersionNotFound."""

    async def transactions(
        self,
        after: int = 0,
        limit: int = 1000,
        where: LogFilter = MAIN_LOG,
        *,
        newest_first: bool = False,
    ) -> list[Transaction]:
        """Published transactions with `seq_number` > after, in order. Newest first, those with
        `seq_number` < after, downwards; 0 then stands for the end of the log."""

    async def wait_published(self, txn: int, timeout_s: float = 5.0) -> Version | None:
        """Wait until the transaction is published; None when that took too long."""

    async def wait_beyond(self, seq_number: int, timeout_s: float) -> int:
        """The `seq_number` of the last published version, as soon as it is greater than the given
        one; when that takes too long, whatever it is then. What can be published is published
        first. While it waits it holds no connection."""

    async def publication(self) -> PublicationStatus: ...

    async def pin(
        self, name: str, at: Version, collection: str | None = None, *, guards: bool = False
    ) -> None:
        """See `WriteSession.pin`; at once."""

    async def unpin(self, name: str) -> None: ...

    def on_branch(
        self, layers: Sequence[Layer], collections: Collection[str] | None = None
    ) -> Storage:
        """The same storage as a branch sees it, topmost layer first, MAIN last. With
        `collections` nothing but these is written to (NotSupported).

        Reading: a feature that has any state in a layer's overlay is taken from there, at the
        layer's version, else from the layers below; at a version, the top layer is read at it and
        the ones below at theirs (or at it, when it is older). Writing goes to the top overlay, as
        if everything below were in it: a state is followed by a state with its `uuid` as `puuid`,
        its `version` + 1 and its `createdAt`. State ids name the collection, not the overlay, and
        are unique in the storage. Collections are those of MAIN at its layer's version; they can
        be changed on MAIN only, and are not loaded in bulk here (NotSupported). The log is that
        of the top overlay. Closing it does nothing."""

    async def maintain(self, now_ms: int | None = None) -> None:
        """Expire, merge, drop and refresh what is due. Safe at any time, from any process."""

    async def expire(self, collection: str, before: date) -> None:
        """Drop the history of a collection that ended before a day (UTC), whatever the collection
        itself keeps: earlier versions are Expired. What is pinned stays; a storage drops what it
        can drop as a whole, so some more may stay."""

    async def keep_log(self, days: int) -> None:
        """From the next maintenance on, transactions older than so many days are Expired: whole
        days of the log and its versions go, but never a pinned version, nor the last one. It is
        36500 unless told otherwise."""

    async def partitioning(self, collection: str) -> dict[str, int]:
        """The optimal partitioning of the last published version: quad-key prefix -> features
        (key "" holds those without geometry). Computed when missing or outdated."""

    async def feature_size(self, collection: str) -> int:
        """The bytes of the largest feature as GeoJSON, as far as that is known: what the cells of
        the optimal partitioning are measured by."""

    async def mismatches(self, collection: str, limit: int) -> list[Mismatch]:
        """What a storage keeps twice of a collection, on main and in all overlays, and not the
        same: its own indices beside the tables, what it has put in columns of their own, the
        numbers of versions. All of it is read; the first ones are told, none of a storage that is
        well."""

    async def keep_partitioning(self, collection: str, found: Partitioning) -> None:
        """Keep a partitioning that somebody else computed, until the collection is written to."""

    async def meta(self, collection: str, id: str) -> dict[str, Any] | None:
        """A feature beside the collection, None when there is none of that id."""

    async def all_meta(self, collection: str) -> list[dict[str, Any]]:
        """All features beside the collection, in the order of their ids."""

    async def put_meta(self, collection: str, feature: Mapping[str, Any]) -> None:
        """Write a feature beside the collection, in the place of one with the same id; see
        `naksha.spi.meta`. It is no part of any version."""

    async def remove_meta(self, collection: str, id: str) -> bool:
        """Remove a feature beside the collection; whether there was one."""

    async def plan(
        self, collection: str, query: Query, at: VersionSelector = HEAD, *, hidden: bool = False
    ) -> list[Split]:
        """Cut a bulk read into splits that together give each state exactly once.

        Of all states (`States.ALL`) the `hidden` ones are given when asked for, too: those that
        were replaced inside their own transaction, and backups of tombstones. Nobody ever saw
        them, but others follow them. On main their splits give what is there when they are read:
        what expired meanwhile is not Expired, since who looks after it can tell by himself from
        when on the history is whole."""

    def read(
        self, split: Split, columns: Sequence[str] | None = None
    ) -> AsyncIterator[pa.RecordBatch]:
        """The states of a split as Arrow batches: these of `naksha.spi.arrow.COLUMNS`, in the order
        given, or those of `naksha.spi.arrow.STATES`."""

    async def bulk_writer(
        self,
        info: CollectionInfo,
        app_id: str,
        author: str | None = None,
        *,
        exclusive: bool = False,
        message: str | None = None,
    ) -> BulkWriter:
        """A writer for a collection that is new or empty. The exclusive form draws its number
        first and writes every row once, for an initial load; publication waits for it."""
