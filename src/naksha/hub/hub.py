"""The hub: a catalog, the storages that it names, and a pipeline for each space.

hub = await Hub.open("file:hub.catalog", DefaultStorage(location="file:{realm}.naksha"))
realm = await hub.realm("default")
answer = await realm.send("roads", ReadFeatures(), context)
await hub.close()
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

from naksha.catalog.backends import open_backend
from naksha.catalog.catalog import Catalog, OpenRealm, Tuning
from naksha.catalog.objects import ObjectRef
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
        self,
        opened: OpenRealm,
        storages: OpenStorages,
        allowed_locations: Sequence[str] | None = None,
        observe: Observe = unobserved,
    ) -> None:
        self.allowed_locations = allowed_locations
        self.id = opened.realm.id
        self.opened = opened
        self._observe = observe
        self.registry = Registry(opened, self)
        self._storages = storages
        self._pipelines: Pipelines | None = None
        self._of: ObjectRef | None = None

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
        return await self.opened_storage(await self.registry.get(StorageObject, id))

    async def opened_storage(self, thing: StorageObject) -> Storage:
        """A storage as it is configured, or is to be."""
        return await self._storages.get(self.id, thing)

    async def pipelines(self) -> Pipelines:
        """Those of the configuration of now."""
        snapshot = await self.registry.snapshot()
        ref = None if snapshot.commit is None else snapshot.commit.ref
        if self._pipelines is None or ref != self._of:
            self._pipelines, self._of = Pipelines(snapshot, self, self._observe), ref
            self._storages.keep_only(self.id, await self.registry.list(StorageObject))
        return self._pipelines


class Hub:
    """A node of the hub, for one event loop."""

    def __init__(
        self,
        catalog: Catalog,
        storages: OpenStorages,
        default_storage: DefaultStorage,
        allowed_locations: Sequence[str] | None = None,
        observe: Observe = unobserved,
    ) -> None:
        self._allowed_locations = allowed_locations
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
        allowed_locations: Sequence[str] | None = None,
    ) -> Hub:
        """Join the catalog at a location, and set up the default realm when it is new.

        `files` is the directory that paths of storages in files begin at. `allowed_locations` are
        how the locations of storages may begin that somebody configures, with `{realm}` for the id
        of the realm; None: whoever may manage storages may open any."""
        backend = await open_backend(catalog, **(catalog_options or {}))
        joined = await Catalog.open(backend, tuning=tuning)
        hub = cls(joined, OpenStorages(files), default_storage, allowed_locations, observe)
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
            known = self._realms[id] = RealmHub(
                opened, self.storages, self._allowed_locations, self._observe
            )
        return known

    async def close(self) -> None:
        """Close the storages and leave the catalog."""
        try:
            await self.storages.close()
        finally:
            await self.catalog.close()
