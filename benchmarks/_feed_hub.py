"""Hub of the benchmark `feed`, in this process.

Its catalog and storage are on one kind of database. Subscriptions are delivered to a handler that
only records the time.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks._frame import postgres_database
from naksha.hub.auth.rights import all_rights
from naksha.hub.config.objects import Connector, Space
from naksha.hub.config.realm_setup import DEFAULT_STORAGE, DefaultStorage
from naksha.hub.feed.delivery_requests import DeliverChanges
from naksha.hub.hub import Hub, RealmHub
from naksha.hub.pipeline import handler_registry
from naksha.hub.pipeline.pipeline import Event, Setup
from naksha.hub.pipeline.request_context import Actor
from naksha.hub.subscriptions.changes import create_subscription
from naksha.hub.subscriptions.objects import Subscription
from naksha.hub.subscriptions.service import delivering
from naksha.model.collection import CollectionInfo
from naksha.spi.storage import Storage

ACTOR = Actor(app_id="bench", rights=all_rights())
COLLECTION = "roads"
SECONDS_MAX = 120
"""Timeout for waiting for a delivery."""
HANDLER = "bench:arrivals"
ENTRY_POINTS = f"[{handler_registry.GROUP}]\n{HANDLER} = benchmarks._feed_hub:Recorder\n"
METADATA = "Metadata-Version: 2.1\nName: naksha-bench\nVersion: 1.0\n"


@dataclass
class Arrivals:
    """Times of deliveries to one subscription, on the clock `time.perf_counter`."""

    begun: float = 0.0
    """Time at which the subscription started to read and deliver."""
    versions: list[int] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    came: asyncio.Event = field(default_factory=asyncio.Event)
    awaited: int = sys.maxsize

    def note(self, version: int) -> None:
        """Record the delivery of a version."""
        self.versions.append(version)
        self.times.append(time.perf_counter())
        if version >= self.awaited:
            self.all_delivered.set()

    async def up_to(self, version: int) -> None:
        """Wait until all versions up to one were delivered; check that each came once, in order."""
        if not self.versions or self.versions[-1] < version:
            self.awaited, self.all_delivered = version, asyncio.Event()
            async with asyncio.timeout(SECONDS_MAX):
                await self.all_delivered.wait()
        assert self.versions == list(range(self.versions[0], self.versions[-1] + 1))


_arrivals: dict[str, Arrivals] = {}
"""Arrivals by the id of the connector that delivers them."""


class Recorder:
    """Event handler that records the times of deliveries."""

    def __init__(self, setup: Setup) -> None:
        self._arrivals = _arrivals[setup.connector.id]
        self._arrivals.begun = time.perf_counter()

    async def process(self, event: Event) -> None:
        assert isinstance(event.request, DeliverChanges)
        self._arrivals.note(event.request.fence.seq_number)


@dataclass
class FeedHub:
    """Default realm of a hub, whose subscriptions are delivered."""

    realm: RealmHub
    storage: Storage
    location: str
    """Location of the storage."""

    async def subscribe(self, id: str, start: str) -> Arrivals:
        """Create a subscription to the space; return its arrivals."""
        found = _arrivals[id] = Arrivals()
        await self.realm.registry.create(Connector(id=id, class_name=HANDLER), ACTOR)
        attributes: dict[str, Any] = {"id": id, "source": {"spaceId": COLLECTION}, "start": start}
        subscription = Subscription.from_json({**attributes, "eventHandlerIds": [id]})
        await create_subscription(self.realm, subscription, ACTOR)
        return found


@asynccontextmanager
async def opened(kind: str) -> AsyncIterator[FeedHub]:
    """Open a hub with an empty space on temporary databases."""
    # As a worker of the server does: a full collection of all modules stops the process for 50 ms
    # and more, which is what the slowest percent of the commits then waits for.
    gc.collect()
    gc.freeze()
    with tempfile.TemporaryDirectory() as folder, _installed(Path(folder) / "handlers"):
        if kind == "sqlite":
            async with _hub(f"file:{folder}/catalog.naksha", f"file:{folder}/maps.naksha") as hub:
                yield hub
            return
        with postgres_database() as dsn:
            async with _hub(dsn, dsn) as hub:
                yield hub


@asynccontextmanager
async def _hub(catalog: str, storage: str) -> AsyncIterator[FeedHub]:
    hub = await Hub.open(catalog, DefaultStorage(location=storage))
    try:
        realm = await hub.realm("default")
        await realm.registry.create(Space(id=COLLECTION), ACTOR)
        found = FeedHub(realm, await realm.storage(DEFAULT_STORAGE), storage)
        async with found.storage.write("bench") as session:
            await session.create_collection(CollectionInfo(id=COLLECTION))
        async with delivering(hub):
            yield found
    finally:
        await hub.close()


@contextmanager
def _installed(directory: Path) -> Iterator[None]:
    """Register the handler for connectors, as an installed distribution would do."""
    info = directory / "naksha_bench-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(METADATA)
    (info / "entry_points.txt").write_text(ENTRY_POINTS)
    sys.path.append(str(directory))
    handler_registry._known.cache_clear()
    try:
        yield
    finally:
        sys.path.remove(str(directory))
        handler_registry._known.cache_clear()
        handler_registry.handler_class.cache_clear()
