"""Create, update, delete, restore and purge: what the writer's thread does with prepared features.

Every function is a step of a transaction, which may have to be done again under the same numbers.
Rows are read in one statement, judged in Python and written with one statement per kind.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import msgspec

from naksha.model import merge
from naksha.model.errors import Conflict, FeatureExists, FeatureNotFound, Retryable
from naksha.model.features import PreparedFeatures
from naksha.model.state import Outcome, State
from naksha.sqlite.rows import collection_of
from naksha.sqlite.sql import queries, sql
from naksha.sqlite.states import (
    Old,
    Shapes,
    Signature,
    document,
    document_of,
    namespace,
    raw,
)
from naksha.sqlite.transaction import Transaction

Mode = Literal["create", "update", "upsert"]
_NO_BOX: Final = (None, None, None, None)


@dataclass(frozen=True, slots=True)
class Batch:
    """Prepared features with everything a write needs to know of them."""

    prepared: PreparedFeatures
    shapes: Shapes
    locks: list[int | None]
    muuids: list[str | None]

    def is_merged(self, position: int) -> bool:
        """Whether the feature was merged with HEAD, which then must still be the same."""
        return self.muuids[position] is not None


class Tables:
    """The tables of one collection, as the steps of one transaction write them."""

    def __init__(self, transaction: Transaction, name: str) -> None:
        self.transaction = transaction
        self.connection = transaction.connection
        self.collection = collection_of(self.connection, name)
        self._slots = self.collection.tables | {"columns": queries()["state_columns"]}
        transaction.check_order(self.collection.txn, name)

    def many(self, name: str, rows: Sequence[Sequence[Any]]) -> None:
        """Run a statement for each row."""
        if rows:
            self.connection.executemany(sql(name, **self._slots), rows)

    def value(self, name: str) -> Any:
        return self.connection.execute(sql(name, **self._slots)).fetchone()[0]

    def old(self, name: str, ids: Iterable[str]) -> dict[str, Old]:
        """Rows of `heads` or `tombstones` by id; none may be of a later transaction."""
        wanted = msgspec.json.encode(list(ids)).decode()
        rows = self.connection.execute(sql(name, **self._slots), (wanted,))
        found = {row[0]: Old(*row) for row in rows}
        if found:
            latest = max(old.txn for old in found.values())
            self.transaction.check_order(latest, self.collection.id)
        return found

    def signature(self) -> Signature:
        """Draws the number of the transaction, if it has none yet."""
        t = self.transaction
        app = msgspec.json.encode(t.app_id).decode()
        wall_ms = time.time_ns() // 1_000_000
        prefix = t.guid_prefix(self.collection.id)
        return Signature(t.txn, t.ord, prefix, t.app_id, app, t.started_ms, wall_ms)

    # ---- States that are over ----------------------------------------------------------------

    def retire_heads(self, olds: Sequence[Old]) -> None:
        """Copy rows of HEAD to the history. Of those that this transaction made itself only the
        bare state is kept: nobody can ever have seen them."""
        if not self.collection.has_history:
            return
        txn, ord_ = self.transaction.txn, self.transaction.ord
        self.many("head_to_history", [(txn, old.n) for old in olds])
        seen = [old.n for old in olds if old.txn < txn]
        self.many("head_to_past", [(ord_ - 1, n) for n in seen])
        self.many("head_tags_to_past", [(n,) for n in seen])

    def retire_tombs(self, olds: Sequence[Old]) -> None:
        """Move tombstones to the history, as [deleted, now)."""
        if self.collection.has_history:
            self.many("tomb_to_history", [(self.transaction.txn, old.n) for old in olds])
        self.many("delete_tomb", [(old.n,) for old in olds])


# ---- Create, update, upsert ------------------------------------------------------------------


def put(transaction: Transaction, name: str, mode: Mode, batch: Batch, want: bool) -> list[Outcome]:
    """Write features; see `WriteSession.create`, `update` and `upsert`."""
    tables = Tables(transaction, name)
    heads = tables.old("heads", batch.prepared.ids)
    work = _Put(tables, batch, heads, want)
    for position, id_ in enumerate(batch.prepared.ids):
        old = heads.get(id_)
        lock = batch.locks[position]
        if batch.is_merged(position) and (old is None or old.i != lock):
            raise Retryable("HEAD changed after it was merged", feature_id=id_, collection_id=name)
        _check(tables, id_, old, lock, mode)
        if old is None:
            work.new.append(position)
        elif not work.is_equal(position, old):
            work.changed.append((position, old))
    return work.write()


def _check(tables: Tables, id_: str, old: Old | None, lock: int | None, mode: Mode) -> None:
    name = tables.collection.id
    if mode == "create" and old is not None:
        head = _feature(tables, old)
        raise FeatureExists(
            "The feature exists already", feature_id=id_, collection_id=name, head=head
        )
    if mode == "update" and old is None:
        raise FeatureNotFound("There is no such feature", feature_id=id_, collection_id=name)
    check_lock(tables, id_, old, lock)


def check_lock(tables: Tables, id_: str, old: Old | None, lock: int | None) -> None:
    """A state that the client had in mind must be the one that is there."""
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
    """The whole feature of a row of HEAD."""
    geometry = _geometries(tables, "head", [old.id])[old.id]
    feature: dict[str, Any] = msgspec.json.decode(raw(geometry, old.jsondata))
    return feature


class _Put:
    """The writing half of `put`: what is new, what changed, and what comes of it."""

    def __init__(self, tables: Tables, batch: Batch, heads: dict[str, Old], want: bool) -> None:
        self.tables = tables
        self.batch = batch
        self.heads = heads
        self.want = want
        self.new: list[int] = []
        self.changed: list[tuple[int, Old]] = []
        self.parsed: dict[str, dict[str, Any]] = {}
        self.outcomes: dict[str, Outcome] = {}

    def is_equal(self, position: int, old: Old) -> bool:
        """Whether a feature says what HEAD says already; then that is the outcome."""
        prepared = self.batch.prepared
        content, xyz = old.parsed()
        self.parsed[old.id] = xyz
        tags, crid = prepared.tags[position], prepared.crid[position]
        if (
            prepared.wkb[position] != old.geo
            or (tags is not None and tags != xyz["tags"])
            or (crid is not None and (crid or None) != xyz["crid"])
            or not merge.same(msgspec.json.decode(prepared.json[position]), content)
        ):
            return False
        state = None
        if self.want:
            state = State(old.id, raw(self.batch.shapes.geometry[position], old.jsondata))
        self.outcomes[old.id] = Outcome(old.id, "RETAINED", xyz["uuid"], old.version, state)
        return True

    def write(self) -> list[Outcome]:
        if self.new or self.changed:
            by = self.tables.signature()
            first = self.tables.transaction.take(
                self.tables.collection, len(self.new) + len(self.changed)
            )
            self._create(by, first)
            self._update(by, first + len(self.new))
        return [self.outcomes[id_] for id_ in self.batch.prepared.ids]

    def _create(self, by: Signature, first: int) -> None:
        if not self.new:
            return
        tables, batch, t = self.tables, self.batch, self.tables.transaction
        tombs = tables.old("tombstones", (batch.prepared.ids[p] for p in self.new))
        purged = tables.connection.execute(
            queries()["last_purge"], (tables.collection.id, by.txn)
        ).fetchone()[0]
        t.check_order(purged, tables.collection.id)
        author = t.author or tables.collection.author or t.app_id
        n = tables.value("next_n")
        rows, boxes, tags = [], [], []
        changes = t.changes_of(tables.collection.id)
        for i, position in enumerate(self.new, first):
            id_ = batch.prepared.ids[position]
            tomb = tombs.get(id_)
            version = 1 if tomb is None else tomb.version + 1
            crid = batch.prepared.crid[position] or None
            row = self._row(
                by,
                position,
                i,
                "CREATE",
                version,
                author,
                None,
                by.now_ms,
                by.wall_ms,
                batch.prepared.tags[position] or (),
                crid,
            )
            rows.append((n, *row))
            box = batch.shapes.box[position]
            if box is not None:
                boxes.append((n, box[0], box[2], box[1], box[3]))
            tags += [(tag, n) for tag in batch.prepared.tags[position] or ()]
            changes.created += 1
            changes.grow(box)
            n += 1
            self._told(position, "CREATED", row, version)
        tables.retire_tombs(list(tombs.values()))
        tables.many("insert_head_n", rows)
        tables.many("insert_box", boxes)
        tables.many("insert_tag", tags)

    def _update(self, by: Signature, first: int) -> None:
        if not self.changed:
            return
        tables, batch, t = self.tables, self.batch, self.tables.transaction
        tables.retire_heads([old for _, old in self.changed])
        plain, moved, boxes, retagged = [], [], [], []
        changes = t.changes_of(tables.collection.id)
        for i, (position, old) in enumerate(self.changed, first):
            xyz = self.parsed[old.id]
            # What this very transaction made is replaced: nobody has seen it.
            own = old.txn == by.txn
            action, version = ("UPDATE", old.version + 1)
            if own:
                action, version = old.action, old.version
            given, crid = batch.prepared.tags[position], batch.prepared.crid[position]
            author = t.author or old.author
            row = self._row(
                by,
                position,
                i,
                action,
                version,
                author,
                xyz["puuid"] if own else xyz["uuid"],
                xyz["createdAt"],
                xyz["rtcts"],
                xyz["tags"] if given is None else given,
                xyz["crid"] if crid is None else (crid or None),
            )
            common = (i, row[4], *row[9:16], row[17])
            box = batch.shapes.box[position]
            if batch.prepared.wkb[position] == old.geo:
                plain.append((*common, old.n))
            else:
                moved.append((*common, *row[2:4], *row[5:9], row[16], old.n))
                if box != old.box:
                    boxes.append((old.n, box))
            if given is not None and given != xyz["tags"]:
                retagged.append((old.n, given))
            if not own:
                changes.updated += 1
            changes.grow(old.box)
            changes.grow(box)
            self._told(position, "UPDATED", row, version)
        tables.many("update_head", plain)
        tables.many("update_head_geo", moved)
        tables.many("delete_box", [(n,) for n, _ in boxes])
        tables.many("insert_box", [(n, b[0], b[2], b[1], b[3]) for n, b in boxes if b is not None])
        tables.many("delete_tags", [(n,) for n, _ in retagged])
        tables.many("insert_tag", [(tag, n) for n, tags in retagged for tag in tags])

    def _row(
        self,
        by: Signature,
        position: int,
        i: int,
        action: str,
        version: int,
        author: str | None,
        puuid: str | None,
        created_at: int,
        rtcts: int,
        tags: Sequence[str],
        crid: str | None,
    ) -> tuple[Any, ...]:
        """The columns of a state, in the order of `state_columns`."""
        prepared = self.batch.prepared
        qrid = prepared.qrid[position]
        xyz = namespace(
            by,
            i=i,
            action=action,
            version=version,
            author=author,
            puuid=puuid,
            muuid=self.batch.muuids[position],
            created_at=created_at,
            rtcts=rtcts,
            tags=tags,
            crid=crid,
            qrid=qrid,
        )
        return (
            i,
            prepared.ids[position],
            prepared.wkb[position],
            self.batch.shapes.geometry[position],
            document(prepared.json[position], xyz),
            *(self.batch.shapes.box[position] or _NO_BOX),
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

    def _told(self, position: int, action: str, row: tuple[Any, ...], version: int) -> None:
        id_ = self.batch.prepared.ids[position]
        state = State(id_, raw(row[3], row[4])) if self.want else None
        prefix = self.tables.transaction.guid_prefix(self.tables.collection.id)
        self.outcomes[id_] = Outcome(id_, action, f"{prefix}{row[0]}", version, state)


# ---- Delete, restore, purge ------------------------------------------------------------------


def delete(
    transaction: Transaction,
    name: str,
    ids: Sequence[str],
    locks: Sequence[int | None],
    want: bool,
) -> list[Outcome]:
    """See `WriteSession.delete`."""
    tables = Tables(transaction, name)
    heads = tables.old("heads", ids)
    for id_, lock in zip(ids, locks, strict=True):
        if id_ in heads:
            check_lock(tables, id_, heads[id_], lock)
    outcomes = _retained(tables, [id_ for id_ in ids if id_ not in heads], want)
    if heads:
        olds = [heads[id_] for id_ in ids if id_ in heads]
        tables.signature()
        tables.retire_heads(olds)
        outcomes |= _follow(tables, olds, "DELETE", want)
        gone = [(old.n,) for old in olds]
        for statement in ("delete_head", "delete_box", "delete_tags"):
            tables.many(statement, gone)
        _count(tables, olds, "deleted")
    return [outcomes[id_] for id_ in ids]


def restore(transaction: Transaction, name: str, ids: Sequence[str], want: bool) -> list[Outcome]:
    """See `WriteSession.restore`."""
    tables = Tables(transaction, name)
    tombs = tables.old("tombstones", ids)
    for id_ in ids:
        if id_ not in tombs:
            raise FeatureNotFound("There is no such feature", feature_id=id_, collection_id=name)
    if not tombs:
        return []
    olds = [tombs[id_] for id_ in ids]
    tables.signature()
    outcomes = _follow(tables, olds, "UPDATE", want)
    tables.retire_tombs(olds)
    _count(tables, olds, "updated")
    return [outcomes[id_] for id_ in ids]


def purge(transaction: Transaction, name: str, ids: Sequence[str]) -> list[Outcome]:
    """See `WriteSession.purge`."""
    tables = Tables(transaction, name)
    for id_ in tables.old("heads", ids):
        raise Conflict("The feature is not deleted", feature_id=id_, collection_id=name)
    published = tables.connection.execute(queries()["counters"]).fetchone()[2]
    tombs = tables.old("tombstones", ids)
    olds = [old for old in tombs.values() if old.txn <= published]
    if olds:
        tables.signature()
        tables.retire_tombs(olds)
        _count(tables, olds, "purged")
    dead = {old.id for old in olds}
    return [Outcome(id_, "PURGED" if id_ in dead else "RETAINED", None, None) for id_ in ids]


def _retained(tables: Tables, ids: Sequence[str], want: bool) -> dict[str, Outcome]:
    """What is not there to be deleted: perhaps it was deleted before."""
    outcomes = {id_: Outcome(id_, "RETAINED", None, None) for id_ in ids}
    if not ids:
        return outcomes
    geometries = _geometries(tables, "del", ids) if want else {}
    for id_, old in tables.old("tombstones", ids).items():
        xyz = old.parsed()[1]
        state = State(id_, raw(geometries[id_], old.jsondata)) if want else None
        outcomes[id_] = Outcome(id_, "RETAINED", xyz["uuid"], old.version, state)
    return outcomes


def _geometries(tables: Tables, table: str, ids: Sequence[str]) -> dict[str, str | None]:
    text = sql("geometries", table=tables.collection.tables[table])
    wanted = msgspec.json.encode(list(ids)).decode()
    return dict(tables.connection.execute(text, (wanted,)).fetchall())


def _follow(
    tables: Tables, olds: Sequence[Old], action: Literal["DELETE", "UPDATE"], want: bool
) -> dict[str, Outcome]:
    """The states after old ones of the same content: tombstones of what was live, or the other
    way round."""
    t, by = tables.transaction, tables.signature()
    source = "head" if action == "DELETE" else "del"
    geometries = _geometries(tables, source, [old.id for old in olds])
    first = t.take(tables.collection, len(olds))
    n = tables.value("next_n") if action == "UPDATE" else 0
    rows: list[tuple[Any, ...]] = []
    outcomes, boxes, tags = {}, [], []
    for i, old in enumerate(olds, first):
        content, xyz = old.parsed()
        author = t.author or old.author
        text = namespace(
            by,
            i=i,
            action=action,
            version=old.version + 1,
            author=author,
            puuid=xyz["uuid"],
            muuid=None,
            created_at=xyz["createdAt"],
            rtcts=xyz["rtcts"],
            tags=xyz["tags"],
            crid=xyz["crid"],
            qrid=xyz["qrid"],
        )
        jsondata, geometry = document_of(content, text), geometries[old.id]
        row = (
            *(i, old.id, old.geo, geometry, jsondata),
            *(old.box or _NO_BOX),
            *(by.txn, by.ord, old.version + 1, action, author, by.app_id, by.now_ms),
            *(xyz["qrid"], xyz["mrid"]),
        )
        if action == "UPDATE":
            row = (n, *row)
            if old.box is not None:
                boxes.append((n, old.box[0], old.box[2], old.box[1], old.box[3]))
            tags += [(tag, n) for tag in xyz["tags"]]
            n += 1
        rows.append(row)
        state = State(old.id, raw(geometry, jsondata)) if want else None
        done = "DELETED" if action == "DELETE" else "RESTORED"
        outcomes[old.id] = Outcome(old.id, done, f"{by.prefix}{i}", old.version + 1, state)
    tables.many("insert_tomb" if action == "DELETE" else "insert_head_n", rows)
    tables.many("insert_box", boxes)
    tables.many("insert_tag", tags)
    return outcomes


def _count(
    tables: Tables, olds: Sequence[Old], what: Literal["updated", "deleted", "purged"]
) -> None:
    changes = tables.transaction.changes_of(tables.collection.id)
    setattr(changes, what, getattr(changes, what) + len(olds))
    if what != "purged":
        for old in olds:
            changes.grow(old.box)
