"""Uncached reads of a realm, in whatever state the realm is."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Final, TypeVar

from naksha.catalog.object_rows import assembled, hinted_keys, missing_keys
from naksha.catalog.objects import Object, ObjectRef
from naksha.spi.catalog import CatalogBackend, ObjectKey, ObjectRow, PointerRow

T = TypeVar("T")

_POINTERS_PAGE: Final = 1_000
OBJECTS_BATCH: Final = 64
"""Objects read together; most are small, a stripe of an index has 128 kB."""


class RealmReader:
    """The rows of one realm."""

    def __init__(self, backend: CatalogBackend, realm: str) -> None:
        self.backend = backend
        self.realm = realm

    async def pointers(self) -> AsyncIterator[PointerRow]:
        """Iterate over all pointers, ordered by name."""
        after = ""
        while rows := await self.backend.list_pointers(self.realm, "", after, _POINTERS_PAGE):
            for row in rows:
                yield row
            after = rows[-1].name

    async def rows(self, refs: Collection[ObjectRef]) -> dict[ObjectKey, ObjectRow]:
        """Return the rows of objects, including parts that the references omit."""
        rows = await self.backend.fetch(
            self.realm, [key for ref in refs for key in hinted_keys(ref)]
        )
        more = [key for ref in refs for key in missing_keys(ref.id, rows)]
        return rows | await self.backend.fetch(self.realm, more) if more else rows

    async def fetch(self, ref: ObjectRef) -> Object[Any] | None:
        """Return an object, or None if it does not exist.

        Raises:
            InvalidArgument: It is of another type.
            StorageCorrupt: It cannot be read.
        """
        return assembled(ref, await self.rows([ref]))

    async def fetch_values(self, refs: Sequence[ObjectRef]) -> list[Any]:
        """Return the values of objects in the order of their references."""
        rows: dict[ObjectKey, ObjectRow] = {}
        for some in batches(refs, OBJECTS_BATCH):
            rows |= await self.rows(some)
        found = [assembled(ref, rows) for ref in refs]
        return [kept.value if kept is not None else None for kept in found]


def batches(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """Iterate over lists of at most `size` items."""
    rest = iter(items)
    while some := list(islice(rest, size)):
        yield some
