"""Translation of queries to SQL: parts that do not depend on the SQL dialect."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import msgspec
import shapely

from naksha.model import limits
from naksha.model.errors import InvalidArgument, LimitExceeded, NotSupported
from naksha.model.geo import quadkey
from naksha.model.identity.txn import txn_of
from naksha.model.query import (
    GEOMETRY_TYPE,
    And,
    Bbox,
    Intersects,
    Not,
    Op,
    Or,
    Predicate,
    Query,
    Spatial,
    States,
    Tile,
)
from naksha.model.query import Test as PropertyTest
from naksha.model.value_text import value_text

ORDER: Final = {Op.LT: "<", Op.LTE: "<=", Op.GT: ">", Op.GTE: ">="}
METRES_PER_DEGREE: Final = 110_500.0
"""Slightly less than the shortest degree of latitude, so that boxes are never too small."""

_FLAT_MAX: Final = 8
"""Maximum number of conditions in a chain."""

Box = tuple[float, float, float, float]


def check_text(text: str) -> None:
    """Refuse text that no stored text can be equal to."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidArgument(
            f"The text {text!r:.64} of the query must not contain an unpaired surrogate "
            "(U+D800 to U+DFFF)",
            field="query",
        ) from None
    if "\0" in text:
        raise InvalidArgument(
            f"The text {text!r:.64} of the query must not contain the character U+0000 (NUL)",
            field="query",
        )


def check_hidden(query: Query, hidden: bool) -> None:
    """Refuse hidden states unless all states are requested."""
    if hidden and (query.states is not States.ALL or query.replaced_since is not None):
        raise InvalidArgument(
            "hidden=True requires a query for all states, without replaced_since", field="hidden"
        )


def joined(parts: Sequence[str], operator: str, empty: str) -> str:
    """Join conditions by an operator.

    Long chains are split in halves recursively: a chain is a tree as deep as its number of
    conditions, and SQLite limits the depth to 1,000.
    """
    if len(parts) > _FLAT_MAX:
        half = len(parts) // 2
        parts = [joined(some, operator, empty) for some in (parts[:half], parts[half:])]
    return "(" + operator.join(f"({part})" for part in parts) + ")" if parts else empty


def end_of_prefix(prefix: str) -> str | None:
    """Return the first text after all that begin with a prefix, or None if there is none.

    With it a prefix test becomes a range, which an index supports.
    """
    end = prefix.rstrip(chr(0x10FFFF))
    if not end:
        return None
    code = ord(end[-1])
    # Skip the surrogates, which are not characters.
    return end[:-1] + chr(0xE000 if code == 0xD7FF else code + 1)


# ---- Places ----------------------------------------------------------------------------------


def first_txn_at(epoch_ms: int) -> int:
    """Return a lower bound of the txn of all states updated at a time or later.

    A transaction starts before it allocates its number, and numbers never go back to an earlier
    day, so the day of the number is that of the start or a later one: when other writers were at
    the next day already, or when the clock was set back. For the same reason there is no such upper
    bound.
    """
    try:
        return txn_of(datetime.fromtimestamp(epoch_ms / 1000, UTC).date(), 0)
    except (OverflowError, OSError, ValueError, InvalidArgument):
        return 0


def boxes_of(spatial: Spatial | None) -> list[Box]:
    """Return the boxes of which a feature's box must meet one; none without spatial test."""
    if spatial is None:
        return []
    if isinstance(spatial, Tile):
        return [quadkey.bounds(spatial.quadkey)]
    if isinstance(spatial, Bbox):
        return _bbox(spatial)
    west, south, east, north = shapely.bounds(geometry_of(spatial)).tolist()
    if math.isnan(west):
        return [(1.0, 1.0, -1.0, -1.0)]  # an empty geometry: a box that meets nothing
    return [grown((west, south, east, north), spatial.radius)]


def _bbox(box: Bbox) -> list[Box]:
    edges = (box.west, box.south, box.east, box.north)
    if not all(map(math.isfinite, edges)):
        raise InvalidArgument(
            f"The edges of a bounding box must be finite numbers, not {edges}", field="bbox"
        )
    if box.south > box.north:
        raise InvalidArgument(
            f"The south edge {box.south} of a bounding box must not be greater than its north "
            f"edge {box.north}",
            field="bbox",
        )
    if box.west <= box.east:
        return [(box.west, box.south, box.east, box.north)]
    return [(box.west, box.south, 180.0, box.north), (-180.0, box.south, box.east, box.north)]


def union_of(boxes: Sequence[Bbox]) -> Bbox | None:
    """Return the box around all boxes, if there are any."""
    if not boxes:
        return None
    return Bbox(
        min(box.west for box in boxes),
        min(box.south for box in boxes),
        max(box.east for box in boxes),
        max(box.north for box in boxes),
    )


def geometry_of(spatial: Intersects) -> Any:
    """Return the shape of a spatial test."""
    if not (math.isfinite(spatial.radius) and spatial.radius >= 0):
        raise InvalidArgument(
            f"The radius must be a finite number of metres, 0 or more, not {spatial.radius}",
            field="spatial.radius",
        )
    try:
        return shapely.from_wkb(spatial.wkb)
    except (shapely.errors.GEOSException, NotImplementedError) as error:
        raise InvalidArgument(
            f"The geometry of the query is not valid WKB: {error}", field="spatial.wkb"
        ) from None


def grown(box: Box, metres: float) -> Box:
    """Enlarge a box by at least a distance, to all longitudes where necessary."""
    if metres == 0:
        return box
    west, south, east, north = box
    grow = metres / METRES_PER_DEGREE
    south, north = max(south - grow, -90.0), min(north + grow, 90.0)
    shrink = math.cos(math.radians(max(abs(south), abs(north))))
    wide = grow / shrink if shrink > 0.01 else 360.0
    if west - wide < -180.0 or east + wide > 180.0:
        return -180.0, south, 180.0, north
    return west - wide, south, east + wide, north


# ---- Properties ------------------------------------------------------------------------------


def predicate_sql(
    predicate: Predicate, test_sql: Callable[[PropertyTest], str], level: int = 1
) -> str:
    """Translate a predicate to an SQL condition; the storage translates single tests."""
    if level > limits.PREDICATE_DEPTH_MAX:
        raise LimitExceeded(
            f"The predicate is nested more than {limits.PREDICATE_DEPTH_MAX} levels deep; "
            "flatten it",
            field="where",
        )
    if isinstance(predicate, And | Or):
        parts = [predicate_sql(part, test_sql, level + 1) for part in predicate.parts]
        if isinstance(predicate, And):
            return joined(parts, " AND ", "true")
        return joined(parts, " OR ", "false")
    if isinstance(predicate, Not):
        # A test of an absent property is null in SQL, and so would be its negation by NOT.
        return f"({predicate_sql(predicate.part, test_sql, level + 1)}) IS NOT TRUE"
    if predicate.path[:1] == GEOMETRY_TYPE[:1] and predicate.path != GEOMETRY_TYPE:
        raise NotSupported(
            f"The predicate tests {'.'.join(map(str, predicate.path))!r:.100}; of a geometry, only "
            "geometry.type can be tested",
            field="where",
        )
    return test_sql(predicate) if _can_hold(predicate) else "false"


def _can_hold(test: PropertyTest) -> bool:
    """Return whether the operator can be true for the type of the value."""
    if test.op in (Op.STARTS_WITH, Op.ANY_STARTS_WITH):
        return isinstance(test.value, str)
    if test.op in ORDER:
        return isinstance(test.value, str | int | float) and not isinstance(test.value, bool)
    return True


def json_text(value: Any) -> str:
    """Encode a value to compare with as JSON."""
    if isinstance(value, float) and not math.isfinite(value):
        raise InvalidArgument(f"The number {value} of the predicate must be finite", field="where")
    try:
        return msgspec.json.encode(value).decode()
    except (UnicodeEncodeError, TypeError, OverflowError, RecursionError) as error:
        raise InvalidArgument(
            f"The value of the predicate, {value_text(value)}, is not valid JSON: {error}",
            field="where",
        ) from None
