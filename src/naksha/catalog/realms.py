"""Realms: tenants of one catalog, each with its own life cycle.

Only an ACTIVE realm serves. Every change of state gives the realm a new epoch and then *fences* it:
the epoch is written into each of its pointers, so that no client that opened the realm before can
move them. If the process dies before the fence is complete, the next one that changes or opens the
realm completes it.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final

import msgspec

from naksha.catalog.entities import Entities, EntityEdit, EntitySnapshot
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


class RealmStatus(StrEnum):
    """State in the life cycle of a realm."""

    CREATED = "CREATED"
    """The name is reserved; there is no data."""
    LOADING = "LOADING"
    """An export is being imported."""
    INITIALIZING = "INITIALIZING"
    """It is being set up."""
    ACTIVE = "ACTIVE"
    INACTIVE = "INACTIVE"
    """It does not serve, but keeps all its data."""
    PURGING = "PURGING"
    """Its rows are being deleted; this cannot be undone."""
    PURGED = "PURGED"
    """No data is left; the name can be released."""


NEXT: Final[Mapping[RealmStatus, frozenset[RealmStatus]]] = {
    RealmStatus.CREATED: frozenset(
        {RealmStatus.CREATED, RealmStatus.LOADING, RealmStatus.INITIALIZING, RealmStatus.PURGING}
    ),
    RealmStatus.LOADING: frozenset({RealmStatus.ACTIVE, RealmStatus.INACTIVE, RealmStatus.PURGING}),
    RealmStatus.INITIALIZING: frozenset(
        {RealmStatus.ACTIVE, RealmStatus.INACTIVE, RealmStatus.PURGING}
    ),
    RealmStatus.ACTIVE: frozenset({RealmStatus.ACTIVE, RealmStatus.INACTIVE}),
    RealmStatus.INACTIVE: frozenset(
        {RealmStatus.INACTIVE, RealmStatus.ACTIVE, RealmStatus.PURGING}
    ),
    RealmStatus.PURGING: frozenset({RealmStatus.PURGING, RealmStatus.PURGED}),
    RealmStatus.PURGED: frozenset({RealmStatus.PURGED}),
}
"""Permitted state transitions; a state that may follow itself allows changing properties."""


@object_type("realm")
class Realm(msgspec.Struct, frozen=True, kw_only=True):
    """The record of a realm."""

    id: str
    status: RealmStatus = RealmStatus.CREATED
    epoch: int = 0
    """Different after every change of state."""
    old_epoch: int = 0
    """Epoch of pointers that are to receive the current one; any other is a leftover."""
    is_fenced: bool = True
    """Whether all pointers of the realm have the epoch."""
    is_released: bool = False
    """Whether a realm that is being purged holds nothing outside of the catalog any more.

    Its rows, which describe what it holds, are deleted only then.
    """
    created_us: int = 0
    status_us: int = 0
    """Start of its current state."""
    packed: msgspec.Raw = msgspec.field(default=_NO_PROPERTIES, name="properties")

    @property
    def properties(self) -> dict[str, Any]:
        """A copy of the owner's properties; the realm itself is shared by all its readers."""
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
        self._seen: EntitySnapshot | None = None
        self._realms_seen: dict[str, Realm] = {}
        """The realms that were found in it."""

    async def setup(self) -> None:
        """Create the pointer to the realms."""
        await self._system.ensure_pointers([POINTER])

    async def list(self) -> list[Realm]:
        """Return all realms ordered by id."""
        snapshot = await self._entities.now()
        return [realm.value async for _, realm in snapshot.list("", Realm)]

    async def get(self, id: str) -> Realm:
        """Return a realm as it is now, else raise RealmNotFound."""
        check_realm_id(id)
        snapshot = await self._entities.now()
        return _found(id, await snapshot.get(id, Realm))

    async def recent(self, id: str) -> Realm | None:
        """Return a realm as it was recently."""
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
        """Reserve a name, else raise Conflict."""
        check_realm_id(id)
        packed = _packed(properties or {})
        now = self._system.clock.now_us()

        async def change(edit: EntityEdit) -> Realm:
            if await edit.get(id, Realm) is not None:
                raise Conflict(f"The realm {id!r} already exists; choose another id", field="realm")
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
        status: RealmStatus,
        properties: Mapping[str, Any] | None = None,
    ) -> Realm:
        """Change the state of a realm that is as expected.

        When it returns, no client that opened the realm before can write any more.

        Raises:
            Conflict: It is not as expected, or the transition is not permitted.
            OutcomeUnknown: It may be in the new state; or it is, but clients that opened it before
                may not be fenced yet. The next process that opens it completes the fence.
        """
        _check_step(expected, status)
        packed = None if properties is None else _packed(properties)
        self._check_quarantine(expected, status)
        expected = await self.fence(expected)
        now = self._system.clock.now_us()
        is_step = status is not expected.status

        async def change(edit: EntityEdit) -> Realm:
            realm = _found(expected.id, await edit.get(expected.id, Realm))
            if not _is_expected(realm, expected):
                raise Conflict(
                    f"The realm {realm.id!r} was changed concurrently; read it again and retry",
                    field="realm",
                )
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
        """Fence a realm after a committed change of state; no error may deny that commit."""
        try:
            return await self.fence(realm)
        except (RealmChanged, RealmNotFound):
            # A realm can only be changed or deleted after its fence is complete.
            return msgspec.structs.replace(realm, is_fenced=True)
        except NakshaError as error:
            raise OutcomeUnknown(
                f"The realm {realm.id!r} is now {realm.status}, but clients that opened it "
                "earlier may still write; open it again to exclude them"
            ) from error

    async def delete(self, expected: Realm) -> None:
        """Delete the record of a purged realm, which releases its name."""
        if expected.status is not RealmStatus.PURGED:
            raise Conflict(
                f"The realm {expected.id!r} is {expected.status}; only a PURGED realm can be"
                " deleted",
                field="realm",
            )
        expected = await self.fence(expected)

        async def change(edit: EntityEdit) -> None:
            realm = _found(expected.id, await edit.get(expected.id, Realm))
            if not _is_expected(realm, expected):
                raise Conflict(
                    f"The realm {realm.id!r} was changed concurrently; read it again and retry",
                    field="realm",
                )
            edit.remove(realm.id)

        await self._entities.commit(change, message=f"delete realm {expected.id}")
        self._system.forget(expected.id)

    # ---- Fencing -----------------------------------------------------------------------------

    async def fence(self, realm: Realm) -> Realm:
        """Write the epoch into all pointers of the realm, and record that this is done.

        Raises:
            RealmChanged: Another process has completed it and changed the realm since.
            Unavailable: It is not complete, or that could not be recorded; it can be repeated.
        """
        if realm.is_fenced:
            return realm
        try:
            await _stamp_pointers(self._system.backend, RealmFence(self, realm))
            return await self._note_fence(realm)
        except OutcomeUnknown as error:
            raise Unavailable(
                f"The pointers of realm {realm.id!r} could not all be marked with its new state, "
                "because the database did not confirm it; retry"
            ) from error

    async def _note_fence(self, realm: Realm) -> Realm:

        async def change(edit: EntityEdit) -> Realm:
            now = _found(realm.id, await edit.get(realm.id, Realm))
            if now.epoch != realm.epoch:
                raise RealmChanged(
                    f"The realm {realm.id!r} was changed by another process; open it again"
                )
            if not now.is_fenced:
                now = msgspec.structs.replace(now, is_fenced=True)
                edit.put(now.id, now)
            return now

        return await self._entities.commit(change, message=f"realm {realm.id}: fenced")

    async def note_released(self, realm: Realm) -> Realm:
        """Record that a realm which is being purged holds nothing outside of the catalog."""

        async def change(edit: EntityEdit) -> Realm:
            now = _found(realm.id, await edit.get(realm.id, Realm))
            if now.epoch != realm.epoch:
                raise RealmChanged(
                    f"The realm {realm.id!r} was changed by another process; read it again and"
                    " retry"
                )
            now = msgspec.structs.replace(now, is_released=True)
            edit.put(now.id, now)
            return now

        return await self._entities.commit(change, message=f"realm {realm.id}: released")

    async def open_fence(self, id: str, status: RealmStatus = RealmStatus.ACTIVE) -> RealmFence:
        """Return the fence of a realm in a state, which is ACTIVE except during setup."""
        realm = await self.fence(await self.get(id))
        if realm.status is not status:
            raise RealmInactive(
                f"The realm {id!r} is {realm.status}, but this operation requires a realm that is "
                f"{status}"
            )
        return RealmFence(self, realm)

    async def reopen_fence(self, realm: Realm) -> RealmFence:
        """Return the fence of a realm that has not changed its state since it was read."""
        fence = await self.open_fence(realm.id, realm.status)
        if fence.epoch != realm.epoch:
            raise RealmChanged(
                f"The realm {realm.id!r} is {realm.status} again, but changed its state in "
                "between; open it again"
            )
        return fence

    def _check_quarantine(self, realm: Realm, status: RealmStatus) -> None:
        """Raise Conflict if a realm is to be purged before it was inactive for long enough."""
        if realm.status is not RealmStatus.INACTIVE or status is not RealmStatus.PURGING:
            return
        rest_us = realm.status_us + self._quarantine_us - self._system.clock.now_us()
        if rest_us > 0:
            raise Conflict(
                f"The realm {realm.id!r} cannot be purged yet: {rest_us / 3.6e9:.1f} hours of its"
                " quarantine remain, in which it can become ACTIVE again",
                field="realm",
            )


class RealmFence:
    """The state of a realm when it was opened."""

    def __init__(self, realms: Realms, realm: Realm) -> None:
        self.realm = realm
        self._realms = realms

    @property
    def epoch(self) -> int:
        return self.realm.epoch

    async def check(self) -> None:
        """Raise RealmChanged if the realm was deleted or has changed its state."""
        try:
            now = await self._realms.get(self.realm.id)
        except RealmNotFound:
            now = None
        if now is None or now.epoch != self.realm.epoch:
            raise RealmChanged(
                f"The realm {self.realm.id!r} has changed since it was opened; open it again"
            )


def check_realm_id(id: str) -> None:
    """Raise InvalidArgument unless a text is a valid realm id."""
    if _NAME.fullmatch(id) is None:
        raise InvalidArgument(
            f"A realm id must have 1 to {limits.REALM_ID_LENGTH_MAX} letters, digits, _ and -, not"
            f" {id[:200]!r}",
            field="realm",
        )


def _is_expected(realm: Realm, expected: Realm) -> bool:
    """Return whether a realm is as the caller knows it, apart from notes of maintenance."""
    return msgspec.structs.replace(realm, is_released=expected.is_released) == expected


def _check_step(realm: Realm, status: RealmStatus) -> None:
    if status not in NEXT[realm.status]:
        allowed = ", ".join(sorted(NEXT[realm.status])) or "nothing"
        raise Conflict(
            f"The realm {realm.id!r} is {realm.status} and cannot become {status}; "
            f"it can become {allowed}",
            field="status",
        )


def _found(id: str, realm: Any) -> Realm:
    if realm is None:
        raise RealmNotFound(
            f"The realm {id!r} does not exist; correct its id, or create it", field="realm"
        )
    value: Realm = realm.value
    return value


def _packed(properties: Mapping[str, Any]) -> msgspec.Raw:
    try:
        return msgspec.Raw(msgspec.msgpack.encode(dict(properties)))
    except (TypeError, OverflowError) as error:
        raise InvalidArgument(
            f"Properties of a realm must be plain JSON values: {error}", field="properties"
        ) from error


async def _stamp_pointers(backend: CatalogBackend, fence: RealmFence) -> None:
    """Write the epoch into each pointer, again if it was moved meanwhile.

    A move before the stamp was permitted; one after it fails. Failures are retried for a while,
    because the change of state cannot be undone.
    """
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
    """Stamp a pointer and return whether it is done; False if it was moved meanwhile."""
    realm = fence.realm
    if row.epoch == realm.epoch:
        return True
    if row.epoch != realm.old_epoch:
        # The epoch belongs either to a later change of state, whose record was written before this
        # row, so the check below fails; or to a process that was fenced before and died before it
        # could undo its write, so the pointer is a leftover.
        await fence.check()
        return await backend.delete_pointer(realm.id, row)
    stamped = msgspec.structs.replace(row, epoch=realm.epoch)
    return await backend.swap_pointer(realm.id, row, stamped)
