"""Fences: what comes late, or twice, from whoever delivers a subscription is known by them."""

from __future__ import annotations

from typing import Final

import msgspec

from naksha.model.errors import Fenced
from naksha.spi.storage import WriteSession

KIND: Final = "fence"
"""Of the objects that a storage keeps, one for each subscription that writes to it."""


class Fence(msgspec.Struct, frozen=True, kw_only=True):
    """Tells deliveries of one subscription apart.

    Within a life positions only grow: what is not beyond the last one was delivered before. A term
    that is less than the last one is of somebody who has lost the subscription to another one.
    """

    name: str
    life: int
    term: int
    seq_number: int
    part: int = 0
    is_repeatable: bool = False
    """Of a delivery that is written in several transactions: the same numbers come with each of
    them, so what came last may come again. It is written again then, in place of being skipped."""

    def passes(self, last: Fence | None) -> bool:
        """Whether it comes after the last one; False: it was there already.

        Raises:
            Fenced: It comes too late, from somebody who has lost the subscription.
        """
        if last is None or self.life > last.life:
            return True
        if self.life < last.life or self.term < last.term:
            raise Fenced(f"The subscription {self.name!r} is delivered by another instance by now")
        here, there = (self.seq_number, self.part), (last.seq_number, last.part)
        return here > there or (self.is_repeatable and here == there)


async def pass_fence(session: WriteSession, fence: Fence) -> bool:
    """Whether what comes with a fence is to be written; then it is kept with it, in the same
    transaction. False: it was written before."""
    kept = await session.kept(KIND, fence.name)
    last = None if kept is None else msgspec.convert(kept.value, Fence)
    if not fence.passes(last):
        return False
    value = msgspec.to_builtins(fence)
    await session.keep(KIND, fence.name, value, expected=0 if kept is None else kept.revision)
    return True
