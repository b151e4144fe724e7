"""State of the maintenance of one storage or of the catalog: its lease, and its last rounds."""

from __future__ import annotations

import hashlib
from typing import Any, Final, Self

import msgspec

from naksha.catalog.objects import object_type
from naksha.catalog.persistence import Persistence
from naksha.hub.leases import Leased, LeasedTable
from naksha.model import limits
from naksha.spi.maintenance import StepNote, StorageRound, StorageVitals

CATALOG: Final = ""
"""The subject of the catalog's rounds; those of storages are the ids of the storages."""
_ID_BITS: Final = 62


class RoundRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Record of a round that ended; the lists are shortened, the counts are not."""

    started_ms: int
    ended_ms: int
    instance: str
    is_dry: bool = False
    done: tuple[str, ...] = ()
    done_count: int = 0
    postponed: tuple[StepNote, ...] = ()
    postponed_count: int = 0
    failed: tuple[StepNote, ...] = ()
    failed_count: int = 0
    error: str = ""
    """Why the round ended early, for example because the storage was unavailable."""
    vitals: StorageVitals = StorageVitals()

    @classmethod
    def of(
        cls, found: StorageRound, started_ms: int, ended_ms: int, instance: str, error: str = ""
    ) -> Self:
        """Record a round that has ended."""
        failed = [StepNote(step, str(error)) for step, error in found.failures]
        return cls(
            started_ms=started_ms,
            ended_ms=ended_ms,
            instance=instance,
            is_dry=found.is_dry,
            done=tuple(_short(text) for text in found.done[: limits.ROUND_NOTES_MAX]),
            done_count=len(found.done),
            postponed=_notes(found.postponed),
            postponed_count=len(found.postponed),
            failed=_notes(failed),
            failed_count=len(failed),
            error=_short(error),
            vitals=found.vitals,
        )

    @property
    def outcome(self) -> str:
        """`failed` if the round ended early, `incomplete` if steps failed, else `done`."""
        if self.error:
            return "failed"
        return "incomplete" if self.failed_count else "done"

    @property
    def seconds(self) -> float:
        """Duration of the round."""
        return (self.ended_ms - self.started_ms) / 1_000

    def to_json(self) -> dict[str, Any]:
        """Convert to JSON for clients."""
        found: dict[str, Any] = {
            "startedAt": self.started_ms,
            "endedAt": self.ended_ms,
            "seconds": self.seconds,
            "instance": self.instance,
            "dryRun": self.is_dry,
            "outcome": self.outcome,
            "done": list(self.done),
            "doneCount": self.done_count,
            "putOff": [note._asdict() for note in self.postponed],
            "putOffCount": self.postponed_count,
            "failed": [note._asdict() for note in self.failed],
            "failedCount": self.failed_count,
        }
        return {**found, "error": self.error} if self.error else found


@object_type("hub-maintenance", is_cached=False)
class MaintenanceState(Leased, frozen=True, kw_only=True):
    """Frequently changing state of the rounds of one subject. Its lease is held during a round."""

    subject: str
    due_ms: int = 0
    """When the next round is due."""
    requested_ms: int = 0
    """When a client last requested a round."""
    requested_dry: bool = False
    fulfilled_ms: int = 0
    """The last request that a round has fulfilled."""
    started_ms: int = 0
    """Start of the current round; only valid while an instance holds the lease."""
    release: str = ""
    """The release whose first round was reported; that round is dry."""
    failures: int = 0
    """Rounds in a row that ended early."""
    last: RoundRecord | None = None
    last_dry: RoundRecord | None = None

    @property
    def is_requested(self) -> bool:
        """Whether a requested round has not been completed."""
        return self.requested_ms > self.fulfilled_ms

    def requested(self, now_ms: int, *, is_dry: bool) -> MaintenanceState:
        """Return the state after a client requested a round.

        A dry run does not replace a pending request for a round that makes changes.
        """
        requested_ms = max(now_ms, self.requested_ms + 1)
        is_dry = is_dry and (not self.is_requested or self.requested_dry)
        return msgspec.structs.replace(self, requested_ms=requested_ms, requested_dry=is_dry)

    def is_overdue(self, now_ms: int, interval_seconds: float) -> bool:
        """Return whether a round is so late that an operator should look."""
        late_seconds = (now_ms - self.due_ms) / 1_000
        return late_seconds > interval_seconds + limits.MAINTENANCE_OVERDUE_SECONDS

    def to_json(self, now_ms: int) -> dict[str, Any]:
        """Convert to JSON for clients."""
        is_running = bool(self.holder) and now_ms <= self.until_ms
        found: dict[str, Any] = {
            "running": is_running,
            "instance": self.holder if is_running else None,
            "runningSince": self.started_ms if is_running else None,
            "requestedAt": self.requested_ms if self.is_requested else None,
            "nextAt": self.due_ms,
            "lastRound": None if self.last is None else self.last.to_json(),
            "lastDryRun": None if self.last_dry is None else self.last_dry.to_json(),
        }
        if self.subject != CATALOG:
            found = {"storageId": self.subject, **found}
        return {name: value for name, value in found.items() if value is not None}


class MaintenanceTable(LeasedTable[MaintenanceState]):
    """The maintenance states of a realm's storages, or in the system realm that of the catalog."""

    def __init__(self, persistence: Persistence) -> None:
        super().__init__(persistence, MaintenanceState)


def state_id(storage_id: str) -> int:
    """Return the id of the state of a storage, which is the same on every instance.

    Generated ids contain the time and a node, so a digest equals one of them with a probability of
    one in 10^18 for each.
    """
    digest = hashlib.blake2b(f"maintenance/{storage_id}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> (64 - _ID_BITS)


def _notes(found: list[StepNote]) -> tuple[StepNote, ...]:
    some = found[: limits.ROUND_NOTES_MAX]
    return tuple(StepNote(_short(note.step), _short(note.reason)) for note in some)


def _short(text: str) -> str:
    return text[: limits.ROUND_NOTE_LENGTH_MAX]
