"""What an index consists of in the database: the container, its stripes, and their list."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final, NamedTuple

import msgspec

from naksha.catalog.index.blocks import Entry
from naksha.catalog.index.page import EMPTY, Page
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
class Segment(msgspec.Struct, frozen=True):
    """A range of the list of stripes, as a page of `PageRef`."""

    page: bytes


class IndexContainer(msgspec.Struct, frozen=True):
    """An index as a field of an object. Both fields are pages, so everything is under a checksum,
    and neither has a default, so a lost one is noticed."""

    embedded: bytes
    """What was changed since the last spill: values and tombstones, which win over the stripes."""
    stripes: bytes
    """The list of stripes, or if they are many, of segments that list them: a `PageRef` each."""


EMPTY_CONTAINER: Final = IndexContainer(EMPTY.data, EMPTY.data)


class PageRef(NamedTuple):
    """Where a page is kept and what is in it. In a list of them, `first` is the key, and the value
    is: the page's size (4 bytes), the length of the reference (1 byte), the reference, `last`."""

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
            raise StorageCorrupt("The list of an index's stripes has an entry without a reference")
        size, length = _SIZES.unpack_from(value)
        end = _SIZES.size + length
        ref = ObjectRef.from_bytes(value[_SIZES.size : end])
        if ref is None or ref.type not in {STRIPE, SEGMENT}:
            raise StorageCorrupt(f"The list of an index's stripes refers to {ref}")
        return cls(first, value[end:], ref, size)

    def opened(self, value: object) -> Page:
        """The page that was found under the reference."""
        if isinstance(value, Stripe | Segment) and (
            isinstance(value, Stripe) == (self.ref.type == STRIPE)
        ):
            try:
                page = Page(value.page)
                if len(page.data) == self.size and page.first_key(0) == self.first:
                    return page
            except (StorageCorrupt, IndexError) as error:
                raise StorageCorrupt(f"Object {self.ref.id} is damaged: {error}") from error
        what = "missing" if value is None else "another one than the index refers to"
        raise StorageCorrupt(f"Object {self.ref.id} ({self.ref.type}) of an index is {what}")


def new_object(
    id: int, value: Stripe | Segment, page: Page, last: bytes
) -> tuple[Object[Stripe | Segment], PageRef]:
    """An object to be written, and how it is listed. `last` is the last key that it leads to."""
    parts = max(1, -(-len(encode(value)) // limits.CATALOG_ROW_BYTES_MAX))
    made: Object[Stripe | Segment] = Object(id, value, parts=parts)
    return made, PageRef(page.first_key(0), last, made.ref, len(page.data))


def page_refs(entries: Iterable[Entry]) -> list[PageRef]:
    return [PageRef.from_entry(entry) for entry in entries]
