"""Reads of a collection other than its features: tiles, sorted references and statistics."""

from __future__ import annotations

from typing import Any, Final

from naksha.hub.pipeline.pipeline import Event
from naksha.hub.pipeline.requests import FindFeatures, GetStatistics, ReadTile
from naksha.hub.pipeline.responses import FoundFeatures, SpaceStatistics, TileBytes
from naksha.hub.pipeline.targets import CollectionTarget, ResolvedTarget
from naksha.model.errors import CollectionNotFound
from naksha.model.statistics import NOTHING
from naksha.model.transaction import LogFilter


async def _read_tile(read: ResolvedTarget, request: ReadTile, event: Event) -> TileBytes:
    """Return a vector tile, made by the database where possible."""
    try:
        made = await read.reader.tile(read.collection_id, request.query, read.at, request.tile)
    except CollectionNotFound:
        await read.check_version()
        made = b""
    return TileBytes(made)


async def _find_features(
    read: ResolvedTarget, request: FindFeatures, event: Event
) -> FoundFeatures:
    """Return features that the database searched and sorted."""
    sort, after = request.sort, request.after
    try:
        found = await read.reader.matching_states(
            read.collection_id, request.query, read.at, sort=sort, after=after
        )
    except CollectionNotFound:
        found = []
    return FoundFeatures(found)


async def statistics(read: ResolvedTarget, request: GetStatistics, event: Event) -> SpaceStatistics:
    """Return statistics of the collection; zeros before its first write."""
    try:
        found = await read.reader.statistics(read.collection_id, read.at, fast=request.fast)
    except CollectionNotFound:
        found = NOTHING
    version = read.found or await read.reader.resolve(read.at)
    return SpaceStatistics(
        statistics=found,
        updated_at=await _updated_at(read.target, version.seq_number),
        min_version=read.target.min_version,
        max_version=version.seq_number,
    )


async def _updated_at(target: CollectionTarget, seq_number: int) -> int | None:
    """Return when the collection was last changed on main, up to a version."""
    where = LogFilter(collections=(target.collection.id,))
    last = await target.storage.transactions(seq_number + 1, 1, where, newest_first=True)
    return last[0].started_ms if last else None


READ_FUNCTIONS: Final[dict[Any, Any]] = {
    ReadTile: _read_tile,
    FindFeatures: _find_features,
    GetStatistics: statistics,
}
