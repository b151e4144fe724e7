"""Settings and estimates of one collection."""

from __future__ import annotations

from typing import Final

import msgspec

MAX_AGE_DEFAULT: Final = 36_500
"""Default number of days of history to keep: a hundred years."""


class CollectionInfo(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Info object of a collection; its JSON has the property names of the reference document.

    `number` is the collection's 20-bit number inside its storage and is never reused. At
    `delete_at` (epoch ms, 0 = never) maintenance removes the collection; until then it is usable.
    `dropped_at` is the time at which the collection was dropped (0 = not dropped): it is hidden and
    can be restored until `delete_at`. `dropped_at` and the three estimates, which maintenance
    refreshes, are ignored on input. `partitions` is the number of PostgreSQL tables that hold the
    current states: 1, or 16 once the collection has grown; on SQLite it is always 1.
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
    """Change of a collection's settings; an UNSET setting keeps its value.

    `delete_at` schedules the removal of the collection, 0 cancels it. `partitions` can only grow,
    to 16.
    """

    max_age: int | msgspec.UnsetType = msgspec.UNSET
    history_enabled: bool | msgspec.UnsetType = msgspec.UNSET
    id_prefix: str | msgspec.UnsetType | None = msgspec.UNSET
    author: str | msgspec.UnsetType | None = msgspec.UNSET
    optimal_partitioning: bool | msgspec.UnsetType = msgspec.UNSET
    delete_at: int | msgspec.UnsetType = msgspec.UNSET
    partitions: int | msgspec.UnsetType = msgspec.UNSET
