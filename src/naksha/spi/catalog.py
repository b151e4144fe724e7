"""Contract of catalog backends: rows, and compare-and-swap on one of them.

A backend has two tables and treats their values as bytes. *Pointers* are named and move by
compare-and-swap; *objects* have an id and are written once, or conditionally by their token. Every
row belongs to a realm. No operation needs a transaction over two rows.

Each call that changes data ends in one of three ways: it returns (its result is true and durable),
it raises `Unavailable` (nothing was changed), or it raises `OutcomeUnknown` (the change may have
been made, now or later). A backend that cannot distinguish the last two raises the last.

The conformance suite `naksha.testing.catalog.suite` is this contract in executable form.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from typing import NamedTuple, Protocol

import msgspec


class ObjectKey(NamedTuple):
    """Key of an object's row inside its realm; a big object has several parts, from 0."""

    id: int
    part: int = 0


class ObjectRow(msgspec.Struct, frozen=True):
    """Row of an object."""

    id: int
    """64 bits, signed, never negative."""
    part: int
    parts: int
    """Number of rows of the object; the same in each of them."""
    type: str
    """Id of its type: 2 to 32 bytes of ASCII."""
    value: bytes
    created_us: int
    """Time of the write; only for maintenance."""
    token: str | None = None
    """Compared by conditional writes; None after a plain write."""

    @property
    def key(self) -> ObjectKey:
        return ObjectKey(self.id, self.part)


class PointerRow(msgspec.Struct, frozen=True):
    """Named pointer.

    A swap compares all fields except `previous`, so that neither a pointer that was deleted and
    created again nor one of a fenced realm is mistaken for the old one.
    """

    name: str
    """Any text of 1 to POINTER_NAME_BYTES_MAX bytes in UTF-8; compared and ordered by its bytes."""
    target: bytes
    """Target as encoded by the catalog; empty if it has none yet."""
    created: int
    """Unique number that is assigned at creation and never changes."""
    epoch: int
    """Epoch of the realm that its writer must hold."""
    previous: bytes = b""
    """Previous targets as encoded by the catalog."""


class ScannedPointer(NamedTuple):
    """Pointer as returned by a scan of the whole database."""

    realm: str
    name: str
    created: int


class ScannedObject(NamedTuple):
    """Row of an object as returned by a scan of the whole database."""

    realm: str
    key: ObjectKey
    type: str
    created_us: int


Scanned = ScannedPointer | ScannedObject


class CatalogBackend(Protocol):
    """Database that stores the catalog; all calls may run concurrently.

    A batch may have any length (within the caller's limits), or be empty; the backend divides it as
    its database requires. Realm ids are compared byte by byte, like names.
    """

    name: str
    """Name for messages and metrics: `postgresql`, `redis`, …"""

    deletes_realms: bool
    """Whether `delete_realms` is supported; otherwise maintenance deletes the rows that it
    scans."""

    async def close(self) -> None:
        """Release all resources; later calls raise `Unavailable`."""

    async def now_us(self) -> int:
        """Return the database's own time in microseconds since 1970.

        It is one clock for all instances: of the server, or of the machine that the file or the
        process is on.
        """

    # ---- Pointers ----------------------------------------------------------------------------

    async def create_pointer(self, realm: str, row: PointerRow) -> bool:
        """Create a pointer; return False, without a change, if the name exists."""

    async def create_pointers(self, realm: str, rows: Sequence[PointerRow]) -> int:
        """Create missing pointers and return their number; each is atomic, the set is not."""

    async def fetch_pointers(self, realm: str, names: Collection[str]) -> dict[str, PointerRow]:
        """Return the existing ones, never older than the last acknowledged write."""

    async def list_pointers(
        self, realm: str, prefix: str, after: str, limit: int
    ) -> list[PointerRow]:
        """Return the first `limit` pointers whose names begin with `prefix` and exceed `after`.

        They are sorted by the bytes of their names.
        """

    async def swap_pointer(self, realm: str, expected: PointerRow, row: PointerRow) -> bool:
        """Replace `expected` by `row`, which has the same name.

        Returns False when target, created or epoch differ from the stored row, or there is none.
        """

    async def delete_pointer(self, realm: str, expected: PointerRow) -> bool:
        """Delete a pointer if target, created and epoch are as expected."""

    # ---- Objects -----------------------------------------------------------------------------

    async def fetch(self, realm: str, keys: Collection[ObjectKey]) -> dict[ObjectKey, ObjectRow]:
        """Return the existing rows."""

    async def write(self, realm: str, rows: Sequence[ObjectRow]) -> None:
        """Write rows, replacing existing ones; after an error some of them may be written."""

    async def delete(self, realm: str, keys: Collection[ObjectKey]) -> None:
        """Delete rows unconditionally; they may be missing."""

    async def insert(self, realm: str, row: ObjectRow) -> bool:
        """Write a row (with a token) if none exists; otherwise return False without a change."""

    async def replace(self, realm: str, row: ObjectRow, expected_token: str) -> bool:
        """Replace the row with the same type and with the token `expected_token`."""

    async def delete_if(self, realm: str, key: ObjectKey, expected_token: str) -> bool:
        """Delete the row with the token `expected_token`."""

    async def publish(
        self, realm: str, rows: Sequence[ObjectRow], expected: PointerRow, row: PointerRow
    ) -> bool:
        """Do `write` and, when that is durable, `swap_pointer`.

        A database that can do both does so in one round trip.
        """

    # ---- Maintenance -------------------------------------------------------------------------

    def scan(self) -> AsyncIterator[Sequence[Scanned]]:
        """Yield all rows of all realms, page by page.

        A row that exists from the beginning to the end of the scan is returned exactly once.
        """

    async def delete_scanned(self, rows: Sequence[Scanned]) -> int:
        """Delete scanned rows whose `created` or `created_us` is unchanged; return their number."""

    async def delete_realms(self, realms: Collection[str]) -> None:
        """Delete all rows of these realms."""


def by_key(rows: Sequence[ObjectRow]) -> Mapping[ObjectKey, ObjectRow]:
    """Return the rows of a batch by their keys; the last one of a key wins."""
    return {row.key: row for row in rows}
