"""What runs through the pipeline of a subscription: some changes, for whoever wants them."""

from __future__ import annotations

from collections.abc import Collection
from typing import ClassVar

import msgspec

from naksha.hub.auth.rights import Right
from naksha.hub.pipeline.requests import Request
from naksha.hub.subscriptions.delivery_fence import Fence


class ChangedFeature(msgspec.Struct, frozen=True, kw_only=True):
    """A feature that was created, updated or deleted; `feature` is the state it has, or had."""

    action: str
    collection: str
    feature: msgspec.Raw


class ChangedCollection(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What was done to a collection altogether."""

    id: str
    created: int = 0
    updated: int = 0
    deleted: int = 0
    states_kept: bool = True


class Changes(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What is delivered, as far as handlers of the hub look at it."""

    version: int
    part: int = 0
    is_last: bool = True
    collections: tuple[ChangedCollection, ...] = ()
    features: tuple[ChangedFeature, ...] = ()


class DeliverChanges(Request[None], frozen=True, kw_only=True, tag="DeliverChanges"):
    """Take note of changes; whoever returns has taken them. They come at least once, in order."""

    changes: ClassVar[bool] = True
    tells_features: ClassVar[bool] = False

    fence: Fence
    body: msgspec.Raw
    """JSON, as the feed tells it (`naksha.hub.feed.transaction_json`)."""

    def needs(self) -> Collection[Right]:
        """The hub itself asks nobody; somebody else who sends it to a space could make up what
        a subscription delivers."""
        return (Right.MANAGE_SUBSCRIPTIONS,)

    def read(self) -> Changes:
        """What is in the body."""
        return msgspec.json.decode(self.body, type=Changes)
