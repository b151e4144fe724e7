"""Show the state of maintenance, and request rounds."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from functools import partial
from typing import Final

from naksha.catalog.persistence import Persistence
from naksha.catalog.system_objects import MAINTENANCE_ID
from naksha.hub.config.change_rights import check_managing
from naksha.hub.config.objects import StorageObject
from naksha.hub.hub import Hub, RealmHub
from naksha.hub.maintenance.state import CATALOG, MaintenanceState, MaintenanceTable, state_id
from naksha.hub.pipeline.request_context import Actor
from naksha.model import limits
from naksha.model.errors import Unavailable
from naksha.spi.clock import boot_seconds

_LOOK_SECONDS: Final = 0.25


class MaintenanceView:
    """The maintenance of the storages of a realm, or of the catalog."""

    def __init__(self, persistence: Persistence, subjects: Sequence[str]) -> None:
        """`subjects` are ids of storages, or CATALOG."""
        self._table = MaintenanceTable(persistence)
        self._subjects = {_id_of(subject): subject for subject in subjects}

    @property
    def now_ms(self) -> int:
        """Current time of the catalog's clock."""
        return self._table.now_ms

    async def states(self) -> list[MaintenanceState]:
        """Return the states, in the order of the subjects."""
        known: dict[int, MaintenanceState] = {}
        ids = list(self._subjects)
        for start in range(0, len(ids), limits.CATALOG_BATCH_MAX):
            found = await self._table.read(ids[start : start + limits.CATALOG_BATCH_MAX])
            known |= {id: one.value for id, one in found.items()}
        return [
            known.get(id, MaintenanceState(subject=name)) for id, name in self._subjects.items()
        ]

    async def request(self, *, is_dry: bool) -> None:
        """Request a round of each subject; the instance that takes its lease runs it."""
        requested = partial(MaintenanceState.requested, now_ms=self.now_ms, is_dry=is_dry)
        for id, subject in self._subjects.items():
            while await self._table.change(id, requested) is None:
                await self._table.create(id, MaintenanceState(subject=subject, due_ms=self.now_ms))

    async def wait(self, seconds: float) -> bool:
        """Wait until all requested rounds have ended; return whether they have."""
        deadline = boot_seconds() + seconds
        while any(state.is_requested for state in await self.states()):
            if boot_seconds() > deadline:
                return False
            await asyncio.sleep(_LOOK_SECONDS)
        return True


def catalog_view(hub: Hub) -> MaintenanceView:
    """Return the maintenance of the catalog."""
    return MaintenanceView(hub.catalog.system, [CATALOG])


async def managed_storages(realm: RealmHub, actor: Actor) -> list[str]:
    """Return the ids of the active storages that an actor manages.

    Raises:
        Forbidden: The actor manages no storages at all.
    """
    check_managing(StorageObject, actor)
    things = await realm.registry.list(StorageObject)
    return [thing.id for thing in things if thing.active and _may_manage(thing, actor)]


async def managed_storage(realm: RealmHub, id: str, actor: Actor) -> str:
    """Check that an actor manages an active storage, and return its id.

    Raises:
        NotFound: The storage does not exist.
        Forbidden: The actor may not manage it.
        Unavailable: It is inactive.
    """
    thing = await realm.registry.get(StorageObject, id)
    actor.rights.check(thing.manage_right, thing.resource())
    if not thing.active:
        raise Unavailable(f"The storage {id!r} is inactive and is not maintained", field="storage")
    return thing.id


def storages_view(realm: RealmHub, ids: Collection[str]) -> MaintenanceView:
    """Return the maintenance of storages of a realm."""
    return MaintenanceView(realm.opened.persistence, list(ids))


def _may_manage(thing: StorageObject, actor: Actor) -> bool:
    return actor.rights.allows(thing.manage_right, thing.resource())


def _id_of(subject: str) -> int:
    return MAINTENANCE_ID if subject == CATALOG else state_id(subject)
