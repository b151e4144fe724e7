"""Reads of a collection other than its features: tiles, statistics and versions."""

from __future__ import annotations

from typing import Any, Final

from naksha.hub.pipeline.pipeline import Event
from naksha.hub.pipeline.requests import FindFeatures, GetStatistics, GetVersion, ReadTile
from naksha.hub.pipeline.responses import Content, Findings, FixedVersion, TileBytes
from naksha.hub.pipeline.targets import Target, check_version, fixed_version, place
from naksha.model.errors import CollectionNotFound
from naksha.model.statistics import NOTHING
from naksha.model.transaction import LogFilter


async def read_tile(target: Target, request: ReadTile, event: Event) -> TileBytes:
    """Return a vector tile, made by the database where possible."""
    reader, at = await place(target, request.ref)
    try:
        made = await reader.tile(target.collection.id, request.query, at, request.tile)
    except CollectionNotFound:
        await check_version(target, at)
        made = b""
    return TileBytes(made)


async def find_features(target: Target, request: FindFeatures, event: Event) -> Findings:
    """Return features that the database searched and sorted."""
    reader, at = await place(target, request.ref)
    sort, after = request.sort, request.after
    try:
        found = await reader.matching_states(
            target.collection.id, request.query, at, sort=sort, after=after
        )
    except CollectionNotFound:
        found = []
    return Findings(found)


async def statistics(target: Target, request: GetStatistics, event: Event) -> Content:
    """Return statistics of the collection; zeros before its first write."""
    reader, at = await place(target, request.ref)
    try:
        found = await reader.statistics(target.collection.id, at, fast=request.fast)
    except CollectionNotFound:
        found = NOTHING
    version = await reader.resolve(at)
    return Content(
        statistics=found,
        updated_at=await _updated_at(target, version.seq_number),
        min_version=target.min_version,
        max_version=version.seq_number,
    )


async def _updated_at(target: Target, seq_number: int) -> int | None:
    """Return when the collection was last changed on main, up to a version."""
    where = LogFilter(collections=(target.collection.id,))
    last = await target.storage.transactions(seq_number + 1, 1, where, newest_first=True)
    return last[0].started_ms if last else None


async def version(target: Target, request: GetVersion, event: Event) -> FixedVersion | None:
    """Resolve a version reference."""
    return await fixed_version(target, request)


READ_ANSWERS: Final[dict[Any, Any]] = {
    ReadTile: read_tile,
    FindFeatures: find_features,
    GetStatistics: statistics,
    GetVersion: version,
}
