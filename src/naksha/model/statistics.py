"""What there is in a collection, counted or estimated."""

from __future__ import annotations

from typing import Final, Generic, TypeVar

import msgspec

from naksha.model.query import Bbox

T = TypeVar("T")


class Figure(msgspec.Struct, Generic[T], frozen=True):
    """A value, and whether it is not exact: computed from a part of the features, or cut."""

    value: T
    estimated: bool = False


class KeyCount(msgspec.Struct, frozen=True):
    """A property or a tag, and how many features have it."""

    key: str
    count: int


class Statistics(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The live features of a collection at a version.

    `byte_size` is what they have as GeoJSON, as the storage gives them out. `bbox` is around all
    geometries, None when there are none. Of the properties these are the keys of the first level,
    the namespace left out. Properties and tags come with the most frequent ones first, those
    equally frequent in the order of their code points, and not more than `STATISTICS_KEYS_MAX`.
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
"""Of a collection without features."""
