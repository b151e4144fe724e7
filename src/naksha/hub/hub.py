"""The hub: a catalog, the storages that it names, and a pipeline for each space.

hub = await Hub.open("file:hub.catalog", DefaultStorage(location="file:{realm}.naksha"))
realm = await hub.realm("default")
answer = await realm.send("roads", ReadFeatures(), context)
await hub.close()
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol, TypeVar

import msgspec

from naksha.catalog.backends import open_backend
from naksha.catalog.catalog import Catalog, OpenRealm, Tuning
from naksha.catalog.objects import ObjectRef
from naksha.catalog.realms import Status
from naksha.hub.auth.roles import Roles
from naksha.hub.config.objects import POINTER, Identity, StorageObject
from naksha.hub.config.realm_setup import DefaultStorage, set_up_realm
from naksha.hub.config.registry import Registry
from naksha.hub.pipeline.pipeline import Observe, unobserved
from naksha.hub.pipeline.pipeline_cache import Pipelines
from naksha.hub.pipeline.request_context import DEFAULT_REALM, Actor, Context
from naksha.hub.pipeline.requests import Request
from naksha.hub.remote.client import Remotes
from naksha.hub.storages.identities import (
    Registered,
    check_unique,
    duplicates_of,
    identity_of,
    proposed_identity,
    registered_in,
    with_identity,
)
from naksha.hub.storages.location_claims import PlaceClaims, not_for_this_realm
from naksha.hub.storages.open_storages import OpenStorages
from naksha.hub.storages.tenancy import Place, Tenancy
from naksha.model.errors import Conflict, InvalidArgument, NakshaError
from naksha.model.identity.storage_identity import StorageIdentity
from naksha.spi.storage import Storage

R = TypeVar("R")
CATALOG: Final = "catalog"
"""A name that no realm may have."""
_ID: Final = "storage id"
_NUMBER: Final = "storage number"
_log: Final = logging.getLogger(__name__)


class _Configured(NamedTuple):
    """What is made from one state of the configuration."""

    of: ObjectRef | None
    pipelines: Pipelines
    roles: Roles


class Claims(Protocol):
    """How a realm gets a storage that no other realm has."""

    def claimed(self, realm_id: str, thing: StorageObject) -> AbstractAsyncContextManager[None]:
        """Forbidden when a realm may not have a storage; no other realm gets it in the block."""

    async def proposed(
        self, realm_id: str, thing: StorageObject, old: StorageObject | None
    ) -> StorageObject:
        """A storage with the id and number that it gets in case it is new."""

    def unique(self, realm_id: str, thing: StorageObject) -> AbstractAsyncContextManager[None]:
        """Conflict when another storage has the id or number; no other one gets it in the block."""


class RealmHub:
    """What one realm has: its configuration, and the pipelines made from it."""

    def __init__(
        self,
        opened: OpenRealm,
        storages: OpenStorages,
        claims: Claims,
        observe: Observe = unobserved,
        remotes: Remotes | None = None,
        files: Path | None = None,
    ) -> None:
        self.remotes = Remotes() if remotes is None else remotes
        self.files = files
        self.opened = opened
        self._claims = claims
        self._seen: dict[str, StorageIdentity] = {}
        self._observe = observe
        self.registry = Registry(opened, self)
        self._storages = storages
        self._configured: _Configured | None = None

    @property
    def realm_id(self) -> str:
        """Its name."""
        return self.opened.realm.id

    async def send(self, space_id: str, request: Request[R], context: Context) -> R:
        """The answer of a space to a request, with the rights of whoever asks."""
        configured = await self._configuration()
        pipeline = await configured.pipelines.get(space_id)
        if context.actor.rights.roles:
            actor = await configured.roles.granted(context.actor)
            context = msgspec.structs.replace(context, actor=actor)
        return await pipeline.run(request, context)

    async def with_roles(self, actor: Actor) -> Actor:
        """An actor with what his roles grant now. `send` sees to that by itself; this is for who
        looks at the rights of an actor before."""
        return await (await self._configuration()).roles.granted(actor)

    async def storage(self, id: str) -> Storage:
        """An open storage of the realm, else NotFound."""
        thing = await self.registry.get(StorageObject, id)
        storage = await self._storages.get(self.realm_id, thing)
        if self._seen.get(id) is not storage.identity:
            self._seen[id] = storage.identity
            await self._identify(thing, identity_of(storage))
        return storage

    async def _identify(self, thing: StorageObject, identity: Identity) -> None:
        """Keep the id and number of a storage that has just been opened; warn when another storage
        of the realm has them, too. It is usable all the same."""
        if thing.identity != identity:
            try:
                await self.registry.note_identity(thing, identity)
            except NakshaError as error:
                _log.warning("The id of the storage %s could not be noted: %s", thing.id, error)
        known = await registered_in(self.realm_id, await self.registry.snapshot())
        for other in duplicates_of(identity, [one for one in known if one.name != thing.id]):
            _log.warning(
                "The storages %s and %s of the realm %s have the same id %r or number %d: their "
                "state ids are ambiguous. If one is a copy, run `naksha storage fork` on it",
                thing.id,
                other.name,
                self.realm_id,
                identity.id,
                identity.number,
            )

    def located(self, thing: StorageObject) -> tuple[str, dict[str, Any]]:
        """Where a storage of the realm is, for another process, and the options of its backend."""
        return self._storages.located(thing)

    def claimed(self, thing: StorageObject) -> AbstractAsyncContextManager[None]:
        """To keep a storage in the block: Forbidden when the realm may not have it, and no other
        realm gets it meanwhile."""
        return self._claims.claimed(self.realm_id, thing)

    async def proposed(
        self, thing: StorageObject, old: StorageObject | None = None
    ) -> StorageObject:
        """A storage, in the place of an old one if there is one, with the id and number that it
        gets in case it is new."""
        return await self._claims.proposed(self.realm_id, thing, old)

    async def try_out_storage(self, thing: StorageObject) -> Identity:
        """Open a storage as it is to be configured, and return its id and number."""
        return await self._storages.try_out(self.realm_id, thing)

    def unique(self, thing: StorageObject) -> AbstractAsyncContextManager[None]:
        """To keep a storage in the block: Conflict when another one of the catalog has its id or
        number, and no other one gets them meanwhile."""
        return self._claims.unique(self.realm_id, thing)

    async def pipelines(self) -> Pipelines:
        """Those of the configuration of now."""
        return (await self._configuration()).pipelines

    async def _configuration(self) -> _Configured:
        snapshot = await self.registry.snapshot()
        of = None if snapshot.commit is None else snapshot.commit.ref
        if self._configured is None or of != self._configured.of:
            pipelines = Pipelines(snapshot, self, self._observe)
            made = self._configured = _Configured(of, pipelines, Roles(snapshot))
            listed = snapshot.list(f"{StorageObject.kind}/", StorageObject)
            things = [found.value async for _, found in listed]
            if self._configured is made:  # else somebody has a later state
                self._storages.keep_only(self.realm_id, things)
            return made
        return self._configured


class Hub:
    """A node of the hub, for one event loop."""

    def __init__(
        self,
        catalog: Catalog,
        storages: OpenStorages,
        default_storage: DefaultStorage,
        tenancy: Tenancy,
        observe: Observe = unobserved,
        remotes: Remotes | None = None,
        files: Path | None = None,
    ) -> None:
        self._remotes = Remotes() if remotes is None else remotes
        self._files = files
        self.catalog = catalog
        self.storages = storages
        self._observe = observe
        self._default_storage = default_storage
        self._tenancy = tenancy
        self._claims = PlaceClaims(catalog.system)
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
        remote_handlers: Sequence[str] = (),
    ) -> Hub:
        """Join the catalog at a location, and set up the default realm when it is new. `files` is
        the directory that paths of storages in files begin at; `allowed_locations` are how the
        locations of storages that somebody configures may begin, with `{realm}` for the realm's id
        (empty: a realm may have what is its own, see
        `naksha.hub.storages.tenancy`; None: whoever may manage
        storages may open any that no other realm has); `remote_handlers` are where handlers may
        be that run elsewhere (`naksha.hub.remote.allow_list`)."""
        remotes = Remotes(remote_handlers)
        backend = await open_backend(catalog, **(catalog_options or {}))
        opened = await Catalog.open(backend, tuning=tuning)
        tenancy = Tenancy(default_storage, allowed_locations, files)
        hub = cls(opened, OpenStorages(files), default_storage, tenancy, observe, remotes, files)
        try:
            await hub._claims.setup()
            await hub.set_up_realm(DEFAULT_REALM)
        except BaseException:
            await hub.close()
            raise
        return hub

    async def set_up_realm(self, id: str) -> RealmHub:
        """Make a realm if there is none of that id."""
        if id == CATALOG:
            raise InvalidArgument(
                f"No realm is called {id!r}: in a database its schema would be the catalog's own",
                field="realm",
            )
        known = await self.catalog.realms.recent(id)
        if known is None or known.status in (Status.CREATED, Status.INITIALIZING):
            thing = self._default_storage.for_realm(id)
            async with self.claimed(id, thing):
                thing = await self.proposed(id, thing)
                async with self.unique(id, thing):
                    await set_up_realm(self.catalog, id, thing)
        return await self.realm(id)

    async def realm(self, id: str) -> RealmHub:
        """A realm that serves, else RealmNotFound or RealmInactive."""
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
    async def claimed(self, realm_id: str, thing: StorageObject) -> AsyncIterator[None]:
        """See `Claims.claimed`."""
        self._tenancy.check_allowed(realm_id, thing)
        places = set(self._tenancy.places(thing))
        async with self._claims.held(realm_id, places):
            async for realm, other in self.storages_configured():
                if realm != realm_id and not places.isdisjoint(self._tenancy.places(other)):
                    raise not_for_this_realm()
            yield

    async def proposed(
        self, realm_id: str, thing: StorageObject, old: StorageObject | None = None
    ) -> StorageObject:
        """See `Claims.proposed`."""
        identity = None if old is None else old.identity
        known = set() if old is None else set(self._tenancy.places(old))
        if identity is not None and known == set(self._tenancy.places(thing)):
            return with_identity(thing, identity)
        avoid = () if identity is None else (identity.id,)
        others = await self._registered(realm_id, thing.id)
        return with_identity(thing, proposed_identity(realm_id, thing, others, avoid))

    @asynccontextmanager
    async def unique(self, realm_id: str, thing: StorageObject) -> AsyncIterator[None]:
        """See `Claims.unique`."""
        assert thing.identity is not None
        keys = (Place(_ID, thing.identity.id), Place(_NUMBER, str(thing.identity.number)))
        async with self._claims.held(realm_id, keys):
            try:
                check_unique(realm_id, thing, await self._registered(realm_id, thing.id))
            except Conflict:
                await self.storages.drop(thing)
                raise
            yield

    async def _registered(self, realm_id: str, name: str) -> list[Registered]:
        """All storages of the catalog but one. A storage of an earlier release, of which the
        catalog does not know id and number, is opened."""
        found: list[Registered] = []
        async for realm, thing in self.storages_configured():
            if (realm, thing.id) == (realm_id, name):
                continue
            identity = thing.identity
            if identity is None and thing.active:
                with suppress(NakshaError):  # nobody can know
                    identity = identity_of(await self.storages.get(realm, thing))
            found.append(Registered(realm, thing.id, identity))
        return found

    async def storages_configured(self) -> AsyncIterator[tuple[str, StorageObject]]:
        """The storages of all realms, each with the id of its realm."""
        for realm in await self.catalog.realms.list():
            if realm.status not in (Status.ACTIVE, Status.INACTIVE):
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
