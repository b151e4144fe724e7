"""Queries of a collection: spatial tests, property predicates, sort keys and the query itself.

All of these are plain immutable data. Storages translate them to their own language; nothing here
depends on SQL.
"""

from __future__ import annotations

import hashlib
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec

from naksha.model.errors import InvalidArgument
from naksha.model.limits import PAGE_MAX, PARTS_MAX


class Op(StrEnum):
    """Comparison of one property with a value."""

    EQ = "eq"
    NE = "ne"
    LT = "lt"
    LTE = "lte"
    GT = "gt"
    GTE = "gte"
    EXISTS = "exists"
    IS_NULL = "is_null"
    STARTS_WITH = "starts_with"
    ANY_STARTS_WITH = "any_starts_with"
    CONTAINS = "contains"


GEOMETRY_TYPE: Final = ("geometry", "type")
"""The only path into a geometry that can be tested."""


class Test(msgspec.Struct, frozen=True, tag="test"):
    """Property test `path op value`, for example `("properties", "speed") > 50`.

    Comparisons order numbers with numbers and strings with strings (by code point); a value of
    another type never matches, except for NE, which is the exact opposite of EQ on existing
    properties. `CONTAINS` is JSON containment: the property contains the value. No operator matches
    an absent property, not even IS_NULL; to match a property that is absent or null, use
    `Not(And((Test(path, EXISTS), Not(Test(path, IS_NULL)))))`. A path leads through objects only.
    Of a geometry only the type (`GEOMETRY_TYPE`) can be tested. `ANY_STARTS_WITH` applies to
    arrays: one of the elements is a string that starts with the value.
    """

    path: tuple[str, ...]
    op: Op
    value: Any = None


class And(msgspec.Struct, frozen=True, tag="and"):
    """Conjunction; true without parts."""

    parts: tuple[Predicate, ...]


class Or(msgspec.Struct, frozen=True, tag="or"):
    """Disjunction; false without parts."""

    parts: tuple[Predicate, ...]


class Not(msgspec.Struct, frozen=True, tag="not"):
    """Negation."""

    part: Predicate


Predicate: TypeAlias = Test | And | Or | Not


class Bbox(msgspec.Struct, frozen=True, tag="bbox"):
    """Bounding box; matches features whose 2D box meets it. west > east crosses the date line."""

    west: float
    south: float
    east: float
    north: float


class Intersects(msgspec.Struct, frozen=True, tag="intersects"):
    """Geometry (WKB), buffered by `radius` metres; matches features that intersect it."""

    wkb: bytes
    radius: float = 0.0


class Tile(msgspec.Struct, frozen=True, tag="tile"):
    """Cell of the plain quadtree (see `quadkey`); matches features whose 2D box meets it."""

    quadkey: str


Spatial: TypeAlias = Bbox | Intersects | Tile


_HASHES: Final = 16**8
"""Number of possible values of the first eight digits of an id's hash, which are used for parts."""


class QueryPart(msgspec.Struct, frozen=True):
    """One of `total` parts of about the same size, counted from 1.

    The part of a feature depends on its id only, so the parts of all pages, versions and storages
    are consistent.
    """

    number: int
    total: int

    def __post_init__(self) -> None:
        if not 1 <= self.number <= self.total <= PARTS_MAX:
            raise InvalidArgument(
                f"{self.number},{self.total} is not a valid part; "
                f"expected n,total with 1 ≤ n ≤ total ≤ {PARTS_MAX}",
                field="part",
            )

    def has(self, id: str) -> bool:
        """Return whether a feature is in the part."""
        first, last = self.hashes()
        return first <= id_hash(id)[:8] <= last

    @property
    def is_whole(self) -> bool:
        """Whether the part contains everything."""
        return self.total == 1

    def hashes(self) -> tuple[str, str]:
        """Return the hexadecimal prefixes of the first and the last hash of the part."""
        first = _HASHES * (self.number - 1) // self.total
        last = _HASHES * self.number // self.total - 1
        return f"{first:08x}", f"{last:08x}"


def id_hash(id: str) -> str:
    """Return the hash of an id, which also selects the leaf table of a feature."""
    return hashlib.md5(id.encode(), usedforsecurity=False).hexdigest()


class SortKey(NamedTuple):
    """Sort criterion: a member of a feature, by its path through objects.

    Ascending, numbers come before strings (ordered by code point), then false and true, then arrays
    and objects, which are all equal; `descending` reverses this order. Null and absent values come
    last in either case.
    """

    path: tuple[str, ...]
    descending: bool = False


class States(StrEnum):
    """Which states of a feature a query returns."""

    LIVE = "live"
    DELETED = "deleted"
    ALL = "all"


class Query(msgspec.Struct, frozen=True, kw_only=True):
    """Filter over one collection; all given parts must hold, an absent part always holds.

    `tags` is OR of ANDs: `(("a",), ("b", "c"))` means a, or b and c. `created_from` and
    `created_to` (inclusive, exclusive; epoch milliseconds) test `createdAt`, `updated_from` and
    `updated_to` test `updatedAt`. `limit` bounds the result; `cursor` continues a page and contains
    its version. With a `limit` states are ordered by id (and by txn, where a feature has several),
    ids compared by code point; without one the order is undefined, because sorting a whole
    collection costs more than reading it.

    With `replaced_since` the query returns the states that were valid at that transaction and are
    no longer valid at the version that is read, as they were then, without their end.

    `part` restricts the result to one part, for clients that share the reading.

    `space` is not a filter: every state is returned with this text as `space` in its namespace,
    which storages do not store. It is not supported by bulk reads.
    """

    ids: tuple[str, ...] | None = None
    spatial: Spatial | None = None
    where: Predicate | None = None
    tags: tuple[tuple[str, ...], ...] | None = None
    mrid_prefix: str | None = None
    qrid_prefix: str | None = None
    authors: tuple[str, ...] | None = None
    app_ids: tuple[str, ...] | None = None
    actions: tuple[str, ...] | None = None
    created_from: int | None = None
    created_to: int | None = None
    updated_from: int | None = None
    updated_to: int | None = None
    txn_from: int | None = None
    txn_to: int | None = None
    replaced_since: int | None = None
    part: QueryPart | None = None
    states: States = States.LIVE
    limit: int | None = None
    cursor: str | None = None
    space: str | None = None

    def __post_init__(self) -> None:
        if self.limit is not None and not 1 <= self.limit <= PAGE_MAX:
            raise InvalidArgument(
                f"limit must be between 1 and {PAGE_MAX}, not {self.limit}", field="limit"
            )


ONE_OF: Final = MappingProxyType({"author": "authors", "app_id": "app_ids", "action": "actions"})
"""Fields of a query that a column of the namespace must have one of the values of."""
PREFIXES: Final = MappingProxyType({"mrid": "mrid_prefix", "qrid": "qrid_prefix"})
"""Fields of a query that a column of the namespace must start with."""
RANGES: Final = MappingProxyType(
    {
        "created_at": ("created_from", "created_to"),
        "updated_at": ("updated_from", "updated_to"),
        "txn": ("txn_from", "txn_to"),
    }
)
"""Fields of a query that bound a numeric column of the namespace: inclusive, exclusive."""
MEMBERS: Final = MappingProxyType(
    {"app_id": "appId", "created_at": "createdAt", "updated_at": "updatedAt"}
)
"""Columns of the namespace whose member in JSON has another name."""
