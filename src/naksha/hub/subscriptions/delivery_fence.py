"""Delivery fences: they identify late and duplicate deliveries of a subscription."""

from __future__ import annotations

from typing import Final

import msgspec

from naksha.model.errors import Fenced
from naksha.spi.storage import WriteSession

_KIND: Final = "fence"
"""Kind of the stored objects, one for each subscription that writes to the storage."""


class DeliveryFence(msgspec.Struct, frozen=True, kw_only=True):
    """Position of a delivery within a subscription.

    Within a life positions only grow, so a position up to the last one is a duplicate. A term lower
    than the last one comes from an instance that has lost the subscription.
    """

    name: str
    life: int
    term: int
    seq_number: int
    part: int = 0
    is_repeatable: bool = False
    """Set for a delivery written in several transactions, which all have the same position. If the
    last position comes again, it is written again instead of skipped."""

    def passes(self, last: DeliveryFence | None) -> bool:
        """Whether the delivery is new; False if it is a duplicate.

        Raises:
            Fenced: It is late: another instance has taken over the subscription.
        """
        if last is None or self.life > last.life:
            return True
        if self.life < last.life or self.term < last.term:
            raise Fenced(f"The subscription {self.name!r} is now delivered by another instance")
        here, there = (self.seq_number, self.part), (last.seq_number, last.part)
        return here > there or (self.is_repeatable and here == there)


async def pass_fence(session: WriteSession, fence: DeliveryFence) -> bool:
    """Check and store a fence in the transaction that writes its delivery.

    Returns False if the delivery was written before.
    """
    kept = await session.stored_object(_KIND, fence.name)
    last = None if kept is None else msgspec.convert(kept.value, DeliveryFence)
    if not fence.passes(last):
        return False
    value = msgspec.to_builtins(fence)
    await session.store_object(
        _KIND, fence.name, value, expected=0 if kept is None else kept.revision
    )
    return True
