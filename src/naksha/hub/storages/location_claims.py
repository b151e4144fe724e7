"""Who is about to keep a storage where: realms have their configurations apart, so that two of them
could name the same new place at the same moment, each before the other's is kept.

So a realm first puts a claim on the place, at a pointer that all realms share; then it looks at
what the others keep, and keeps its own. Of two the second finds the claim of the first, or what the
first has kept. A claim goes when it is known how that ended; one that nobody could take away,
because its process died, counts no longer than any request could take.
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

from naksha.catalog.entities import Edit, Entities
from naksha.catalog.objects import object_type
from naksha.catalog.persistence import Persistence
from naksha.hub.storages.locations import FIELD
from naksha.hub.storages.tenancy import Place
from naksha.model import limits
from naksha.model.errors import Forbidden, NakshaError, OutcomeUnknown

_log: Final = logging.getLogger(__name__)
POINTER: Final = "storage-places"


@object_type("hub-place-claim")
class PlaceClaim(msgspec.Struct, frozen=True, kw_only=True):
    """Attempts of one realm to keep storages at a place, with the times at which they began."""

    realm: str
    attempts: dict[str, int]

    def since(self, oldest_ms: int) -> dict[str, int]:
        """Those that are not too old."""
        return {name: began for name, began in self.attempts.items() if began >= oldest_ms}


class PlaceClaims:
    """The claims of all realms of a catalog."""

    def __init__(self, system: Persistence) -> None:
        self._system = system
        self._entities = Entities(system, POINTER)

    async def setup(self) -> None:
        """Make the pointer to the claims."""
        await self._system.ensure_pointers([POINTER])

    @asynccontextmanager
    async def held(self, realm: str, places: Iterable[Place]) -> AsyncIterator[None]:
        """Claim places for the block, which keeps a storage there or fails.

        Raises:
            Forbidden: Another realm is about to do so.
        """
        keys = sorted({_key(place) for place in places})
        attempt = secrets.token_hex(8)
        await self._take(realm, keys, attempt)
        try:
            yield
        except (OutcomeUnknown, asyncio.CancelledError):
            raise  # it may be kept all the same, in a moment
        except BaseException:
            await self._give_back(keys, attempt)
            raise
        await self._give_back(keys, attempt)

    async def _take(self, realm: str, keys: Iterable[str], attempt: str) -> None:
        now = self._system.clock.now_ms()
        oldest = now - limits.STORAGE_CLAIM_SECONDS * 1_000

        async def change(edit: Edit) -> None:
            for key in keys:
                found = await edit.get(key, PlaceClaim)
                others = {} if found is None else found.value.since(oldest)
                if found is not None and found.value.realm != realm:
                    if others:
                        raise not_for_this_realm()
                    others = {}
                edit.put(key, PlaceClaim(realm=realm, attempts={**others, attempt: now}))

        await self._entities.commit(change, message=f"claim for {realm}")

    async def _give_back(self, keys: Iterable[str], attempt: str) -> None:
        async def change(edit: Edit) -> None:
            for key in keys:
                found = await edit.get(key, PlaceClaim)
                if found is None or attempt not in found.value.attempts:
                    continue
                left = {name: at for name, at in found.value.attempts.items() if name != attempt}
                if left:
                    edit.put(key, PlaceClaim(realm=found.value.realm, attempts=left))
                else:
                    edit.remove(key)

        try:
            await self._entities.commit(change, message="give a claim back")
        except NakshaError as error:
            _log.warning("A claim on the place of a storage stays for a while: %s", error)


def not_for_this_realm() -> Forbidden:
    """The error for a place that another realm has."""
    return Forbidden(
        "This storage is not for this realm; name another file, database or schema", field=FIELD
    )


def _key(place: Place) -> str:
    return hashlib.sha256(msgspec.json.encode(place)).hexdigest()
