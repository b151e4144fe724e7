"""Changes are written to another space, so that it has what the source has.

    {"spaceId": "roads-public"}

With handlers in that space, or filters of the subscription, it is a derived one. What is created or
updated replaces what is there; what is deleted, goes. Each delivery is one transaction, and what
comes late or twice is not written.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, Final

import msgspec

from naksha.hub.config.references import Reference
from naksha.hub.feed.delivery_requests import Changes, DeliverChanges
from naksha.hub.pipeline.pipeline import Event, Setup
from naksha.hub.pipeline.requests import IfExists, IfNotExists, Modification, WriteFeatures
from naksha.hub.subscriptions.delivery_fence import Fence
from naksha.model.damage import decode_feature
from naksha.model.errors import InvalidArgument
from naksha.model.state import XYZ

_KEPT: Final = ("tags", "crid")
"""What of the namespace belongs to the feature, and not to the state that it was."""


class ToSpaceHandler:
    """Writes what it gets."""

    metric_name: ClassVar[str] = "ToSpaceHandler"

    def __init__(self, setup: Setup) -> None:
        self._space_id = _space_id(setup.connector.properties)

    @staticmethod
    def references(properties: dict[str, Any]) -> list[Reference]:
        """The space that is written to."""
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

    def _fence(self, event: Event, fence: Fence) -> Fence:
        """Under a name that is unique in a storage, which other realms may use too, and in which
        the subscription may write to several spaces."""
        name = f"{event.context.actor.realm}/{fence.name}/{self._space_id}"
        return msgspec.structs.replace(fence, name=name)


def _modifications(changes: Changes) -> Iterator[Modification]:
    """Of a feature that is in several collections, the last one counts; but one that is deleted
    in one of them and not in another has moved."""
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
    gone = tuple(id for id, feature in written.items() if feature is None)
    if gone:
        yield Modification(ids=gone, if_exists=IfExists.DELETE, if_not_exists=IfNotExists.RETAIN)


def _plain(feature: dict[str, Any]) -> dict[str, Any]:
    """A feature as its author would send it."""
    properties = dict(feature.get("properties") or {})
    namespace = properties.pop(XYZ, {})
    properties[XYZ] = {name: namespace[name] for name in _KEPT if namespace.get(name) is not None}
    return {**feature, "properties": properties}


def _space_id(properties: dict[str, Any]) -> str:
    id = properties.get("spaceId")
    if not isinstance(id, str) or not id:
        raise InvalidArgument(
            "It has a spaceId, the space that is written to", field="properties.spaceId"
        )
    return id
