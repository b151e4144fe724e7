"""Subscription service of one instance of the hub.

It looks for subscriptions without an instance, takes their leases, and delivers them while it holds
them.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from naksha.catalog.cluster.nodes import LeaseTimes
from naksha.catalog.entities import EntitySnapshot
from naksha.catalog.objects import ObjectRef
from naksha.hub.config.objects import Connector, StorageObject, key_of
from naksha.hub.config.references import connectors_named
from naksha.hub.hub import Hub, RealmHub
from naksha.hub.leases import TIMES, ExpiryDetector, HeldLease, take
from naksha.hub.scheduler import RealmScanner
from naksha.hub.subscriptions.cleanup import clear_leftovers
from naksha.hub.subscriptions.delivery_loop import serve
from naksha.hub.subscriptions.objects import Subscription
from naksha.hub.subscriptions.progress import Kept, ProgressTable, SubscriptionProgress
from naksha.hub.subscriptions.sources import cut_of, storage_id_of
from naksha.model import limits
from naksha.model.errors import NakshaError
from naksha.versioning import FeedPosition

_log: Final = logging.getLogger(__name__)


class DeliveryPlan(NamedTuple):
    """Everything a delivery depends on: when it changes, the delivery is restarted."""

    subscription: Subscription
    connectors: tuple[Connector, ...]
    storage: StorageObject | None
    cut: str


class _RunningDelivery(NamedTuple):
    plan: DeliveryPlan
    task: asyncio.Task[None]


class _DeliveryPlans(NamedTuple):
    """All plans of one state of the configuration."""

    of: ObjectRef | None
    plans: Mapping[str, DeliveryPlan]


class SubscriptionService:
    """The subscriptions of one instance."""

    def __init__(self, hub: Hub, *, times: LeaseTimes = TIMES) -> None:
        self._hub = hub
        self._times = times
        self._held: dict[tuple[str, str], _RunningDelivery] = {}
        self._plans: dict[str, _DeliveryPlans] = {}
        self._watch = ExpiryDetector[SubscriptionProgress]()
        self._looker = RealmScanner(
            hub,
            "subscriptions",
            limits.SUBSCRIPTION_LOOK_SECONDS,
            serving=self._stop_others,
            visit=self._visit_realm,
        )
        self._clearer = RealmScanner(
            hub, "leftovers", limits.SUBSCRIPTION_LOOK_SECONDS, visit=_clear_leftovers
        )

    @property
    def instance(self) -> str:
        """Name of the instance."""
        return self._hub.catalog.node.instance

    def held(self) -> list[tuple[str, str]]:
        """Return the realms and ids of the subscriptions that this instance delivers now."""
        return [key for key, held in self._held.items() if not held.task.done()]

    def start(self) -> None:
        """Start looking for subscriptions."""
        self._looker.start()
        self._clearer.start()

    async def close(self) -> None:
        """Stop all deliveries within a time limit, and release them to other instances."""
        await self._looker.close()
        await self._clearer.close()
        await self._stop(list(self._held))

    async def _stop_others(self, serving: Collection[str]) -> None:
        await self._stop([key for key in self._held if key[0] not in serving])

    async def _visit_realm(self, realm: RealmHub) -> None:
        """Stop deliveries whose plan changed, and take free subscriptions."""
        snapshot = await realm.registry.snapshot()
        plans = await self._plans_of(realm.realm_id, snapshot)
        gone = [
            key
            for key, held in self._held.items()
            if key[0] == realm.realm_id and (held.task.done() or plans.get(key[1]) != held.plan)
        ]
        await self._stop(gone)
        free = [plan for id, plan in plans.items() if (realm.realm_id, id) not in self._held]
        await self._take(realm, snapshot, free)

    async def _plans_of(
        self, realm_id: str, snapshot: EntitySnapshot
    ) -> Mapping[str, DeliveryPlan]:
        """Return the plans, rebuilt only on changed configuration: there may be thousands."""
        of = None if snapshot.commit is None else snapshot.commit.ref
        known = self._plans.get(realm_id)
        if known is None or known.of != of:
            plans = {plan.subscription.id: plan async for plan in _plans(snapshot)}
            known = self._plans[realm_id] = _DeliveryPlans(of, plans)
        return known.plans

    async def _take(
        self, realm: RealmHub, snapshot: EntitySnapshot, plans: Sequence[DeliveryPlan]
    ) -> None:
        table = ProgressTable(realm.opened.persistence)
        for some in _some_at_a_time(plans):
            known = await table.read([plan.subscription.progress_id for plan in some])
            for plan in some:
                kept = known.get(plan.subscription.progress_id)
                if kept is None:
                    await begin(table, plan.subscription)
                elif self._may_take(kept, table.now_ms):
                    holding = await take(table, kept, self.instance, self._times)
                    if holding is not None:
                        self._start(realm, snapshot, plan, holding)

    def _may_take(self, kept: Kept, now_ms: int) -> bool:
        is_free = self._watch.is_free(kept, now_ms, self._times.drift_seconds)
        return is_free and kept.value.may_go_to(self.instance, now_ms)

    def _start(
        self,
        realm: RealmHub,
        snapshot: EntitySnapshot,
        plan: DeliveryPlan,
        holding: HeldLease[SubscriptionProgress],
    ) -> None:
        subscription = plan.subscription
        task = asyncio.create_task(
            serve(realm, snapshot, subscription, plan.connectors, plan.cut, holding),
            name=f"naksha-subscription {realm.realm_id}/{subscription.id}",
        )
        self._held[realm.realm_id, subscription.id] = _RunningDelivery(plan, task)

    async def _stop(self, keys: Iterable[tuple[str, str]]) -> None:
        tasks = [self._held.pop(key).task for key in keys]
        for task in tasks:
            task.cancel()
        if not tasks:
            return
        # A delivery that does not stop in time must not block the others.
        ended, going_on = await asyncio.wait(tasks, timeout=limits.SUBSCRIPTION_STOP_SECONDS)
        for task in going_on:
            _log.error(
                "The delivery task %s did not stop within %g s and is abandoned",
                task.get_name(),
                limits.SUBSCRIPTION_STOP_SECONDS,
            )
        for task in ended:
            if not task.cancelled() and (error := task.exception()) is not None:
                _log.error("The delivery task %s failed", task.get_name(), exc_info=error)


async def _clear_leftovers(realm: RealmHub) -> None:
    """Clean up after removed subscriptions.

    A separate task, because a storage may take long to respond, and takeovers must not wait for it.
    """
    await clear_leftovers(realm, await realm.registry.snapshot())


@contextlib.asynccontextmanager
async def delivering(hub: Hub, times: LeaseTimes = TIMES) -> AsyncIterator[SubscriptionService]:
    """Deliver subscriptions of a hub within the block."""
    service = SubscriptionService(hub, times=times)
    service.start()
    try:
        yield service
    finally:
        await service.close()


async def begin(table: ProgressTable, subscription: Subscription) -> None:
    """Create the progress of a new subscription."""
    progress = SubscriptionProgress(
        subscription=subscription.id,
        position=FeedPosition(subscription.started_after),
        storage_id=subscription.started_in,
        life=subscription.progress_id,
        moved_ms=table.now_ms,
    )
    await table.create(subscription.progress_id, progress)


async def _plans(snapshot: EntitySnapshot) -> AsyncIterator[DeliveryPlan]:
    async for _, found in snapshot.list(f"{Subscription.kind}/", Subscription):
        subscription = found.value
        connectors = await connectors_named(snapshot, subscription.event_handler_ids)
        storage = None
        with contextlib.suppress(NakshaError):  # reported when the delivery opens it
            key = key_of(StorageObject, await storage_id_of(snapshot, subscription.source))
            storage = await snapshot.get(key, StorageObject)
        yield DeliveryPlan(
            subscription,
            tuple(connectors),
            None if storage is None else storage.value,
            await cut_of(snapshot, subscription),
        )


def _some_at_a_time(plans: Sequence[DeliveryPlan]) -> Iterable[Sequence[DeliveryPlan]]:
    """Yield batches in random order, so that concurrent instances rarely compete."""
    mixed = random.sample(plans, len(plans))
    for start in range(0, len(mixed), limits.CATALOG_BATCH_MAX):
        yield mixed[start : start + limits.CATALOG_BATCH_MAX]
