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
from naksha.model.state import Outcome, State
from naksha.spi.support.write_input import Batch, WriteBatch
from naksha.sqlite.sql import queries
from naksha.sqlite.write.overlays import open_tables
from naksha.sqlite.write.states import (
    Old,
    Shapes,
    Signature,
    Xyz,
    as_json,
    document,
    document_of,
    namespace,
    raw,
    union,
)
from naksha.sqlite.write.tables import Tables
from naksha.sqlite.write.transaction import Transaction

Row = tuple[Any, ...]
CHUNK: Final = 20_000
"""Rows staged at once."""
_NO_BOX: Final = (None, None, None, None)


def write(
    transaction: Transaction, name: str, batch: Batch, shapes: Shapes | None, *, want: bool
) -> list[Outcome]:
    """Carry out a change; `shapes` are those of its features."""
    if isinstance(batch, WriteBatch):
        assert shapes is not None
        return put(transaction, name, batch, shapes, want=want)
    if batch.mode == "restore":
        return restore(transaction, name, batch.ids, want)
    masks = batch.mode == "delete"
    return delete(transaction, name, batch.ids, batch.locks, want, masks=masks)


# ---- Create, update, upsert ------------------------------------------------------------------


@uncollected
def put(
    transaction: Transaction,
    name: str,
    batch: WriteBatch,
    shapes: Shapes,
    *,
    want: bool,
) -> list[Outcome]:
    """Write features; see `WriteSession.create`, `update` and `upsert`."""
    tables = open_tables(transaction, name, batch.prepared.ids)
    heads = tables.old("heads", batch.prepared.ids)
    work = _Put(tables, batch, shapes, want)
    for position, id_ in enumerate(batch.prepared.ids):
        old = heads.get(id_)
        _check(tables, id_, old, batch, position)
        if old is None:
            work.new.append(position)
        else:
            work.judge(position, old)
    return work.write()


def _check(tables: Tables, id_: str, old: Old | None, batch: WriteBatch, position: int) -> None:
    name, lock = tables.collection.id, batch.locks[position]
    is_merged = batch.is_merged and batch.muuids[position] is not None
    if is_merged and (old is None or old.i != lock):
        raise Retryable(
            "HEAD changed after the merge; repeat the merge", feature_id=id_, collection_id=name
        )
    if batch.mode == "create" and old is not None:
        head = _feature(tables, old)
        raise FeatureExists(
            "The feature already exists", feature_id=id_, collection_id=name, head=head
        )
    if batch.mode == "update" and old is None:
        raise FeatureNotFound("The feature does not exist", feature_id=id_, collection_id=name)
    if lock is not None:
        check_lock(tables, id_, old, lock)


def check_lock(tables: Tables, id_: str, old: Old | None, lock: int | None) -> None:
    """Check that the state that the client read is still HEAD.

    Raises:
        Conflict: It is not; the error carries the head state.
    """
    if lock is None or (old is not None and old.i == lock):
        return
    raise Conflict(
        "The feature was changed since it was read",
        field="uuid",
        feature_id=id_,
        collection_id=tables.collection.id,
        head=None if old is None else _feature(tables, old),
    )


def _feature(tables: Tables, old: Old) -> dict[str, Any]:
    """Return the whole feature of a row of HEAD."""
    geometry = tables.geometries("head_geometries", [old.id])[old.id]
    return decode_feature(old.raw(geometry))


class _Put:
    """Writing half of `put`: new features, changed features and their outcomes."""

    def __init__(self, tables: Tables, batch: WriteBatch, shapes: Shapes, want: bool) -> None:
        self.tables = tables
        self.batch = batch
        self.shapes = shapes
        self.want = want
        self.new: list[int] = []
        self.changed: list[tuple[int, Old, Xyz]] = []
        self.outcomes: dict[str, Outcome] = {}

    def judge(self, position: int, old: Old) -> None:
        """Compare a feature with HEAD: record it as changed, or as retained if it is equal."""
        prepared, xyz = self.batch.prepared, old.xyz()
        tags, crid = prepared.tags[position], prepared.crid[position]
        if (
            prepared.wkb[position] != old.geo
            or not old.readable
            or (tags is not None and tags != xyz.tags)
            or (crid is not None and (crid or None) != xyz.crid)
            or not _is_same(prepared.json[position], old)
        ):
            self.changed.append((position, old, xyz))
            return
        state = None
        if self.want:
            state = State(old.id, raw(self.shapes.geometry[position], old.jsondata))
        self.outcomes[old.id] = Outcome(old.id, "RETAINED", xyz.uuid, old.version, state)

    def write(self) -> list[Outcome]:
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

    def _create(self, by: Signature, first: int) -> None:
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
                given = prepared.tags[position] or ()
                crid = prepared.crid[position] or None
                xyz = namespace(
                    by, first, "CREATE", version, author_json, None, batch.muuids[position],
                    by.now_ms, by.wall_ms, given, crid, prepared.qrid[position],
                )  # fmt: skip
                rows.append(
                    (n, *self._row(by, position, first, "CREATE", version, author, crid, xyz))
                )
                tags += [(tag, n) for tag in given]
                self._told(by, position, "CREATED", rows[-1])
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
        changes.grow(union(self.shapes.box[p] for p in order))

    def _update(self, by: Signature, first: int) -> None:
        tables, batch, t = self.tables, self.batch, self.tables.transaction
        changes = t.changes_of(tables.collection.id)
        self.changed.sort(key=lambda each: each[1].n)  # In the order of the table.
        for start in range(0, len(self.changed), CHUNK):
            part = self.changed[start : start + CHUNK]
            rows = []
            for i, (position, old, xyz) in enumerate(part, first + start):
                rows.append((old.n, *self._next_row(by, position, i, old, xyz)))
                self._told(by, position, "UPDATED", rows[-1])
            tables.stage(rows)
            tables.retire_heads()
            tables.update_heads()
            tables.move_boxes((old.n, old.box, self.shapes.box[p]) for p, old, _ in part)
            retagged = [
                (old.n, given)
                for position, old, xyz in part
                if (given := batch.prepared.tags[position]) is not None and given != xyz.tags
            ]
            tables.many("delete_tags", [(n,) for n, _ in retagged])
            tables.many("insert_tag", [(tag, n) for n, given in retagged for tag in given])
            changes.grow(union(old.box for _, old, _ in part))
            changes.grow(union(self.shapes.box[position] for position, _, _ in part))
        changes.updated += sum(old.txn != by.txn for _, old, _ in self.changed)

    def _next_row(self, by: Signature, position: int, i: int, old: Old, xyz: Xyz) -> Row:
        """Return the columns of the state that follows an old one."""
        prepared = self.batch.prepared
        # A state that this transaction wrote was never visible, so the new one takes its place.
        own = old.txn == by.txn
        action, version = (old.action, old.version) if own else ("UPDATE", old.version + 1)
        given, crid = prepared.tags[position], prepared.crid[position]
        new_crid = xyz.crid if crid is None else (crid or None)
        author = self.tables.transaction.author or old.author
        text = namespace(
            by, i, action, version, as_json(author), xyz.puuid if own else xyz.uuid,
            self.batch.muuids[position], xyz.created_at, xyz.rtcts,
            xyz.tags if given is None else given, new_crid, prepared.qrid[position],
        )  # fmt: skip
        return self._row(by, position, i, action, version, author, new_crid, text)

    def _row(
        self,
        by: Signature,
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

    def _told(self, by: Signature, position: int, action: str, row: Row) -> None:
        id_ = self.batch.prepared.ids[position]
        state = State(id_, raw(row[4], row[5])) if self.want else None
        self.outcomes[id_] = Outcome(id_, action, f"{by.prefix}{row[1]}", row[12], state)


def _is_same(content: bytes, old: Old) -> bool:
    new, known = msgspec.json.decode(content), old.content()
    # Python's == is a fast path for different values only: it takes true for 1.
    return new == known and merge.same(new, known)


# ---- Delete, restore, purge ------------------------------------------------------------------


@uncollected
def delete(
    transaction: Transaction,
    name: str,
    ids: Sequence[str],
    locks: Sequence[int | None],
    want: bool,
    *,
    masks: bool = True,
) -> list[Outcome]:
    """See `WriteSession.delete`."""
    tables = open_tables(transaction, name, ids)
    heads = tables.old("heads", ids)
    for id_, lock in zip(ids, locks, strict=True):
        check_lock(tables, id_, heads.get(id_), lock)
    outcomes = _retained(tables, [id_ for id_ in ids if id_ not in heads], want)
    olds = sorted((heads[id_] for id_ in ids if id_ in heads), key=lambda old: old.n)
    for start in range(0, len(olds), CHUNK):
        part = olds[start : start + CHUNK]
        outcomes |= _stage_following(tables, part, "DELETE", want, masks=masks)
        tables.retire_heads()
        tables.run("insert_tombs")
        tables.run_staged("delete_heads")
        gone = [(old.n,) for old in part]
        tables.many("delete_box", gone)
        tables.many("delete_tags", gone)
    _count(tables, olds, "deleted")
    return [outcomes[id_] for id_ in ids]


@uncollected
def restore(transaction: Transaction, name: str, ids: Sequence[str], want: bool) -> list[Outcome]:
    """See `WriteSession.restore`."""
    tables = open_tables(transaction, name, ids)
    tombs = tables.old("tombstones", ids)
    for id_ in ids:
        if id_ not in tombs:
            raise FeatureNotFound(
                "The feature does not exist or is not deleted", feature_id=id_, collection_id=name
            )
    olds = [tombs[id_] for id_ in ids]
    outcomes: dict[str, Outcome] = {}
    for start in range(0, len(olds), CHUNK):
        part, n = olds[start : start + CHUNK], tables.next_n()
        outcomes |= _stage_following(tables, part, "UPDATE", want, n)
        tables.retire_tombs()
        tables.run_staged("insert_heads")
        tables.insert_boxes((k, old.box) for k, old in enumerate(part, n))
        tables.many(
            "insert_tag", [(tag, k) for k, old in enumerate(part, n) for tag in old.xyz().tags]
        )
    _count(tables, olds, "updated")
    return [outcomes[id_] for id_ in ids]


@uncollected
def purge(transaction: Transaction, name: str, ids: Sequence[str]) -> list[Outcome]:
    """See `WriteSession.purge`."""
    tables = open_tables(transaction, name, ids)
    for id_ in tables.old("heads", ids):
        raise Conflict(
            "The feature is not deleted; delete it before purging it",
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
    return [Outcome(id_, "PURGED" if id_ in dead else "RETAINED", None, None) for id_ in ids]


def _retained(tables: Tables, ids: Sequence[str], want: bool) -> dict[str, Outcome]:
    """Return the outcomes of ids that are not at HEAD, with the tombstone if there is one."""
    outcomes = {id_: Outcome(id_, "RETAINED", None, None) for id_ in ids}
    if not ids:
        return outcomes
    geometries = tables.geometries("tombstone_geometries", ids) if want else {}
    for id_, old in tables.old("tombstones", ids).items():
        state = State(id_, old.raw(geometries[id_])) if want else None
        outcomes[id_] = Outcome(id_, "RETAINED", old.xyz().uuid, old.version, state)
    return outcomes


def _stage_following(
    tables: Tables,
    olds: Sequence[Old],
    action: Literal["DELETE", "UPDATE"],
    want: bool,
    first_n: int | None = None,
    *,
    masks: bool = True,
) -> dict[str, Outcome]:
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
            text = f'{text[:-1]},"masks":false}}'
        jsondata, geometry = document_of(old.content(), text), geometries[old.id]
        rows.append((
            old.n if first_n is None else first_n + k,
            i, old.id, old.geo, geometry, jsondata, *(old.box or _NO_BOX), by.txn, by.ord, version,
            action, author, by.app_id, by.now_ms, xyz.qrid, xyz.mrid,
        ))  # fmt: skip
        state = State(old.id, old.raw(geometry, jsondata)) if want else None
        outcomes[old.id] = Outcome(old.id, done, f"{by.prefix}{i}", version, state)
    tables.stage(rows)
    return outcomes


def _count(
    tables: Tables, olds: Sequence[Old], what: Literal["updated", "deleted", "purged"]
) -> None:
    if olds:
        changes = tables.transaction.changes_of(tables.collection.id)
        setattr(changes, what, getattr(changes, what) + len(olds))
        if what != "purged":
            changes.grow(union(old.box for old in olds))
