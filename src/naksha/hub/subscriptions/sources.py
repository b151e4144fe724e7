"""Sources of the changes of subscriptions."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable
from typing import NamedTuple

import msgspec
import shapely

from naksha.catalog.entities import EntitySnapshot
from naksha.hub.config.objects import Space, key_of
from naksha.hub.config.references import connectors_of, stored_in
from naksha.hub.config.registry import ConfiguredRealm
from naksha.hub.pipeline.pipeline import HubServices
from naksha.hub.pipeline.request_context import RequestContext
from naksha.hub.pipeline.version_requests import ReadChanges
from naksha.hub.query_language.properties import property_query
from naksha.hub.query_language.tags import tag_query
from naksha.hub.render.feature_shapes import sent_shape
from naksha.hub.subscriptions.objects import ChangeFilter, ChangeSource, Subscription
from naksha.model import limits
from naksha.model.errors import InvalidArgument, NotSupported, Unavailable
from naksha.model.query import Intersects, Query
from naksha.spi.storage import Storage
from naksha.versioning import FeedFilter, FeedPage, FeedPosition, line_of, read_feed
from naksha.versioning.version_refs import MAIN_BRANCH

Read = Callable[[FeedPosition], Awaitable[FeedPage]]


class OpenSource(NamedTuple):
    """An open source: its storage, and the function that reads it."""

    storage: Storage
    read: Read


async def storage_id_of(snapshot: EntitySnapshot, source: ChangeSource) -> str:
    """Return the storage of a source.

    Raises:
        InvalidArgument: The space does not exist.
        NotSupported: It is in several storages without a common order, or in none.
    """
    if source.storage_id is not None:
        return source.storage_id
    assert source.space_id is not None
    found = await snapshot.get(key_of(Space, source.space_id), Space)
    if found is None:
        raise InvalidArgument(
            f"The space {source.space_id!r} does not exist", field="source.spaceId"
        )
    ids = {stored.storage_id for stored in await stored_in(snapshot, found.value)}
    if len(ids) != 1:
        raise NotSupported(
            f"The space {source.space_id!r} is stored in {len(ids)} storages, not in one; "
            "subscribe to the spaces that it is derived from",
            field="source.spaceId",
        )
    return ids.pop()


async def cut_of(snapshot: EntitySnapshot, subscription: Subscription) -> str:
    """Return a hash of how transactions are cut into deliveries.

    It depends on the subscription and on which changes its space shows.
    """
    shown: list[object] = []
    if subscription.source.space_id is not None:
        space = await snapshot.get(key_of(Space, subscription.source.space_id), Space)
        if space is not None:
            shown = [
                (one.handler_name, one.properties, one.active)
                for one in await connectors_of(snapshot, space.value)
            ]
    parts_read = (subscription.filter, subscription.granularity, shown)
    return hashlib.sha256(msgspec.json.encode(parts_read, order="sorted")).hexdigest()[:16]


async def open_source(
    realm: ConfiguredRealm,
    snapshot: EntitySnapshot,
    subscription: Subscription,
    context: Callable[[], RequestContext],
) -> OpenSource:
    """Open the source of a subscription."""
    source, where = subscription.source, _feed_filter(subscription.filter)
    storage_id = await storage_id_of(snapshot, source)
    storage = await realm.storage(storage_id)
    if source.space_id is not None:
        read = _of_space(realm, source.space_id, where, context)
        return OpenSource(storage, _only_of(storage_id, storage.number, realm, source, read))
    return OpenSource(storage, await _of_storage(storage, source, where))


def _of_space(
    realm: HubServices, space_id: str, where: FeedFilter, context: Callable[[], RequestContext]
) -> Read:
    async def read(after: FeedPosition) -> FeedPage:
        request = ReadChanges(
            after=str(after),
            actions=where.actions,
            query=where.query,
            limit=limits.FEED_TRANSACTIONS_MAX,
        )
        page = await realm.send(space_id, request, context())
        return FeedPage(page.items, FeedPosition.parse(page.position), page.last)

    return read


def _only_of(
    storage_id: str, storage_number: int, realm: ConfiguredRealm, source: ChangeSource, read: Read
) -> Read:
    """Wrap a read so that pages of another storage are refused.

    The space may be moved to another storage at any time, or the storage may be replaced.
    """

    async def read_here(after: FeedPosition) -> FeedPage:
        page = await read(after)
        now = await storage_id_of(await realm.registry.snapshot(), source)
        if now != storage_id or (await realm.storage(now)).number != storage_number:
            raise Unavailable(
                "The source of the subscription was just moved to another storage; the hub "
                "retries the delivery"
            )
        return page

    return read_here


async def _of_storage(storage: Storage, source: ChangeSource, where: FeedFilter) -> Read:
    line = await line_of(storage, MAIN_BRANCH)
    storage_ids = FeedFilter(
        collections=source.collections or None, actions=where.actions, query=where.query
    )

    async def read(after: FeedPosition) -> FeedPage:
        return await read_feed(
            line,
            after,
            storage_ids,
            transactions_max=limits.FEED_TRANSACTIONS_MAX,
            features_max=limits.FEED_FEATURES_MAX,
        )

    return read


def _feed_filter(change_filter: ChangeFilter) -> FeedFilter:
    """Return the part of a filter that the storage evaluates."""
    spatial = change_filter.spatial_filter
    area = None
    if spatial is not None:
        shape = shapely.force_2d(sent_shape(spatial.geometry))
        area = Intersects(shapely.to_wkb(shape), spatial.radius)
    query = Query(
        spatial=area,
        where=property_query(change_filter.properties) if change_filter.properties else None,
        tags=tag_query(f"tags={change_filter.tags}") if change_filter.tags else None,
        authors=change_filter.authors or None,
    )
    return FeedFilter(actions=change_filter.actions or None, query=query)
