"""One version of one feature, as returned by a storage."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

import msgspec

from naksha.model.damage import DAMAGED, UNREADABLE, decode_feature

T = TypeVar("T")
XYZ: Final = "@ns:com:here:xyz"
"""Key of the namespace inside `properties`."""
CONFLICTING: Final = "@ns:naksha:conflicting"
"""Member of a feature on a branch for conflict resolution, true until a client writes the
feature."""


class StateHeader(msgspec.Struct, frozen=True, gc=False):
    """Members of the namespace that identify a state."""

    uuid: str
    puuid: str | None
    txn: str
    action: str


class _Properties(msgspec.Struct, frozen=True, gc=False, rename={"xyz": XYZ}):
    xyz: StateHeader


class _Feature(msgspec.Struct, frozen=True, gc=False):
    properties: _Properties


_decode_heading = msgspec.json.Decoder(_Feature).decode


# gc=False: states are numerous and never part of a reference cycle.
class State(msgspec.Struct, eq=False, gc=False):
    """State of a feature: its id and its GeoJSON as bytes, which are parsed on first access."""

    id: str
    raw: bytes
    _feature: dict[str, Any] | None = None

    @property
    def feature(self) -> dict[str, Any]:
        """Complete GeoJSON feature, geometry and namespace included."""
        return self.mend() if self._feature is None else self._feature

    def mend(self) -> dict[str, Any]:
        """Parse the feature, and replace unreadable bytes by what can be recovered."""
        self._feature = feature = decode_feature(self.raw)
        if DAMAGED in feature:
            self.raw = msgspec.json.encode(feature)
        return feature

    def heading(self) -> StateHeader:
        """Return the most important members of the namespace, without parsing the rest."""
        return self.decoded_by(_decode_heading).properties.xyz

    def decoded_by(self, decode: Callable[[bytes], T]) -> T:
        """Decode the feature partially; of a damaged feature, decode what can be recovered."""
        try:
            return decode(self.raw)
        except UNREADABLE:
            self.mend()
            return decode(self.raw)

    @property
    def xyz(self) -> dict[str, Any]:
        """Namespace `@ns:com:here:xyz`."""
        namespace: dict[str, Any] = self.feature["properties"][XYZ]
        return namespace

    @property
    def txn(self) -> int:
        """Transaction that wrote this state."""
        return int(self.xyz["txn"])

    @property
    def uuid(self) -> str:
        """GUID of the state."""
        return str(self.xyz["uuid"])

    def __repr__(self) -> str:
        return f"State({self.id!r}, {self.raw!r})"


class MatchingState(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Reference to a matching state, without its content.

    `values` are its sort values as JSON: None for null or absent, and an empty array for any array
    or object.
    """

    id: str
    uuid: str
    values: tuple[str | None, ...] = ()


class WriteOutcome(msgspec.Struct, frozen=True):
    """Result of a write for one feature: the action, and the state that is now HEAD (or tombstone).

    `action` is CREATED, UPDATED, DELETED, PURGED, RESTORED or RETAINED (nothing changed, or a
    delete of a feature that did not exist). `state` is set only when the caller asked for states.
    """

    id: str
    action: str
    uuid: str | None
    version: int | None
    state: State | None = None
