"""Statistics of a collection, counted or estimated."""

from __future__ import annotations

from typing import Final, Generic, TypeVar

import msgspec

from naksha.model.query import Bbox

T = TypeVar("T")


class Figure(msgspec.Struct, Generic[T], frozen=True):
    """Value, and whether it is inexact: computed from a sample of the features, or truncated."""

    value: T
    estimated: bool = False


class KeyCount(msgspec.Struct, frozen=True):
    """Property or tag, and the number of features that have it."""

    key: str
    count: int


class Statistics(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Statistics of the live features of a collection at a version.

    `byte_size` is their total size as GeoJSON, as returned by the storage. `bbox` encloses all
    geometries, None when there are none. `properties` are the keys of the first level without the
    namespace. Properties and tags are sorted by descending count, then by code point, with at most
    `STATISTICS_KEYS_MAX` entries.
    """

    count: Figure[int]
    byte_size: Figure[int]
    bbox: Figure[Bbox | None]
    geometry_types: Figure[tuple[str, ...]]
    properties: Figure[tuple[KeyCount, ...]]
    tags: Figure[tuple[KeyCount, ...]]


NOTHING: Final = Statistics(
    count=Figure(0),
    byte_size=Figure(0),
    bbox=Figure(None),
    geometry_types=Figure(()),
    properties=Figure(()),
    tags=Figure(()),
)
"""Statistics of a collection without features."""
