"""Statements that check, in their own snapshot, the facts that they were built and planned for.

A statement is built from facts that were looked up earlier: that the collection exists, the
transaction of a version, the tables of a branch. And it is planned before it takes its snapshot:
when a history gets a partition in between, the rows that moved there are gone from HEAD, and the
plan does not contain the partition. So the first row of every read is an obstacle to it, seen from
its own snapshot. The reader removes the obstacle and reads again, or raises the error that it
stands for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import asyncpg

from naksha.model import limits
from naksha.model.collection import CollectionInfo
from naksha.psql.connection.driver import Connection, Prepared, Rows, planned_for_values
from naksha.psql.read.printer import Statement
from naksha.psql.read.statements import HISTORY
from naksha.psql.sql import ident, literal, sql

Reason: TypeAlias = Literal["collection", "tables", "version", "overlays", "partitions", "floor"]
"""Obstacles to a read.

- collection: It does not exist.
- tables: A table of the statement does not exist.
- version: It does not exist.
- overlays: The branch has other tables than the statement.
- partitions: The history has other partitions than the plan.
- floor: The history that is needed was removed.
"""


class ObstacleError(Exception):
    """A statement read nothing, because of a fact that it was built or planned for."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(reason)
        self.reason: Final = reason


class Check(NamedTuple):
    """Facts that a statement relies on.

    These are a collection that `last_seen` knows, a transaction that must be published (None for
    HEAD), the tables whose history is read, each with the transaction from which on it is needed,
    and the table of each overlay.
    """

    collection: str
    last_seen: int
    version: int | None
    history: Sequence[tuple[str, int | None]]
    overlays: Mapping[int, str]


class CheckedStatement(NamedTuple):
    """Statement whose first row is the check, with the columns of the others after its own."""

    text: str
    values: Sequence[Any]
    plans_for_values: bool

    @classmethod
    def of(
        cls,
        found: tuple[str, list[Any]],
        columns: Sequence[str],
        check: Check,
        *,
        plans_for_values: bool,
    ) -> CheckedStatement:
        """Add a check to a statement that selects some columns."""
        text, values = found
        statement = Statement()
        statement.values += values
        checked = sql(
            "checked",
            obstacle=_obstacle(statement, check),
            collection=statement.text(check.collection),
            last_seen=statement.value(check.last_seen, "int8"),
            columns=", ".join(f"NULL AS {column}" for column in columns),
            statement=text,
        )
        return cls(checked, statement.values, plans_for_values)

    async def fetch(self, connection: Connection) -> list[Any]:
        """Run the statement and return its rows.

        Raises:
            ObstacleError: Nothing was read.
        """
        try:
            if self.plans_for_values:
                rows = await (await self._planned(connection)).fetch()
            else:
                rows = await connection.fetch(self.text, *self.values)
        except asyncpg.SyntaxOrAccessError as error:
            raise ObstacleError("tables") from error
        return _checked(rows)

    async def open(self, connection: Connection, size: int) -> tuple[list[Any], Rows]:
        """Open a cursor and return its first rows.

        Its snapshot and its plan are fixed from then on.
        """
        try:
            if self.plans_for_values:
                rows = await (await self._planned(connection)).cursor()
            else:
                rows = await connection.cursor(self.text, *self.values)
            found = await rows.fetch(size + 1)
        except asyncpg.SyntaxOrAccessError as error:
            raise ObstacleError("tables") from error
        return _checked(found), rows

    async def _planned(self, connection: Connection) -> Prepared:
        return await planned_for_values(connection, self.text, self.values)


def _obstacle(statement: Statement, check: Check) -> str:
    """Return the expression of the obstacle."""
    cases = []
    if check.version is not None:
        cases.append(sql("version_obstacle", version=statement.value(check.version, "int8")))
    if check.overlays:
        cases.append(
            sql(
                "overlays_obstacle",
                overlays=statement.value(list(check.overlays), "int4[]"),
                tables=statement.value(list(check.overlays.values()), "text[]"),
            )
        )
    if check.history:
        # Literals, so that the planner evaluates the function of them.
        histories = [literal(ident(table + HISTORY)) + "::regclass" for table, _ in check.history]
        cases.append(sql("partitions_obstacle", histories=f"ARRAY[{', '.join(histories)}]"))
    cases += [
        sql(
            "floor_obstacle",
            table=statement.value(table, "text"),
            since=statement.value(since, "int8"),
        )
        for table, since in check.history
        if since is not None
    ]
    return sql("obstacle", cases="\n".join(cases)) if cases else "''"


def _checked(rows: list[Any]) -> list[Any]:
    """Return the rows after the check."""
    if not rows:
        raise ObstacleError("collection")
    reason = rows[0][0]
    if reason:
        raise ObstacleError(reason)
    del rows[0]
    return rows


class KnownCollection(NamedTuple):
    """The info of a collection, and the transaction of its last change."""

    info: CollectionInfo
    txn: int


class KnownFacts:
    """Facts about a storage that statements are built from, and check before they read.

    These are the transactions of versions, the collections that exist, those with sixteen leaves
    (which never shrink), and the tables of collections in overlays.
    """

    def __init__(self) -> None:
        self._txns: dict[int, int] = {0: 0}
        self._collections: dict[str, KnownCollection] = {}
        self._overlay_tables: dict[tuple[str, int], str] = {}

    def txn_of(self, seq_number: int) -> int | None:
        """Return the transaction of a version."""
        return self._txns.get(seq_number)

    def add_version(self, seq_number: int, txn: int) -> None:
        _bound(self._txns, limits.KNOWN_VERSIONS_MAX)
        self._txns[seq_number] = txn

    def collection(self, collection: str) -> KnownCollection | None:
        """Return a collection as it was when it was last read; None if it is unknown."""
        return self._collections.get(collection)

    def partitions_of(self, collection: str) -> int | None:
        """Return the least number of leaves of a collection; None if it is unknown."""
        known = self._collections.get(collection)
        return None if known is None else known.info.partitions

    def add_collection(self, known: KnownCollection) -> None:
        _bound(self._collections, limits.KNOWN_TABLES_MAX)
        self._collections[known.info.id] = known

    def overlay_tables(self, collection: str, overlays: Sequence[int]) -> dict[int, str] | None:
        """Return the tables of a collection in overlays; None if one of them is unknown."""
        known = self._overlay_tables
        if any((collection, overlay) not in known for overlay in overlays):
            return None
        return {overlay: known[collection, overlay] for overlay in overlays}

    def add_overlay_tables(self, collection: str, tables: Mapping[int, str]) -> None:
        for overlay, table in tables.items():
            _bound(self._overlay_tables, limits.KNOWN_TABLES_MAX)
            self._overlay_tables[collection, overlay] = table

    def forget(self, collection: str) -> None:
        """Forget the facts about a collection, because a statement found them outdated."""
        self._collections.pop(collection, None)
        for key in [key for key in self._overlay_tables if key[0] == collection]:
            del self._overlay_tables[key]


def _bound(known: dict[Any, Any], most: int) -> None:
    """Make room for one more fact; the oldest one is forgotten."""
    if len(known) >= most:
        del known[next(iter(known))]
