"""GUIDs: the state ids `{storageId}:{collectionId}:{year}:{month}:{day}:{i}`.

The day is that of the state's `txn`.  Because history is partitioned by `txn_next`, it is only a
lower bound for the partition of the state.  The 128-bit form is in `uuids`.
"""

from __future__ import annotations

import datetime
import re
from dataclasses import dataclass
from typing import Final, Self

from naksha.model import limits
from naksha.model.errors import InvalidArgument
from naksha.model.identity.names import COLLECTION_ID_PATTERN, STORAGE_ID_PATTERN
from naksha.model.identity.txn import YEAR_MAX, date_of, txn_of

_STORAGE_ID: Final = re.compile(STORAGE_ID_PATTERN)
_COLLECTION_ID: Final = re.compile(COLLECTION_ID_PATTERN)

# Greedy in the middle, anchored at both ends: a collection id may contain colons and numbers.
_GUID: Final = re.compile(
    rf"({STORAGE_ID_PATTERN}):({COLLECTION_ID_PATTERN})"
    r":([0-9]{1,4}):([0-9]{1,2}):([0-9]{1,2}):(0|[1-9][0-9]{0,18})"
)


@dataclass(frozen=True, slots=True)
class Guid:
    """Id of one state of one feature."""

    storage_id: str
    collection_id: str
    year: int
    month: int
    day: int
    i: int

    def __post_init__(self) -> None:
        problem = self._problem()
        if problem is not None:
            raise InvalidArgument(f"Invalid state id: {problem}", field="uuid")

    def _problem(self) -> str | None:
        if not _STORAGE_ID.fullmatch(self.storage_id):
            return f"{self.storage_id!r:.64} is not a storage id"
        if not _COLLECTION_ID.fullmatch(self.collection_id):
            return f"{self.collection_id!r:.64} is not a collection id"
        if not 0 <= self.i <= limits.INT8_MAX:
            return f"the row number {self.i} is not between 0 and {limits.INT8_MAX}"
        try:
            too_late = datetime.date(self.year, self.month, self.day).year > YEAR_MAX
        except ValueError:
            too_late = True
        return f"{self.year}:{self.month}:{self.day} is not a valid date" if too_late else None

    def __str__(self) -> str:
        return (
            f"{self.storage_id}:{self.collection_id}:{self.year}:{self.month}:{self.day}:{self.i}"
        )

    @property
    def date(self) -> datetime.date:
        """Day of the state's txn."""
        return datetime.date(self.year, self.month, self.day)

    @property
    def txn_min(self) -> int:
        """Lower bound of the state's `txn`, and therefore of its `txn_next`."""
        return txn_of(self.date, 0)

    @classmethod
    def of(cls, storage_id: str, collection_id: str, txn: int, i: int) -> Self:
        """Build the id of the state that transaction `txn` wrote as row `i`."""
        day = date_of(txn)
        return cls(storage_id, collection_id, day.year, day.month, day.day, i)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse a GUID; month and day may be padded with zeros."""
        match = _GUID.fullmatch(text)
        if match is None:
            raise InvalidArgument(
                f"{text!r:.128} is not a state id; "
                "expected storage:collection:year:month:day:i, or a UUID",
                field="uuid",
            )
        storage_id, collection_id, year, month, day, i = match.groups()
        return cls(storage_id, collection_id, int(year), int(month), int(day), int(i))
