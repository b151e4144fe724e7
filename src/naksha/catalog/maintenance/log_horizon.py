"""Horizons of a realm's logs (where they begin), and the pins of consumers that need them.

A *pin* holds everything that follows its cursor. A *horizon* is the number of the oldest commit of
a log: what is below it may be gone, and will be.

Both are entities behind the realm's pointer `history`, so every pin and every cut is one commit of
that pointer, and all of them are strictly ordered. A pin that is committed before a cut is seen by
the cut, which stops there; a pin that is committed after it sees the horizon and fails with
`Expired` if it needs anything below. Maintenance deletes only after the cut is committed, and
horizons never move back. So a pin that was accepted never loses what it holds, and no consumer
needs to coordinate with a run.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final, TypeVar

import msgspec

from naksha.catalog.commit_log import LogCursor
from naksha.catalog.entities import Entities, EntitiesCommit, EntityEdit
from naksha.catalog.maintenance.pointer_walk import entity_refs, index_of
from naksha.catalog.maintenance.realm_reader import RealmReader
from naksha.catalog.objects import object_type
from naksha.catalog.persistence import Persistence
from naksha.catalog.pointers import Pointer, check_pointer_name
from naksha.model import limits
from naksha.model.errors import (
    Expired,
    InvalidArgument,
    PointerNotFound,
    StorageCorrupt,
    VersionNotFound,
)

R = TypeVar("R")

POINTER: Final = "history"
_PIN: Final = "pin/"
_HORIZON: Final = "horizon/"


@object_type("history-pin")
class LogPin(msgspec.Struct, frozen=True, kw_only=True):
    """Position in a log from which a consumer still needs the commits."""

    pointer: str
    consumer: str
    cursor: str
    at_us: int
    """When the consumer last set it."""
    seconds: float = limits.HISTORY_PIN_SECONDS_MAX
    """How long it holds without being set again."""

    def is_over(self, now_us: int) -> bool:
        return self.at_us < now_us - self.seconds * 1_000_000


@object_type("history-horizon")
class LogHorizon(msgspec.Struct, frozen=True, kw_only=True):
    """The oldest commit of a log."""

    pointer: str
    created: int
    """Identifies the life of the pointer."""
    seq: int


class LogHorizonState(msgspec.Struct, frozen=True):
    """All horizons and pins of a realm."""

    horizons: dict[str, LogHorizon] = {}
    """By the names of their pointers."""
    pins: tuple[LogPin, ...] = ()

    def oldest(self, pointer: str, created: int) -> int:
        """Return the number of the oldest commit of a log."""
        horizon = self.horizons.get(pointer)
        return horizon.seq if horizon is not None and horizon.created == created else 1

    def pinned(self, pointer: str, created: int, now_us: int) -> int | None:
        """Return the number of the oldest commit that a pin holds, if any."""
        cursors = [
            LogCursor.parse(pin.cursor)
            for pin in self.pins
            if pin.pointer == pointer and not pin.is_over(now_us)
        ]
        return min((cursor.seq for cursor in cursors if cursor.created == created), default=None)


class LogHorizons:
    """The pins and horizons of one realm."""

    def __init__(self, persistence: Persistence) -> None:
        self._persistence = persistence
        self._entities = Entities(persistence, POINTER)

    async def pin(
        self,
        pointer: str,
        consumer: str,
        cursor: str,
        seconds: float = limits.HISTORY_PIN_SECONDS_MAX,
    ) -> None:
        """Keep everything that follows a cursor of a pointer's log for a consumer.

        It replaces the previous pin of the consumer, and holds until it is replaced, for at most
        `seconds`.

        Raises:
            Expired: Some of it is already gone or being deleted.
        """
        key = _pin_key(pointer, consumer)
        place = LogCursor.parse(cursor)
        if (await self._persistence.pointer_now(pointer)).created != place.created:
            raise VersionNotFound(
                f"The log of pointer {pointer!r} has no position {cursor}; the cursor belongs to"
                " another log or to a deleted pointer",
                field="cursor",
            )
        pin = LogPin(
            pointer=pointer,
            consumer=consumer,
            cursor=cursor,
            at_us=self._persistence.clock.now_us(),
            seconds=_checked_seconds(seconds),
        )

        async def change(edit: EntityEdit) -> None:
            found = await edit.get(_horizon_key(pointer), LogHorizon)
            is_cut = found is not None and found.value.created == place.created
            if found is not None and is_cut and place.seq + 1 < found.value.seq:
                raise Expired(
                    f"The log of pointer {pointer!r} begins at commit {found.value.seq}, which is"
                    f" after {cursor}; read the current state and continue from there",
                    oldest=found.value.seq,
                    field="cursor",
                )
            edit.put(key, pin)

        await self._commit(change, f"pin {pointer} for {consumer}")

    async def unpin(self, pointer: str, consumer: str) -> None:
        """Remove the pin of a consumer."""
        key = _pin_key(pointer, consumer)

        async def change(edit: EntityEdit) -> None:
            edit.remove(key)

        try:
            await self._entities.commit(change, message=f"unpin {pointer} for {consumer}")
        except PointerNotFound:
            return  # Nothing was ever pinned.

    async def cut(self, wanted: Mapping[str, LogHorizon]) -> LogHorizonState:
        """Move horizons forward and return the resulting state.

        A horizon stops at the oldest pin and never moves back. Horizons of pointers without a
        wanted one are removed, and so are expired pins. Nothing below the new horizons may be
        deleted before this returns.
        """
        now_us = self._persistence.clock.now_us()

        async def change(edit: EntityEdit) -> LogHorizonState:
            before = await _edited(edit)
            after = _cut(before, wanted, now_us)
            _put(edit, before, after)
            return after

        return await self._commit(change, "history is cut")

    async def lose(self, horizon: LogHorizon) -> None:
        """Set the horizon of a log below which commits are lost, regardless of pins."""

        async def change(edit: EntityEdit) -> None:
            edit.put(_horizon_key(horizon.pointer), horizon)

        await self._commit(change, f"history of {horizon.pointer} is lost")

    async def _commit(self, change: Callable[[EntityEdit], Awaitable[R]], message: str) -> R:
        try:
            return await self._entities.commit(change, message=message)
        except PointerNotFound:
            await self._persistence.ensure_pointers([POINTER])
            return await self._entities.commit(change, message=message)


async def read_log_horizons(reader: RealmReader) -> LogHorizonState:
    """Read the horizons and pins of a realm from the database.

    Raises:
        StorageCorrupt: They cannot be read.
    """
    row = (await reader.backend.fetch_pointers(reader.realm, [POINTER])).get(POINTER)
    target = Pointer.from_row(row).target if row is not None else None
    if target is None:
        return LogHorizonState()
    head = await reader.fetch(target)
    if head is None or not isinstance(head.value, EntitiesCommit):
        raise StorageCorrupt(
            f"Pointer {POINTER!r} must lead to a commit, not to object {target.id}; run "
            "`naksha doctor` and `naksha realm repair`"
        )
    refs = [ref async for ref in entity_refs(index_of(head.value, reader))]
    return _state(await reader.fetch_values(refs))


def _state(values: Iterable[object]) -> LogHorizonState:
    horizons: dict[str, LogHorizon] = {}
    pins = []
    for value in values:
        if isinstance(value, LogHorizon):
            horizons[value.pointer] = value
        elif isinstance(value, LogPin):
            pins.append(value)
        else:
            raise StorageCorrupt(
                f"The log of pointer {POINTER!r} has an object that is neither a pin nor a "
                "horizon; run `naksha doctor` and `naksha realm repair`"
            )
    return LogHorizonState(horizons, tuple(pins))


async def _edited(edit: EntityEdit) -> LogHorizonState:
    horizons = [found.value async for _, found in edit.list(_HORIZON, LogHorizon)]
    pins = [found.value async for _, found in edit.list(_PIN, LogPin)]
    return _state([*horizons, *pins])


def _cut(before: LogHorizonState, wanted: Mapping[str, LogHorizon], now_us: int) -> LogHorizonState:
    horizons = {}
    for name, horizon in wanted.items():
        pinned = before.pinned(name, horizon.created, now_us)
        seq = horizon.seq if pinned is None else min(horizon.seq, pinned)
        seq = max(seq, before.oldest(name, horizon.created))
        if seq > 1:
            horizons[name] = msgspec.structs.replace(horizon, seq=seq)
    return LogHorizonState(horizons, tuple(pin for pin in before.pins if not pin.is_over(now_us)))


def _put(edit: EntityEdit, before: LogHorizonState, after: LogHorizonState) -> None:
    for name in before.horizons.keys() - after.horizons.keys():
        edit.remove(_horizon_key(name))
    for name, horizon in after.horizons.items():
        if before.horizons.get(name) != horizon:
            edit.put(_horizon_key(name), horizon)
    for pin in set(before.pins) - set(after.pins):
        edit.remove(_pin_key(pin.pointer, pin.consumer))


def _horizon_key(pointer: str) -> str:
    return _HORIZON + _digest(pointer)


def _pin_key(pointer: str, consumer: str) -> str:
    check_pointer_name(pointer)
    if not 0 < len(consumer.encode()) <= limits.CONSUMER_BYTES_MAX:
        raise InvalidArgument(
            f"The consumer of a pin must have a name of 1 to {limits.CONSUMER_BYTES_MAX} bytes,"
            f" not {consumer[:80]!r}",
            field="consumer",
        )
    return f"{_PIN}{_digest(pointer)}/{consumer}"


def _checked_seconds(seconds: float) -> float:
    if not 0 < seconds <= limits.HISTORY_PIN_SECONDS_MAX:
        raise InvalidArgument(
            "The seconds of a pin must be greater than 0 and at most"
            f" {limits.HISTORY_PIN_SECONDS_MAX:,.0f}, not {seconds}",
            field="seconds",
        )
    return seconds


def _digest(pointer: str) -> str:
    """Return a digest, because a pointer's name may be longer than a key of an index."""
    return hashlib.blake2b(pointer.encode(), digest_size=16).hexdigest()
