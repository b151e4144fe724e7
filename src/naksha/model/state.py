"""One version of one feature, as a storage gives it out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

import msgspec

from naksha.model.damage import DAMAGED, UNREADABLE, decode_feature

T = TypeVar("T")
XYZ: Final = "@ns:com:here:xyz"
"""Key of the namespace inside `properties`."""
CONFLICTING: Final = "@ns:naksha:conflicting"
"""Member of a feature on a branch for solving conflicts, true until somebody writes the feature."""


class Heading(msgspec.Struct, frozen=True, gc=False):
    """What tells states of a feature apart."""

    uuid: str
    puuid: str | None
    txn: str
    action: str


class _Properties(msgspec.Struct, frozen=True, gc=False, rename={"xyz": XYZ}):
    xyz: Heading


class _Feature(msgspec.Struct, frozen=True, gc=False):
    properties: _Properties


_decode_heading = msgspec.json.Decoder(_Feature).decode


# Of these there are many at once, and none in a cycle: the collector need not look at them.
class State(msgspec.Struct, eq=False, gc=False):
    """A state: its id and its GeoJSON as bytes, parsed only when somebody looks inside."""

    id: str
    raw: bytes
    _feature: dict[str, Any] | None = None

    @property
    def feature(self) -> dict[str, Any]:
        """The whole GeoJSON feature, geometry and namespace included."""
        return self.mend() if self._feature is None else self._feature

    def mend(self) -> dict[str, Any]:
        """Parse the feature, and replace bytes that cannot be read by what is left of them."""
        self._feature = feature = decode_feature(self.raw)
        if DAMAGED in feature:
            self.raw = msgspec.json.encode(feature)
        return feature

    def heading(self) -> Heading:
        """The most important parts of the namespace, without parsing the rest."""
        return self.decoded_by(_decode_heading).properties.xyz

    def decoded_by(self, decode: Callable[[bytes], T]) -> T:
        """The parts of the feature that a decoder knows; of a damaged one, what is left of them."""
        try:
            return decode(self.raw)
        except UNREADABLE:
            self.mend()
            return decode(self.raw)

    @property
    def xyz(self) -> dict[str, Any]:
        """The namespace `@ns:com:here:xyz`."""
        namespace: dict[str, Any] = self.feature["properties"][XYZ]
        return namespace

    @property
    def txn(self) -> int:
        """The transaction that made this state."""
        return int(self.xyz["txn"])

    @property
    def uuid(self) -> str:
        """The state's GUID."""
        return str(self.xyz["uuid"])

    def __repr__(self) -> str:
        return f"State({self.id!r}, {self.raw!r})"


class Found(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A state that was found, without its content. `values` are what it is sorted by, as JSON:
    None for what is null or absent, and an empty array for any array or object."""

    id: str
    uuid: str
    values: tuple[str | None, ...] = ()


class Outcome(msgspec.Struct, frozen=True):
    """What a write did to one feature: the action, and the state that is HEAD (or tombstone) now.

    `action` is CREATED, UPDATED, DELETED, PURGED, RESTORED or RETAINED (nothing changed, or a
    delete of what was not there). `state` is given only when the caller asked for states.
    """

    id: str
    action: str
    uuid: str | None
    version: int | None
    state: State | None = None
