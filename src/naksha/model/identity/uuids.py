"""The 128-bit UUID form of transaction and state ids.

    object-id 48 │ 0100 │ object-id 12 │ 10 │ year−2000 10 │ month 4 │ day 5 │ type 3 │ storage 40

The object id of a transaction is the sequence of its `txn`; that of a feature's state is the
collection number (20 bits) followed by the row number `i` (40 bits).  The result looks like a
random UUID (version 4, variant 1) and sorts as PostgreSQL sorts UUIDs.  `guid` is the form with
names instead of numbers; only a storage can map one to the other.
"""

from __future__ import annotations

import datetime
import re
import uuid
from dataclasses import dataclass
from typing import Final, Self, TypeAlias

from naksha.model.errors import InvalidArgument
from naksha.model.identity.guid import Guid
from naksha.model.identity.txn import date_of, sequence_of, txn_of

TYPE_TRANSACTION: Final = 0
TYPE_FEATURE: Final = 1
_TYPES: Final = {TYPE_TRANSACTION: "a transaction", TYPE_FEATURE: "a state of a feature"}
TYPE_MAX: Final = 7
"""Types 2 to 7 are reserved: they can be decoded, but Naksha never creates them."""

YEAR_MIN: Final = 2000
YEAR_MAX: Final = 3023
OBJECT_ID_MAX: Final = 2**60 - 1
COLLECTION_NUMBER_MAX: Final = 2**20 - 1
ROW_NUMBER_MAX: Final = 2**40 - 1
STORAGE_NUMBER_MAX: Final = 2**40 - 1

_ROW_BITS: Final = 40
_VERSION_AND_VARIANT: Final = 0x4 << 76 | 0b10 << 62
_VERSION_AND_VARIANT_MASK: Final = 0xF << 76 | 0b11 << 62
_TEXT: Final = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


def _check(name: str, value: int, least: int, most: int) -> None:
    if not least <= value <= most:
        raise InvalidArgument(
            f"The {name} of a UUID must be between {least} and {most}, not {value}", field="uuid"
        )


@dataclass(frozen=True, slots=True)
class Uuid:
    """Parts of a UUID as plain numbers."""

    object_id: int
    year: int
    month: int
    day: int
    type: int
    storage_number: int

    def __post_init__(self) -> None:
        _check("object id", self.object_id, 0, OBJECT_ID_MAX)
        _check("year", self.year, YEAR_MIN, YEAR_MAX)
        _check("type", self.type, 0, TYPE_MAX)
        _check("storage number", self.storage_number, 0, STORAGE_NUMBER_MAX)
        try:
            datetime.date(self.year, self.month, self.day)
        except ValueError as error:
            day = f"{self.year}-{self.month}-{self.day}"
            raise InvalidArgument(
                f"The date {day} of a UUID does not exist", field="uuid"
            ) from error

    @property
    def date(self) -> datetime.date:
        """Day of the transaction."""
        return datetime.date(self.year, self.month, self.day)

    @property
    def txn_min(self) -> int:
        """Lower bound of the `txn`, and therefore of the `txn_next`, of the identified object."""
        return txn_of(self.date, 0)

    @property
    def txn(self) -> int:
        """Number of the identified transaction."""
        _check_type(self, TYPE_TRANSACTION)
        return txn_of(self.date, self.object_id)

    @property
    def collection_number(self) -> int:
        """Collection number of the identified state."""
        _check_type(self, TYPE_FEATURE)
        return self.object_id >> _ROW_BITS

    @property
    def i(self) -> int:
        """Row number of the identified state."""
        _check_type(self, TYPE_FEATURE)
        return self.object_id & ROW_NUMBER_MAX

    def to_uuid(self) -> uuid.UUID:
        """Encode the parts as 128 bits."""
        return uuid.UUID(
            int=(self.object_id >> 12) << 80
            | (self.object_id & 0xFFF) << 64
            | _VERSION_AND_VARIANT
            | (self.year - YEAR_MIN) << 52
            | self.month << 48
            | self.day << 43
            | self.type << 40
            | self.storage_number
        )

    def __str__(self) -> str:
        return str(self.to_uuid())

    @classmethod
    def of_txn(cls, txn: int, storage_number: int) -> Self:
        """Build the id of a transaction."""
        day, sequence = date_of(txn), sequence_of(txn)
        return cls(sequence, day.year, day.month, day.day, TYPE_TRANSACTION, storage_number)

    @classmethod
    def of_state(cls, txn: int, collection_number: int, i: int, storage_number: int) -> Self:
        """Build the id of the state that transaction `txn` wrote as row `i`."""
        _check("collection number", collection_number, 0, COLLECTION_NUMBER_MAX)
        _check("row number", i, 0, ROW_NUMBER_MAX)
        day, object_id = date_of(txn), collection_number << _ROW_BITS | i
        return cls(object_id, day.year, day.month, day.day, TYPE_FEATURE, storage_number)

    @classmethod
    def of_uuid(cls, value: uuid.UUID) -> Self:
        """Decode the 128 bits; a UUID that Naksha cannot have created is an error."""
        bits = value.int
        if bits & _VERSION_AND_VARIANT_MASK != _VERSION_AND_VARIANT:
            raise InvalidArgument(
                f"The UUID {value} is not one of Naksha's, which have version 4 and variant 1",
                field="uuid",
            )
        return cls(
            object_id=bits >> 80 << 12 | bits >> 64 & 0xFFF,
            year=(bits >> 52 & 0x3FF) + YEAR_MIN,
            month=bits >> 48 & 0xF,
            day=bits >> 43 & 0x1F,
            type=bits >> 40 & 0x7,
            storage_number=bits & STORAGE_NUMBER_MAX,
        )

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse the usual text form: 32 hexadecimal digits in five groups."""
        if not is_uuid(text):
            raise InvalidArgument(
                f"{text!r:.64} is not a UUID; expected hexadecimal digits in groups of 8-4-4-4-12",
                field="uuid",
            )
        return cls.of_uuid(uuid.UUID(text))


def _check_type(found: Uuid, type_: int) -> None:
    if found.type != type_:
        actual = _TYPES.get(found.type, f"an object of the reserved type {found.type}")
        raise InvalidArgument(
            f"The UUID {found} must be that of {_TYPES[type_]}, not of {actual}", field="uuid"
        )


StateRef: TypeAlias = Guid | Uuid
"""A state id in either form."""


def is_uuid(text: str) -> bool:
    """Return whether a text has the form of a UUID, of Naksha or not."""
    return _TEXT.fullmatch(text) is not None


def parse_state_id(text: str) -> StateRef:
    """Parse the id of a feature's state in either form."""
    if not is_uuid(text):
        return Guid.parse(text)
    found = Uuid.parse(text)
    _check_type(found, TYPE_FEATURE)
    return found
