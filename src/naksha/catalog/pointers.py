"""Named pointers: a name, its target, and its previous targets."""

from __future__ import annotations

import struct

import msgspec

from naksha.catalog.objects import ObjectRef
from naksha.model import limits
from naksha.model.errors import InvalidArgument, StorageCorrupt
from naksha.spi.catalog import PointerRow


class Pointer(msgspec.Struct, frozen=True):
    """A named pointer as it was when it was read."""

    name: str
    target: ObjectRef | None
    created: int
    """Unique to this life of the name: a pointer that is deleted and created again has another one.
    """
    epoch: int
    """The epoch of its realm."""
    previous: tuple[int, ...] = ()
    """The ids of its previous targets, nearest first, at most PREVIOUS_POINTERS_MAX."""

    def to_row(self) -> PointerRow:
        target = self.target.to_bytes() if self.target is not None else b""
        previous = struct.pack(f">{len(self.previous)}q", *self.previous)
        return PointerRow(self.name, target, self.created, self.epoch, previous)

    @classmethod
    def from_row(cls, row: PointerRow) -> Pointer:
        if len(row.previous) % 8:
            raise StorageCorrupt(
                f"Pointer {row.name!r} is damaged: its list of previous targets has "
                f"{len(row.previous)} bytes, which is not a multiple of 8; restore its row from a "
                "backup of the catalog"
            )
        previous = struct.unpack(f">{len(row.previous) // 8}q", row.previous)
        target = ObjectRef.from_bytes(row.target)
        return cls(row.name, target, row.created, row.epoch, previous)

    def moved(self, target: ObjectRef) -> Pointer:
        """Return the moved pointer. It never moves to nothing, to itself or to another type."""
        if self.target is None:
            return msgspec.structs.replace(self, target=target)
        if target.id == self.target.id:
            raise InvalidArgument(
                f"Pointer {self.name!r} already points to object {target.id}; a commit must move "
                "it to another object",
                field="target",
            )
        if target.type != self.target.type:
            raise InvalidArgument(
                f"Pointer {self.name!r} must point to an object of type {self.target.type!r}, not "
                f"{target.type!r}; use another pointer for this type",
                field="target",
            )
        previous = (self.target.id, *self.previous)[: limits.PREVIOUS_POINTERS_MAX]
        return msgspec.structs.replace(self, target=target, previous=previous)


def check_pointer_name(name: str) -> None:
    """Raise InvalidArgument unless a name is valid for a pointer."""
    try:
        length = len(name.encode("utf-8"))
    except UnicodeEncodeError:
        length = 0
    if not 0 < length <= limits.POINTER_NAME_BYTES_MAX or "\0" in name:
        raise InvalidArgument(
            f"A pointer name must have 1 to {limits.POINTER_NAME_BYTES_MAX} bytes in UTF-8 and no"
            f" NUL, not {name[:80]!r}",
            field="name",
        )
