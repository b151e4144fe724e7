"""Named pointers: a name, what it points to, and what it pointed to before."""

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
    """Unique to this life of the name: a pointer that was deleted and made anew has another one."""
    epoch: int
    """The epoch of its realm."""
    previous: tuple[int, ...] = ()
    """The ids of what it pointed to before, nearest first, at most PREVIOUS_POINTERS_MAX."""

    def to_row(self) -> PointerRow:
        target = self.target.to_bytes() if self.target is not None else b""
        previous = struct.pack(f">{len(self.previous)}q", *self.previous)
        return PointerRow(self.name, target, self.created, self.epoch, previous)

    @classmethod
    def from_row(cls, row: PointerRow) -> Pointer:
        if len(row.previous) % 8:
            raise StorageCorrupt(f"Pointer {row.name!r} does not say what it pointed to before")
        previous = struct.unpack(f">{len(row.previous) // 8}q", row.previous)
        target = ObjectRef.from_bytes(row.target)
        return cls(row.name, target, row.created, row.epoch, previous)

    def moved(self, target: ObjectRef) -> Pointer:
        """The pointer after it was moved; never back to nothing, to itself or to another type."""
        if self.target is None:
            return msgspec.structs.replace(self, target=target)
        if target.id == self.target.id:
            raise InvalidArgument(f"Pointer {self.name!r} points there already", field="target")
        if target.type != self.target.type:
            raise InvalidArgument(
                f"Pointer {self.name!r} points to objects of type {self.target.type!r}, "
                f"not {target.type!r}",
                field="target",
            )
        previous = (self.target.id, *self.previous)[: limits.PREVIOUS_POINTERS_MAX]
        return msgspec.structs.replace(self, target=target, previous=previous)


def check_pointer_name(name: str) -> None:
    """Raises InvalidArgument for a name that no database should be asked to keep."""
    try:
        length = len(name.encode("utf-8"))
    except UnicodeEncodeError:
        length = 0
    if not 0 < length <= limits.POINTER_NAME_BYTES_MAX or "\0" in name:
        raise InvalidArgument(
            f"The name of a pointer has 1 to {limits.POINTER_NAME_BYTES_MAX} bytes in UTF-8 "
            f"and no NUL, not {name[:80]!r}",
            field="name",
        )
