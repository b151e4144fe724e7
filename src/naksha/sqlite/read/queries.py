"""Queries on a connection, shared by readers, sessions and splits."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, Final

import msgspec

from naksha.model.collection import CollectionInfo
from naksha.model.errors import InvalidArgument, NotFound
from naksha.model.geo.tiles import VectorTile
from naksha.model.identity.guid import Guid
from naksha.model.identity.storage_identity import StorageIdentity
from naksha.model.identity.uuids import StateRef, parse_state_id
from naksha.model.limits import INT8_MAX
from naksha.model.query import Intersects, Query, SortKey
from naksha.model.state import MatchingState, State
from naksha.model.statistics import Statistics
from naksha.model.version import AtTxn, Head, VersionSelector
from naksha.spi.cursor import PageCursor, decode_cursor
from naksha.spi.storage import StatePage
from naksha.spi.support.vector_tiles import tile_of
from naksha.sqlite.read import statements, versions
from naksha.sqlite.read.exact_tests import tester_of
from naksha.sqlite.read.id_queries import found_of, found_statement
from naksha.sqlite.read.layers import (
    Layers,
    check_kept_since,
    collection_on,
    existed_at_base,
    levels,
    overlay_of,
    readable,
)
from naksha.sqlite.read.rows import CollectionRow
from naksha.sqlite.read.statistics import measure, step_of
from naksha.sqlite.sql import queries, sql

CHUNK: Final = 1000
"""Number of rows that are fetched and whose geometries are tested at once."""


class CollectionQuery:
    """A query on a collection, with the transaction it is read at (None: HEAD)."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        layers: Layers,
        collection: str,
        query: Query,
        at: VersionSelector,
        *,
        pins_head: bool,
    ) -> None:
        self.connection = connection
        self.query = query
        self.cursor = decode_cursor(query.cursor)
        known = collection_on(connection, layers, collection)
        self.txn = self._txn(at, pins_head)
        self.levels = readable(connection, layers, known, self.txn)
        if query.replaced_since is not None:
            check_kept_since(connection, self.levels, query.replaced_since)

    def _txn(self, at: VersionSelector, pins_head: bool) -> int | None:
        if self.cursor is not None and self.cursor.at:
            if not 0 < self.cursor.at <= INT8_MAX:
                raise InvalidArgument(
                    "The cursor is not valid; use the one returned with the previous page",
                    field="cursor",
                )
            return versions.resolve(self.connection, AtTxn(self.cursor.at)).txn
        if isinstance(at, Head) and (self.query.limit is None or not pins_head):
            return None
        return versions.resolve(self.connection, at).txn

    def states(self) -> Iterator[State]:
        """Return all states in order; with a limit, up to one more than that."""
        text, values = statements.states(self.levels, self.query, self.cursor)
        rows = self.connection.execute(text, values)
        if not isinstance(self.query.spatial, Intersects):
            return (state_of(id_, raw) for id_, raw in rows)
        return (state_of(row[0], row[1]) for row in _tested(rows, self.query.spatial))

    def page(self) -> StatePage:
        """See `Reader.page`."""
        if self.query.limit is None:
            return StatePage(list(self.states()), None)
        found = []
        for state in self.states():
            found.append(state)
            if len(found) > self.query.limit:
                break
        if len(found) <= self.query.limit:
            return StatePage(found, None)
        del found[self.query.limit :]
        last = found[-1]
        return StatePage(found, PageCursor(self.txn or 0, last.id, last.txn).encoded())

    def matching_states(
        self, sort: Sequence[SortKey], after: MatchingState | None
    ) -> list[MatchingState]:
        """See `StorageReader.matching_states`."""
        query = self.query
        text, values = found_statement(self.levels, query, sort, after)
        rows: Iterator[Any] = self.connection.execute(text, values)
        if not isinstance(query.spatial, Intersects):
            return [found_of(row, with_geometry=False) for row in rows]
        tested = islice(_tested(rows, query.spatial), query.limit)
        return [found_of(row, with_geometry=True) for row in tested]

    def tile(self, tile: VectorTile) -> bytes:
        """See `Reader.tile`."""
        query, box = self.query, tile.box()
        within = None if query.spatial is None else (box.west, box.south, box.east, box.north)
        if query.spatial is None:
            query = msgspec.structs.replace(query, spatial=box)
        query = self._sampled(query, tile)
        text, values = statements.states(self.levels, query, within=within, geometries=True)
        rows: Iterator[Any] = self.connection.execute(text, values)
        if isinstance(query.spatial, Intersects):
            rows = _tested(rows, query.spatial)
        found = list(islice(rows, query.limit))
        return tile_of([state_of(row[0], row[1]) for row in found], [row[2] for row in found], tile)

    def _sampled(self, query: Query, tile: VectorTile) -> Query:
        """Return the query of a tile, restricted to a sample if too many features match."""
        if tile.features_max is None or query.limit is not None or query.part is not None:
            return query
        every = msgspec.structs.replace(query, spatial=None)
        if self._count(every) <= tile.features_max:
            return query
        return msgspec.structs.replace(query, part=tile.sample_of(self._count(query)))

    def statistics(self, *, fast: bool) -> Statistics:
        """See `Reader.statistics`."""
        count = self.count()
        step = step_of(self.levels, count) if fast else 1
        return measure(self.connection, self.levels, count, step)

    def count(self) -> int:
        """See `Reader.count`."""
        if isinstance(self.query.spatial, Intersects):
            return sum(1 for _ in self.states())
        return self._count(self.query)

    def _count(self, query: Query) -> int:
        """Return the number of states of a query, by their boxes."""
        text, values = statements.count(self.levels, query)
        number: int = self.connection.execute(text, values).fetchone()[0]
        return number


def state_of(id: str, raw: bytes) -> State:
    """Build a state; repair its bytes if they are not UTF-8, which SQLite permits."""
    state = State(id, raw)
    if not raw.isascii():
        try:
            raw.decode()
        except UnicodeDecodeError:
            state.mend()
    return state


def _tested(rows: Iterator[Any], spatial: Intersects) -> Iterator[Any]:
    """Yield the rows whose geometry (the third column) passes the test."""
    test = tester_of(spatial)
    while chunk := list(islice(rows, CHUNK)):
        for row, holds in zip(chunk, test([row[2] for row in chunk]), strict=True):
            if holds:
                yield row


def counted(query: Query) -> Query:
    """Return the query without limit and cursor, which a count ignores."""
    return msgspec.structs.replace(query, limit=None, cursor=None)


def uncut(query: Query) -> Query:
    """Return the query without cursor and space, which a tile ignores."""
    return msgspec.structs.replace(query, cursor=None, space=None)


def state(
    connection: sqlite3.Connection, storage: StorageIdentity, layers: Layers, state_id: str
) -> State:
    """See `Reader.state`.

    The layers of the branch are searched first, because there a state ends when the branch ended
    it. Then all other overlays are searched, because the id is unique in the storage.
    """
    reference = parse_state_id(state_id)
    known = _collection_of(connection, storage, reference)
    if known is None or known.dropped_at:
        raise NotFound(
            f"The state {state_id!r} was not written by storage {storage.id!r}, or its collection "
            "was dropped; correct its id"
        )
    seen = [(level.collection, level.at) for level in levels(connection, layers, known, None)]
    rows = connection.execute(queries()["overlays_of"], (known.number,))
    others = [known, *(overlay_of(known, *row) for row in rows)]
    for collection, at in (*seen, *((other, None) for other in others)):
        end = INT8_MAX if at is None else at
        text = sql(
            "state_by_i",
            feature=statements.feature_sql(),
            closed=statements.feature_sql(str(end)),
        )
        row = connection.execute(text, (collection.t, reference.i, end)).fetchone()
        if row is not None:
            return state_of(*row)
    raise NotFound(
        f"The state {state_id!r} does not exist or has expired; correct its id",
        collection_id=known.id,
    )


def _collection_of(
    connection: sqlite3.Connection, storage: StorageIdentity, reference: StateRef
) -> CollectionRow | None:
    """Return the collection that a state id names, None if there is none."""
    name: str | None = None
    if isinstance(reference, Guid):
        name = reference.collection_id
    elif storage.knows(reference):
        row = connection.execute(
            queries()["collection_by_number"], (reference.collection_number,)
        ).fetchone()
        name = None if row is None else row[0]
    if name is None or not storage.wrote(reference, name):
        return None
    row = connection.execute(queries()["collection"], (name,)).fetchone()
    return None if row is None else CollectionRow(*row)


def collections(
    connection: sqlite3.Connection, layers: Layers, *, dropped: bool
) -> list[CollectionInfo]:
    """See `Reader.collections`."""
    rows = connection.execute(queries()["collections"], (dropped,))
    return [c.info for row in rows if existed_at_base(layers, c := CollectionRow(*row))]
