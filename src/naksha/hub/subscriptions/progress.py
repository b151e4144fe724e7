"""How far a subscription is, and who delivers it: one object of the catalog, changed by compare and
swap.

The holder has it for a while (`until_ms`) and takes it anew with every change that he makes; when
he does not, somebody else becomes the holder in a new `term`. A change is made only over the state
that was read, so that nobody who has lost it can move it, however late he wakes up.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from enum import StrEnum

import msgspec

from naksha.catalog.objects import Object, ObjectRef, object_type
from naksha.catalog.persistence import Persistence
from naksha.model.errors import OutcomeUnknown
from naksha.versioning import FeedPosition

TYPE = "subscription-progress"


class Condition(StrEnum):
    """How it goes with a subscription that is active."""

    ACTIVE = "active"
    FAILING = "failing"
    """The destination does not take it; it is tried again."""
    EXPIRED = "expired"
    """What comes next is gone. Only whoever manages it can decide where to go on."""


@object_type(TYPE, is_cached=False)
class Progress(msgspec.Struct, frozen=True, kw_only=True):
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
    term: int = 0
    """One more with each holder."""
    holder: str = ""
    """The instance that delivers; empty: nobody."""
    until_ms: int = 0
    lease_ms: int = 0
    """For how long the holder has it with every change."""
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

    def is_free(self, now_ms: int, drift_ms: int) -> bool:
        """Whether nobody has it any more, whatever his clock says."""
        return not self.holder or now_ms > self.until_ms + drift_ms

    def may_go_to(self, instance: str, now_ms: int) -> bool:
        """Whether nobody else is wanted."""
        return self.wanted in ("", instance) or now_ms > self.wanted_until_ms


Kept = Object[Progress]


class ProgressTable:
    """The progress of all subscriptions of a realm."""

    def __init__(self, persistence: Persistence) -> None:
        self._persistence = persistence

    @property
    def now_ms(self) -> int:
        """The time of the catalog's clock."""
        return self._persistence.clock.now_ms()

    def new_id(self) -> int:
        """The id for the progress of a new subscription."""
        return self._persistence.new_id()

    async def create(self, id: int, progress: Progress) -> None:
        """Begin; there may be one already, of whom nobody heard that it was made."""
        await self._persistence.insert(id, progress)

    async def read(self, ids: Collection[int]) -> Mapping[int, Kept]:
        """Those that there are, as they are now."""
        refs = [ObjectRef(TYPE, id) for id in ids]
        found = await self._persistence.fetch_many(refs, Progress)
        return {one.id: one for one in found if one is not None}

    async def get(self, id: int) -> Kept | None:
        """One of them."""
        return (await self.read([id])).get(id)

    async def swap(self, old: Kept, new: Progress) -> Kept | None:
        """Put one in the place of another, which must still be there; else None."""
        try:
            return await self._persistence.replace(old, new)
        except OutcomeUnknown:
            found = await self.get(old.id)
            return found if found is not None and found.value == new else None

    async def change(self, id: int, changed: Callable[[Progress], Progress]) -> Kept | None:
        """Change one, whoever has it; None when there is none."""
        while (old := await self.get(id)) is not None:
            kept = await self.swap(old, changed(old.value))
            if kept is not None:
                return kept
        return None

    async def forget(self, id: int) -> None:
        """It is of no use any more."""
        while (old := await self.get(id)) is not None:
            if await self._persistence.delete_if(old):
                return
