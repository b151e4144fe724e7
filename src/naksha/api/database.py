"""`naksha.connect`: synchronous access to one storage."""

from __future__ import annotations

from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeVar

from naksha.api.queries import At, change_of, epoch_ms, query_of, selector
from naksha.api.versions import Versions
from naksha.model.collection import CollectionInfo
from naksha.model.errors import InvalidArgument
from naksha.model.query import Query
from naksha.model.state import State, WriteOutcome
from naksha.model.transaction import MAIN
from naksha.model.transaction import Transaction as LogEntry
from naksha.model.version import Version, VersionSelector
from naksha.spi.loop_thread import HeldContext, LoopThread, rollback_error
from naksha.spi.storage import Storage, WriteSession
from naksha.spi.storage_factory import open_storage
from naksha.versioning import Line, line_of

Feature = Mapping[str, Any]
T = TypeVar("T")


def connect(
    location: str,
    *,
    app_id: str | None = None,
    author: str | None = None,
    storage_id: str | None = None,
    read_only: bool = False,
    **options: Any,
) -> Database:
    """Open a storage: `file:town.naksha` (created if it is missing) or `postgresql://…`.

    Args:
        location: Location of the storage.
        app_id: App id of all writes; required for writing only.
        author: Author of all writes, if a person makes them.
        storage_id: Id of a new storage, by default derived from the name of its file, schema or
            database; an existing storage must have this id.
        read_only: Write nothing, neither features nor the schema that opening a storage creates:
            for a role with read access only, a hot standby, or a file that must not change.
        options: Options of the storage, for example `schema` for PostgreSQL.
    """
    if read_only:
        options["read_only"] = True
    background = LoopThread()
    try:
        held = background.hold(open_storage(location, storage_id, **options))
    except BaseException:
        background.close()
        raise
    return Database(background, held, app_id, author)


class Database:
    """An open storage. Use it in a `with` block, or close it explicitly."""

    def __init__(
        self,
        background: LoopThread,
        held: HeldContext[Storage],
        app_id: str | None,
        author: str | None,
        branch: Line | None = None,
        *,
        is_now: bool = True,
    ) -> None:
        self._background = background
        self._held = held
        self._app_id = app_id
        self._author = author
        self._closed = False
        self._branch = branch
        self._is_now = is_now
        self.root = held.inside
        self.versions = Versions(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<naksha.Database {self.storage.id!r}>"

    def close(self) -> None:
        """Close the storage. Closing it again has no effect; branches close with their database."""
        if not self._closed and self._branch is None:
            self._closed = True
            try:
                self._background.end_iterations()
                self._held.leave()
            finally:
                self._background.close()

    # ---- Branches ----------------------------------------------------------------------------

    @property
    def storage(self) -> Storage:
        """The storage to read and write.

        For a branch it is looked up again, because the branch may have been rebased since it was
        opened.
        """
        if self._branch is None:
            return self.root
        if not self._is_now:
            return self._branch.storage
        return self.call(line_of(self.root, self._branch.name)).storage

    @property
    def branch_name(self) -> str | None:
        """The name of this branch, None for main."""
        return None if self._branch is None else self._branch.name

    def branch(self, name: str) -> Database:
        """Open a branch, to read and write it like the database; `versions` creates branches."""
        line = self.call(line_of(self.root, name))
        is_main = line.branch is None
        return Database(
            self._background, self._held, self._app_id, self._author, None if is_main else line
        )

    # ---- Collections -------------------------------------------------------------------------

    def collections(self, *, dropped: bool = False) -> list[CollectionInfo]:
        """Return the collections in name order, with `dropped` also the dropped ones."""
        return self._background.call(self.storage.collections(dropped=dropped))

    def collection(self, name: str) -> Collection:
        """Return an existing collection, or raise CollectionNotFound."""
        self._background.call(self.storage.collection(name))
        return Collection(self, name)

    __getitem__ = collection

    def create_collection(self, name: str, **settings: Any) -> Collection:
        """Create a collection; settings as in `CollectionInfo`, such as `author` and `max_age`."""
        info = CollectionInfo(id=name, **settings)
        self.run(lambda session: session.create_collection(info))
        return Collection(self, name)

    def change_collection(self, name: str, **settings: Any) -> CollectionInfo:
        """Change settings such as `max_age` and `delete_at` (a time or epoch ms; 0 for never)."""
        change = change_of(settings)
        return self.run(lambda session: session.change_collection(name, change))

    def drop_collection(self, name: str, delete_at: datetime | int | None = None) -> None:
        """Drop a collection: it is hidden at once.

        Until `delete_at`, when maintenance deletes it, `restore_collection` can restore it.
        """
        at_ms = None if delete_at is None else epoch_ms(delete_at)
        self.run(lambda session: session.drop_collection(name, at_ms))

    def restore_collection(self, name: str) -> CollectionInfo:
        """Restore a dropped collection."""
        return self.run(lambda session: session.restore_collection(name))

    # ---- Transactions and versions -----------------------------------------------------------

    def transaction(
        self,
        message: str | None = None,
        *,
        app_id: str | None = None,
        author: str | None = None,
    ) -> DatabaseTransaction:
        """Open a transaction: committed at the end of its `with` block, rolled back on an error."""
        context = self.storage.write(self._signed(app_id), author or self._author)
        return DatabaseTransaction(self, context, message)

    def run(self, work: Callable[[WriteSession], Awaitable[T]]) -> T:
        """Run `work` in a transaction, retried on conflicts with concurrent writers."""
        return self._background.call(self.storage.run(work, self._signed(None), self._author))

    def signature(self) -> tuple[str, str | None]:
        """Return app id and author of writes."""
        return self._signed(None), self._author

    def _signed(self, app_id: str | None) -> str:
        app = app_id or self._app_id
        if app is None:
            raise InvalidArgument(
                "Writing requires an app id: pass app_id to connect() or to transaction()",
                field="app_id",
            )
        return app

    def version(self, at: At = None) -> Version:
        """Return the last published version, or the given one."""
        return self._background.call(self.storage.resolve(selector(at)))

    def log(self, after: int = 0, limit: int = 1000) -> list[LogEntry]:
        """Return the published transactions after a version, in order."""
        return self._background.call(self.storage.transactions(after, limit))

    def at(self, ref: str) -> tuple[Database, VersionSelector]:
        """Resolve a version reference to the database or branch, and the version on it."""
        place = self.versions.place(ref)
        is_main = place.line.overlay == MAIN
        line = None if is_main else place.line
        found = Database(
            self._background, self._held, self._app_id, self._author, line, is_now=False
        )
        return found, place.at

    def maintain(self) -> None:
        """Run the maintenance that is due, and remove tags that have no effect any more.

        Maintenance expires and merges history, drops collections and refreshes statistics. The tags
        removed are those without protection whose versions have expired.
        """
        self._background.call(self.storage.maintain())
        self.versions.drop_expired_tags()

    # ---- Used by Collection and Versions -------------------------------------------------------

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine and wait for its result."""
        return self._background.call(work)

    def iterate(self, source: AsyncIterator[T]) -> Iterator[T]:
        """Iterate over an asynchronous iterator."""
        return self._background.iterate(source)

    def states(self, name: str, query: Query, at: VersionSelector) -> Iterator[State]:
        """Stream the states that match a query."""
        return self._background.iterate(self.storage.states(name, query, at))

    def count(self, name: str, query: Query, at: VersionSelector) -> int:
        """Count the states that match a query."""
        return self._background.call(self.storage.count(name, query, at))

    def hold(self, context: AbstractAsyncContextManager[WriteSession]) -> HeldContext[WriteSession]:
        """Enter the context of a session."""
        return self._background.hold(context)


class DatabaseTransaction:
    """A transaction: all of it is committed, or nothing.

    Inside it, `transaction["places"]` reads and writes a collection, including its own changes.
    """

    def __init__(
        self,
        database: Database,
        context: AbstractAsyncContextManager[WriteSession],
        message: str | None,
    ) -> None:
        self._database = database
        self._context = context
        self._message = message
        self._held: HeldContext[WriteSession] | None = None

    def __enter__(self) -> Self:
        self._held = self._database.hold(self._context)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        held, self._held = self._held, None
        assert held is not None
        if error is not None:
            held.leave(rollback_error())
            return
        if self._message is not None:
            message = self._message
            held.call(lambda session: session.message("message", message, if_changed=True))
        held.leave()

    def call(self, work: Any) -> Any:
        """Run `work` with the session."""
        if self._held is None:
            raise InvalidArgument(
                "The transaction is not open: use it in a `with` block", field="transaction"
            )
        return self._held.call(work)

    @property
    def txn(self) -> int | None:
        """The number of the transaction; None until it has changed something."""
        return None if self._held is None else self._held.inside.txn

    def create_collection(self, name: str, **settings: Any) -> Collection:
        """Create a collection; settings as in `CollectionInfo`."""
        info = CollectionInfo(id=name, **settings)
        self.call(lambda session: session.create_collection(info))
        return Collection(self._database, name, transaction=self)

    def change_collection(self, name: str, **settings: Any) -> CollectionInfo:
        """Change settings such as `history_enabled`, `max_age` and `delete_at`."""
        change = change_of(settings)
        found: CollectionInfo = self.call(lambda session: session.change_collection(name, change))
        return found

    def restore_collection(self, name: str) -> CollectionInfo:
        """Restore a dropped collection."""
        found: CollectionInfo = self.call(lambda session: session.restore_collection(name))
        return found

    def collection(self, name: str) -> Collection:
        """Return a collection as seen by the transaction."""
        self.call(lambda session: session.collection(name))
        return Collection(self._database, name, transaction=self)

    __getitem__ = collection

    def message(self, id: str, text: str | None = None, *, json: Any = None) -> None:
        """Add a message to the transaction log."""
        self.call(lambda session: session.message(id, text, json=json))


class Collection:
    """The features of a collection: at HEAD, at a version, or inside a transaction."""

    def __init__(
        self,
        database: Database,
        name: str,
        *,
        at: At = None,
        transaction: DatabaseTransaction | None = None,
    ) -> None:
        self._database = database
        self._transaction = transaction
        self._at = at
        self.name = name

    def __repr__(self) -> str:
        return f"<naksha.Collection {self.name!r}{'' if self._at is None else f' at {self._at}'}>"

    # ---- Reading -----------------------------------------------------------------------------

    def at(self, version: At | str) -> Collection:
        """Return the collection at a version; a string can name a tag, a branch or a version."""
        if not isinstance(version, str):
            return Collection(self._database, self.name, at=version, transaction=self._transaction)
        if self._transaction is not None:
            raise InvalidArgument(
                "Inside a transaction, `at` accepts a number, a time or a Version, not a string",
                field="at",
            )
        database, at = self._database.at(version)
        return Collection(database, self.name, at=at)

    def query(self, **parts: Any) -> Iterator[dict[str, Any]]:
        """Return the features that match a query; see `naksha.api.queries.query_of`."""
        return (state.feature for state in self._states(query_of(**parts)))

    def get(self, feature_id: str) -> dict[str, Any] | None:
        """Return a feature, or None."""
        return next(self.query(ids=feature_id), None)

    def count(self, **parts: Any) -> int:
        """Count the features that match a query."""
        query, at = query_of(**parts), selector(self._at)
        if self._transaction is not None:
            number: int = self._transaction.call(lambda s: s.count(self.name, query, at))
            return number
        return self._database.count(self.name, query, at)

    def history(self, feature_id: str) -> list[dict[str, Any]]:
        """Return all retained states of a feature, oldest first."""
        found = self._states(query_of(ids=feature_id, all_states=True))
        return [state.feature for state in sorted(found, key=lambda state: state.txn)]

    def _states(self, query: Query) -> Iterator[State]:
        at = selector(self._at)
        if self._transaction is None:
            return self._database.states(self.name, query, at)

        async def gather(session: WriteSession) -> list[State]:
            return [state async for state in session.states(self.name, query, at)]

        return iter(self._transaction.call(gather))

    # ---- Meta features -----------------------------------------------------------------------

    def meta(self, id: str) -> dict[str, Any] | None:
        """Return a meta feature (kept with the collection, without versions), or None."""
        return self._database.call(self._database.storage.meta(self.name, id))

    def all_meta(self) -> list[dict[str, Any]]:
        """Return all meta features, ordered by id."""
        return self._database.call(self._database.storage.all_meta(self.name))

    def put_meta(self, feature: Feature) -> None:
        """Create or replace a meta feature, outside of any transaction."""
        self._database.call(self._database.storage.put_meta(self.name, feature))

    def remove_meta(self, id: str) -> bool:
        """Remove a meta feature; return whether it existed."""
        return self._database.call(self._database.storage.remove_meta(self.name, id))

    # ---- Writing -----------------------------------------------------------------------------

    def create(self, features: Iterable[Feature] | Feature, **options: Any) -> list[WriteOutcome]:
        """Create features."""
        return self._write("create", _many(features), options)

    def update(self, features: Iterable[Feature] | Feature, **options: Any) -> list[WriteOutcome]:
        """Replace features; `merge=True` merges with concurrent changes."""
        return self._write("update", _many(features), options)

    def upsert(self, features: Iterable[Feature] | Feature, **options: Any) -> list[WriteOutcome]:
        """Create or update features."""
        return self._write("upsert", _many(features), options)

    def delete(self, ids: Iterable[str] | str) -> list[WriteOutcome]:
        """Delete features."""
        return self._write("delete", [ids] if isinstance(ids, str) else list(ids), {})

    def restore(self, ids: Iterable[str] | str) -> list[WriteOutcome]:
        """Restore deleted features."""
        return self._write("restore", [ids] if isinstance(ids, str) else list(ids), {})

    def deleted(self, **parts: Any) -> Iterator[dict[str, Any]]:
        """Return deleted features in their last state; parameters as for `query`."""
        return self.query(**parts, deleted=True)

    def purge(self, ids: Iterable[str] | str) -> list[WriteOutcome]:
        """Remove deleted features for good; their history stays until it expires.

        A live feature raises Conflict; a missing or not yet published one has the outcome RETAINED.
        """
        if self._transaction is None:
            self._database.version()  # publishes pending deletions
        return self._write("purge", [ids] if isinstance(ids, str) else list(ids), {})

    def _write(self, how: str, what: Sequence[Any], options: dict[str, Any]) -> list[WriteOutcome]:
        if self._at is not None:
            raise InvalidArgument(
                "A past version is read-only; write to the collection without at()", field="at"
            )

        async def work(session: WriteSession, **more: Any) -> list[WriteOutcome]:
            done: list[WriteOutcome] = await getattr(session, how)(
                self.name, what, **options, **more
            )
            return done

        if self._transaction is None:
            return self._database.run(partial(work, commit=True))
        found: list[WriteOutcome] = self._transaction.call(work)
        return found


def _many(features: Iterable[Feature] | Feature) -> list[Feature]:
    return [features] if isinstance(features, Mapping) else list(features)
