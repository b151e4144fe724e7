"""Claims on storage locations: prevent two realms from configuring the same location concurrently.

Each realm has its own configuration, so two realms could both commit a new storage at the same
location, each before it sees the other's. A realm therefore first stores a claim on the location
under a pointer that all realms share, then checks the other realms' configurations, then commits
its own. Of two concurrent realms, the second sees either the claim or the committed storage of the
first. A claim is removed when the outcome is known. The claim of a crashed process expires after
the longest time that a request can take.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import secrets
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Final

import msgspec

from naksha.catalog.entities import Entities, EntityEdit
from naksha.catalog.objects import object_type
from naksha.catalog.persistence import Persistence
from naksha.hub.storages.allowed_locations import StorageLocation
from naksha.hub.storages.locations import FIELD
from naksha.model import limits
from naksha.model.errors import Forbidden, NakshaError, OutcomeUnknown

_log: Final = logging.getLogger(__name__)
POINTER: Final = "storage-places"


@object_type("hub-place-claim")
class LocationClaim(msgspec.Struct, frozen=True, kw_only=True):
    """One realm's attempts to configure storages at a location, with their start times."""

    realm: str
    attempts: dict[str, int]

    def since(self, oldest_ms: int) -> dict[str, int]:
        """Return the attempts that have not expired."""
        return {name: began for name, began in self.attempts.items() if began >= oldest_ms}


class LocationClaims:
    """Location claims of all realms of a catalog."""

    def __init__(self, system: Persistence) -> None:
        self._system = system
        self._entities = Entities(system, POINTER)

    async def setup(self) -> None:
        """Create the pointer to the claims."""
        await self._system.ensure_pointers([POINTER])

    @asynccontextmanager
    async def held(self, realm: str, locations: Iterable[StorageLocation]) -> AsyncIterator[None]:
        """Hold claims on locations while the block commits a storage there.

        Raises:
            Forbidden: Another realm holds a claim on one of the locations.
        """
        keys = sorted({_key(location) for location in locations})
        attempt = secrets.token_hex(8)
        await self._take(realm, keys, attempt)
        try:
            yield
        except (OutcomeUnknown, asyncio.CancelledError):
            raise  # the storage may still be committed; keep the claim until it expires
        except BaseException:
            await self._give_back(keys, attempt)
            raise
        await self._give_back(keys, attempt)

    async def _take(self, realm: str, keys: Iterable[str], attempt: str) -> None:
        now = self._system.clock.now_ms()
        oldest = now - limits.STORAGE_CLAIM_SECONDS * 1_000

        async def change(edit: EntityEdit) -> None:
            for key in keys:
                found = await edit.get(key, LocationClaim)
                others = {} if found is None else found.value.since(oldest)
                if found is not None and found.value.realm != realm:
                    if others:
                        raise location_taken()
                    others = {}
                edit.put(key, LocationClaim(realm=realm, attempts={**others, attempt: now}))

        await self._entities.commit(change, message=f"claim for {realm}")

    async def _give_back(self, keys: Iterable[str], attempt: str) -> None:
        async def change(edit: EntityEdit) -> None:
            for key in keys:
                found = await edit.get(key, LocationClaim)
                if found is None or attempt not in found.value.attempts:
                    continue
                left = {name: at for name, at in found.value.attempts.items() if name != attempt}
                if left:
                    edit.put(key, LocationClaim(realm=found.value.realm, attempts=left))
                else:
                    edit.remove(key)

        try:
            await self._entities.commit(change, message="release a claim")
        except NakshaError as error:
            _log.warning(
                "A claim on a storage location was not released; it will expire: %s",
                error,
            )


def location_taken() -> Forbidden:
    """Return the error for a location that another realm uses."""
    return Forbidden(
        "The storage's location belongs to another realm; use another file, database or schema",
        field=FIELD,
    )


def _key(location: StorageLocation) -> str:
    return hashlib.sha256(msgspec.json.encode(location)).hexdigest()
