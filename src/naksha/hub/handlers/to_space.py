"""Delivery of changes to another space, which then mirrors the source.

    {"spaceId": "roads-public"}

With handlers in the target space, or with filters of the subscription, the target is a derived
data set. Created and updated features replace those in the target, deleted features are deleted.
Each delivery is one transaction, and late or duplicate deliveries are not written.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, Final

import msgspec

from naksha.hub.config.references import Reference
from naksha.hub.feed.delivery_requests import DeliverChanges, DeliveredChanges
from naksha.hub.pipeline.pipeline import Event, Setup
from naksha.hub.pipeline.requests import IfExists, IfNotExists, Modification, WriteFeatures
from naksha.hub.subscriptions.delivery_fence import DeliveryFence
from naksha.model.damage import decode_feature
from naksha.model.errors import InvalidArgument
from naksha.model.state import XYZ

_KEPT: Final = ("tags", "crid")
"""Parts of the namespace that belong to the feature, not to its state."""


class ToSpaceHandler:
    """Handler that writes each delivery to a space."""

    metric_name: ClassVar[str] = "ToSpaceHandler"

    def __init__(self, setup: Setup) -> None:
        self._space_id = _space_id(setup.connector.properties)

    @staticmethod
    def references(properties: dict[str, Any]) -> list[Reference]:
        """Return the reference to the target space."""
        return [Reference("space", _space_id(properties), "properties.spaceId")]

    async def process(self, event: Event) -> Any:
        request = event.request
        if not isinstance(request, DeliverChanges):
            return await event.send_upstream()
        changes = request.read()
        modifications = tuple(_modifications(changes))
        if modifications:
            await event.send_to(
                self._space_id,
                WriteFeatures(
                    modifications=modifications,
                    message=f"Version {changes.version} by subscription {request.fence.name}",
                    returning=False,
                    fence=self._fence(event, request.fence),
                ),
            )
        await event.pass_on()
        return None

    def _fence(self, event: Event, fence: DeliveryFence) -> DeliveryFence:
        """Return the fence under a name that is unique in the target's storage.

        The storage may be shared by realms, and the subscription may write to several spaces in it.
        """
        name = f"{event.context.actor.realm}/{fence.name}/{self._space_id}"
        return msgspec.structs.replace(fence, name=name)


def _modifications(changes: DeliveredChanges) -> Iterator[Modification]:
    """Yield the write of a delivery.

    If several collections have the same feature, the last one wins. A feature deleted in one
    collection and present in another has moved, so it is written.
    """
    written: dict[str, dict[str, Any] | None] = {}
    for each in changes.features:
        feature = decode_feature(bytes(each.feature))
        if each.action == "DELETE":
            written.setdefault(feature["id"], None)
        else:
            written[feature["id"]] = _plain(feature)
    features = tuple(feature for feature in written.values() if feature is not None)
    if features:
        yield Modification(
            features=features, if_exists=IfExists.REPLACE, if_not_exists=IfNotExists.CREATE
        )
    deleted = tuple(id for id, feature in written.items() if feature is None)
    if deleted:
        yield Modification(ids=deleted, if_exists=IfExists.DELETE, if_not_exists=IfNotExists.RETAIN)


def _plain(feature: dict[str, Any]) -> dict[str, Any]:
    """Return a feature as its author would send it."""
    properties = dict(feature.get("properties") or {})
    namespace = properties.pop(XYZ, {})
    properties[XYZ] = {name: namespace[name] for name in _KEPT if namespace.get(name) is not None}
    return {**feature, "properties": properties}


def _space_id(properties: dict[str, Any]) -> str:
    id = properties.get("spaceId")
    if not isinstance(id, str) or not id:
        raise InvalidArgument(
            "properties.spaceId is missing: the id of the space to write to",
            field="properties.spaceId",
        )
    return id
