"""Requests that deliver changes through the pipeline of a subscription."""

from __future__ import annotations

from collections.abc import Collection
from typing import ClassVar

import msgspec

from naksha.hub.auth.rights import Right
from naksha.hub.pipeline.requests import Request
from naksha.hub.subscriptions.delivery_fence import DeliveryFence


class ChangedFeature(msgspec.Struct, frozen=True, kw_only=True):
    """A created, updated or deleted feature; `feature` is its new state, or the deleted one."""

    action: str
    collection: str
    feature: msgspec.Raw


class ChangedCollection(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Summary of all changes of a collection."""

    id: str
    created: int = 0
    updated: int = 0
    deleted: int = 0
    states_kept: bool = True


class DeliveredChanges(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Delivered changes, reduced to the members that the hub's handlers use."""

    version: int
    part: int = 0
    is_last: bool = True
    collections: tuple[ChangedCollection, ...] = ()
    features: tuple[ChangedFeature, ...] = ()


class DeliverChanges(Request[None], frozen=True, kw_only=True, tag="DeliverChanges"):
    """Deliver changes, at least once and in order. A normal return acknowledges them."""

    changes: ClassVar[bool] = True
    tells_features: ClassVar[bool] = False

    fence: DeliveryFence
    body: msgspec.Raw
    """JSON in the format of the feed (`naksha.hub.feed.transaction_json`)."""

    def needs(self) -> Collection[Right]:
        """Return the right that protects against forged deliveries sent to a space.

        The hub's own deliveries are not checked.
        """
        return (Right.MANAGE_SUBSCRIPTIONS,)

    def read(self) -> DeliveredChanges:
        """Parse the body."""
        return msgspec.json.decode(self.body, type=DeliveredChanges)
