"""The hub of the benchmark `feed`: in this process, with its catalog and storage on one kind of
database, and subscriptions that are delivered to a handler that only takes the time."""

from __future__ import annotations

import asyncio
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
"""Whoever waits longer waits in vain."""
HANDLER = "bench:arrivals"
ENTRY_POINTS = f"[{handler_registry.GROUP}]\n{HANDLER} = benchmarks._feed_hub:Recorder\n"
METADATA = "Metadata-Version: 2.1\nName: naksha-bench\nVersion: 1.0\n"


@dataclass
class Arrivals:
    """When the versions of one subscription were delivered, on the clock `time.perf_counter`."""

    begun: float = 0.0
    """When the subscription was about to read and deliver."""
    versions: list[int] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    came: asyncio.Event = field(default_factory=asyncio.Event)
    wanted: int = sys.maxsize

    def note(self, version: int) -> None:
        """One more was delivered."""
        self.versions.append(version)
        self.times.append(time.perf_counter())
        if version >= self.wanted:
            self.came.set()

    async def up_to(self, version: int) -> None:
        """Until a version, and all before it, were delivered; each once and in order."""
        if not self.versions or self.versions[-1] < version:
            self.wanted, self.came = version, asyncio.Event()
            async with asyncio.timeout(SECONDS_MAX):
                await self.came.wait()
        assert self.versions == list(range(self.versions[0], self.versions[-1] + 1))


_arrivals: dict[str, Arrivals] = {}
"""By the connectors that deliver them."""


class Recorder:
    """A handler that notes when something was delivered."""

    def __init__(self, setup: Setup) -> None:
        self._arrivals = _arrivals[setup.connector.id]
        self._arrivals.begun = time.perf_counter()

    async def process(self, event: Event) -> None:
        assert isinstance(event.request, DeliverChanges)
        self._arrivals.note(event.request.fence.seq_number)


@dataclass
class FeedHub:
    """The default realm of a hub, whose subscriptions are delivered."""

    realm: RealmHub
    storage: Storage
    location: str
    """Of the storage."""

    async def subscribe(self, id: str, start: str) -> Arrivals:
        """A subscription to the space, and what comes of it."""
        found = _arrivals[id] = Arrivals()
        await self.realm.registry.create(Connector(id=id, class_name=HANDLER), ACTOR)
        told: dict[str, Any] = {"id": id, "source": {"spaceId": COLLECTION}, "start": start}
        subscription = Subscription.from_json({**told, "eventHandlerIds": [id]})
        await create_subscription(self.realm, subscription, ACTOR)
        return found


@asynccontextmanager
async def opened(kind: str) -> AsyncIterator[FeedHub]:
    """A hub with an empty space, on databases that are gone afterwards."""
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
    """The handler can be named by connectors, as if a distribution had brought it."""
    info = directory / "naksha_bench-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(METADATA)
    (info / "entry_points.txt").write_text(ENTRY_POINTS)
    sys.path.append(str(directory))
    handler_registry.look_again()
    try:
        yield
    finally:
        sys.path.remove(str(directory))
        handler_registry.look_again()
