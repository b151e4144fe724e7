"""What a database implements to hold the catalog: rows, and compare-and-swap on one of them.

A backend knows two tables and sees only bytes in them. *Pointers* are named and move by
compare-and-swap; *objects* have an id and are written once, or conditionally by their token. Every
row belongs to a realm. Nothing here needs a transaction over two rows.

Each call that changes something ends in one of three ways: it returns (what it says is true and
durable), it raises `Unavailable` (nothing was changed), or it raises `OutcomeUnknown` (it may have
been carried out, now or later). A backend that cannot tell the last two apart raises the last.

The shipped suite `naksha.testing.catalog.suite` is this contract in executable form.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from typing import NamedTuple, Protocol

import msgspec


class ObjectKey(NamedTuple):
    """The key of an object's row inside its realm. A big object has several parts, from 0."""

    id: int
    part: int = 0


class ObjectRow(msgspec.Struct, frozen=True):
    """One row of an object."""

    id: int
    """64 bits, signed, never negative."""
    part: int
    parts: int
    """How many rows the object has; the same in each of them."""
    type: str
    """The id of its type: 2 to 32 bytes of ASCII."""
    value: bytes
    created_us: int
    """When it was written; only for maintenance."""
    token: str | None = None
    """What a conditional write compares; None after a plain write."""

    @property
    def key(self) -> ObjectKey:
        return ObjectKey(self.id, self.part)


class PointerRow(msgspec.Struct, frozen=True):
    """One named pointer. All fields are compared by a swap, except `previous`, so that neither a
    pointer which was deleted and made anew nor one of a fenced realm is taken for the old one."""

    name: str
    """Any text of 1 to POINTER_NAME_BYTES_MAX bytes in UTF-8; compared and ordered by its bytes."""
    target: bytes
    """What it points to, as the catalog encodes it; empty: nothing yet."""
    created: int
    """A unique number that is given with its creation and never changes."""
    epoch: int
    """The epoch of the realm that its writer must hold."""
    previous: bytes = b""
    """What it pointed to before, as the catalog encodes it."""


class ScannedPointer(NamedTuple):
    """A pointer as a scan of the whole database gives it."""

    realm: str
    name: str
    created: int


class ScannedObject(NamedTuple):
    """An object's row as a scan of the whole database gives it."""

    realm: str
    key: ObjectKey
    type: str
    created_us: int


Scanned = ScannedPointer | ScannedObject


class CatalogBackend(Protocol):
    """A database that holds the catalog. All calls may run concurrently.

    A batch may be of any length (the caller's limits hold), also empty; the backend cuts it as its
    database needs. Realm ids are compared byte by byte, like names.
    """

    name: str
    """For messages and metrics: `postgresql`, `redis`, …"""

    deletes_realms: bool
    """Whether `delete_realms` works; otherwise maintenance deletes what it scans."""

    async def close(self) -> None:
        """Give all resources free. Calls that come later raise `Unavailable`."""

    async def now_us(self) -> int:
        """Return the database's own time in microseconds since 1970. It is one clock for all
        instances: of the server, or of the machine that the file or the process is on."""

    # ---- Pointers ----------------------------------------------------------------------------

    async def create_pointer(self, realm: str, row: PointerRow) -> bool:
        """Whether it was made; False: one of that name is there, untouched."""

    async def create_pointers(self, realm: str, rows: Sequence[PointerRow]) -> int:
        """Make those that are not there; each is atomic, the set is not. How many were made."""

    async def fetch_pointers(self, realm: str, names: Collection[str]) -> dict[str, PointerRow]:
        """Those that are there, as they are now: never older than the last acknowledged write."""

    async def list_pointers(
        self, realm: str, prefix: str, after: str, limit: int
    ) -> list[PointerRow]:
        """The first `limit` pointers whose names begin with `prefix` and are greater than `after`,
        in the order of their names' bytes."""

    async def swap_pointer(self, realm: str, expected: PointerRow, row: PointerRow) -> bool:
        """Put `row` in the place of `expected`, which has the same name; False when target,
        created or epoch differ from what is there, or nothing is there."""

    async def delete_pointer(self, realm: str, expected: PointerRow) -> bool:
        """Delete it if target, created and epoch are as expected."""

    # ---- Objects -----------------------------------------------------------------------------

    async def fetch(self, realm: str, keys: Collection[ObjectKey]) -> dict[ObjectKey, ObjectRow]:
        """Those that are there."""

    async def write(self, realm: str, rows: Sequence[ObjectRow]) -> None:
        """Write rows, over whatever is there. After an error some of them may be written."""

    async def delete(self, realm: str, keys: Collection[ObjectKey]) -> None:
        """Delete rows, whatever they are; those that are not there are fine."""

    async def insert(self, realm: str, row: ObjectRow) -> bool:
        """Write a row (with a token) where none is; False: there is one, untouched."""

    async def replace(self, realm: str, row: ObjectRow, expected_token: str) -> bool:
        """Write over the row whose type is the same and whose token is `expected_token`."""

    async def delete_if(self, realm: str, key: ObjectKey, expected_token: str) -> bool:
        """Delete the row whose token is `expected_token`."""

    async def publish(
        self, realm: str, rows: Sequence[ObjectRow], expected: PointerRow, row: PointerRow
    ) -> bool:
        """`write`, and when that is durable, `swap_pointer`. A database that can do both in one
        round trip does; one that cannot inherits `WriteThenSwap`."""

    # ---- Maintenance -------------------------------------------------------------------------

    def scan(self) -> AsyncIterator[Sequence[Scanned]]:
        """Everything there is in all realms, page by page. What is there from the beginning to the
        end of the scan comes exactly once."""

    async def delete_scanned(self, rows: Sequence[Scanned]) -> int:
        """Delete what a scan gave, each only if `created` or `created_us` is still the same. How
        many were deleted."""

    async def delete_realms(self, realms: Collection[str]) -> None:
        """Delete everything of these realms."""


class WriteThenSwap:
    """`publish` for a database without transactions."""

    async def publish(
        self: CatalogBackend,
        realm: str,
        rows: Sequence[ObjectRow],
        expected: PointerRow,
        row: PointerRow,
    ) -> bool:
        await self.write(realm, rows)
        return await self.swap_pointer(realm, expected, row)


class OpensCatalog(Protocol):
    """The class that an entry point of the group `naksha.catalogs` names."""

    async def open(self, location: str, **options: object) -> CatalogBackend:
        """Connect, and set the tables up if they are not there."""


def by_key(rows: Sequence[ObjectRow]) -> Mapping[ObjectKey, ObjectRow]:
    """The rows of a batch by their keys; the last one of a key counts."""
    return {row.key: row for row in rows}
