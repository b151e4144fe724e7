"""Realms: tenants of one catalog, each with a life of its own.

Only an ACTIVE realm serves. Every change of state gives the realm a new epoch and then *fences* it:
the epoch is written into each of its pointers, so that whoever opened the realm before can move
none of them. A realm whose fence is not finished (somebody died meanwhile) is finished by the next
one who wants to change or open it.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final

import msgspec

from naksha.catalog.entities import Edit, Entities, Snapshot
from naksha.catalog.objects import object_type
from naksha.catalog.persistence import Persistence
from naksha.catalog.retry import Retries
from naksha.model import limits
from naksha.model.errors import (
    Conflict,
    InvalidArgument,
    NakshaError,
    OutcomeUnknown,
    RealmChanged,
    RealmInactive,
    RealmNotFound,
    Unavailable,
)
from naksha.spi.catalog import CatalogBackend, PointerRow

POINTER: Final = "realms"
_NO_PROPERTIES: Final = msgspec.Raw(msgspec.msgpack.encode({}))
_PAGE: Final = 1_000
_NAME: Final = re.compile(rf"[A-Za-z0-9_-]{{1,{limits.REALM_ID_LENGTH_MAX}}}")


class Status(StrEnum):
    """Where a realm is in its life."""

    CREATED = "CREATED"
    """The name is reserved, nothing is there."""
    LOADING = "LOADING"
    """What was exported elsewhere is being imported."""
    INITIALIZING = "INITIALIZING"
    """It is being set up."""
    ACTIVE = "ACTIVE"
    INACTIVE = "INACTIVE"
    """It does not serve; all is there."""
    PURGING = "PURGING"
    """Its rows are being deleted; there is no way back."""
    PURGED = "PURGED"
    """Nothing is left; the name can be given free."""


NEXT: Final[Mapping[Status, frozenset[Status]]] = {
    Status.CREATED: frozenset(
        {Status.CREATED, Status.LOADING, Status.INITIALIZING, Status.PURGING}
    ),
    Status.LOADING: frozenset({Status.ACTIVE, Status.INACTIVE, Status.PURGING}),
    Status.INITIALIZING: frozenset({Status.ACTIVE, Status.INACTIVE, Status.PURGING}),
    Status.ACTIVE: frozenset({Status.ACTIVE, Status.INACTIVE}),
    Status.INACTIVE: frozenset({Status.INACTIVE, Status.ACTIVE, Status.PURGING}),
    Status.PURGING: frozenset({Status.PURGING, Status.PURGED}),
    Status.PURGED: frozenset({Status.PURGED}),
}
"""Which state may follow which; a state that follows itself may get other properties."""


@object_type("realm")
class Realm(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a realm."""

    id: str
    status: Status = Status.CREATED
    epoch: int = 0
    """Another one after every change of state."""
    old_epoch: int = 0
    """What pointers have that are to get the epoch; any other is a leftover."""
    is_fenced: bool = True
    """Whether all pointers of the realm have the epoch."""
    is_released: bool = False
    """Whether a realm that is being purged holds nothing outside of the catalog any more. Its
    rows, which tell what it holds, are deleted only then."""
    created_us: int = 0
    status_us: int = 0
    """Since when it is in its state."""
    packed: msgspec.Raw = msgspec.field(default=_NO_PROPERTIES, name="properties")

    @property
    def properties(self) -> dict[str, Any]:
        """A copy of what its owner has noted; the realm itself is shared by all who read it."""
        found: dict[str, Any] = msgspec.msgpack.decode(self.packed)
        return found


class Realms:
    """All realms of a catalog."""

    def __init__(
        self, system: Persistence, *, quarantine_s: float = limits.REALM_QUARANTINE_SECONDS
    ) -> None:
        self._system = system
        self._entities = Entities(system, POINTER)
        self._quarantine_us = int(quarantine_s * 1_000_000)
        self._seen: Snapshot | None = None
        self._realms_seen: dict[str, Realm] = {}
        """What was found in it."""

    async def setup(self) -> None:
        """Make the pointer to the realms."""
        await self._system.ensure_pointers([POINTER])

    async def list(self) -> list[Realm]:
        """All realms in the order of their ids."""
        snapshot = await self._entities.now()
        return [realm.value async for _, realm in snapshot.list("", Realm)]

    async def get(self, id: str) -> Realm:
        """A realm as it is now, else RealmNotFound."""
        check_realm_id(id)
        snapshot = await self._entities.now()
        return _found(id, await snapshot.get(id, Realm))

    async def recent(self, id: str) -> Realm | None:
        """A realm as it was not long ago."""
        snapshot = await self._entities.recent()
        if snapshot is not self._seen:
            self._seen, self._realms_seen = snapshot, {}
        known = self._realms_seen.get(id)
        if known is None:
            found = await snapshot.get(id, Realm)
            if found is None:
                return None
            known = found.value
            if snapshot is self._seen:
                self._realms_seen[id] = known
        return known

    async def create(self, id: str, properties: Mapping[str, Any] | None = None) -> Realm:
        """Reserve a name, else Conflict."""
        check_realm_id(id)
        packed = _packed(properties or {})
        now = self._system.clock.now_us()

        async def change(edit: Edit) -> Realm:
            if await edit.get(id, Realm) is not None:
                raise Conflict(f"The realm {id!r} exists already", field="realm")
            realm = Realm(
                id=id,
                epoch=self._system.new_id(),
                created_us=now,
                status_us=now,
                packed=packed,
            )
            edit.put(id, realm)
            return realm

        return await self._entities.commit(change, message=f"create realm {id}")

    async def update(
        self,
        expected: Realm,
        status: Status,
        properties: Mapping[str, Any] | None = None,
    ) -> Realm:
        """Bring a realm that is as expected into a state; returns when nobody who opened it before
        can write any more.

        Raises:
            Conflict: It is not as expected, or the state cannot follow.
            OutcomeUnknown: It may be in the state; or it is, and those who opened it before may
                not be shut out yet. Whoever opens it next goes on with that.
        """
        _check_step(expected, status)
        packed = None if properties is None else _packed(properties)
        self._check_quarantine(expected, status)
        expected = await self.fence(expected)
        now = self._system.clock.now_us()
        is_step = status is not expected.status

        async def change(edit: Edit) -> Realm:
            realm = _found(expected.id, await edit.get(expected.id, Realm))
            if not _is_expected(realm, expected):
                raise Conflict(f"The realm {realm.id!r} is not as expected", field="realm")
            realm = msgspec.structs.replace(
                realm,
                status=status,
                epoch=self._system.new_id() if is_step else realm.epoch,
                old_epoch=realm.epoch if is_step else realm.old_epoch,
                is_fenced=realm.is_fenced and not is_step,
                status_us=now if is_step else realm.status_us,
                packed=realm.packed if packed is None else packed,
            )
            edit.put(realm.id, realm)
            return realm

        realm = await self._entities.commit(change, message=f"realm {expected.id}: {status}")
        try:
            return await self._fence_changed(realm)
        finally:
            if is_step:
                self._system.forget(realm.id)

    async def _fence_changed(self, realm: Realm) -> Realm:
        """The fence after a change of state that is committed: no error may say that it is not."""
        try:
            return await self.fence(realm)
        except (RealmChanged, RealmNotFound):
            # Nobody changes or deletes a realm whose fence he has not finished first.
            return msgspec.structs.replace(realm, is_fenced=True)
        except NakshaError as error:
            raise OutcomeUnknown(
                f"The realm {realm.id!r} is {realm.status}, but those who opened it before may "
                "still write; whoever opens it next goes on"
            ) from error

    async def delete(self, expected: Realm) -> None:
        """Give the name of a purged realm free."""
        if expected.status is not Status.PURGED:
            raise Conflict(
                f"The realm {expected.id!r} is {expected.status}; only a PURGED one can be deleted",
                field="realm",
            )
        expected = await self.fence(expected)

        async def change(edit: Edit) -> None:
            realm = _found(expected.id, await edit.get(expected.id, Realm))
            if not _is_expected(realm, expected):
                raise Conflict(f"The realm {realm.id!r} is not as expected", field="realm")
            edit.remove(realm.id)

        await self._entities.commit(change, message=f"delete realm {expected.id}")
        self._system.forget(expected.id)

    # ---- Fencing -----------------------------------------------------------------------------

    async def fence(self, realm: Realm) -> Realm:
        """Write the epoch into all pointers of the realm, and note that it is done.

        Raises:
            RealmChanged: Somebody else has finished it, and changed the realm since.
            Unavailable: It is not finished, or that is not noted; it can be repeated.
        """
        if realm.is_fenced:
            return realm
        try:
            await _stamp_pointers(self._system.backend, RealmFence(self, realm))
            return await self._note_fence(realm)
        except OutcomeUnknown as error:
            raise Unavailable(f"The fence of realm {realm.id!r} is not finished") from error

    async def _note_fence(self, realm: Realm) -> Realm:

        async def change(edit: Edit) -> Realm:
            now = _found(realm.id, await edit.get(realm.id, Realm))
            if now.epoch != realm.epoch:
                raise RealmChanged(f"The realm {realm.id!r} was changed by somebody else")
            if not now.is_fenced:
                now = msgspec.structs.replace(now, is_fenced=True)
                edit.put(now.id, now)
            return now

        return await self._entities.commit(change, message=f"realm {realm.id}: fenced")

    async def note_released(self, realm: Realm) -> Realm:
        """Note that a realm which is being purged holds nothing outside of the catalog."""

        async def change(edit: Edit) -> Realm:
            now = _found(realm.id, await edit.get(realm.id, Realm))
            if now.epoch != realm.epoch:
                raise RealmChanged(f"The realm {realm.id!r} was changed by another process")
            now = msgspec.structs.replace(now, is_released=True)
            edit.put(now.id, now)
            return now

        return await self._entities.commit(change, message=f"realm {realm.id}: released")

    async def opened(self, id: str, status: Status = Status.ACTIVE) -> RealmFence:
        """The fence of a realm that is in the state, which for all but its makers is ACTIVE."""
        realm = await self.fence(await self.get(id))
        if realm.status is not status:
            raise RealmInactive(f"The realm {id!r} is {realm.status}, not {status}")
        return RealmFence(self, realm)

    async def reopened(self, realm: Realm) -> RealmFence:
        """The fence of a realm that has neither left its state since it was read nor its life."""
        fence = await self.opened(realm.id, realm.status)
        if fence.epoch != realm.epoch:
            raise RealmChanged(f"The realm {realm.id!r} is {realm.status} again, not still")
        return fence

    def _check_quarantine(self, realm: Realm, status: Status) -> None:
        """A realm that has served is not purged before it was inactive for a while."""
        if realm.status is not Status.INACTIVE or status is not Status.PURGING:
            return
        rest_us = realm.status_us + self._quarantine_us - self._system.clock.now_us()
        if rest_us > 0:
            raise Conflict(
                f"The realm {realm.id!r} can be purged in {rest_us / 3.6e9:.1f} hours; until then "
                "it can become ACTIVE again",
                field="realm",
            )


class RealmFence:
    """What a realm was when it was opened."""

    def __init__(self, realms: Realms, realm: Realm) -> None:
        self.realm = realm
        self._realms = realms

    @property
    def epoch(self) -> int:
        return self.realm.epoch

    async def check(self) -> None:
        """RealmChanged if it is not that realm any more, or not in that state."""
        try:
            now = await self._realms.get(self.realm.id)
        except RealmNotFound:
            now = None
        if now is None or now.epoch != self.realm.epoch:
            raise RealmChanged(
                f"The realm {self.realm.id!r} has changed since it was opened; open it anew"
            )


def check_realm_id(id: str) -> None:
    """Raises InvalidArgument for what is no realm's id."""
    if _NAME.fullmatch(id) is None:
        raise InvalidArgument(
            f"A realm's id has 1 to {limits.REALM_ID_LENGTH_MAX} letters, digits, _ and -, "
            f"not {id[:200]!r}",
            field="realm",
        )


def _is_expected(realm: Realm, expected: Realm) -> bool:
    """Whether a realm is as its reader knows it. What maintenance notes is not a change."""
    return msgspec.structs.replace(realm, is_released=expected.is_released) == expected


def _check_step(realm: Realm, status: Status) -> None:
    if status not in NEXT[realm.status]:
        allowed = ", ".join(sorted(NEXT[realm.status])) or "nothing"
        raise Conflict(
            f"The realm {realm.id!r} is {realm.status} and cannot become {status}; "
            f"it can become {allowed}",
            field="status",
        )


def _found(id: str, realm: Any) -> Realm:
    if realm is None:
        raise RealmNotFound(f"There is no realm {id!r}", field="realm")
    value: Realm = realm.value
    return value


def _packed(properties: Mapping[str, Any]) -> msgspec.Raw:
    try:
        return msgspec.Raw(msgspec.msgpack.encode(dict(properties)))
    except (TypeError, OverflowError) as error:
        raise InvalidArgument(
            f"Properties of a realm are plain JSON values: {error}", field="properties"
        ) from error


async def _stamp_pointers(backend: CatalogBackend, fence: RealmFence) -> None:
    """Each pointer by itself, again when somebody moved it in between: he is fenced afterwards.
    What fails is tried again for a while, since the change of state cannot be taken back."""
    realm, after = fence.realm.id, ""
    retries, deadline = Retries(), time.monotonic() + limits.FENCE_SECONDS_MAX
    while True:
        retries.begin()
        try:
            rows = await backend.list_pointers(realm, "", after, _PAGE)
            if not rows:
                return
            for row in rows:
                found: PointerRow | None = row
                while found is not None and not await _is_stamped(backend, fence, found):
                    found = (await backend.fetch_pointers(realm, [row.name])).get(row.name)
                after = row.name
        except (Unavailable, OutcomeUnknown):
            if time.monotonic() >= deadline:
                raise
            await retries.pause(deadline)


async def _is_stamped(backend: CatalogBackend, fence: RealmFence, row: PointerRow) -> bool:
    """Whether a pointer is done with; False when it was moved meanwhile."""
    realm = fence.realm
    if row.epoch == realm.epoch:
        return True
    if row.epoch != realm.old_epoch:
        # Either of a later change of state than ours, whose record was there before the row. Or
        # made by somebody who was fenced before, and died before he could take it back.
        await fence.check()
        return await backend.delete_pointer(realm.id, row)
    stamped = msgspec.structs.replace(row, epoch=realm.epoch)
    return await backend.swap_pointer(realm.id, row, stamped)
