"""What is delivered of a transaction: the right changes, cut as the subscription wants."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec
import shapely

from naksha.hub.delivering import DeliverChanges
from naksha.hub.feed_json import published_json
from naksha.hub.fences import Fence
from naksha.hub.geometries import sent_shape
from naksha.hub.growing import grown_shape
from naksha.hub.json_paths import JsonPath
from naksha.hub.shaping import Shaping, shaped
from naksha.hub.subscription_objects import Granularity, SpatialFilter, Subscription
from naksha.hub.subscriptions.progress import Progress
from naksha.versioning import FeatureChange, Published

PARTS: Final = 1_000_000
"""More features than a part of a transaction can have."""


class Cutter:
    """Makes deliveries of what a feed gives."""

    def __init__(self, name: str, subscription: Subscription, storage_id: str) -> None:
        self._name = name
        self._granularity = subscription.granularity
        self._storage_id = storage_id
        path = subscription.filter.json_path
        self._path = JsonPath.parse(path, field="filter.jsonPath") if path else None
        self._clip = _clip_area(subscription.filter.spatial_filter)

    def deliveries(self, item: Published, progress: Progress) -> Iterator[DeliverChanges]:
        """Those of an item, none when nothing of it is wanted."""
        changes = item.changes
        if self._path is not None:
            changes = tuple(one for one in changes if self._path.finds(one.state.feature))
            if not changes:
                return
        if self._granularity is Granularity.CONTENT_CHANGE:
            # A transaction in many parts has changed once.
            if item.is_last:
                yield self._delivery(item, (), progress, item.part)
            return
        if self._clip is not None:
            changes = tuple(_clipped(one, Shaping(clip=self._clip)) for one in changes)
        if self._granularity is Granularity.PER_TRANSACTION or not changes:
            yield self._delivery(item, changes, progress, item.part)
            return
        first = item.part * PARTS
        for place, change in enumerate(changes):
            yield self._delivery(item, (change,), progress, first + place)

    def _delivery(
        self, item: Published, changes: Sequence[FeatureChange], progress: Progress, part: int
    ) -> DeliverChanges:
        shown = msgspec.structs.replace(item, changes=tuple(changes), part=part)
        fence = Fence(
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
    return grown_shape(sent_shape(spatial.geometry), spatial.radius)


def _clipped(change: FeatureChange, shaping: Shaping) -> FeatureChange:
    """Cut at the border; what is outside was told because it has left, and stays as it is."""
    inside = shaped([change.state], shaping)
    return msgspec.structs.replace(change, state=inside[0]) if inside else change
