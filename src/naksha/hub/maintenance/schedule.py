"""When maintenance rounds run: interval, daily window for heavy work, and time budget."""

from __future__ import annotations

import re
from typing import Final, NamedTuple, Self

import msgspec

from naksha.model import limits
from naksha.model.errors import InvalidArgument

_DAY_MINUTES: Final = 24 * 60
_FORM: Final = re.compile(r"([01]\d|2[0-3]):([0-5]\d)-([01]\d|2[0-3]):([0-5]\d)")


class DailyWindow(NamedTuple):
    """A part of each day (UTC), in minutes after midnight; it may extend over midnight."""

    begin: int
    end: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse a window such as `22:00-04:30`."""
        found = _FORM.fullmatch(text)
        if found is None:
            raise InvalidArgument(
                f"The maintenance window {text!r} is not valid; write it as HH:MM-HH:MM in UTC, "
                "for example 22:00-04:30",
                field="maintenance_window",
            )
        hours = [int(part) for part in found.groups()]
        return cls(hours[0] * 60 + hours[1], hours[2] * 60 + hours[3])

    def contains(self, now_ms: int) -> bool:
        """Return whether a time is in the window."""
        minute = now_ms // 60_000 % _DAY_MINUTES
        if self.begin <= self.end:
            return self.begin <= minute < self.end
        return minute >= self.begin or minute < self.end

    def opens_ms(self, now_ms: int) -> int:
        """Return when the window begins next; now, if it has begun."""
        if self.contains(now_ms):
            return now_ms
        minutes = (self.begin - now_ms // 60_000) % _DAY_MINUTES or _DAY_MINUTES
        return (now_ms // 60_000 + minutes) * 60_000


class MaintenanceSchedule(msgspec.Struct, frozen=True, kw_only=True):
    """Schedule of all rounds of an instance."""

    is_on: bool = True
    """Whether rounds start by themselves; requested ones always do."""
    interval_seconds: float = limits.MAINTENANCE_SECONDS
    budget_seconds: float = limits.MAINTENANCE_BUDGET_SECONDS
    window: DailyWindow | None = None
    """When heavy work may run; None: at any time."""

    @property
    def catalog_seconds(self) -> float:
        """Interval between two rounds of the catalog."""
        return max(self.interval_seconds, limits.CATALOG_ROUND_SECONDS)

    def is_heavy_at(self, now_ms: int) -> bool:
        """Return whether heavy work may run now."""
        return self.window is None or self.window.contains(now_ms)
