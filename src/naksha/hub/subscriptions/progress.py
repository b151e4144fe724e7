"""Progress of a subscription: its position and the instance that delivers it."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from naksha.catalog.objects import Object, object_type
from naksha.catalog.persistence import Persistence
from naksha.hub.leases import Leased, LeasedTable
from naksha.versioning import FeedPosition


class DeliveryCondition(StrEnum):
    """Condition of an active subscription."""

    ACTIVE = "active"
    FAILING = "failing"
    """The destination refuses deliveries; they are retried."""
    EXPIRED = "expired"
    """The next changes are expired. A manager has to reset the subscription."""


@object_type("subscription-progress", is_cached=False)
class SubscriptionProgress(Leased, frozen=True, kw_only=True):
    """Frequently changing state of a subscription."""

    subscription: str
    position: FeedPosition
    """Everything up to this position was delivered."""
    storage_id: str = ""
    """The storage of the position: other storages have other versions."""
    storage_number: int | None = None
    """The number of that storage: its id may later be used for another storage."""
    cut: str = ""
    """How transactions are cut into deliveries; parts of another cut are not comparable. Empty
    before the first delivery."""
    life: int
    """Incremented by each reset, which may move the position back. Greater than in any earlier
    subscription of the same name."""
    wanted: str = ""
    """The instance that the subscription is to be moved to."""
    wanted_until_ms: int = 0
    condition: DeliveryCondition = DeliveryCondition.ACTIVE
    reason: str = ""
    since_ms: int = 0
    """When the condition began."""
    moved_ms: int = 0
    """When the position last moved; a subscription stalled for too long loses its pin."""
    delivered: int = 0
    """Number of deliveries so far."""
    delivered_ms: int = 0
    """When the last delivery was made."""

    def may_go_to(self, instance: str, now_ms: int) -> bool:
        """Whether an instance may take the subscription: no other one is wanted."""
        return self.wanted in ("", instance) or now_ms > self.wanted_until_ms

    def taken(self) -> SubscriptionProgress:
        """Clear the wanted instance after the subscription was taken."""
        return msgspec.structs.replace(self, wanted="", wanted_until_ms=0)

    @property
    def hold(self) -> tuple[int, ...]:
        """Identify the holder's claim: the life may change while the holder stays the same."""
        return self.life, self.term

    @property
    def leaves(self) -> str:
        """Why the holder has to release it, empty if it may keep it."""
        return f"The subscription is moving to the instance {self.wanted}" if self.wanted else ""


Kept = Object[SubscriptionProgress]


class ProgressTable(LeasedTable[SubscriptionProgress]):
    """The progress of all subscriptions of a realm."""

    def __init__(self, persistence: Persistence) -> None:
        super().__init__(persistence, SubscriptionProgress)
