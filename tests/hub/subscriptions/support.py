"""Delivering hubs in one process: their subscriptions and deliveries."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from naksha.hub.config.objects import Connector
from naksha.hub.config.realm_setup import DefaultStorage
from naksha.hub.hub import Hub
from naksha.hub.leases import lease_times
from naksha.hub.subscriptions.changes import create_subscription, status_of
from naksha.hub.subscriptions.objects import Subscription
from naksha.hub.subscriptions.service import SubscriptionService, delivering
from tests.hub.handlers.support import ACTOR, HubUnderTest

SECONDS_MAX = 30


class DeliveringHub(HubUnderTest):
    """A hub, and the files that subscriptions write to."""

    def __init__(self, hub: Hub, realm: Any, files: Path) -> None:
        super().__init__(hub, realm)
        self.files = files
        self.service: SubscriptionService | None = None

    async def connector(self, id: str, class_name: str, **properties: Any) -> str:
        """Somewhere to deliver to."""
        thing = Connector(id=id, class_name=class_name, properties=properties)
        await self.realm.registry.create(thing, ACTOR)
        return id

    async def subscribe(self, id: str, **told: Any) -> Subscription:
        """A subscription; without a destination it writes to the file `<id>.jsonl`."""
        if "eventHandlerIds" not in told:
            name = await self.connector(f"{id}-file", "json-lines", path=f"{id}.jsonl")
            told["eventHandlerIds"] = [name]
        return await create_subscription(
            self.realm, Subscription.from_json({"id": id, **told}), ACTOR
        )

    def lines(self, id: str) -> list[Any]:
        """The lines of the file that a subscription writes."""
        path = self.files / "exports" / "default" / f"{id}.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def told(self, id: str) -> list[list[tuple[str, str]]]:
        """The actions and ids of each delivery."""
        return [
            [(one["action"], one["feature"]["id"]) for one in line.get("features", ())]
            for line in self.lines(id)
        ]

    async def status(self, subscription: Subscription) -> dict[str, Any]:
        """How it goes."""
        now = await self.realm.registry.get(Subscription, subscription.id)
        return await status_of(self.realm, now)

    async def caught_up(self, subscription: Subscription) -> None:
        """Until everything that is published now was delivered."""
        storage = await self.realm.storage("default")
        last = await storage.wait_beyond(0, 0)

        async def is_there() -> bool:
            return bool((await self.status(subscription)).get("version", 0) >= last)

        await eventually(is_there)

    async def comes_to(self, subscription: Subscription, state: str) -> dict[str, Any]:
        """Until it is in a state."""

        async def is_there() -> bool:
            return bool((await self.status(subscription))["state"] == state)

        await eventually(is_there)
        return await self.status(subscription)


async def eventually(holds: Callable[[], Any]) -> None:
    """Wait until a condition holds, for at most `SECONDS_MAX`."""
    async with asyncio.timeout(SECONDS_MAX):
        while not await holds():  # noqa: ASYNC110 - there is no event to wait for
            await asyncio.sleep(0.02)


async def has_no_leftovers(hub: DeliveringHub) -> bool:
    """Whether all was cleared away."""
    snapshot = await hub.realm.registry.snapshot_now()
    return not [key async for key, _ in snapshot.list("removed-subscription/", object)]


@asynccontextmanager
async def a_delivering_hub(
    storage: str, files: Path, *, catalog: str = "memory:", **options: Any
) -> AsyncIterator[DeliveringHub]:
    """One whose subscriptions are delivered."""
    hub = await Hub.open(catalog, DefaultStorage(location=storage), files=files, **options)
    try:
        found = DeliveringHub(hub, await hub.realm("default"), files)
        async with delivering(hub, lease_times(5)) as found.service:
            yield found
    finally:
        await hub.close()
