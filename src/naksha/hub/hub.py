"""The hub: a catalog, the storages that it names, and a pipeline for each space.

hub = await Hub.open("file:hub.catalog", DefaultStorage(location="file:{realm}.naksha"))
realm = await hub.realm("default")
answer = await realm.send("roads", ReadFeatures(), context)
await hub.close()
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

from naksha.catalog.backends import open_backend
from naksha.catalog.catalog import Catalog, OpenRealm, Tuning
from naksha.catalog.entities import Snapshot
from naksha.hub.context import DEFAULT_REALM, Context
from naksha.hub.objects import StorageObject
from naksha.hub.pipeline import Observe, unobserved
from naksha.hub.pipelines import Pipelines
from naksha.hub.registry import Registry
from naksha.hub.requests import Request
from naksha.hub.setting_up import DefaultStorage, set_up_realm
from naksha.hub.storages import OpenStorages
from naksha.spi.storage import Storage

R = TypeVar("R")


class RealmHub:
    """What one realm has: its configuration, and the pipelines made from it."""

    def __init__(
        self, opened: OpenRealm, storages: OpenStorages, observe: Observe = unobserved
    ) -> None:
        self.opened = opened
        self._observe = observe
        self.registry = Registry(opened, self)
        self._storages = storages
        self._pipelines: Pipelines | None = None
        self._of: Snapshot | None = None

    @property
    def realm_id(self) -> str:
        """Its name."""
        return self.opened.realm.id

    async def send(self, space_id: str, request: Request[R], context: Context) -> R:
        """The answer of a space to a request, with the rights of whoever asks."""
        pipeline = await (await self.pipelines()).get(space_id)
        return await pipeline.run(request, context)

    async def storage(self, id: str) -> Storage:
        """An open storage of the realm, else NotFound."""
        return await self._storages.get(await self.registry.get(StorageObject, id))

    async def pipelines(self) -> Pipelines:
        """Those of the configuration of now."""
        snapshot = await self.registry.snapshot()
        if self._pipelines is not None and snapshot is self._of:
            return self._pipelines
        pipelines = Pipelines(snapshot, self, self._observe)
        if self._pipelines is None or pipelines.configuration != self._pipelines.configuration:
            self._pipelines = pipelines
        self._of = snapshot
        return self._pipelines


class Hub:
    """A node of the hub, for one event loop."""

    def __init__(
        self,
        catalog: Catalog,
        storages: OpenStorages,
        default_storage: DefaultStorage,
        observe: Observe = unobserved,
    ) -> None:
        self.catalog = catalog
        self.storages = storages
        self._observe = observe
        self._default_storage = default_storage
        self._realms: dict[str, RealmHub] = {}

    @classmethod
    async def open(
        cls,
        catalog: str,
        default_storage: DefaultStorage,
        *,
        catalog_options: dict[str, Any] | None = None,
        tuning: Tuning | None = None,
        observe: Observe = unobserved,
        files: Path | None = None,
    ) -> Hub:
        """Join the catalog at a location, and set up the default realm when it is new. `files` is
        the directory that paths of storages in files begin at."""
        backend = await open_backend(catalog, **(catalog_options or {}))
        opened = await Catalog.open(backend, tuning=tuning)
        hub = cls(opened, OpenStorages(files), default_storage, observe)
        try:
            await hub.set_up_realm(DEFAULT_REALM)
        except BaseException:
            await hub.close()
            raise
        return hub

    async def set_up_realm(self, id: str) -> RealmHub:
        """Make a realm if there is none of that id."""
        await set_up_realm(self.catalog, id, self._default_storage)
        return await self.realm(id)

    async def realm(self, id: str) -> RealmHub:
        """A realm that serves, else RealmNotFound or RealmInactive."""
        opened = await self.catalog.realm(id)
        known = self._realms.get(id)
        if known is None or known.opened is not opened:
            known = self._realms[id] = RealmHub(opened, self.storages, self._observe)
        return known

    async def close(self) -> None:
        """Close the storages and leave the catalog."""
        try:
            await self.storages.close()
        finally:
            await self.catalog.close()
