"""Optimal partitioning: quadtree cells with a bounded number of features each.

A feature belongs to the cell of its qrid. A cell is counted only up to its limit; one with more
features is split into four, each counted by a task of its own, until every cell fits or the quad
key ends. A storage keeps the result as a meta feature of the collection.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

import msgspec

from naksha.model.geo.quadkey import QRID_DIGITS
from naksha.model.limits import MIB
from naksha.model.version import Version

PARTITION_BYTES_MAX: Final = 10 * MIB
PARTITION_FEATURES_MAX: Final = 1_000_000
FEATURE_ID: Final = "naksha:partitioning"
NOWHERE: Final = ""
"""Key of the features without geometry; the whole world is therefore always split at least once."""
SAMPLE_FEATURES_MAX: Final = 10_000
"""Features sampled when their size is still unknown."""
_DIGITS: Final = "0123"
_RENAMED: Final = {"byte_size": "byteSize", "computed_at": "computedAt"}

CellCount: TypeAlias = Callable[[str, int | None], Awaitable[int]]
"""Counter of the features of a cell: called with its prefix and the number to stop at."""


class Partitioning(msgspec.Struct, frozen=True, rename=_RENAMED):
    """Features per cell at one version."""

    by_qrid: dict[str, int]
    txn: str
    seq: int
    max: int
    byte_size: int
    computed_at: int

    @classmethod
    def of(cls, cells: dict[str, int], version: Version, most: int, size: int) -> Partitioning:
        """Build the partitioning of a version."""
        now_ms = time.time_ns() // 1_000_000
        return cls(cells, str(version.txn), version.seq_number, most, size, now_ms)

    def encoded(self) -> str:
        """Encode the partitioning as the meta feature to store."""
        return msgspec.json.encode(_Stored(self)).decode()


class _Stored(msgspec.Struct, frozen=True):
    properties: Partitioning
    id: str = FEATURE_ID
    type: str = "Feature"


def decode_partitioning(text: str | None) -> Partitioning | None:
    """Decode a stored partitioning; None if missing, or written by another version of Naksha."""
    if text is None:
        return None
    try:
        return msgspec.json.decode(text, type=_Stored).properties
    except msgspec.ValidationError:
        return None


def features_max(byte_size: int) -> int:
    """Return how many features of this size a partition may have; at least one."""
    return max(1, min(PARTITION_BYTES_MAX // max(byte_size, 1), PARTITION_FEATURES_MAX))


async def partition(count: CellCount, most: int) -> dict[str, int]:
    """Find the coarsest cells with at most `most` features each, without empty ones.

    Only a cell of the finest level can have more.
    """
    found: dict[str, int] = {}
    tasks: dict[asyncio.Future[int], str] = {}

    def begin(prefix: str) -> None:
        limit = most + 1 if len(prefix) < QRID_DIGITS else None
        tasks[asyncio.ensure_future(count(prefix, limit))] = prefix

    for digit in _DIGITS:
        begin(digit)
    try:
        while tasks:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                prefix = tasks.pop(task)
                number = task.result()
                if number > most and len(prefix) < QRID_DIGITS:
                    for digit in _DIGITS:
                        begin(prefix + digit)
                elif number:
                    found[prefix] = number
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return dict(sorted(found.items()))
