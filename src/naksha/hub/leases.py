"""Work that one instance of the hub does at a time: who does it, and how far it is, is one object
of the catalog, changed by compare and swap.

The holder has it for a while (`until_ms`) and takes it anew with every change that he makes; when
he does not, somebody else becomes the holder in a new `term`. A change is made only over the state
that was read, so that nobody who has lost it can move it, however late he wakes up.
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
    """What is known of something that changes all the time."""

    term: int = 0
    """One more with each holder."""
    holder: str = ""
    """The instance that does it; empty: nobody."""
    until_ms: int = 0
    lease_ms: int = 0
    """For how long the holder has it with every change."""

    def is_free(self, now_ms: int, drift_ms: int) -> bool:
        """Whether nobody has it any more, whatever his clock says."""
        return not self.holder or now_ms > self.until_ms + drift_ms

    def taken(self) -> Self:
        """As a new holder has it."""
        return self

    @property
    def hold(self) -> tuple[int, ...]:
        """Another one when it is not the same holder's any more."""
        return (self.term,)

    @property
    def leaves(self) -> str:
        """Why the holder shall give it back; empty when he need not."""
        return ""


L = TypeVar("L", bound=Leased)
K = TypeVar("K")


class LeasedTable(Generic[L]):
    """All objects of a kind in a realm."""

    def __init__(self, persistence: Persistence, kind: type[L]) -> None:
        self._persistence = persistence
        self._kind = kind

    @property
    def now_ms(self) -> int:
        """The time of the catalog's clock."""
        return self._persistence.clock.now_ms()

    def new_id(self) -> int:
        """The id for a new one."""
        return self._persistence.new_id()

    async def create(self, id: int, value: L) -> None:
        """Begin; there may be one already, of whom nobody heard that it was made."""
        await self._persistence.insert(id, value)

    async def read(self, ids: Collection[int]) -> Mapping[int, Object[L]]:
        """Those that there are, as they are now."""
        return await read_objects(self._persistence, self._kind, ids)

    async def get(self, id: int) -> Object[L] | None:
        """One of them."""
        return (await self.read([id])).get(id)

    async def swap(self, old: Object[L], new: L) -> Object[L] | None:
        """Put one in the place of another, which must still be there; else None."""
        try:
            return await self._persistence.replace(old, new)
        except OutcomeUnknown:
            found = await self.get(old.id)
            return found if found is not None and found.value == new else None

    async def change(self, id: int, changed: Callable[[L], L]) -> Object[L] | None:
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


async def read_objects(
    persistence: Persistence, kind: type[K], ids: Collection[int]
) -> Mapping[int, Object[K]]:
    """Objects of a kind by their ids; what is not there is left out."""
    refs = [ObjectRef(type_id_of(kind), id) for id in ids]
    found = await persistence.fetch_many(refs, kind)
    return {one.id: one for one in found if one is not None}


# ---- Having it: for a limited time, which is prolonged while the process can do so ---------------


def lease_times(seconds: float) -> LeaseTimes:
    """The times of a lease that is as long; it is prolonged after a third of it."""
    return LeaseTimes(
        lease_seconds=seconds,
        renew_seconds=seconds * 2 / 3,
        drift_seconds=limits.SUBSCRIPTION_DRIFT_SECONDS,
        retry_seconds=min(limits.SUBSCRIPTION_LOOK_SECONDS, seconds / 10),
    )


TIMES: Final = lease_times(limits.SUBSCRIPTION_LEASE_SECONDS)


class Watch(Generic[L]):
    """Looks at holders, without their clocks: one who has changed nothing for as long as he may
    have it has lost it, whatever `until_ms` says. His clock may have been far ahead."""

    def __init__(self) -> None:
        self._seen: dict[int, tuple[L, float]] = {}

    def is_free(self, kept: Object[L], now_ms: int, drift_seconds: float) -> bool:
        """Whether nobody has it any more, by his clock or by ours."""
        if not kept.value.is_free(now_ms, int(drift_seconds * 1000)):
            return self.is_over(kept, drift_seconds)
        self.forget(kept.id)
        return True

    def is_over(self, kept: Object[L], drift_seconds: float) -> bool:
        """Whether it has been the same for long enough; to be asked again and again."""
        seen, since = self._seen.get(kept.id, (None, 0.0))
        if seen != kept.value:
            self._seen[kept.id] = kept.value, boot_seconds()
            return False
        return boot_seconds() - since > kept.value.lease_ms / 1_000 + drift_seconds

    def forget(self, id: int) -> None:
        """It is not somebody else's."""
        self._seen.pop(id, None)


class Lost(Exception):
    """Somebody else has it, or shall have it, or it was put elsewhere."""


async def take(
    table: LeasedTable[L], kept: Object[L], instance: str, times: LeaseTimes = TIMES, **changes: Any
) -> Holding[L] | None:
    """Become the holder of what nobody has; None when somebody else was quicker."""
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
    return None if taken is None else Holding(table, taken, times, began)


class Holding(Generic[L]):
    """What the holder has. All changes to it are made here, one after the other."""

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
        """As it was kept last."""
        return self._kept.value

    @property
    def valid_until(self) -> float:
        """When somebody else may have it (`boot_seconds`)."""
        return self._valid_until

    @property
    def seconds_left(self) -> float:
        """How long nobody else can have it."""
        return self._valid_until - boot_seconds()

    def check(self) -> None:
        """Lost when somebody else may have it by now."""
        if self._is_over:
            raise Lost("It was put elsewhere")
        if self.seconds_left <= 0:
            raise Lost("It was not prolonged in time")

    async def save(self, changed: Callable[[L], L] | None = None) -> None:
        """Keep a change, and have it for longer.

        Raises:
            Lost: It is somebody else's.
            NakshaError: The catalog cannot be asked now; it is still held for `seconds_left`.
        """
        async with self._line:
            if self._is_over:
                raise Lost("It was put elsewhere")
            began = boot_seconds()
            kept = await self._table.swap(self._kept, self._prolonged(changed))
            while kept is None:
                await self._look()
                kept = await self._table.swap(self._kept, self._prolonged(changed))
            self._kept = kept
            self._valid_until = began + self._times.lease_seconds
        if kept.value.leaves:
            raise Lost(kept.value.leaves)

    async def release(self, **changes: Any) -> None:
        """Give it back, so that others need not wait. What was not saved is done again."""
        async with self._line:
            self._valid_until = 0.0
            kept: Object[L] | None = self._kept
            with contextlib.suppress(NakshaError):
                while kept is not None and kept.value.term == self._kept.value.term:
                    free = msgspec.structs.replace(kept.value, holder="", until_ms=0, **changes)
                    if await self._table.swap(kept, free) is not None:
                        return
                    # Somebody has said what he wishes, or where it shall go on.
                    kept = await self._table.get(kept.id)

    async def keep(self) -> None:
        """Prolong it for ever; ends with Lost."""
        pause = self._times.lease_seconds - self._times.renew_seconds
        while True:
            await asyncio.sleep(pause)
            try:
                # A catalog that does not answer must not let it be had for longer than this.
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
        """Lost, unless somebody has only said what he wishes."""
        now, ours = await self._table.get(self._kept.id), self._kept.value
        if now is None:
            raise Lost("It was removed")
        if now.value.term != ours.term:
            raise Lost("It is somebody else's")
        if now.value.hold != ours.hold:
            # It is still ours, so that nobody else begins before we have ended. But all that we
            # know is of the life before: nothing is done in the new one but to give it back.
            self._is_over = True
            raise Lost("It was put elsewhere")
        self._kept = now
