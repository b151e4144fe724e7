"""How far a subscription is, and who delivers it."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from naksha.catalog.objects import Object, object_type
from naksha.catalog.persistence import Persistence
from naksha.hub.leases import Leased, LeasedTable
from naksha.versioning import FeedPosition


class Condition(StrEnum):
    """How it goes with a subscription that is active."""

    ACTIVE = "active"
    FAILING = "failing"
    """The destination does not take it; it is tried again."""
    EXPIRED = "expired"
    """What comes next is gone. Only whoever manages it can decide where to go on."""


@object_type("subscription-progress", is_cached=False)
class Progress(Leased, frozen=True, kw_only=True):
    """What is known of a subscription that changes all the time."""

    subscription: str
    position: FeedPosition
    """All up to here was delivered."""
    storage_id: str = ""
    """The storage that the position is one of: another one has other versions."""
    storage_number: int | None = None
    """The number of that storage: another one may be put in its place, under the same id."""
    cut: str = ""
    """How transactions are cut into deliveries: when that changes, their parts are others. Empty:
    nothing was delivered yet."""
    life: int
    """Greater each time that somebody puts it somewhere else, when it may go back; and greater
    than that of a former subscription of the same name."""
    wanted: str = ""
    """The instance that shall have it next."""
    wanted_until_ms: int = 0
    condition: Condition = Condition.ACTIVE
    reason: str = ""
    since_ms: int = 0
    """When it got into the condition that it is in."""
    moved_ms: int = 0
    """When the position was moved last; when it stands still for long, nothing is kept for it."""
    delivered: int = 0
    """Deliveries so far."""
    delivered_ms: int = 0
    """When the last one was made."""

    def may_go_to(self, instance: str, now_ms: int) -> bool:
        """Whether nobody else is wanted."""
        return self.wanted in ("", instance) or now_ms > self.wanted_until_ms

    def taken(self) -> Progress:
        """Whoever has it was wanted, or nobody was."""
        return msgspec.structs.replace(self, wanted="", wanted_until_ms=0)

    @property
    def hold(self) -> tuple[int, ...]:
        """It may also be put elsewhere while the holder stays the same."""
        return self.life, self.term

    @property
    def leaves(self) -> str:
        """Somebody else shall have it."""
        return f"It shall go to {self.wanted}" if self.wanted else ""


Kept = Object[Progress]


class ProgressTable(LeasedTable[Progress]):
    """The progress of all subscriptions of a realm."""

    def __init__(self, persistence: Persistence) -> None:
        super().__init__(persistence, Progress)
