"""Create, update, delete, restore and purge prepared features, in the writer thread.

Every function is a step of a transaction, which may be repeated under the same numbers. Rows are
read in one statement, compared in Python, staged, and written with one statement per table.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Literal

import msgspec

from naksha.model import merge
from naksha.model.damage import decode_feature
from naksha.model.errors import Conflict, FeatureExists, FeatureNotFound, Retryable
from naksha.model.gc_pause import uncollected
from naksha.model.json_text import with_last
from naksha.model.state import State, WriteOutcome
from naksha.spi.support.write_input import Batch, WriteBatch
from naksha.sqlite.sql import queries
from naksha.sqlite.write.overlays import open_tables
from naksha.sqlite.write.states import (
    OldState,
    StateNamespace,
    StoredGeometries,
    TransactionStamp,
    as_json,
    document,
    document_of,
    namespace,
    raw,
)
from naksha.sqlite.write.tables import CollectionTables
from naksha.sqlite.write.transaction import WriteTransaction

Row = tuple[Any, ...]
CHUNK: Final = 20_000
"""Rows staged at once."""
_NO_BOX: Final = (None, None, None, None)


def write(
    transaction: WriteTransaction,
    name: str,
    batch: Batch,
    shapes: StoredGeometries | None,
    *,
    returning: bool,
) -> list[WriteOutcome]:
    """Carry out a change; `shapes` are those of its features."""
    if isinstance(batch, WriteBatch):
        assert shapes is not None
        return put(transaction, name, batch, shapes, returning=returning)
    if batch.mode == "restore":
        return restore(transaction, name, batch.ids, returning)
    masks = batch.mode == "delete"
    return delete(transaction, name, batch.ids, batch.locks, returning, masks=masks)


# ---- Create, update, upsert ------------------------------------------------------------------


@uncollected
def put(
    transaction: WriteTransaction,
    name: str,
    batch: WriteBatch,
    shapes: StoredGeometries,
    *,
    returning: bool,
) -> list[WriteOutcome]:
    """Write features; see `WriteSession.create`, `update` and `upsert`."""
    tables = open_tables(transaction, name, batch.prepared.ids)
    heads = tables.old("heads", batch.prepared.ids)
    work = _Put(tables, batch, shapes, returning)
    for position, id_ in enumerate(batch.prepared.ids):
        old = heads.get(id_)
        _check(tables, id_, old, batch, position)
        if old is None:
            work.new.append(position)
        else:
            work.compare(position, old)
    return work.write()


def _check(
    tables: CollectionTables, id_: str, old: OldState | None, batch: WriteBatch, position: int
) -> None:
    name, lock = tables.collection.id, batch.locks[position]
    is_merged = batch.is_merged and batch.muuids[position] is not None
    if is_merged and (old is None or old.i != lock):
        raise Retryable(
            f"HEAD of feature {id_!r:.64} changed after the merge; repeat the merge",
            feature_id=id_,
            collection_id=name,
        )
    if batch.mode == "create" and old is not None:
        head = _feature(tables, old)
        raise FeatureExists(
            f"Feature {id_!r:.64} already exists; update it, or choose another id",
            feature_id=id_,
            collection_id=name,
            head=head,
        )
    if batch.mode == "update" and old is None:
        raise FeatureNotFound(
            f"Feature {id_!r:.64} does not exist; create it, or correct its id",
            feature_id=id_,
            collection_id=name,
        )
    if lock is not None:
        _check_lock(tables, id_, old, lock)


def _check_lock(tables: CollectionTables, id_: str, old: OldState | None, lock: int | None) -> None:
    """Check that the state that the client read is still HEAD.

    Raises:
        Conflict: It is not; the error carries the head state.
    """
    if lock is None or (old is not None and old.i == lock):
        return
    raise Conflict(
        f"Feature {id_!r:.64} was changed since it was read; merge it with the head in this error",
        field="uuid",
        feature_id=id_,
        collection_id=tables.collection.id,
        head=None if old is None else _feature(tables, old),
    )


def _feature(tables: CollectionTables, old: OldState) -> dict[str, Any]:
    """Return the whole feature of a row of HEAD."""
    geometry = tables.geometries("head_geometries", [old.id])[old.id]
    return decode_feature(old.raw(geometry))


class _Put:
    """Writing half of `put`: new features, changed features and their outcomes."""

    def __init__(
        self, tables: CollectionTables, batch: WriteBatch, shapes: StoredGeometries, returning: bool
    ) -> None:
        self.tables = tables
        self.batch = batch
        self.shapes = shapes
        self.returning = returning
        self.new: list[int] = []
        self.changed: list[tuple[int, OldState, StateNamespace]] = []
        self.outcomes: dict[str, WriteOutcome] = {}

    def compare(self, position: int, old: OldState) -> None:
        """Compare a feature with HEAD: record it as changed, or as retained if it is equal."""
        prepared, xyz = self.batch.prepared, old.xyz()
        tags, crid = prepared.tags[position], prepared.crid[position]
        if (
            prepared.wkb[position] != old.geo
            or not old.readable
            or (tags is not None and tags != xyz.tags)
            or (crid is not None and (crid or None) != xyz.crid)
            or not self._is_same(position, old)
        ):
            self.changed.append((position, old, xyz))
            return
        state = None
        if self.returning:
            state = State(old.id, raw(self.shapes.geometry[position], old.jsondata))
        self.outcomes[old.id] = WriteOutcome(old.id, "RETAINED", xyz.uuid, old.version, state)

    def _is_same(self, position: int, old: OldState) -> bool:
        prepared, known = self.batch.prepared, old.content()
        new = prepared.values[position]
        if new is None:
            new = msgspec.json.decode(prepared.json[position])
        # Python's == is a fast path for different values only: it takes true for 1.
        return new == known and merge.same(new, known)

    def write(self) -> list[WriteOutcome]:
        if self.new or self.changed:
            by = self.tables.signature()
            first = self.tables.transaction.take(
                self.tables.collection, len(self.new) + len(self.changed)
            )
            if self.new:
                self._create(by, first)
            if self.changed:
                self._update(by, first + len(self.new))
        return [self.outcomes[id_] for id_ in self.batch.prepared.ids]

    def _create(self, by: TransactionStamp, first: int) -> None:
        tables, batch, t = self.tables, self.batch, self.tables.transaction
        prepared = batch.prepared
        tombs = tables.old("tombstones", [prepared.ids[p] for p in self.new])
        here = (tables.collection.id, by.txn, tables.collection.overlay)
        row = tables.connection.execute(queries()["last_purge"], here)
        t.check_order(row.fetchone()[0], tables.collection.id)
        author = t.author or tables.collection.author or t.app_id
        author_json = as_json(author)
        # Write neighbours together: this is cheaper for the R*Trees and for readers.
        order = sorted(self.new, key=lambda p: prepared.qrid[p] or "")
        n = tables.next_n()
        for start in range(0, len(order), CHUNK):
            part = order[start : start + CHUNK]
            rows, tags = [], []
            for position in part:
                tomb = tombs.get(prepared.ids[position])
                version = 1 if tomb is None else tomb.version + 1
                version += 0 if batch.after is None else batch.after[position]
                feature_tags = prepared.tags[position] or ()
                crid = prepared.crid[position] or None
                xyz = namespace(
                    by, first, "CREATE", version, author_json, None, batch.muuids[position],
                    by.now_ms, by.wall_ms, feature_tags, crid, prepared.qrid[position],
                )  # fmt: skip
                rows.append(
                    (n, *self._row(by, position, first, "CREATE", version, author, crid, xyz))
                )
                tags += [(tag, n) for tag in feature_tags]
                self._add_outcome(by, position, "CREATED", rows[-1])
                n += 1
                first += 1
            tables.stage(rows)
            if tombs:
                tables.retire_tombs()
            tables.run_staged("insert_heads")
            tables.insert_boxes((r[0], r[6:10]) for r in rows if r[6] is not None)
            tables.many("insert_tag", tags)
        changes = t.changes_of(tables.collection.id)
        changes.created += len(order)
        changes.grow(self.shapes.box[p] for p in order)

    def _update(self, by: TransactionStamp, first: int) -> None:
        tables, batch, t = self.tables, self.batch, self.tables.transaction
        changes = t.changes_of(tables.collection.id)
        self.changed.sort(key=lambda each: each[1].n)  # In the order of the table.
        for start in range(0, len(self.changed), CHUNK):
            part = self.changed[start : start + CHUNK]
            rows = []
            for i, (position, old, xyz) in enumerate(part, first + start):
                rows.append((old.n, *self._next_row(by, position, i, old, xyz)))
                self._add_outcome(by, position, "UPDATED", rows[-1])
            tables.stage(rows)
            tables.retire_heads()
            tables.update_heads()
            tables.move_boxes((old.n, old.box, self.shapes.box[p]) for p, old, _ in part)
            retagged = [
                (old.n, feature_tags)
                for position, old, xyz in part
                if (feature_tags := batch.prepared.tags[position]) is not None
                and feature_tags != xyz.tags
            ]
            tables.many("delete_tags", [(n,) for n, _ in retagged])
            tables.many(
                "insert_tag", [(tag, n) for n, feature_tags in retagged for tag in feature_tags]
            )
            changes.grow(box for p, old, _ in part for box in (old.box, self.shapes.box[p]))
        changes.updated += sum(old.txn != by.txn for _, old, _ in self.changed)

    def _next_row(
        self, by: TransactionStamp, position: int, i: int, old: OldState, xyz: StateNamespace
    ) -> Row:
        """Return the columns of the state that follows an old one."""
        prepared = self.batch.prepared
        # A state that this transaction wrote was never visible, so the new one takes its place.
        own = old.txn == by.txn
        action, version = (old.action, old.version) if own else ("UPDATE", old.version + 1)
        feature_tags, crid = prepared.tags[position], prepared.crid[position]
        new_crid = xyz.crid if crid is None else (crid or None)
        author = self.tables.transaction.author or old.author
        text = namespace(
            by, i, action, version, as_json(author), xyz.puuid if own else xyz.uuid,
            self.batch.muuids[position], xyz.created_at, xyz.rtcts,
            xyz.tags if feature_tags is None else feature_tags, new_crid, prepared.qrid[position],
        )  # fmt: skip
        return self._row(by, position, i, action, version, author, new_crid, text)

    def _row(
        self,
        by: TransactionStamp,
        position: int,
        i: int,
        action: str,
        version: int,
        author: str | None,
        crid: str | None,
        xyz: str,
    ) -> Row:
        """Return the columns of a state, in the order of `naksha_stage`."""
        prepared, shapes = self.batch.prepared, self.shapes
        qrid = prepared.qrid[position]
        return (
            i,
            prepared.ids[position],
            prepared.wkb[position],
            shapes.geometry[position],
            document(prepared.json[position], xyz),
            *(shapes.box[position] or _NO_BOX),
            by.txn,
            by.ord,
            version,
            action,
            author,
            by.app_id,
            by.now_ms,
            qrid,
            crid or qrid,
        )

    def _add_outcome(self, by: TransactionStamp, position: int, action: str, row: Row) -> None:
        id_ = self.batch.prepared.ids[position]
        state = State(id_, raw(row[4], row[5])) if self.returning else None
        self.outcomes[id_] = WriteOutcome(id_, action, f"{by.prefix}{row[1]}", row[12], state)


# ---- Delete, restore, purge ------------------------------------------------------------------


@uncollected
def delete(
    transaction: WriteTransaction,
    name: str,
    ids: Sequence[str],
    locks: Sequence[int | None],
    returning: bool,
    *,
    masks: bool = True,
) -> list[WriteOutcome]:
    """See `WriteSession.delete`."""
    tables = open_tables(transaction, name, ids)
    heads = tables.old("heads", ids)
    for id_, lock in zip(ids, locks, strict=True):
        _check_lock(tables, id_, heads.get(id_), lock)
    outcomes = _retained(tables, [id_ for id_ in ids if id_ not in heads], returning)
    olds = sorted((heads[id_] for id_ in ids if id_ in heads), key=lambda old: old.n)
    for start in range(0, len(olds), CHUNK):
        part = olds[start : start + CHUNK]
        outcomes |= _stage_following(tables, part, "DELETE", returning, masks=masks)
        tables.retire_heads()
        tables.run("insert_tombs")
        tables.run_staged("delete_heads")
        gone = [(old.n,) for old in part]
        tables.many("delete_box", gone)
        tables.many("delete_tags", gone)
    _count(tables, olds, "deleted")
    return [outcomes[id_] for id_ in ids]


@uncollected
def restore(
    transaction: WriteTransaction, name: str, ids: Sequence[str], returning: bool
) -> list[WriteOutcome]:
    """See `WriteSession.restore`."""
    tables = open_tables(transaction, name, ids)
    tombs = tables.old("tombstones", ids)
    for id_ in ids:
        if id_ not in tombs:
            raise FeatureNotFound(
                f"Feature {id_!r:.64} does not exist or is not deleted; only a deleted feature "
                "can be restored",
                feature_id=id_,
                collection_id=name,
            )
    olds = [tombs[id_] for id_ in ids]
    outcomes: dict[str, WriteOutcome] = {}
    for start in range(0, len(olds), CHUNK):
        part, n = olds[start : start + CHUNK], tables.next_n()
        outcomes |= _stage_following(tables, part, "UPDATE", returning, n)
        tables.retire_tombs()
        tables.run_staged("insert_heads")
        tables.insert_boxes((k, old.box) for k, old in enumerate(part, n))
        tables.many(
            "insert_tag", [(tag, k) for k, old in enumerate(part, n) for tag in old.xyz().tags]
        )
    _count(tables, olds, "updated")
    return [outcomes[id_] for id_ in ids]


@uncollected
def purge(transaction: WriteTransaction, name: str, ids: Sequence[str]) -> list[WriteOutcome]:
    """See `WriteSession.purge`."""
    tables = open_tables(transaction, name, ids)
    for id_ in tables.old("heads", ids):
        raise Conflict(
            f"Feature {id_!r:.64} is not deleted; delete it before you purge it",
            feature_id=id_,
            collection_id=name,
        )
    published = tables.connection.execute(queries()["counters"]).fetchone()[2]
    olds = [old for old in tables.old("tombstones", ids).values() if old.txn <= published]
    if olds:
        tables.signature()
        tables.stage([(old.n, None, old.id, *(None,) * 16) for old in olds])
        tables.retire_tombs()
        _count(tables, olds, "purged")
    dead = {old.id for old in olds}
    return [WriteOutcome(id_, "PURGED" if id_ in dead else "RETAINED", None, None) for id_ in ids]


def _retained(
    tables: CollectionTables, ids: Sequence[str], returning: bool
) -> dict[str, WriteOutcome]:
    """Return the outcomes of ids that are not at HEAD, with the tombstone if there is one."""
    outcomes = {id_: WriteOutcome(id_, "RETAINED", None, None) for id_ in ids}
    if not ids:
        return outcomes
    geometries = tables.geometries("tombstone_geometries", ids) if returning else {}
    for id_, old in tables.old("tombstones", ids).items():
        state = State(id_, old.raw(geometries[id_])) if returning else None
        outcomes[id_] = WriteOutcome(id_, "RETAINED", old.xyz().uuid, old.version, state)
    return outcomes


def _stage_following(
    tables: CollectionTables,
    olds: Sequence[OldState],
    action: Literal["DELETE", "UPDATE"],
    returning: bool,
    first_n: int | None = None,
    *,
    masks: bool = True,
) -> dict[str, WriteOutcome]:
    """Stage states that follow old ones with the same content: tombstones, or restored states.

    Restored states get new row numbers, from `first_n` on.
    """
    t, by = tables.transaction, tables.signature()
    geometries = tables.geometries(
        "head_geometries" if action == "DELETE" else "tombstone_geometries",
        [old.id for old in olds],
    )
    first = t.take(tables.collection, len(olds))
    done = "DELETED" if action == "DELETE" else "RESTORED"
    rows: list[Row] = []
    outcomes = {}
    for k, old in enumerate(olds):
        i, xyz, version, author = first + k, old.xyz(), old.version + 1, t.author or old.author
        text = namespace(
            by, i, action, version, as_json(author), xyz.uuid, None, xyz.created_at, xyz.rtcts,
            xyz.tags, xyz.crid, xyz.qrid,
        )  # fmt: skip
        if not masks:
            text = with_last(text.encode(), "masks", b"false").decode()
        jsondata, geometry = document_of(old.content(), text), geometries[old.id]
        rows.append((
            old.n if first_n is None else first_n + k,
            i, old.id, old.geo, geometry, jsondata, *(old.box or _NO_BOX), by.txn, by.ord, version,
            action, author, by.app_id, by.now_ms, xyz.qrid, xyz.mrid,
        ))  # fmt: skip
        state = State(old.id, old.raw(geometry, jsondata)) if returning else None
        outcomes[old.id] = WriteOutcome(old.id, done, f"{by.prefix}{i}", version, state)
    tables.stage(rows)
    return outcomes


def _count(
    tables: CollectionTables,
    olds: Sequence[OldState],
    what: Literal["updated", "deleted", "purged"],
) -> None:
    if olds:
        changes = tables.transaction.changes_of(tables.collection.id)
        setattr(changes, what, getattr(changes, what) + len(olds))
        if what != "purged":
            changes.grow(old.box for old in olds)
