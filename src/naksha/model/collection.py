"""Collection info: what a storage knows of one collection."""

from __future__ import annotations

from typing import Final

import msgspec

MAX_AGE_DEFAULT: Final = 36_500
"""Days of history kept when nobody says otherwise: a hundred years."""


class CollectionInfo(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The info object, in JSON with the property names of the reference document.

    `number` is the collection's 20-bit number inside its storage, never reused. At `delete_at`
    (epoch ms, 0 = never) maintenance removes the collection, which is usable until then. A dropped
    collection has the time in `dropped_at` (0 = not dropped): it is hidden, and can be restored
    until `delete_at`. `dropped_at` and the three estimates, which maintenance refreshes, are
    ignored on input. `partitions` is the number of tables that PostgreSQL keeps the current states
    in: 1, or 16 once the collection has grown.
    """

    id: str
    number: int = 0
    max_age: int = MAX_AGE_DEFAULT
    history_enabled: bool = True
    id_prefix: str | None = None
    author: str | None = None
    optimal_partitioning: bool = False
    points_only: bool = False
    delete_at: int = 0
    dropped_at: int = 0
    estimated_feature_count: int = -1
    byte_size: int = -1
    compressed_size: int = -1
    partitions: int = 1


class CollectionChange(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A change of a collection's settings; what is UNSET stays as it is. `delete_at` schedules the
    removal of the collection, 0 cancels it; `partitions` only grows, to 16."""

    max_age: int | msgspec.UnsetType = msgspec.UNSET
    history_enabled: bool | msgspec.UnsetType = msgspec.UNSET
    id_prefix: str | msgspec.UnsetType | None = msgspec.UNSET
    author: str | msgspec.UnsetType | None = msgspec.UNSET
    optimal_partitioning: bool | msgspec.UnsetType = msgspec.UNSET
    delete_at: int | msgspec.UnsetType = msgspec.UNSET
    partitions: int | msgspec.UnsetType = msgspec.UNSET
