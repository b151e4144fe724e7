"""Leases on work that one hub instance does at a time, fenced by compare-and-swap.

Holder and progress of the work are one catalog object. The holder has a lease until `until_ms` and
renews it with every change. When the lease expires, another instance becomes the holder in a new
`term`. Every change is a compare-and-swap on the state that was read, so an instance that has lost
the lease cannot move the progress, however late it resumes.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final, Generic, Self, TypeVar

import msgspec

from naksha.catalog.cluster.nodes import LeaseTimes
from naksha.catalog.objects import Object, ObjectRef, type_id_of
from naksha.catalog.persistence import Persistence
from naksha.model import limits
from naksha.model.errors import NakshaError, OutcomeUnknown
from naksha.spi.clock import boot_seconds
from naksha.spi.support.cancellation import check_cancelled


class Leased(msgspec.Struct, frozen=True, kw_only=True):
    """Base class of leased objects."""

    term: int = 0
    """Fencing token: incremented with each new holder."""
    holder: str = ""
    """The instance that holds the lease; empty if none."""
    until_ms: int = 0
    lease_ms: int = 0
    """Duration of the lease, counted from each renewal."""

    def is_free(self, now_ms: int, drift_ms: int) -> bool:
        """Return whether the lease has expired, allowing for clock drift of the holder."""
        return not self.holder or now_ms > self.until_ms + drift_ms

    def taken(self) -> Self:
        """Return the object as a new holder takes it over; subclasses reset fields here."""
        return self

    @property
    def hold(self) -> tuple[int, ...]:
        """Identifies the current hold; a change means that the holder must stop."""
        return (self.term,)

    @property
    def leaves(self) -> str:
        """Reason why the holder must release the lease; empty if it need not."""
        return ""


L = TypeVar("L", bound=Leased)
K = TypeVar("K")


class LeasedTable(Generic[L]):
    """Leased objects of one kind in a realm."""

    def __init__(self, persistence: Persistence, kind: type[L]) -> None:
        self._persistence = persistence
        self._kind = kind

    @property
    def now_ms(self) -> int:
        """Current time of the catalog's clock."""
        return self._persistence.clock.now_ms()

    def new_id(self) -> int:
        """Return an id for a new object."""
        return self._persistence.new_id()

    async def create(self, id: int, value: L) -> None:
        """Insert an object; it may already exist from an attempt whose outcome was unknown."""
        await self._persistence.insert(id, value)

    async def read(self, ids: Collection[int]) -> Mapping[int, Object[L]]:
        """Return the current state of existing objects, by id."""
        return await read_objects(self._persistence, self._kind, ids)

    async def get(self, id: int) -> Object[L] | None:
        """Return the current state of an object, or None."""
        return (await self.read([id])).get(id)

    async def swap(self, old: Object[L], new: L) -> Object[L] | None:
        """Replace an object by compare-and-swap; return None if it has changed."""
        try:
            return await self._persistence.replace(old, new)
        except OutcomeUnknown:
            found = await self.get(old.id)
            return found if found is not None and found.value == new else None

    async def change(self, id: int, changed: Callable[[L], L]) -> Object[L] | None:
        """Change an object regardless of its holder; return None if it does not exist."""
        while (old := await self.get(id)) is not None:
            kept = await self.swap(old, changed(old.value))
            if kept is not None:
                return kept
        return None

    async def forget(self, id: int) -> None:
        """Delete an object."""
        while (old := await self.get(id)) is not None:
            if await self._persistence.delete_if(old):
                return


async def read_objects(
    persistence: Persistence, kind: type[K], ids: Collection[int]
) -> Mapping[int, Object[K]]:
    """Return objects of a kind by id; missing ones are left out."""
    refs = [ObjectRef(type_id_of(kind), id) for id in ids]
    found = await persistence.fetch_many(refs, kind)
    return {one.id: one for one in found if one is not None}


# ---- Holding a lease -----------------------------------------------------------------------------


def lease_times(seconds: float) -> LeaseTimes:
    """Return the times of a lease of this duration; it is renewed after a third of it."""
    return LeaseTimes(
        lease_seconds=seconds,
        renew_seconds=seconds * 2 / 3,
        drift_seconds=limits.SUBSCRIPTION_DRIFT_SECONDS,
        retry_seconds=min(limits.SUBSCRIPTION_LOOK_SECONDS, seconds / 10),
    )


TIMES: Final = lease_times(limits.SUBSCRIPTION_LEASE_SECONDS)


class ExpiryDetector(Generic[L]):
    """Expiry detection that does not rely on the holders' clocks.

    A holder that has not changed the object for the duration of its lease has lost it, whatever
    `until_ms` says: its clock may have been far ahead.
    """

    def __init__(self) -> None:
        self._seen: dict[int, tuple[L, float]] = {}

    def is_free(self, kept: Object[L], now_ms: int, drift_seconds: float) -> bool:
        """Return whether the lease has expired, by the holder's clock or by the local one."""
        if not kept.value.is_free(now_ms, int(drift_seconds * 1000)):
            return self.is_over(kept, drift_seconds)
        self.forget(kept.id)
        return True

    def is_over(self, kept: Object[L], drift_seconds: float) -> bool:
        """Return whether the object has been unchanged for its lease; must be called repeatedly."""
        seen, since = self._seen.get(kept.id, (None, 0.0))
        if seen != kept.value:
            self._seen[kept.id] = kept.value, boot_seconds()
            return False
        return boot_seconds() - since > kept.value.lease_ms / 1_000 + drift_seconds

    def forget(self, id: int) -> None:
        """Stop watching an object."""
        self._seen.pop(id, None)


class LeaseLost(Exception):
    """The lease was lost: another instance has or wants it, or the object was reset."""


async def take(
    table: LeasedTable[L], kept: Object[L], instance: str, times: LeaseTimes = TIMES, **changes: Any
) -> HeldLease[L] | None:
    """Acquire a free lease; return None if another instance acquired it first."""
    began = boot_seconds()
    value = msgspec.structs.replace(
        kept.value.taken(),
        term=kept.value.term + 1,
        holder=instance,
        until_ms=table.now_ms + int(times.lease_seconds * 1000),
        lease_ms=int(times.lease_seconds * 1000),
        **changes,
    )
    taken = await table.swap(kept, value)
    return None if taken is None else HeldLease(table, taken, times, began)


class HeldLease(Generic[L]):
    """A lease that this instance holds. All changes of the object go through it, serialized."""

    def __init__(
        self, table: LeasedTable[L], kept: Object[L], times: LeaseTimes, began: float
    ) -> None:
        self._table = table
        self._kept = kept
        self._times = times
        self._valid_until = began + times.lease_seconds
        self._line = asyncio.Lock()
        self._is_over = False

    @property
    def value(self) -> L:
        """The last saved state."""
        return self._kept.value

    @property
    def valid_until(self) -> float:
        """Time (`boot_seconds`) after which another instance may hold the lease."""
        return self._valid_until

    @property
    def seconds_left(self) -> float:
        """Seconds for which no other instance can hold the lease."""
        return self._valid_until - boot_seconds()

    def check(self) -> None:
        """Raise LeaseLost if another instance may hold the lease by now."""
        if self._is_over:
            raise LeaseLost("a client reset the position, so the lease is void")
        if self.seconds_left <= 0:
            raise LeaseLost("the lease expired, because it could not be renewed in time")

    async def save(self, changed: Callable[[L], L] | None = None) -> None:
        """Save a change and renew the lease.

        Raises:
            LeaseLost: Another instance holds the lease, or the position was reset.
            NakshaError: The catalog is unavailable; the lease is still held for `seconds_left`.
        """
        async with self._line:
            if self._is_over:
                raise LeaseLost("a client reset the position, so the lease is void")
            began = boot_seconds()
            kept = await self._table.swap(self._kept, self._prolonged(changed))
            while kept is None:
                await self._look()
                kept = await self._table.swap(self._kept, self._prolonged(changed))
            self._kept = kept
            self._valid_until = began + self._times.lease_seconds
        if kept.value.leaves:
            raise LeaseLost(kept.value.leaves)

    async def release(self, **changes: Any) -> None:
        """Release the lease, so that others need not wait. Unsaved progress is lost."""
        async with self._line:
            self._valid_until = 0.0
            kept: Object[L] | None = self._kept
            with contextlib.suppress(NakshaError):
                while kept is not None and kept.value.term == self._kept.value.term:
                    free = msgspec.structs.replace(kept.value, holder="", until_ms=0, **changes)
                    if await self._table.swap(kept, free) is not None:
                        return
                    # Another instance asked for the lease, or the position was reset.
                    kept = await self._table.get(kept.id)

    async def keep(self) -> None:
        """Renew the lease until it is lost; always ends with Lost."""
        pause = self._times.lease_seconds - self._times.renew_seconds
        while True:
            await asyncio.sleep(pause)
            try:
                # A catalog that does not respond must not delay the detection of an expired lease.
                async with asyncio.timeout(max(self.seconds_left, self._times.retry_seconds)):
                    await self.save()
                pause = self._times.lease_seconds - self._times.renew_seconds
            except (NakshaError, TimeoutError):
                check_cancelled()
                self.check()
                pause = self._times.retry_seconds

    def _prolonged(self, changed: Callable[[L], L] | None) -> L:
        old = self._kept.value
        until_ms = self._table.now_ms + int(self._times.lease_seconds * 1000)
        new = old if changed is None else changed(old)
        return msgspec.structs.replace(new, until_ms=max(until_ms, old.until_ms))

    async def _look(self) -> None:
        """Reload the object; raise LeaseLost unless only another instance's wish has changed."""
        now, ours = await self._table.get(self._kept.id), self._kept.value
        if now is None:
            raise LeaseLost("the object of the lease was removed")
        if now.value.term != ours.term:
            raise LeaseLost("the lease expired, and another instance holds it now")
        if now.value.hold != ours.hold:
            # The lease is still ours, so that no other instance starts before this one has stopped.
            # But our state is from before the reset: the only valid action left is to release it.
            self._is_over = True
            raise LeaseLost("a client reset the position, so the lease is void")
        self._kept = now
