"""Delivery of one subscription while this process holds its lease."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final, NoReturn, TypeVar

import msgspec

from naksha.hub.feed.delivery_requests import DeliverChanges
from naksha.hub.leases import HeldLease, LeaseLost
from naksha.hub.subscriptions.deliveries import DeliveryBuilder
from naksha.hub.subscriptions.pins import SubscriptionPin
from naksha.hub.subscriptions.progress import DeliveryCondition, SubscriptionProgress
from naksha.hub.subscriptions.sources import OpenSource
from naksha.model import limits
from naksha.model.errors import Expired, Fenced, HandlerFailed, NakshaError, Unavailable
from naksha.spi.support.cancellation import check_cancelled
from naksha.versioning import FeedPage, FeedPosition, FeedTransaction

_log: Final = logging.getLogger(__name__)
T = TypeVar("T")
Deliver = Callable[[DeliverChanges], Awaitable[object]]


class DeliveryRunner:
    """Reads changes, delivers them and saves the position, for one state of the configuration."""

    def __init__(
        self,
        name: str,
        holding: HeldLease[SubscriptionProgress],
        source: OpenSource,
        cutter: DeliveryBuilder,
        deliver: Deliver,
        pinning: SubscriptionPin,
    ) -> None:
        self._name = name
        self._holding = holding
        self._source = source
        self._cutter = cutter
        self._deliver = deliver
        self._pinning = pinning
        self._position = holding.value.position
        self._delivered = 0
        self._saved_at = time.monotonic()

    @property
    def position(self) -> FeedPosition:
        """Position up to which everything was delivered, saved or not."""
        return self._position

    async def run(self) -> None:
        """Deliver until the lease is lost."""
        await self._keep_pin()
        while True:
            page = await self._retried(self._read)
            for item in page.items:
                for delivery in await self._retried(partial(self._cut, item)):
                    await self._retried(partial(self._deliver_in_time, delivery))
                if item.is_last:
                    self._move(_after(item))
                await self._save_sometimes()
            self._move(page.position)
            await self._keep_pin()
            if page.position.seq_number >= page.last and not page.position.within:
                await self._wait_for_changes()

    async def stay(self) -> None:
        """Hold a paused subscription until the lease is lost.

        Without a pin, its feed is read periodically, so that its status shows when it expires.
        """
        while True:
            await self._keep_pin()
            if self._pinning.is_given_up:
                await self._retried(self._read)
            await asyncio.sleep(limits.SUBSCRIPTION_PIN_SECONDS)

    async def save(self) -> None:
        """Save the position if it has changed."""
        if self._is_saved:
            return
        position, delivered = self._position, self._delivered

        def moved(old: SubscriptionProgress) -> SubscriptionProgress:
            return msgspec.structs.replace(
                _moved(old, position),
                delivered=old.delivered + delivered,
                delivered_ms=_now_ms() if delivered else old.delivered_ms,
            )

        await self._holding.save(moved)
        self._delivered -= delivered
        self._saved_at = time.monotonic()

    # ---- Steps -------------------------------------------------------------------------------

    async def _read(self) -> FeedPage:
        try:
            return await self._source.read(self._position)
        except Expired as error:
            await self._pinning.drop()
            return await stay_expired(self._holding, error, self._position)

    async def _cut(self, item: FeedTransaction) -> Sequence[DeliverChanges]:
        return await self._cutter.deliveries(item, self._holding.value)

    async def _deliver_in_time(self, delivery: DeliverChanges) -> None:
        self._holding.check()
        seconds = limits.SUBSCRIPTION_DELIVERY_SECONDS_MAX
        try:
            async with asyncio.timeout(seconds):
                await self._deliver(delivery)
        except TimeoutError as error:
            raise Unavailable(
                "The handlers of the subscription did not finish the delivery within "
                f"{seconds:.0f} s; the hub retries it"
            ) from error
        except Fenced:
            # Saving raises Lost if the lease is lost. Otherwise a foreign writer used the fence, so
            # report it.
            await self._holding.save()
            raise
        self._delivered += 1

    async def _keep_pin(self) -> None:
        await self._pinning.advance(self._position, self._holding.value.moved_ms)

    async def _wait_for_changes(self) -> None:
        """Wait for changes, and save the position when that is due.

        It is not saved at once, since under a steady stream of changes each of them ends here.
        """
        position = self._position.seq_number
        while True:
            await self._save_sometimes()
            is_saved, seconds = self._is_saved, limits.SUBSCRIPTION_WAIT_SECONDS
            if not is_saved:
                seconds = max(0.0, self._save_due - time.monotonic())
            wait = partial(self._source.storage.wait_beyond, position, seconds)
            if await self._retried(wait) > position or is_saved:
                return

    async def _retried(self, work: Callable[[], Awaitable[T]]) -> T:
        """Retry until the work succeeds, without limit, and report failures in the status."""
        pause = limits.SUBSCRIPTION_RETRY_SECONDS
        while True:
            try:
                done = await work()
            except LeaseLost:
                raise
            except Exception as error:  # noqa: BLE001 - reported and retried, whatever it is
                check_cancelled()
                await self._report(DeliveryCondition.FAILING, reason_of(error, self._name))
                await self._keep_pin()
                await asyncio.sleep(pause * random.uniform(0.8, 1.2))  # noqa: S311 - jitter
                pause = min(pause * 2, limits.SUBSCRIPTION_RETRY_SECONDS_MAX)
            else:
                if self._holding.value.condition is not DeliveryCondition.ACTIVE:
                    await self._report(DeliveryCondition.ACTIVE, "")
                return done

    async def _report(self, condition: DeliveryCondition, reason: str) -> None:
        await save_condition(self._holding, condition, reason, self._position)

    @property
    def _is_saved(self) -> bool:
        return self._holding.value.position == self._position and not self._delivered

    @property
    def _save_due(self) -> float:
        return self._saved_at + limits.SUBSCRIPTION_SAVE_SECONDS

    async def _save_sometimes(self) -> None:
        if time.monotonic() >= self._save_due:
            await self._retried(self.save)

    def _move(self, position: FeedPosition) -> None:
        self._position = position


async def save_condition(
    holding: HeldLease[SubscriptionProgress],
    condition: DeliveryCondition,
    reason: str,
    position: FeedPosition | None = None,
) -> None:
    """Save the condition and the position."""
    saved = holding.value
    shown = reason[: limits.SUBSCRIPTION_REASON_LENGTH_MAX]
    if (saved.condition, saved.reason) == (condition, shown):
        return

    def changed(old: SubscriptionProgress) -> SubscriptionProgress:
        return msgspec.structs.replace(
            old if position is None else _moved(old, position),
            condition=condition,
            reason=shown,
            since_ms=old.since_ms if old.condition is condition else _now_ms(),
        )

    # If the catalog is unavailable too, the condition cannot be reported.
    with contextlib.suppress(NakshaError):
        await holding.save(changed)


def reason_of(error: Exception, name: str) -> str:
    """Return the reason shown in the status, and log the details."""
    if isinstance(error, NakshaError):
        # The cause of a handler's failure may be confidential, so it is only logged.
        cause = error.__cause__ if isinstance(error, HandlerFailed) else None
        _log.warning(
            "Delivery of the subscription %s failed and will be retried: %s",
            name,
            error,
            exc_info=cause,
        )
        return str(error)
    _log.error(
        "Delivery of the subscription %s failed unexpectedly and will be retried",
        name,
        exc_info=error,
    )
    return "Internal error; the hub's log has the details"


async def stay_expired(
    holding: HeldLease[SubscriptionProgress], error: Expired, position: FeedPosition | None = None
) -> NoReturn:
    """Report the expiry until a reset ends the lease; only a reset can continue delivery."""
    while True:
        await save_condition(holding, DeliveryCondition.EXPIRED, error.message, position)
        await asyncio.sleep(limits.SUBSCRIPTION_LOOK_SECONDS)


def _moved(old: SubscriptionProgress, position: FeedPosition) -> SubscriptionProgress:
    if position == old.position:
        return old
    return msgspec.structs.replace(old, position=position, moved_ms=_now_ms())


def _after(item: FeedTransaction) -> FeedPosition:
    return FeedPosition(item.changeset.version.seq_number)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
