"""Applying what was staged: one step of one transaction, in the writer's thread.

What can be found out without holding anybody up is found out before: whether all files are there,
and whether an id is in them twice.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Final

from naksha.model.collection import CollectionInfo
from naksha.model.errors import Conflict, InvalidArgument, NotFound
from naksha.model.limits import STAGED_CHUNK_BYTES, STAGED_CHUNK_FEATURES, STAGED_WRITE_DAYS
from naksha.spi.sessions import Mode
from naksha.spi.staged import KIND, MESSAGE, applied_of, kept_of
from naksha.spi.staging import Applied, StagedPart, StagedWrite, WriteMode
from naksha.sqlite import collections, kept, writes
from naksha.sqlite.bulk import batch_of
from naksha.sqlite.errors import translated
from naksha.sqlite.functions import add_functions
from naksha.sqlite.rows import Collection, collection_of
from naksha.sqlite.sql import queries, sql
from naksha.sqlite.stage_files import StageFiles
from naksha.sqlite.staging import about, known_info
from naksha.sqlite.states import as_json
from naksha.sqlite.transaction import Message, Transaction

Row = tuple[Any, ...]
_MODES: Final[dict[WriteMode, Mode]] = {WriteMode.CREATE: "create"}


def find_applied(connection: sqlite3.Connection, job: str) -> Applied | None:
    """What a job became, if it was applied before."""
    found = kept.find(connection, KIND, job)
    return None if found is None else applied_of(found.value)


def forget_applied(connection: sqlite3.Connection, now_ms: int) -> None:
    """Forget writes that nobody will repeat any more."""
    oldest_ms = now_ms - STAGED_WRITE_DAYS * 24 * 3_600_000
    connection.execute(queries()["staged_writes_forget"], (KIND, oldest_ms))


class StagedLoad:
    """The staged features of a write; `close` it in the end."""

    def __init__(self, files: StageFiles, write: StagedWrite, parts: Sequence[StagedPart]) -> None:
        self._write = write
        self._paths = [files.path_of(part) for part in parts]
        with translated():
            # All ids in one place, in a file without a name, which is gone with us.
            self._ids = sqlite3.connect("", isolation_level=None, check_same_thread=False, uri=True)
            try:
                self._ids.execute(queries()["staged_ids_create"])
                for path, part in zip(self._paths, parts, strict=True):
                    self._gather(path, part)
            except BaseException:
                self._ids.close()
                raise
        self._count = sum(part.features for part in parts)

    def _gather(self, path: Path, part: StagedPart) -> None:
        self._ids.execute(queries()["staged_attach"], (_read_only(path),))
        try:
            count = self._ids.execute(queries()["staged_ids_add"]).rowcount
        except sqlite3.IntegrityError:
            (twice,) = self._ids.execute(queries()["staged_ids_twice"]).fetchone()
            raise InvalidArgument(
                "The feature is staged twice",
                field="id",
                feature_id=twice,
                collection_id=self._write.info.id,
            ) from None
        self._ids.execute(queries()["staged_detach"])
        if count != part.features:
            raise NotFound(
                f"{part.table!r} has {count} features, not {part.features}; repeat the job",
                field="parts",
            )

    def close(self) -> None:
        """Forget the ids; the files stay."""
        self._ids.close()

    # ---- In the writer's thread --------------------------------------------------------------

    def apply(self, transaction: Transaction) -> Applied:
        """Do it, unless it was done before."""
        connection, write = transaction.connection, self._write
        before = find_applied(connection, write.job)
        if before is not None:
            return before
        known = known_info(connection, write.info.id)
        self._check_settings(known or write.info)
        if known is None:
            collections.create(transaction, write.info, indices=False)
        done = self._written(transaction, is_new=known is None)
        if transaction.logged is not None and write.message is not None:
            transaction.add_message(MESSAGE, Message(write.message, None, None))
        applied = Applied(
            txn=transaction.logged,
            created=done["CREATED"],
            updated=done["UPDATED"],
            deleted=done["DELETED"],
            retained=done["RETAINED"],
        )
        value = as_json(kept_of(applied, transaction.started_ms))
        kept.keep(connection, KIND, write.job, value, 0)
        return applied

    def _check_settings(self, info: CollectionInfo) -> None:
        for path in self._paths:
            with closing(sqlite3.connect(_read_only(path), uri=True)) as part:
                if part.execute(queries()["staged_about"]).fetchone() != about(info):
                    raise Conflict(
                        "The collection was changed while features were staged; repeat the write",
                        collection_id=info.id,
                    )

    def _written(self, transaction: Transaction, *, is_new: bool) -> Counter[str]:
        name, done = self._write.info.id, Counter[str]()
        collection = collection_of(transaction.connection, name)
        if self._write.mode in (WriteMode.REPLACE, WriteMode.MIRROR):
            done += self._delete_others(transaction, collection)
        later = is_new or self._is_large_for(transaction.connection, collection)
        if later and not is_new:
            collections.drop_indices(transaction.connection, collection)
        mode = _MODES.get(self._write.mode, "upsert")
        for rows in self._chunks():
            batch, shapes = batch_of(rows)
            outcomes = writes.put(transaction, name, mode, batch, shapes, want=False)
            done.update(each.action for each in outcomes)
        if later:
            collections.create_indices(transaction.connection, collection)
        return done

    def _is_large_for(self, connection: sqlite3.Connection, collection: Collection) -> bool:
        """Whether making the indices of an empty collection anew is worth it."""
        return self._count >= STAGED_CHUNK_FEATURES and not any(
            connection.execute(sql(question, **collection.tables)).fetchone()[0]
            for question in ("has_features", "has_past")
        )

    def _chunks(self) -> Iterator[list[Row]]:
        chunk: list[Row] = []
        size = 0
        for path in self._paths:
            with closing(sqlite3.connect(_read_only(path), uri=True)) as part:
                for row in part.execute(queries()["stage_all"]):
                    chunk.append(row)
                    # What is kept of it: the document, and the geometry in two forms.
                    size += sum(len(each) for each in row[1:4] if each is not None)
                    if len(chunk) == STAGED_CHUNK_FEATURES or size >= STAGED_CHUNK_BYTES:
                        yield chunk
                        chunk, size = [], 0
        if chunk:
            yield chunk

    def _delete_others(self, transaction: Transaction, collection: Collection) -> Counter[str]:
        """Delete what is not staged: all of it, or what has a key that is staged, too."""
        connection, done = transaction.connection, Counter[str]()
        connection.execute(queries()["staged_table"])
        connection.execute(queries()["staged_clear"])
        connection.executemany(
            queries()["staged_insert"], self._ids.execute(queries()["staged_ids"])
        )
        if self._write.mode is WriteMode.REPLACE:
            path = as_json(self._write.key)
            self._keep_keys(connection, path)
            found = connection.execute(sql("unstaged_of_keys", **collection.tables), (path,))
        else:
            found = connection.execute(sql("unstaged", **collection.tables))
        gone = [id_ for (id_,) in found]
        connection.execute(queries()["staged_clear"])
        for start in range(0, len(gone), STAGED_CHUNK_FEATURES):
            ids = gone[start : start + STAGED_CHUNK_FEATURES]
            outcomes = writes.delete(transaction, collection.id, ids, [None] * len(ids), False)
            done.update(each.action for each in outcomes)
        return done

    def _keep_keys(self, connection: sqlite3.Connection, path: str) -> None:
        connection.execute(queries()["staged_key_table"])
        connection.execute(queries()["staged_keys_clear"])
        for file in self._paths:
            with closing(sqlite3.connect(_read_only(file), uri=True)) as part:
                add_functions(part)
                connection.executemany(
                    queries()["staged_keys_insert"], part.execute(queries()["staged_keys"], (path,))
                )


def _read_only(path: Path) -> str:
    """The file as SQLite opens it without making one that is not there."""
    return f"{path.as_uri()}?mode=ro"
