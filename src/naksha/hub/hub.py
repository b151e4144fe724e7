"""The hub: a catalog, its realms and storages, and a pipeline for each space.

hub = await Hub.open("file:hub.catalog", DefaultStorage(location="file:{realm}.naksha"))
realm = await hub.realm("default")
response = await realm.send("roads", ReadFeatures(), context)
await hub.close()
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

import msgspec

from naksha.catalog.backends import open_backend
from naksha.catalog.catalog import Catalog, OpenRealm, Tuning
from naksha.catalog.cluster.clock import MonotonicClock
from naksha.catalog.realms import RealmStatus
from naksha.hub.config.objects import POINTER, Identity, StorageObject
from naksha.hub.config.realm_setup import DefaultStorage, set_up_realm
from naksha.hub.config.registry import Registry
from naksha.hub.pipeline.configuration import Configuration
from naksha.hub.pipeline.pipeline import Observe, ignore_event
from naksha.hub.pipeline.request_context import DEFAULT_REALM, RequestContext
from naksha.hub.pipeline.requests import Request
from naksha.hub.remote.client import RemoteClient
from naksha.hub.storages.allowed_locations import AllowedLocations, StorageLocation
from naksha.hub.storages.identities import (
    RegisteredStorage,
    check_unique,
    duplicates_of,
    identity_of,
    proposed_identity,
    registered_in,
    with_identity,
)
from naksha.hub.storages.location_claims import LocationClaims, location_taken
from naksha.hub.storages.open_storages import OpenStorages
from naksha.model.errors import Conflict, InvalidArgument, NakshaError, RealmInactive
from naksha.model.identity.storage_identity import StorageIdentity
from naksha.spi.storage import Storage

R = TypeVar("R")
CATALOG: Final = "catalog"
"""Reserved name; no realm can have it."""
_ID: Final = "storage id"
_NUMBER: Final = "storage number"
_log: Final = logging.getLogger(__name__)


class StorageClaims(Protocol):
    """Cross-realm checks that keep storages and their identities exclusive to one realm."""

    def claimed(self, realm_id: str, entity: StorageObject) -> AbstractAsyncContextManager[None]:
        """Reserve a storage's location in the block; Forbidden if the realm may not have it."""

    async def proposed(
        self, realm_id: str, entity: StorageObject, old: StorageObject | None
    ) -> StorageObject:
        """Return a storage with the identity that it gets if it is new."""

    def unique(self, realm_id: str, entity: StorageObject) -> AbstractAsyncContextManager[None]:
        """Reserve a storage's identity in the block; Conflict if another storage has it."""


class RealmHub:
    """A realm as the hub serves it: its configuration and pipelines."""

    def __init__(
        self,
        opened: OpenRealm,
        storages: OpenStorages,
        claims: StorageClaims,
        observe: Observe = ignore_event,
        remotes: RemoteClient | None = None,
        files: Path | None = None,
    ) -> None:
        self.remotes = RemoteClient() if remotes is None else remotes
        self.files = files
        self.opened = opened
        self._claims = claims
        self._seen: dict[str, StorageIdentity] = {}
        self._observe = observe
        self.registry = Registry(opened, self)
        self._storages = storages
        self._configuration: Configuration | None = None

    @property
    def realm_id(self) -> str:
        """Id of the realm."""
        return self.opened.realm.id

    async def send(self, space_id: str, request: Request[R], context: RequestContext) -> R:
        """Send a request to a space, with the rights of the context's actor.

        A context that has not been resolved is resolved for this request alone.
        """
        context = await self.resolved(context)
        pipeline = await context.configured.pipeline(space_id)
        return await pipeline.run(request, context)

    async def resolved(self, context: RequestContext) -> RequestContext:
        """Add the current configuration to a context, and the rights of the actor's roles.

        A context that has a configuration is returned unchanged: a request is resolved once.
        """
        if context.configuration is not None:
            return context
        configuration = await self.configuration()
        return msgspec.structs.replace(
            context,
            actor=await configuration.granted(context.actor),
            configuration=configuration,
            targets={},
        )

    async def storage(self, id: str) -> Storage:
        """Return an open storage of the realm, else raise NotFound."""
        entity = await self.registry.get(StorageObject, id)
        storage = await self._storages.get(self.realm_id, entity)
        if self._seen.get(id) is not storage.identity:
            self._seen[id] = storage.identity
            await self._identify(entity, identity_of(storage))
        return storage

    async def _identify(self, entity: StorageObject, identity: Identity) -> None:
        """Record the identity of a storage that was just opened.

        Logs a warning if another storage of the realm has the same id or number; the storage stays
        usable.
        """
        if entity.identity != identity:
            try:
                await self.registry.note_identity(entity, identity)
            except NakshaError as error:
                _log.warning(
                    "The catalog could not record the id and number of the storage %s: %s",
                    entity.id,
                    error,
                )
        known = await registered_in(self.realm_id, await self.registry.snapshot())
        for other in duplicates_of(identity, [one for one in known if one.name != entity.id]):
            _log.warning(
                "The storages %s and %s of the realm %s have the same id %r or number %d: their "
                "state ids are ambiguous. If one is a copy, run `naksha storage fork` on it",
                entity.id,
                other.name,
                self.realm_id,
                identity.id,
                identity.number,
            )

    def located(self, entity: StorageObject) -> tuple[str, dict[str, Any]]:
        """Return a storage's absolute location and backend options, for use in another process."""
        return self._storages.located(entity)

    def claimed(self, entity: StorageObject) -> AbstractAsyncContextManager[None]:
        """Reserve a storage's location for the realm in the block.

        Raises Forbidden if the realm may not have the storage.
        """
        return self._claims.claimed(self.realm_id, entity)

    async def proposed(
        self, entity: StorageObject, old: StorageObject | None = None
    ) -> StorageObject:
        """Return a storage with the identity that it gets if it is new.

        `old` is the storage that it replaces, if any.
        """
        return await self._claims.proposed(self.realm_id, entity, old)

    async def try_out_storage(self, entity: StorageObject) -> Identity:
        """Open a storage before it is configured, and return its identity."""
        return await self._storages.try_out(self.realm_id, entity)

    def unique(self, entity: StorageObject) -> AbstractAsyncContextManager[None]:
        """Reserve a storage's identity in the block.

        Raises Conflict if another storage of the catalog has the same id or number.
        """
        return self._claims.unique(self.realm_id, entity)

    async def configuration(self) -> Configuration:
        """Return the current configuration."""
        snapshot = await self.registry.snapshot()
        commit = None if snapshot.commit is None else snapshot.commit.ref
        if self._configuration is None or commit != self._configuration.commit:
            made = self._configuration = Configuration(snapshot, self, self._observe)
            listed = snapshot.list(f"{StorageObject.kind}/", StorageObject)
            entities = [found.value async for _, found in listed]
            if self._configuration is made:  # else a concurrent call has a later snapshot
                self._storages.keep_only(self.realm_id, entities)
            return made
        return self._configuration


class Hub:
    """A hub instance. Bound to one event loop."""

    def __init__(
        self,
        catalog: Catalog,
        storages: OpenStorages,
        default_storage: DefaultStorage,
        tenancy: AllowedLocations,
        observe: Observe = ignore_event,
        remotes: RemoteClient | None = None,
        files: Path | None = None,
    ) -> None:
        self._remotes = RemoteClient() if remotes is None else remotes
        self._files = files
        self.catalog = catalog
        self.storages = storages
        self._observe = observe
        self._default_storage = default_storage
        self._tenancy = tenancy
        self._claims = LocationClaims(catalog.system)
        self._realms: dict[str, RealmHub] = {}

    @classmethod
    async def open(
        cls,
        catalog: str,
        default_storage: DefaultStorage,
        *,
        catalog_options: dict[str, Any] | None = None,
        tuning: Tuning | None = None,
        observe: Observe = ignore_event,
        files: Path | None = None,
        allowed_locations: Sequence[str] | None = None,
        remote_handlers: Sequence[str] = (),
        clock: MonotonicClock | None = None,
        reads_only: bool = False,
    ) -> Hub:
        """Join the catalog at a location, and set up the default realm if it is new.

        Args:
            files: Base directory of relative paths of file storages.
            allowed_locations: Allowed prefixes of configured storage locations, in which `{realm}`
                stands for the realm's id. Empty: a realm may use only its own locations (see
                `naksha.hub.storages.allowed_locations`). None: actors who may manage storages can
                open any storage that no other realm has.
            remote_handlers: Allow-list of remote handlers (`naksha.hub.remote.allow_list`).
            clock: Clock of the catalog and of all storages, which otherwise have their own.
            reads_only: Do not join the catalog, and write nothing to it.
        """
        remotes = RemoteClient(remote_handlers)
        backend = await open_backend(catalog, **(catalog_options or {}))
        opened = await Catalog.open(backend, tuning=tuning, clock=clock, joins=not reads_only)
        tenancy = AllowedLocations(default_storage, allowed_locations, files)
        storages = OpenStorages(files, clock=clock)
        hub = cls(opened, storages, default_storage, tenancy, observe, remotes, files)
        if reads_only:
            return hub
        try:
            await hub._claims.setup()
            with suppress(RealmInactive):  # others are served, and it can be activated again
                await hub.set_up_realm(DEFAULT_REALM)
        except BaseException:
            await hub.close()
            raise
        return hub

    async def set_up_realm(self, id: str) -> RealmHub:
        """Create a realm if it does not exist, and return it."""
        if id == CATALOG:
            raise InvalidArgument(
                f"{id!r} is not a valid realm id, because its schema would be that of the "
                "catalog; choose another id",
                field="realm",
            )
        known = await self.catalog.realms.recent(id)
        if known is None or known.status in (RealmStatus.CREATED, RealmStatus.INITIALIZING):
            entity = self._default_storage.for_realm(id)
            async with self.claimed(id, entity):
                entity = await self.proposed(id, entity)
                async with self.unique(id, entity):
                    await set_up_realm(self.catalog, id, entity)
        return await self.realm(id)

    async def realm(self, id: str) -> RealmHub:
        """Return an active realm, else raise RealmNotFound or RealmInactive."""
        opened = await self.catalog.realm(id)
        known = self._realms.get(id)
        if known is None or known.opened is not opened:
            known = self._realms[id] = RealmHub(
                opened,
                self.storages,
                self,
                self._observe,
                self._remotes,
                self._files,
            )
        return known

    @asynccontextmanager
    async def claimed(self, realm_id: str, entity: StorageObject) -> AsyncIterator[None]:
        """See `StorageClaims.claimed`."""
        self._tenancy.check_allowed(realm_id, entity)
        locations = set(self._tenancy.locations_of(entity))
        async with self._claims.held(realm_id, locations):
            async for realm, other in self.storages_configured():
                if realm != realm_id and not locations.isdisjoint(
                    self._tenancy.locations_of(other)
                ):
                    raise location_taken()
            yield

    async def proposed(
        self, realm_id: str, entity: StorageObject, old: StorageObject | None = None
    ) -> StorageObject:
        """See `StorageClaims.proposed`."""
        identity = None if old is None else old.identity
        old_locations = set() if old is None else set(self._tenancy.locations_of(old))
        if identity is not None and old_locations == set(self._tenancy.locations_of(entity)):
            return with_identity(entity, identity)
        avoid = () if identity is None else (identity.id,)
        others = await self._registered(realm_id, entity.id)
        return with_identity(entity, proposed_identity(realm_id, entity, others, avoid))

    @asynccontextmanager
    async def unique(self, realm_id: str, entity: StorageObject) -> AsyncIterator[None]:
        """See `StorageClaims.unique`."""
        assert entity.identity is not None
        keys = (
            StorageLocation(_ID, entity.identity.id),
            StorageLocation(_NUMBER, str(entity.identity.number)),
        )
        async with self._claims.held(realm_id, keys):
            try:
                check_unique(realm_id, entity, await self._registered(realm_id, entity.id))
            except Conflict:
                await self.storages.drop(entity)
                raise
            yield

    async def _registered(self, realm_id: str, name: str) -> list[RegisteredStorage]:
        """Return all storages of the catalog except one, with their identities.

        A storage whose identity the catalog does not know (from an earlier release) is opened.
        """
        found: list[RegisteredStorage] = []
        async for realm, entity in self.storages_configured():
            if (realm, entity.id) == (realm_id, name):
                continue
            identity = entity.identity
            if identity is None and entity.active:
                with suppress(NakshaError):  # the identity stays unknown
                    identity = identity_of(await self.storages.get(realm, entity))
            found.append(RegisteredStorage(realm, entity.id, identity))
        return found

    async def storages_configured(self) -> AsyncIterator[tuple[str, StorageObject]]:
        """Yield the storages of all realms, each with the id of its realm."""
        for realm in await self.catalog.realms.list():
            if realm.status not in (RealmStatus.ACTIVE, RealmStatus.INACTIVE):
                continue
            opened = OpenRealm(await self.catalog.persistence_of(realm), realm)
            snapshot = await opened.entities(POINTER).now()
            async for _, found in snapshot.list(f"{StorageObject.kind}/", StorageObject):
                yield realm.id, found.value

    async def close(self) -> None:
        """Close the storages and leave the catalog."""
        try:
            await self._remotes.close()
            await self.storages.close()
        finally:
            await self.catalog.close()
