"""Apply staged features: one step of one transaction, in the writer thread.

Checks that do not need the writer run before it is occupied: whether all files exist and belong to
this write, and whether an id is staged twice.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Any, Final

from naksha.model.collection import CollectionInfo
from naksha.model.errors import CollectionExists, CollectionNotFound, InvalidArgument
from naksha.model.identity.storage_identity import StorageIdentity
from naksha.model.limits import JOB_KEPT_DAYS, STAGED_CHUNK_BYTES, STAGED_CHUNK_FEATURES
from naksha.model.query import Query
from naksha.model.transaction import MAIN
from naksha.model.version import HEAD
from naksha.model.write_checks import lock_of
from naksha.spi.changes import PutMode
from naksha.spi.staging import (
    JOB,
    MESSAGE,
    AppliedWrite,
    StagedPart,
    StagedWrite,
    WriteMode,
    applied_there,
    check_settings,
    not_staged,
    record_of,
)
from naksha.spi.support.write_input import TransactionMessage
from naksha.sqlite.bulk.stage import stage_owner
from naksha.sqlite.bulk.staged_rows import batch_of
from naksha.sqlite.connection.errors import translated
from naksha.sqlite.connection.functions import add_functions, key
from naksha.sqlite.read import objects
from naksha.sqlite.read import queries as reading
from naksha.sqlite.read.layers import Layers, collection_on
from naksha.sqlite.read.rows import CollectionRow
from naksha.sqlite.sql import queries
from naksha.sqlite.write import collections, writes
from naksha.sqlite.write.states import as_json
from naksha.sqlite.write.transaction import WriteTransaction

Row = tuple[Any, ...]
DAY_MS: Final = 24 * 3_600_000


def find_applied(
    connection: sqlite3.Connection, write: StagedWrite, overlay: int
) -> AppliedWrite | None:
    """Return the result of a write that was applied before, else None."""
    found = objects.find(connection, JOB, write.job)
    if found is None:
        return None
    return applied_there(found.value, write.job, write.info.id, overlay)


def forget_applied(connection: sqlite3.Connection, now_ms: int) -> None:
    """Delete the records of jobs that are too old to be repeated."""
    connection.execute(queries()["jobs_forget"], (JOB, now_ms - JOB_KEPT_DAYS * DAY_MS))


def known_info(connection: sqlite3.Connection, layers: Layers, name: str) -> CollectionInfo | None:
    """Return the collection to write to; None if it is new.

    Raises:
        CollectionNotFound: The write is on a branch, which cannot create the collection.
        CollectionExists: The collection is dropped but not yet deleted.
    """
    try:
        found = collection_on(connection, layers, name, dropped=True)
    except CollectionNotFound:
        if layers[0].overlay != MAIN:
            raise
        return None
    if found.dropped_at:
        raise CollectionExists(
            f"Collection {name!r} is dropped but not yet deleted; restore it, or write to it after "
            "maintenance has deleted it",
            collection_id=name,
        )
    return found.info


class StagedLoad:
    """The staged features of a write; call `close` when done."""

    def __init__(
        self, storage: StorageIdentity, write: StagedWrite, parts: Sequence[tuple[StagedPart, Path]]
    ) -> None:
        self._storage = storage
        self._write = write
        self._paths = [path for _, path in parts]
        self._abouts: list[CollectionInfo] = []
        with translated():
            # All ids in an anonymous temporary file, which SQLite deletes with the connection.
            self._ids = sqlite3.connect("", isolation_level=None, check_same_thread=False, uri=True)
            try:
                self._ids.execute(queries()["staged_ids_create"])
                for part, path in parts:
                    self._gather(part, path)
            except BaseException:
                self._ids.close()
                raise

    def _gather(self, part: StagedPart, path: Path) -> None:
        self._ids.execute(queries()["staged_attach"], (_read_only(path),))
        number, info = stage_owner(self._ids)
        self._abouts.append(info)
        if number != self._storage.number:
            # Staged files stay next to the storage file when that is replaced by another one.
            raise InvalidArgument(
                f"The staged part {part.table!r} belongs to another storage, which had this path "
                "before; stage it again",
                field="parts",
            )
        if info.id != self._write.info.id:
            raise InvalidArgument(
                f"The staged part {part.table!r} belongs to collection {info.id!r}, not "
                f"{self._write.info.id!r}; stage it again",
                field="parts",
            )
        try:
            count = self._ids.execute(queries()["staged_ids_add"]).rowcount
        except sqlite3.IntegrityError:
            (twice,) = self._ids.execute(queries()["staged_ids_twice"]).fetchone()
            raise InvalidArgument(
                f"Feature {twice!r:.64} is staged twice by job {self._write.job!r}; stage each id "
                "once",
                field="id",
                feature_id=twice,
                collection_id=self._write.info.id,
            ) from None
        self._ids.execute(queries()["staged_detach"])
        if count != part.features:
            raise not_staged(part)

    def close(self) -> None:
        """Release the gathered ids; the staged files stay."""
        self._ids.close()

    # ---- In the writer's thread --------------------------------------------------------------

    def apply(self, transaction: WriteTransaction) -> AppliedWrite:
        """Apply the write unless it was applied before."""
        connection, write = transaction.connection, self._write
        before = find_applied(connection, write, transaction.overlay)
        if before is not None:
            return before
        known = known_info(connection, transaction.layers, write.info.id)
        for each in self._abouts:
            check_settings(each, known or write.info)
        if known is None:
            collections.create(transaction, write.info)
        done = self._written(transaction, is_new=known is None)
        if transaction.logged is not None:
            transaction.add_message(JOB, TransactionMessage(write.job, None, None))
            if write.message is not None:
                transaction.add_message(MESSAGE, TransactionMessage(write.message, None, None))
        applied = AppliedWrite(
            txn=transaction.logged,
            created=done["CREATED"],
            updated=done["UPDATED"],
            deleted=done["DELETED"],
            retained=done["RETAINED"],
        )
        record = record_of(write.info.id, transaction.overlay, applied, transaction.started_ms)
        objects.keep(connection, JOB, write.job, as_json(record), 0)
        return applied

    def _written(self, transaction: WriteTransaction, *, is_new: bool) -> Counter[str]:
        name, done = self._write.info.id, Counter[str]()
        collection = collection_on(transaction.connection, transaction.layers, name)
        if self._write.mode in (WriteMode.REPLACE, WriteMode.MIRROR) and not is_new:
            done += self._delete_others(transaction, collection)
        mode: PutMode = "create" if self._write.mode is WriteMode.CREATE else "upsert"
        for rows in self._chunks():
            batch, shapes = batch_of([row[:-1] for row in rows], mode)
            batch.locks[:] = [lock_of(row[-1], self._storage, collection.info) for row in rows]
            outcomes = writes.put(transaction, name, batch, shapes, returning=False)
            done.update(each.action for each in outcomes)
        return done

    def _chunks(self) -> Iterator[list[Row]]:
        chunk: list[Row] = []
        size = 0
        for path in self._paths:
            with closing(_opened(path)) as part:
                for row in part.execute(queries()["stage_all"]):
                    chunk.append(row)
                    # The bulk of a row: the document, and the geometry in two forms.
                    size += sum(len(each) for each in row[1:4] if each is not None)
                    if len(chunk) == STAGED_CHUNK_FEATURES or size >= STAGED_CHUNK_BYTES:
                        yield chunk
                        chunk, size = [], 0
        if chunk:
            yield chunk

    # ---- Deletions ---------------------------------------------------------------------------

    def _delete_others(
        self, transaction: WriteTransaction, collection: CollectionRow
    ) -> Counter[str]:
        """Delete features that are not staged: all of them, or those that share a staged key."""
        path = None
        self._fill_tables(transaction.connection)
        if self._write.key is not None:
            path = as_json(self._write.key)
            self._fill_keys(transaction.connection, path)
        if transaction.overlay == MAIN:
            _find_on_main(transaction.connection, collection, path)
        else:
            _find_on_branch(transaction, collection, path)
        done = Counter[str]()
        for ids in _absent(transaction.connection):
            locks = [None] * len(ids)
            outcomes = writes.delete(transaction, collection.id, ids, locks, returning=False)
            done.update(each.action for each in outcomes)
        _clear_tables(transaction.connection)
        return done

    def _fill_tables(self, connection: sqlite3.Connection) -> None:
        for statement in ("staged_table", "staged_key_table", "absent_table"):
            connection.execute(queries()[statement])
        _clear_tables(connection)
        ids = self._ids.execute(queries()["staged_ids"])
        connection.executemany(queries()["staged_insert"], ids)

    def _fill_keys(self, connection: sqlite3.Connection, path: str) -> None:
        for file in self._paths:
            with closing(_opened(file)) as part:
                add_functions(part)
                keys = part.execute(queries()["staged_keys"], (path,))
                connection.executemany(queries()["staged_keys_insert"], keys)


def _clear_tables(connection: sqlite3.Connection) -> None:
    for statement in ("staged_clear", "staged_keys_clear", "absent_clear"):
        connection.execute(queries()[statement])


def _absent(connection: sqlite3.Connection) -> Iterator[list[str]]:
    """Yield the ids to delete, in chunks."""
    last = ""
    while rows := connection.execute(
        queries()["absent_some"], (last, STAGED_CHUNK_FEATURES)
    ).fetchall():
        yield [id_ for (id_,) in rows]
        (last,) = rows[-1]


def _find_on_main(
    connection: sqlite3.Connection, collection: CollectionRow, path: str | None
) -> None:
    """Record the ids to delete, on main."""
    if path is None:
        connection.execute(queries()["unstaged"], (collection.t,))
    else:
        connection.execute(queries()["unstaged_of_keys"], (collection.t, path))


def _find_on_branch(
    transaction: WriteTransaction, collection: CollectionRow, path: str | None
) -> None:
    """Record the ids to delete among all features visible on a branch, in chunks."""
    connection = transaction.connection
    request = reading.CollectionQuery(
        connection, transaction.layers, collection.id, Query(), HEAD, pins_head=False
    )
    question = queries()["unstaged_among" if path is None else "unstaged_among_keys"]
    pairs = ((s.id, None if path is None else key(s.raw, path)) for s in request.states())
    while some := list(islice(pairs, STAGED_CHUNK_FEATURES)):
        connection.execute(question, (as_json(some),))


def _opened(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(_read_only(path), uri=True)


def _read_only(path: Path) -> str:
    """Return the file's URI with which SQLite opens it read-only and never creates it."""
    return f"{path.as_uri()}?mode=ro"
