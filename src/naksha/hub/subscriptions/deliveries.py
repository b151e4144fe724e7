"""Deliveries of a transaction: its matching changes, cut by the subscription's granularity."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

import msgspec
import shapely

from naksha.hub.feed.delivery_requests import DeliverChanges
from naksha.hub.feed.transaction_json import published_json
from naksha.hub.pipeline.json_path import JsonPath
from naksha.hub.render.buffer import buffered_shape
from naksha.hub.render.feature_shapes import sent_shape
from naksha.hub.render.projection import StateProjection, shaped
from naksha.hub.subscriptions.delivery_fence import DeliveryFence
from naksha.hub.subscriptions.objects import Granularity, SpatialFilter, Subscription
from naksha.hub.subscriptions.progress import SubscriptionProgress
from naksha.versioning import FeatureChange, FeedTransaction

PARTS: Final = 1_000_000
"""Greater than the number of features in a part of a transaction."""


class DeliveryBuilder:
    """Makes deliveries from the items of a feed."""

    def __init__(self, name: str, subscription: Subscription, storage_id: str) -> None:
        self._name = name
        self._granularity = subscription.granularity
        self._storage_id = storage_id
        path = subscription.filter.json_path
        self._path = JsonPath.parse(path, field="filter.jsonPath") if path else None
        self._clip = _clip_area(subscription.filter.spatial_filter)
        self._last_seq_number = 0

    async def deliveries(
        self, item: FeedTransaction, progress: SubscriptionProgress
    ) -> Sequence[DeliverChanges]:
        """Return the deliveries of an item; none if no change matches."""
        if self._path is None and self._clip is None:
            return self._cut(item, progress)
        # Features may be large, so this must not block the event loop.
        return await asyncio.to_thread(self._cut, item, progress)

    def _cut(
        self, item: FeedTransaction, progress: SubscriptionProgress
    ) -> Sequence[DeliverChanges]:
        changes = item.changes
        if self._path is not None:
            changes = tuple(one for one in changes if self._path.finds(one.state.feature))
            # Deliver the last of several parts in any case: the receiver may wait for it.
            if not changes and not (item.part and item.is_last and self._has_parts):
                return ()
        if not self._has_parts:
            # A transaction in many parts is announced once, with the first matching part. After a
            # crash that may be another part; the version number identifies the duplicate.
            if self._last_seq_number == item.changeset.version.seq_number:
                return ()
            self._last_seq_number = item.changeset.version.seq_number
            return [self._delivery(item, (), progress, 0, is_last=True)]
        if self._clip is not None:
            changes = tuple(_clipped(one, StateProjection(clip=self._clip)) for one in changes)
        if self._granularity is Granularity.PER_TRANSACTION:
            return [self._delivery(item, changes, progress, item.part, is_last=item.is_last)]
        # A feature that moved to another collection is deleted before it is created.
        ordered = sorted(changes, key=lambda one: one.action != "DELETE")
        parts: list[tuple[FeatureChange, ...]] = [(one,) for one in ordered] or [()]
        first, last = item.part * PARTS, len(parts) - 1
        return [
            self._delivery(
                item, part, progress, first + index, is_last=item.is_last and index == last
            )
            for index, part in enumerate(parts)
        ]

    @property
    def _has_parts(self) -> bool:
        return self._granularity is not Granularity.CONTENT_CHANGE

    def _delivery(
        self,
        item: FeedTransaction,
        changes: Sequence[FeatureChange],
        progress: SubscriptionProgress,
        part: int,
        *,
        is_last: bool,
    ) -> DeliverChanges:
        shown = msgspec.structs.replace(item, changes=tuple(changes), part=part, is_last=is_last)
        fence = DeliveryFence(
            name=self._name,
            life=progress.life,
            term=progress.term,
            seq_number=item.changeset.version.seq_number,
            part=part,
        )
        return DeliverChanges(
            fence=fence, body=msgspec.Raw(published_json(shown, self._storage_id))
        )


def _clip_area(spatial: SpatialFilter | None) -> shapely.Geometry | None:
    if spatial is None or not spatial.clip:
        return None
    return buffered_shape(sent_shape(spatial.geometry), spatial.radius)


def _clipped(change: FeatureChange, shaping: StateProjection) -> FeatureChange:
    """Clip a feature; a feature outside is reported because it left, and stays unchanged."""
    inside = shaped([change.state], shaping)
    return msgspec.structs.replace(change, state=inside[0]) if inside else change
