"""Having a subscription: for a limited time, which is prolonged while the process can do so."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from typing import Final

import msgspec

from naksha.catalog.nodes import LeaseTimes
from naksha.hub.subscriptions.progress import Kept, Progress, ProgressTable
from naksha.model import limits
from naksha.model.errors import NakshaError


def lease_times(seconds: float) -> LeaseTimes:
    """The times of a lease that is as long; it is prolonged after a third of it."""
    return LeaseTimes(
        lease_seconds=seconds,
        renew_seconds=seconds * 2 / 3,
        drift_seconds=limits.SUBSCRIPTION_DRIFT_SECONDS,
        retry_seconds=min(limits.SUBSCRIPTION_LOOK_SECONDS, seconds / 10),
    )


TIMES: Final = lease_times(limits.SUBSCRIPTION_LEASE_SECONDS)


class Watch:
    """Looks at holders, without their clocks: one who has changed nothing for as long as he may
    have it has lost it, whatever `until_ms` says. His clock may have been far ahead."""

    def __init__(self) -> None:
        self._seen: dict[int, tuple[Progress, float]] = {}

    def is_over(self, kept: Kept, drift_seconds: float) -> bool:
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


def boot_seconds() -> float:
    """A clock that goes on while the process is stopped, and while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


async def take(
    table: ProgressTable, kept: Kept, instance: str, times: LeaseTimes = TIMES
) -> Holding | None:
    """Become the holder of what nobody has; None when somebody else was quicker."""
    began = boot_seconds()
    progress = msgspec.structs.replace(
        kept.value,
        term=kept.value.term + 1,
        holder=instance,
        until_ms=table.now_ms + int(times.lease_seconds * 1000),
        lease_ms=int(times.lease_seconds * 1000),
        wanted="",
        wanted_until_ms=0,
    )
    taken = await table.swap(kept, progress)
    return None if taken is None else Holding(table, taken, times, began)


class Holding:
    """What the holder has. All changes to it are made here, one after the other."""

    def __init__(self, table: ProgressTable, kept: Kept, times: LeaseTimes, began: float) -> None:
        self._table = table
        self._kept = kept
        self._times = times
        self._valid_until = began + times.lease_seconds
        self._line = asyncio.Lock()
        self._is_over = False

    @property
    def progress(self) -> Progress:
        """As it was kept last."""
        return self._kept.value

    @property
    def seconds_left(self) -> float:
        """How long nobody else can have it."""
        return self._valid_until - boot_seconds()

    def check(self) -> None:
        """Lost when somebody else may have it by now; asked before every delivery."""
        if self._is_over:
            raise Lost("It was put elsewhere")
        if self.seconds_left <= 0:
            raise Lost("It was not prolonged in time")

    async def save(self, changed: Callable[[Progress], Progress] | None = None) -> None:
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
        if kept.value.wanted:
            raise Lost(f"It shall go to {kept.value.wanted}")

    async def release(self) -> None:
        """Give it back, so that others need not wait. What was not saved is delivered again."""
        async with self._line:
            self._valid_until = 0.0
            kept: Kept | None = self._kept
            with contextlib.suppress(NakshaError):
                while kept is not None and kept.value.term == self._kept.value.term:
                    free = msgspec.structs.replace(kept.value, holder="", until_ms=0)
                    if await self._table.swap(kept, free) is not None:
                        return
                    # Somebody has said who shall have it next, or where it shall go on.
                    kept = await self._table.get(kept.id)

    async def keep(self) -> None:
        """Prolong it for ever; ends with Lost."""
        pause = self._times.lease_seconds - self._times.renew_seconds
        while True:
            await asyncio.sleep(pause)
            try:
                # A catalog that does not answer must not let a delivery go on for longer than this.
                async with asyncio.timeout(max(self.seconds_left, self._times.retry_seconds)):
                    await self.save()
                pause = self._times.lease_seconds - self._times.renew_seconds
            except (NakshaError, TimeoutError):
                self.check()
                pause = self._times.retry_seconds

    def _prolonged(self, changed: Callable[[Progress], Progress] | None) -> Progress:
        old = self._kept.value
        until_ms = self._table.now_ms + int(self._times.lease_seconds * 1000)
        new = old if changed is None else changed(old)
        return msgspec.structs.replace(new, until_ms=max(until_ms, old.until_ms))

    async def _look(self) -> None:
        """Lost, unless somebody has only said who shall have it next."""
        now, ours = await self._table.get(self._kept.id), self._kept.value
        if now is None:
            raise Lost("It was removed")
        if now.value.term != ours.term:
            raise Lost("It is somebody else's")
        if now.value.life != ours.life:
            # It is still ours, so that nobody else begins before we have ended. But all that we
            # know is of the life before: nothing is done in the new one but to give it back.
            self._is_over = True
            raise Lost("It was put elsewhere")
        self._kept = now
