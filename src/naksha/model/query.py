"""What can be asked of a collection: spatial tests, property predicates and the query itself.

All of these are plain immutable data. A storage translates them; nothing here knows SQL.
"""

from __future__ import annotations

import hashlib
from enum import StrEnum
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec

from naksha.model.errors import InvalidArgument
from naksha.model.limits import PAGE_MAX, PARTS_MAX


class Op(StrEnum):
    """A comparison of one property with given values."""

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
"""The one path into a geometry that can be tested."""


class Test(msgspec.Struct, frozen=True, tag="test"):
    """`path op value`, for example `("properties", "speed") > 50`.

    Comparisons order numbers with numbers and strings with strings (by code point); a value of
    another type never matches, except for NE, which is the exact opposite of EQ on existing
    properties. `CONTAINS` is JSON containment: the property contains the value. Nothing holds for a
    property that is absent, not even IS_NULL: who does not care asks for
    `Not(And((Test(path, EXISTS), Not(Test(path, IS_NULL)))))`. A path leads through objects only.
    Of a geometry only the type (`GEOMETRY_TYPE`) can be tested.
    `ANY_STARTS_WITH` is about arrays: one of their elements is a text that starts with the value.
    """

    path: tuple[str, ...]
    op: Op
    value: Any = None


class And(msgspec.Struct, frozen=True, tag="and"):
    """All parts hold; true when there are none."""

    parts: tuple[Predicate, ...]


class Or(msgspec.Struct, frozen=True, tag="or"):
    """At least one part holds; false when there are none."""

    parts: tuple[Predicate, ...]


class Not(msgspec.Struct, frozen=True, tag="not"):
    """The part does not hold."""

    part: Predicate


Predicate: TypeAlias = Test | And | Or | Not


class Bbox(msgspec.Struct, frozen=True, tag="bbox"):
    """Features whose 2D bounding box meets this one; west > east crosses the date line."""

    west: float
    south: float
    east: float
    north: float


class Intersects(msgspec.Struct, frozen=True, tag="intersects"):
    """Features that intersect the geometry (WKB), grown by `radius` metres when given."""

    wkb: bytes
    radius: float = 0.0


class Tile(msgspec.Struct, frozen=True, tag="tile"):
    """Features whose 2D bounding box meets a cell of the plain quadtree (see `quadkey`)."""

    quadkey: str


Spatial: TypeAlias = Bbox | Intersects | Tile


_HASHES: Final = 16**8
"""Of the hash of an id the first eight digits count."""


class Part(msgspec.Struct, frozen=True):
    """One of `total` parts of about the same size, counted from 1. Which one a feature is in
    follows from its id alone: so the parts of all pages, versions and storages fit together."""

    number: int
    total: int

    def __post_init__(self) -> None:
        if not 1 <= self.number <= self.total <= PARTS_MAX:
            raise InvalidArgument(f"It is n,total with 1 ≤ n ≤ total ≤ {PARTS_MAX}", field="part")

    def has(self, id: str) -> bool:
        """Whether a feature is in it."""
        first, last = self.hashes()
        return first <= id_hash(id)[:8] <= last

    @property
    def is_whole(self) -> bool:
        """Whether everything is in it."""
        return self.total == 1

    def hashes(self) -> tuple[str, str]:
        """The beginnings of the first and the last hash of its ids, hexadecimal."""
        first = _HASHES * (self.number - 1) // self.total
        last = _HASHES * self.number // self.total - 1
        return f"{first:08x}", f"{last:08x}"


def id_hash(id: str) -> str:
    """The hash of an id, which also says what leaf a feature is in."""
    return hashlib.md5(id.encode(), usedforsecurity=False).hexdigest()


class SortKey(NamedTuple):
    """Something to sort by: a member of a feature, by its path through objects.

    Numbers come before texts (these by code point), these before false and true, these before
    arrays and objects, which are all alike; `descending` it is the other way round. What is null or
    absent comes last in either case.
    """

    path: tuple[str, ...]
    descending: bool = False


class States(StrEnum):
    """Which states of a feature are asked for."""

    LIVE = "live"
    DELETED = "deleted"
    ALL = "all"


class Query(msgspec.Struct, frozen=True, kw_only=True):
    """A filter over one collection. All given parts must hold; an absent part holds always.

    `tags` is OR of ANDs: `(("a",), ("b", "c"))` means a, or b and c. `updated_from` and
    `updated_to` (inclusive, exclusive; epoch milliseconds) test `updatedAt`. `limit` bounds the
    answer; `cursor` continues a page and carries its version. With a `limit` states come ordered
    by id (and by txn, where a feature has several), ids compared by code point; without one the
    order is open, because sorting a whole collection costs more than reading it.

    With `replaced_since` it is about the states that were valid at that transaction and are not
    any more at the version that is read: given as they were then, without their end.

    `part` cuts what is found into parts, for those who read it together.

    `space` is no filter: every state is given out with this text as `space` in its namespace, where
    storages keep none. This cannot be read in bulk.
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
    updated_from: int | None = None
    updated_to: int | None = None
    txn_from: int | None = None
    txn_to: int | None = None
    replaced_since: int | None = None
    part: Part | None = None
    states: States = States.LIVE
    limit: int | None = None
    cursor: str | None = None
    space: str | None = None

    def __post_init__(self) -> None:
        if self.limit is not None and not 1 <= self.limit <= PAGE_MAX:
            raise InvalidArgument(f"limit must be between 1 and {PAGE_MAX}", field="limit")
