"""Delivery of one subscription: set up, and run until the lease is lost."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Sequence
from typing import Final

import msgspec

from naksha.catalog.entities import EntitySnapshot
from naksha.hub.config.objects import Connector, Space
from naksha.hub.config.registry import ConfiguredRealm
from naksha.hub.feed.delivery_requests import DeliverChanges
from naksha.hub.leases import HeldLease, LeaseLost
from naksha.hub.pipeline.configuration import construct_handler
from naksha.hub.pipeline.pipeline import Pipeline, Setup, Stage
from naksha.hub.pipeline.request_context import RequestContext
from naksha.hub.subscriptions.deliveries import DeliveryBuilder
from naksha.hub.subscriptions.objects import Subscription
from naksha.hub.subscriptions.pins import SubscriptionPin, pin_name
from naksha.hub.subscriptions.progress import DeliveryCondition, SubscriptionProgress
from naksha.hub.subscriptions.rights import actor_of
from naksha.hub.subscriptions.runner import DeliveryRunner, reason_of, save_condition, stay_expired
from naksha.hub.subscriptions.sources import open_source, storage_id_of
from naksha.model import limits
from naksha.model.errors import Expired, Fenced, NakshaError
from naksha.model.identity.storage_identity import StorageIdentity
from naksha.versioning import FeedPosition

_log: Final = logging.getLogger(__name__)


async def serve(
    hub: ConfiguredRealm,
    snapshot: EntitySnapshot,
    subscription: Subscription,
    connectors: Sequence[Connector],
    cut: str,
    holding: HeldLease[SubscriptionProgress],
) -> None:
    """Deliver until the subscription is lost or the task is cancelled, then release it.

    `cut` identifies how transactions are cut into deliveries (`cut_of`).
    """
    serving = _DeliveryLoop(hub, snapshot, subscription, connectors, cut, holding)
    keeping = asyncio.create_task(holding.keep())
    delivering = asyncio.create_task(serving.run())
    try:
        await asyncio.wait({keeping, delivering}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (delivering, keeping):
            task.cancel()
        ended = await asyncio.gather(delivering, keeping, return_exceptions=True)
        await serving.give_back()
    for error in ended:
        if isinstance(error, LeaseLost):
            _log.info(
                "Delivery of the subscription %s stopped on this instance: %s",
                subscription.id,
                error,
            )
        elif isinstance(error, Exception):
            raise error


class _DeliveryLoop:
    def __init__(
        self,
        hub: ConfiguredRealm,
        snapshot: EntitySnapshot,
        subscription: Subscription,
        connectors: Sequence[Connector],
        cut: str,
        holding: HeldLease[SubscriptionProgress],
    ) -> None:
        self._hub = hub
        self._snapshot = snapshot
        self._subscription = subscription
        self._connectors = connectors
        self._cut = cut
        self._holding = holding
        self._actor = actor_of(hub.realm_id, subscription, connectors)
        self._name = f"{hub.realm_id}/{subscription.id}"
        self._pin = pin_name(hub.realm_id, subscription.progress_id)
        self._pinning: SubscriptionPin | None = None
        self._runner: DeliveryRunner | None = None

    async def run(self) -> None:
        """Set up the delivery, with retries and reported failures, and run it."""
        pause = limits.SUBSCRIPTION_RETRY_SECONDS
        while self._runner is None:
            try:
                self._runner = await self._made()
            except Expired as error:
                await stay_expired(self._holding, error)
            except LeaseLost:
                raise
            except Exception as error:  # noqa: BLE001 - reported and retried, whatever it is
                reason = reason_of(error, self._name)
                await save_condition(self._holding, DeliveryCondition.FAILING, reason)
                await self._keep_pin()
                await asyncio.sleep(pause)
                pause = min(pause * 2, limits.SUBSCRIPTION_RETRY_SECONDS_MAX)
        await (self._runner.run() if self._subscription.active else self._runner.stay())

    async def give_back(self) -> None:
        """Save the position and release the lease."""
        if self._runner is not None:
            with contextlib.suppress(NakshaError, LeaseLost):
                await self._runner.save()
        await self._holding.release()

    async def _made(self) -> DeliveryRunner:
        subscription = self._subscription
        await self._check_storage()
        source = await open_source(self._hub, self._snapshot, subscription, self._context)
        self._pinning = SubscriptionPin(source.storage, self._pin, subscription.keep_days)
        pipeline = self._pipeline()
        cutter = DeliveryBuilder(subscription.id, subscription, source.storage.id)
        await self._adapt_progress(source.storage.identity)

        async def deliver(changes: DeliverChanges) -> None:
            await pipeline.run(changes, self._context())

        return DeliveryRunner(self._name, self._holding, source, cutter, deliver, self._pinning)

    async def _check_storage(self) -> None:
        """Raise Expired if the source moved to another storage, which has other versions."""
        before = self._holding.value.storage_id
        now = await storage_id_of(self._snapshot, self._subscription.source)
        if now == before:
            return
        with contextlib.suppress(NakshaError):
            await (await self._hub.storage(before)).unpin(self._pin)
        raise Expired(
            f"The subscription's position is in the storage {before!r}, but its source is now in "
            f"{now!r}; reset the subscription to continue there"
        )

    async def _adapt_progress(self, storage: StorageIdentity) -> None:
        """Adapt the progress to a changed cut or storage.

        If transactions are now cut differently, a partly delivered transaction is delivered again
        from its beginning in a new life, since its parts have other numbers.

        Raises:
            Expired: Another storage now has the id of the previous one.
        """
        known = self._holding.value
        number, at = known.storage_number, known.position.seq_number
        if number is not None and not storage.shares_versions(number, at):
            raise Expired(
                f"The storage {known.storage_id!r} was replaced by another one with other "
                "versions; reset the subscription to continue there"
            )
        if (known.cut, number) == (self._cut, storage.number):
            return

        def changed(old: SubscriptionProgress) -> SubscriptionProgress:
            new = msgspec.structs.replace(old, cut=self._cut, storage_number=storage.number)
            if old.cut in ("", self._cut):
                return new
            start = FeedPosition(old.position.seq_number)
            return msgspec.structs.replace(new, life=old.life + 1, position=start)

        await self._holding.save(changed)

    async def _keep_pin(self) -> None:
        if self._pinning is not None:
            progress = self._holding.value
            await self._pinning.advance(progress.position, progress.moved_ms)

    def _pipeline(self) -> Pipeline:
        """Build the pipeline of the delivery; handlers expect a space, so it looks like one."""
        component = Space(id=self._subscription.id, title=self._subscription.title)
        stages = [
            Stage(one.id, construct_handler(Setup(one, component, self._hub)))
            for one in self._connectors
            if one.active
        ]
        return Pipeline(component, stages, self._hub)

    def _context(self) -> RequestContext:
        """Return the context with the time limit of one delivery; retries are unlimited."""
        stream_id = f"subscription-{self._subscription.id}"
        within = RequestContext.within(
            self._actor, stream_id, limits.SUBSCRIPTION_DELIVERY_SECONDS_MAX
        )
        return msgspec.structs.replace(within, check_lease=self._check_lease)

    def _check_lease(self) -> None:
        try:
            self._holding.check()
        except LeaseLost as error:
            raise Fenced(str(error)) from error
