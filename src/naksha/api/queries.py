"""Build queries and version selectors from plain Python values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, TypeAlias

import msgspec
import shapely
from shapely.geometry.base import BaseGeometry

from naksha.model.collection import CollectionChange
from naksha.model.errors import InvalidArgument
from naksha.model.geo.geometry import encode_geometries
from naksha.model.query import (
    And,
    Bbox,
    Intersects,
    Op,
    Predicate,
    Query,
    Spatial,
    States,
    Test,
    Tile,
)
from naksha.model.tags import normalise_tags
from naksha.model.version import HEAD, AtTime, Version, VersionSelector, selector_of

At: TypeAlias = int | datetime | Version | VersionSelector | None
"""A version: a number or txn, a time, or None for HEAD."""


def selector(at: At) -> VersionSelector:
    """Return the selector of a version. A time without time zone is UTC."""
    if at is None:
        return HEAD
    if isinstance(at, bool):
        raise InvalidArgument(
            f"at={at} is not a version; pass a number, a time or None", field="at"
        )
    if isinstance(at, int):
        return selector_of(at)
    if isinstance(at, Version):
        return selector_of(at.seq_number)
    if isinstance(at, datetime):
        return AtTime(epoch_ms(at))
    return at


def epoch_ms(time: datetime | int) -> int:
    """Convert a time to epoch milliseconds; one without time zone is UTC."""
    if isinstance(time, int):
        return time
    aware = time if time.tzinfo is not None else time.replace(tzinfo=UTC)
    return int(aware.timestamp() * 1000)


def change_of(settings: Mapping[str, Any]) -> CollectionChange:
    """Build a change of collection settings; `delete_at` may be a datetime."""
    fields = dict(settings)
    if isinstance(fields.get("delete_at"), datetime):
        fields["delete_at"] = epoch_ms(fields["delete_at"])
    return CollectionChange(**fields)


def query_of(
    *,
    ids: Iterable[str] | str | None = None,
    bbox: Sequence[float] | None = None,
    tile: str | None = None,
    intersects: Mapping[str, Any] | BaseGeometry | None = None,
    radius: float = 0.0,
    tags: Sequence[str | Sequence[str]] | str | None = None,
    where: Predicate | Mapping[str, Any] | None = None,
    deleted: bool = False,
    all_states: bool = False,
    limit: int | None = None,
    **others: Any,
) -> Query:
    """Build a query from plain values.

    Args:
        ids: Feature ids.
        bbox: West, south, east, north; west > east crosses the antimeridian.
        tile: A quad key.
        intersects: A GeoJSON or shapely geometry that features intersect, or are within `radius`
            metres of.
        tags: Any of these tags; a nested list requires all of its tags.
        where: A predicate of `naksha.model.query`, or a mapping of properties to required values.
        deleted: Deleted features instead of live ones.
        all_states: All states: live, deleted and past.
        limit: Maximum number of features, ordered by id.
        others: `authors`, `app_ids`, `actions`, `created_from`, `updated_from` and so on, as in
            `Query`.
    """
    states = States.ALL if all_states else States.DELETED if deleted else States.LIVE
    fields: dict[str, Any] = {
        "ids": (ids,) if isinstance(ids, str) else None if ids is None else tuple(ids),
        "spatial": _spatial(bbox, tile, intersects, radius),
        "tags": _tags(tags),
        "where": _where(where),
        "states": states,
        "limit": limit,
    }
    for name, value in others.items():
        if name not in Query.__struct_fields__ or name in fields:
            raise InvalidArgument(
                f"{name!r} is not a parameter of a query; see `help(naksha.Query)`", field=name
            )
        fields[name] = (value,) if isinstance(value, str) and name.endswith("s") else value
        if isinstance(fields[name], list):
            fields[name] = tuple(fields[name])
    return Query(**fields)


def _spatial(
    bbox: Sequence[float] | None,
    tile: str | None,
    intersects: Mapping[str, Any] | BaseGeometry | None,
    radius: float,
) -> Spatial | None:
    if sum(part is not None for part in (bbox, tile, intersects)) > 1:
        raise InvalidArgument(
            "bbox, tile and intersects cannot be combined in one query; pass one", field="bbox"
        )
    if bbox is not None:
        if len(bbox) != 4:
            raise InvalidArgument(
                f"bbox has {len(bbox)} values; it needs four numbers: west, south, east, north",
                field="bbox",
            )
        return Bbox(*map(float, bbox))
    if tile is not None:
        return Tile(tile)
    if intersects is None:
        return None
    if isinstance(intersects, BaseGeometry):
        return Intersects(shapely.to_wkb(intersects), radius)
    (wkb,) = encode_geometries([{"geometry": intersects}]).wkb
    assert wkb is not None
    return Intersects(wkb, radius)


def _tags(
    tags: Sequence[str | Sequence[str]] | str | None,
) -> tuple[tuple[str, ...], ...] | None:
    if tags is None:
        return None
    groups = [tags] if isinstance(tags, str) else tags
    return tuple(tuple(normalise_tags([g] if isinstance(g, str) else list(g))) for g in groups)


def _where(where: Predicate | Mapping[str, Any] | None) -> Predicate | None:
    if where is None or isinstance(where, msgspec.Struct):
        return where
    return And(
        tuple(Test(("properties", *key.split(".")), Op.EQ, value) for key, value in where.items())
    )
