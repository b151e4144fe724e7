"""Stored parts of an index: the container, its stripes, and the lists of stripes."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final, NamedTuple

import msgspec

from naksha.catalog.index.blocks import Entry
from naksha.catalog.index.page import EMPTY, IndexPage
from naksha.catalog.objects import Object, ObjectRef, encode, object_type
from naksha.model import limits
from naksha.model.errors import StorageCorrupt

STRIPE: Final = "ix"
SEGMENT: Final = "ixs"
_SIZES: Final = struct.Struct(">IB")


@object_type(STRIPE)
class Stripe(msgspec.Struct, frozen=True):
    """A range of the keys with their values; it has no tombstones."""

    page: bytes


@object_type(SEGMENT)
class IndexSegment(msgspec.Struct, frozen=True):
    """A range of the list of stripes, as a page of `PageRef`."""

    page: bytes


class IndexContainer(msgspec.Struct, frozen=True):
    """An index as a field of an object.

    Both fields are pages, so everything is protected by a checksum, and neither has a default, so a
    missing one is noticed.
    """

    embedded: bytes
    """Changes since the last spill: values and tombstones, which take precedence over the stripes.
    """
    stripes: bytes
    """The list of stripes, or of segments if there are many: a `PageRef` each."""


EMPTY_CONTAINER: Final = IndexContainer(EMPTY.data, EMPTY.data)


class PageRef(NamedTuple):
    """Reference to a stored page with its range of keys.

    In a list of them, `first` is the key, and the value is: the page's size (4 bytes), the length
    of the reference (1 byte), the reference, `last`.
    """

    first: bytes
    last: bytes
    ref: ObjectRef
    size: int
    """Bytes of the page."""

    def to_entry(self) -> Entry:
        ref = self.ref.to_bytes()
        return self.first, _SIZES.pack(self.size, len(ref)) + ref + self.last

    @classmethod
    def from_entry(cls, entry: Entry) -> PageRef:
        first, value = entry
        if value is None or len(value) < _SIZES.size:
            raise StorageCorrupt(
                "The list of an index's stripes is damaged: an entry has no reference; restore "
                "the catalog from a backup"
            )
        size, length = _SIZES.unpack_from(value)
        end = _SIZES.size + length
        ref = ObjectRef.from_bytes(value[_SIZES.size : end])
        if ref is None or ref.type not in {STRIPE, SEGMENT}:
            raise StorageCorrupt(
                f"The list of an index's stripes is damaged: it refers to {ref}; restore the "
                "catalog from a backup"
            )
        return cls(first, value[end:], ref, size)

    def page_of(self, value: object) -> IndexPage:
        """Return the page of the object that was read for this reference."""
        if isinstance(value, Stripe | IndexSegment) and (
            isinstance(value, Stripe) == (self.ref.type == STRIPE)
        ):
            try:
                page = IndexPage(value.page)
                if len(page.data) == self.size and page.first_key(0) == self.first:
                    return page
            except (StorageCorrupt, IndexError) as error:
                raise StorageCorrupt(f"In object {self.ref.id}: {error}") from error
        what = "missing" if value is None else "different from the one that the index refers to"
        raise StorageCorrupt(
            f"Object {self.ref.id} ({self.ref.type}) of an index is {what}; restore the catalog "
            "from a backup"
        )


def new_object(
    id: int, value: Stripe | IndexSegment, page: IndexPage, last: bytes
) -> tuple[Object[Stripe | IndexSegment], PageRef]:
    """Return an object to write and its list entry; `last` is the last key that it leads to."""
    parts = max(1, -(-len(encode(value)) // limits.CATALOG_ROW_BYTES_MAX))
    made: Object[Stripe | IndexSegment] = Object(id, value, parts=parts)
    return made, PageRef(page.first_key(0), last, made.ref, len(page.data))


def page_refs(entries: Iterable[Entry]) -> list[PageRef]:
    return [PageRef.from_entry(entry) for entry in entries]
