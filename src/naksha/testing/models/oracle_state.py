"""State of the oracle: features, collections and snapshots as plain values.

Identities and transactions are small numbers of the oracle's own. A test maps them to the GUIDs
and txns of a storage, and so verifies that the storage links its states correctly.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from naksha.model.features import MARK_3D
from naksha.model.state import XYZ
from naksha.testing.models.brute_force import Bounds, bounds_of, quad_key_of
from naksha.testing.models.json_values import ABSENT, same

Feature = Mapping[str, Any]


@dataclass(frozen=True)
class OracleContent:
    """The client's part of a feature; omitted `tags` and `crid` are ABSENT."""

    id: str
    rest: dict[str, Any]
    geometry: dict[str, Any] | None
    tags: Any
    crid: Any

    @classmethod
    def of(cls, feature_id: str, feature: Feature) -> OracleContent:
        """Split a feature into its parts; drop all of its namespace except tags and crid."""
        properties = dict(feature.get("properties") or {})
        xyz = properties.pop(XYZ, None) or {}
        rest = {key: value for key, value in feature.items() if key not in ("geometry", MARK_3D)}
        rest |= {"id": feature_id, "properties": properties}
        tags = xyz.get("tags")
        return cls(
            id=feature_id,
            rest=rest,
            geometry=feature.get("geometry"),
            tags=ABSENT if tags is None else tuple(sorted(set(tags))),
            crid=xyz.get("crid", ABSENT),
        )


@dataclass(frozen=True)
class OracleState:
    """One version of one feature."""

    id: str
    rest: dict[str, Any]
    geometry: dict[str, Any] | None
    tags: tuple[str, ...]
    crid: str | None
    action: str
    version: int
    author: str
    app_id: str
    identity: int
    previous: int | None
    merged: int | None
    created_in: int
    txn: int
    txn_next: int = 0

    @property
    def qrid(self) -> str | None:
        return quad_key_of(self.geometry)

    @property
    def mrid(self) -> str | None:
        return self.crid if self.crid is not None else self.qrid

    @property
    def bounds(self) -> Bounds | None:
        return bounds_of(self.geometry)

    def says(self, content: OracleContent) -> bool:
        """Return whether an update with this content would change nothing."""
        return (
            same(self.rest, content.rest)
            and same(self.geometry, content.geometry)
            and content.tags in (ABSENT, self.tags)
            and content.crid in (ABSENT, self.crid)
        )


@dataclass
class OracleCollection:
    """A collection at one version: its live states, tombstones and past states."""

    id: str
    history: bool = True
    author: str | None = None
    id_prefix: str | None = None
    dropped: bool = False
    oldest: int = 0
    live: dict[str, OracleState] = field(default_factory=dict)
    deleted: dict[str, OracleState] = field(default_factory=dict)
    past: list[OracleState] = field(default_factory=list)

    def copy(self) -> OracleCollection:
        return replace(self, live=dict(self.live), deleted=dict(self.deleted), past=list(self.past))

    def all(self) -> list[OracleState]:
        """Return every visible state, by id and then in the order of creation."""
        states = [*self.past, *self.live.values(), *self.deleted.values()]
        return sorted(states, key=lambda state: (state.id, state.txn))


@dataclass
class OracleCounts:
    """The changes of a transaction to one collection, as reported by its log entry."""

    created: int = 0
    updated: int = 0
    deleted: int = 0
    purged: int = 0
    touched: list[str] = field(default_factory=list)
    boxes: list[Bounds | None] = field(default_factory=list)

    @property
    def plain(self) -> bool:
        """Whether each feature was changed only once, which determines counts and box exactly."""
        return len(set(self.touched)) == len(self.touched) and self.purged == 0


@dataclass(frozen=True)
class OracleMessage:
    """A message of a transaction."""

    text: str | None
    json: Any
    binary: bytes | None


@dataclass
class OracleTransaction:
    """A committed transaction and its signals."""

    number: int
    app_id: str
    author: str | None
    features: dict[str, OracleCounts] = field(default_factory=dict)
    collections: set[str] = field(default_factory=set)
    messages: dict[str, OracleMessage] = field(default_factory=dict)

    @property
    def empty(self) -> bool:
        return not (self.features or self.collections or self.messages)


Snapshot = dict[str, OracleCollection]
EMPTY: Final[Snapshot] = {}


def copy_snapshot(snapshot: Snapshot) -> Snapshot:
    """Return an independent copy of a snapshot."""
    return {name: collection.copy() for name, collection in snapshot.items()}
