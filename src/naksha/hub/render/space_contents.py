"""Content of spaces as storages know it without reading features: last change, count and size."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from naksha.hub.config.objects import Space
from naksha.hub.config.references import spaces_below, stored_in
from naksha.hub.config.registry import ConfiguredRealm
from naksha.hub.config.space_collections import SpaceCollection
from naksha.model import limits
from naksha.model.collection import CollectionInfo
from naksha.model.errors import CollectionNotFound, NakshaError
from naksha.model.query import Query
from naksha.model.transaction import LogFilter
from naksha.spi.storage import Storage

_FEATURES_CHANGED: Final = "MODIFY_FEATURES"


class SpaceSize(msgspec.Struct, frozen=True, rename="camel"):
    """Count and size of a space; None if not counted yet, or if nothing is stored."""

    feature_count: int | None
    byte_size: int | None
    """Size in the storage without history."""
    estimated: bool


UNKNOWN: Final = SpaceSize(None, None, estimated=True)


async def content_updated_at(realm: ConfiguredRealm, space: Space) -> int:
    """Return when a feature of the space was last created, changed or deleted (epoch ms).

    For a space that never had features it is the time of its creation. The features of a view are
    those of its spaces. Unpublished changes do not count.
    """
    snapshot = await realm.registry.snapshot()
    below = await spaces_below(snapshot, space)
    places = {each.place for one in (space, *below) for each in await stored_in(snapshot, one)}
    times = [
        await _changed_ms(await realm.storage(storage_id), collection)
        for storage_id, collection in places
    ]
    if below and any(times):
        return max(times)
    return max([space.created_at, *times])


async def contents_updated_at(realm: ConfiguredRealm, spaces: Sequence[Space]) -> list[int | None]:
    """Return the same for many spaces; None for one whose storage is unavailable."""
    gate = asyncio.Semaphore(limits.CONTENT_LOOKUPS_MAX)

    async def one(space: Space) -> int | None:
        async with gate:
            try:
                return await content_updated_at(realm, space)
            except NakshaError:
                return None

    return await asyncio.gather(*(one(space) for space in spaces))


async def sizes(realm: ConfiguredRealm, spaces: Sequence[Space]) -> list[SpaceSize]:
    """Return the sizes of spaces as counted by maintenance.

    Collections that maintenance has not counted yet are counted now, up to a limit.
    """
    snapshot = await realm.registry.snapshot()
    places = [await stored_in(snapshot, space) for space in spaces]
    known = await _infos(realm, {each.storage_id for some in places for each in some})
    left = limits.EXACT_COUNTS_MAX
    found: list[SpaceSize] = []
    for some in places:
        infos = [known.get(each.place) for each in some]
        uncounted = [
            each
            for each, info in zip(some, infos, strict=True)
            if info is not None and info.estimated_feature_count < 0
        ]
        exact = await _counts(realm, uncounted) if len(uncounted) <= left else None
        left -= len(uncounted) if exact is not None else 0
        found.append(_size(some, infos, exact))
    return found


def _size(
    places: Sequence[SpaceCollection],
    infos: Sequence[CollectionInfo | None],
    exact: dict[tuple[str, str], int] | None,
) -> SpaceSize:
    if not places or exact is None or any(info is None for info in infos):
        return UNKNOWN
    count, size, has_size, estimated = 0, 0, True, False
    for each, info in zip(places, infos, strict=True):
        assert info is not None
        estimated = estimated or each.place not in exact
        count += exact.get(each.place, info.estimated_feature_count)
        has_size = has_size and info.byte_size >= 0
        size += max(info.byte_size, 0)
    return SpaceSize(count, size if has_size else None, estimated)


async def _infos(
    realm: ConfiguredRealm, storage_ids: Iterable[str]
) -> dict[tuple[str, str], CollectionInfo]:
    """Return all collections of some storages; none of an unavailable storage."""
    found: dict[tuple[str, str], CollectionInfo] = {}
    for id in storage_ids:
        try:
            for info in await (await realm.storage(id)).collections():
                found[id, info.id] = info
        except NakshaError:
            continue
    return found


async def _counts(
    realm: ConfiguredRealm, places: Sequence[SpaceCollection]
) -> dict[tuple[str, str], int] | None:
    try:
        return {
            each.place: await (await realm.storage(each.storage_id)).count(
                each.collection.id, Query()
            )
            for each in places
        }
    except NakshaError:
        return None


async def _changed_ms(storage: Storage, collection: str) -> int:
    """Return when features of a collection were last changed; 0 for never."""
    after = 0
    where = LogFilter(collections=(collection,))
    try:
        while True:
            some = await storage.transactions(
                after, limits.LOG_LOOKBACK_PAGE, where, newest_first=True
            )
            for each in some:
                if any(s.action == _FEATURES_CHANGED and s.id == collection for s in each.signals):
                    return each.published_ms or each.started_ms
            if len(some) < limits.LOG_LOOKBACK_PAGE or some[-1].seq_number is None:
                return 0
            after = some[-1].seq_number
    except CollectionNotFound:
        return 0
