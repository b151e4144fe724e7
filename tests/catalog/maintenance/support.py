"""Helpers of the maintenance tests.

A catalog whose time can be moved, realms, entities, and a backend with hooks between its calls.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from naksha.catalog.catalog import Catalog, Tuning
from naksha.catalog.cluster.clock import MonotonicClock
from naksha.catalog.cluster.nodes import LeaseTimes
from naksha.catalog.entities import EntitiesCommit, EntityEdit
from naksha.catalog.maintenance import (
    AllRealms,
    Maintenance,
    MaintenanceSettings,
    RealmIdentifier,
    Retention,
    RetentionRule,
    TypeIdentifier,
)
from naksha.catalog.maintenance.pointer_walk import index_of, log_down
from naksha.catalog.maintenance.realm_reader import RealmReader
from naksha.catalog.maintenance.store_check import RealmCheck, check_store
from naksha.catalog.maintenance.verification import Consistency
from naksha.catalog.objects import Object, ObjectRef, object_type
from naksha.catalog.persistence import Persistence
from naksha.catalog.realms import Realm, RealmStatus
from naksha.model import limits
from naksha.spi.catalog import CatalogBackend, Scanned, ScannedObject

YEAR = 365 * 24 * 3600.0
GRACE = limits.MAINTENANCE_GRACE_SECONDS
SHORT = RetentionRule("*", Retention(commits=1, seconds=0))
"""Of a log only the newest commit."""


@object_type("maintained-thing")
class Thing(msgspec.Struct, frozen=True):
    """An entity of these tests."""

    text: str = ""


class ManualTime:
    """A wall clock that is put forward."""

    def __init__(self) -> None:
        self._offset_ns = 0
        self.clock = self.clock_behind(0)

    def now_us(self) -> int:
        return (time.time_ns() + self._offset_ns) // 1_000

    def clock_behind(self, seconds: float) -> MonotonicClock:
        """A clock of a machine whose wall clock is so much behind; negative: ahead."""
        behind_ns = int(seconds * 1e9)
        return MonotonicClock(wall_ns=lambda: time.time_ns() + self._offset_ns - behind_ns)

    def passes(self, seconds: float) -> None:
        self._offset_ns += int(seconds * 1e9)


class ScanHooks:
    """A backend that lets a test do something before some of the calls to the real one."""

    def __init__(
        self, backend: CatalogBackend, time: ManualTime, *, deletes_realms: bool = True
    ) -> None:
        self.backend = backend
        self.time = time
        """The time of the database."""
        self.name = backend.name
        self.deletes_realms = deletes_realms and backend.deletes_realms
        self.before_delete: Callable[[Sequence[Scanned]], Awaitable[None]] | None = None
        self.before_page: Callable[[], Awaitable[None]] | None = None
        self.fetched = 0
        """Rows that were read."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self.backend, name)

    async def now_us(self) -> int:
        return self.time.now_us()

    async def fetch(self, realm: str, keys: Any) -> Any:
        found = await self.backend.fetch(realm, keys)
        self.fetched += len(found)
        return found

    async def scan(self) -> AsyncIterator[Sequence[Scanned]]:
        async for page in self.backend.scan():
            if self.before_page is not None:
                await self.before_page()
            yield page

    async def delete_scanned(self, rows: Sequence[Scanned]) -> int:
        if self.before_delete is not None:
            await self.before_delete(rows)
        return await self.backend.delete_scanned(rows)


class Store:
    """A catalog on some backend."""

    def __init__(self, catalog: Catalog, between: ScanHooks, time: ManualTime) -> None:
        self.catalog = catalog
        self.between = between
        self.backend = between.backend
        self.time = time

    @classmethod
    async def open(
        cls,
        backend: CatalogBackend,
        *,
        deletes_realms: bool = True,
        time: ManualTime | None = None,
        clock: MonotonicClock | None = None,
    ) -> Store:
        """`time` is that of the database; `clock` that of the machine, if it differs."""
        time = time or ManualTime()
        between = ScanHooks(backend, time, deletes_realms=deletes_realms)
        tuning = Tuning(quarantine_seconds=0, lease=LeaseTimes(lease_seconds=10 * YEAR))
        catalog = await Catalog.open(between, tuning=tuning, clock=clock or time.clock)
        return cls(catalog, between, time)

    async def realm(self, id: str = "maps", status: RealmStatus = RealmStatus.ACTIVE) -> Realm:
        """A new realm in a state."""
        realm = await self.catalog.realms.create(id)
        if status is RealmStatus.CREATED:
            return realm
        if status is RealmStatus.LOADING:
            return await self.catalog.realms.update(realm, RealmStatus.LOADING)
        realm = await self.catalog.realms.update(realm, RealmStatus.INITIALIZING)
        if status is not RealmStatus.INITIALIZING:
            realm = await self.catalog.realms.update(realm, status)
        return realm

    async def persistence(self, realm: str = "maps") -> Persistence:
        return await self.catalog.persistence_of(await self.catalog.realms.get(realm))

    async def put(
        self, changes: Mapping[str, str | None], realm: str = "maps", pointer: str = "config"
    ) -> None:
        """One commit; None removes."""
        opened = await self.catalog.realm(realm)
        await opened.persistence.ensure_pointers([pointer])

        async def change(edit: EntityEdit) -> None:
            for key, text in changes.items():
                if text is None:
                    edit.remove(key)
                else:
                    edit.put(key, Thing(text))

        await opened.entities(pointer).commit(change)

    async def texts(self, realm: str = "maps", pointer: str = "config") -> dict[str, str]:
        """All entities as the database has them."""
        return await self.texts_of(await self.head(realm, pointer), realm)

    async def texts_of(self, commit: Object[EntitiesCommit], realm: str = "maps") -> dict[str, str]:
        """All entities of a commit, read past every cache."""
        reader = RealmReader(self.backend, realm)
        items = [item async for item in index_of(commit.value, reader).items()]
        refs = [ObjectRef.from_bytes(value) for _, value in items]
        values = await reader.fetch_values([ref for ref in refs if ref is not None])
        return {key.decode(): value.text for (key, _), value in zip(items, values, strict=True)}

    async def head(self, realm: str = "maps", pointer: str = "config") -> Object[EntitiesCommit]:
        return (await self.log(realm, pointer, limit=1))[0]

    async def log(
        self, realm: str = "maps", pointer: str = "config", limit: int = 1_000
    ) -> list[Object[EntitiesCommit]]:
        """The commits that are there, newest first."""
        reader = RealmReader(self.backend, realm)
        row = (await self.backend.fetch_pointers(realm, [pointer]))[pointer]
        target = ObjectRef.from_bytes(row.target)
        assert target is not None
        head = await reader.fetch(target)
        assert head is not None
        found: list[Any] = []
        async for commit in log_down(reader, head, 1):
            found.append(commit)
            if len(found) == limit:
                break
        return found

    async def write(
        self, count: int = 1, realm: str = "maps", text: str = "orphan"
    ) -> list[Object[Thing]]:
        """Objects that nothing points to."""
        persistence = await self.persistence(realm)
        made = [Object(persistence.new_id(), Thing(text)) for _ in range(count)]
        return await persistence.write(made)

    async def rows(self, realm: str = "maps") -> list[Scanned]:
        """Return the stored rows of a realm."""
        return [row async for page in self.backend.scan() for row in page if row.realm == realm]

    async def ids(self, realm: str = "maps", kind: str | None = None) -> set[int]:
        """The ids of all objects, or of those of a type."""
        return {
            row.key.id
            for row in await self.rows(realm)
            if isinstance(row, ScannedObject) and kind in (None, row.type)
        }

    async def maintenance(
        self,
        *identifiers: RealmIdentifier,
        rules: Sequence[RetentionRule] = (),
        types: Iterable[TypeIdentifier] = (),
        settings: MaintenanceSettings | None = None,
    ) -> Maintenance:
        """The service; without identifiers one that claims all realms."""
        found = Maintenance(self.catalog, identifiers or [AllRealms(rules)], types, settings)
        await found.setup()
        return found

    async def check(self, *realms: str) -> list[RealmCheck]:
        return await check_store(self.backend, realms or ("maps",), self.time.clock.now_us())

    async def is_consistent(self, *realms: str) -> bool:
        checks = await self.check(*realms)
        return all(check.consistency is Consistency.CONSISTENT for check in checks)
