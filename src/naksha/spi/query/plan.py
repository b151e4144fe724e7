"""Plan of a query: the conditions on states, and the tables that may hold them.

Nothing here depends on a storage. A storage prints the conditions in its SQL (`printer`), and
`predicates` evaluates them in Python. A filter that compares a column of the namespace is one entry
in `ONE_OF`, `PREFIXES` or `RANGES` of `naksha.model.query`: it needs no code here.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from operator import attrgetter
from typing import Any, ClassVar, Final, Literal, NamedTuple, TypeAlias

import msgspec

from naksha.model.errors import InvalidArgument
from naksha.model.identity.txn import txn_of
from naksha.model.query import (
    ONE_OF,
    PREFIXES,
    RANGES,
    Predicate,
    Query,
    States,
)
from naksha.spi.cursor import PageCursor
from naksha.spi.query.areas import Area, area_of
from naksha.spi.query.values import end_of_prefix

# ---- Conditions ------------------------------------------------------------------------------


class OneOf(msgspec.Struct, frozen=True):
    """A column has one of some texts."""

    column: str
    values: tuple[str, ...]


class AnyAction(msgspec.Struct, frozen=True):
    """The action is any that exists: true, and the first column of the index on authors."""

    column: ClassVar[str] = "action"


class StartsWith(msgspec.Struct, frozen=True):
    """A column starts with a prefix: it is at least `prefix`, and below `end` if there is one."""

    column: str
    prefix: str
    end: str | None


class AtLeast(msgspec.Struct, frozen=True):
    """A column has this number or a greater one."""

    column: str
    value: int


class Below(msgspec.Struct, frozen=True):
    """A column has a smaller number."""

    column: str
    value: int


class Where(msgspec.Struct, frozen=True):
    """A predicate on the members of the feature is true."""

    column: ClassVar[str] = ""
    predicate: Predicate


Condition: TypeAlias = OneOf | AnyAction | StartsWith | AtLeast | Below | Where
"""Condition on one state, the same for every table."""


def _starts_with(column: str, prefix: str) -> StartsWith:
    return StartsWith(column, prefix, end_of_prefix(prefix))


_FILTERS: Final[dict[str, Callable[[Any], Condition]]] = {
    **{field: partial(_starts_with, column) for column, field in PREFIXES.items()},
    **{field: partial(OneOf, column) for column, field in ONE_OF.items()},
    **{first: partial(AtLeast, column) for column, (first, _) in RANGES.items()},
    **{end: partial(Below, column) for column, (_, end) in RANGES.items()},
}
"""Conditions of the fields of a query that compare a column."""
_VALUES: Final = attrgetter(*_FILTERS)
_NO_VALUES: Final = (None,) * len(_FILTERS)


def conditions_of(query: Query) -> tuple[Condition, ...]:
    """Return the conditions of a query, except ids, part, area and tags.

    A storage looks these up in a way that depends on the table.
    """
    conditions: list[Condition] = []
    values = _VALUES(query)
    if values != _NO_VALUES:
        filters = zip(_FILTERS.values(), values, strict=True)
        conditions += [condition(value) for condition, value in filters if value is not None]
        if query.authors is not None and query.actions is None:
            conditions.append(AnyAction())
    if query.where is not None:
        conditions.append(Where(query.where))
    return tuple(conditions)


def first_txn(query: Query) -> int | None:
    """Return a lower bound of the txn of all states of a query that follows from its times.

    A storage has no index on times, but one on txn. A state is created and updated when its
    transaction starts, or was created before. A transaction starts before it allocates its number,
    and numbers never go back to an earlier day, so the day of the number is that of the start or a
    later one: when other writers were at the next day already, or when the clock was set back. For
    the same reason there is no such upper bound.
    """
    if query.updated_from is None and query.created_from is None:
        return None
    time = max(time for time in (query.updated_from, query.created_from) if time is not None)
    try:
        return txn_of(datetime.fromtimestamp(time / 1000, UTC).date(), 0)
    except (OverflowError, OSError, ValueError, InvalidArgument):
        return 0


# ---- Tables ----------------------------------------------------------------------------------


Table: TypeAlias = Literal["head", "del", "hst"]
"""Table of a layer: current states, tombstones, or all former ones of both."""
Rows: TypeAlias = Literal["begun", "valid", "visible", "replaced"]
"""Rows of a table that are read.

- "begun": all; at a version those that had begun.
- "valid": those of the history that were valid at the version.
- "visible": those of the history that had begun and were visible at some time.
- "replaced": those that were valid at `replaced_since` and have ended since, up to the version.
"""


class Scan(NamedTuple):
    """Table of a layer that may hold states of a query, and which of its rows.

    `kind` selects live states or tombstones of the history. `shows_end` is whether states are
    returned with the end that they have at the version; otherwise they end after it, so that their
    end is not visible.
    """

    table: Table
    rows: Rows
    kind: States = States.ALL
    shows_end: bool = False


_HEAD: Final = Scan("head", "begun")
_DELETED: Final = Scan("del", "begun")
_LIVE_AT: Final = (_HEAD, Scan("hst", "valid", States.LIVE))
_DELETED_AT: Final = (_DELETED, Scan("hst", "valid", States.DELETED))


# ---- The plan --------------------------------------------------------------------------------


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """A query in the form that storages print.

    `first_txn` follows from other conditions; it helps where there is an index on txn. With a
    `limit` states are ordered by id, and by txn if `is_by_txn`.
    """

    ids: tuple[str, ...] | None
    hashes: tuple[str, str] | None
    """First and last prefix of the hashes of ids in the requested part."""
    area: Area | None
    tags: tuple[tuple[str, ...], ...] | None
    conditions: tuple[Condition, ...]
    first_txn: int | None
    states: States
    replaced_since: int | None
    limit: int | None
    after: PageCursor | None
    """End of the previous page."""
    space: str | None

    @property
    def is_by_txn(self) -> bool:
        """Whether a feature may have several states; live or deleted, it has one."""
        return self.states is States.ALL

    def has(self, kind: type[Condition], column: str) -> bool:
        """Whether there is a condition of this kind on a column."""
        return any(type(c) is kind and c.column == column for c in self.conditions)

    def is_on(self, columns: frozenset[str]) -> bool:
        """Whether there is a condition on one of the columns."""
        return any(condition.column in columns for condition in self.conditions)

    def scans(
        self, at: int | None, *, hidden: bool = False, by_kind: bool = False
    ) -> tuple[Scan, ...]:
        """Return the tables to read of a layer at a transaction (None: HEAD).

        If all states are requested, `hidden` includes those of the history that were never visible,
        and `by_kind` reads its live states and its tombstones separately.
        """
        if self.replaced_since is not None:
            return (Scan("hst", "replaced", self.states),)
        if self.states is States.LIVE:
            return (_HEAD,) if at is None else _LIVE_AT
        if self.states is States.DELETED:
            return (_DELETED,) if at is None else _DELETED_AT
        rows: Rows = "begun" if hidden else "visible"
        kinds = (States.LIVE, States.DELETED) if by_kind else (States.ALL,)
        return (_HEAD, _DELETED, *(Scan("hst", rows, kind, shows_end=True) for kind in kinds))


def plan_of(query: Query, after: PageCursor | None = None) -> Plan:
    """Compile a query, to be continued after the end of a page."""
    part, spatial = query.part, query.spatial
    return Plan(
        ids=query.ids,
        hashes=None if part is None or part.is_whole else part.hashes(),
        area=None if spatial is None else area_of(spatial),
        tags=query.tags,
        conditions=conditions_of(query),
        first_txn=first_txn(query),
        states=query.states,
        replaced_since=query.replaced_since,
        limit=query.limit,
        after=after,
        space=query.space,
    )


def check_hidden(query: Query, hidden: bool) -> None:
    """Refuse hidden states unless all states are requested."""
    if hidden and (query.states is not States.ALL or query.replaced_since is not None):
        raise InvalidArgument(
            "hidden=True requires a query for all states, without replaced_since", field="hidden"
        )
