"""What runs through a pipeline. All of it is plain data, so that a remote handler can get it.

A request says in its type what is answered: `Request[Features]` is answered with `Features`.
"""

from __future__ import annotations

from collections.abc import Collection
from enum import StrEnum
from typing import Any, ClassVar, Final, Generic, Self, TypeVar

import msgspec

from naksha.hub.auth.rights import Right
from naksha.hub.auth.row_rights import narrowed
from naksha.hub.pipeline.responses import (
    Content,
    Count,
    Deleted,
    Features,
    Findings,
    FixedVersion,
    Purged,
    TileBytes,
    Whereabouts,
    Written,
)
from naksha.hub.subscriptions.delivery_fence import Fence
from naksha.model.geo.tiles import VectorTile
from naksha.model.query import Not, Op, Predicate, Query, SortKey, States, Test
from naksha.model.state import XYZ, Found

R = TypeVar("R")
MATCH_ALL = Query()
MASKS: Final = Not(Test(("properties", XYZ, "masks"), Op.EQ, False))
"""Tombstones that hide the feature of the same id in the layers below."""


class Request(msgspec.Struct, Generic[R], frozen=True, kw_only=True, tag_field="request"):
    """Any request. Its tag is its name on the wire; the tag of a class that is only a base of
    others is empty. `ref` says on which branch and at which version
    (`naksha.versioning.version_refs`)."""

    changes: ClassVar[bool] = False
    """Whether something is different afterwards."""
    guarded: ClassVar[bool] = False
    """Whether whoever carries it out asks the guards of the context about every change of a
    feature (`Context.check_change`), so that rights to change some features are enough."""
    tells_features: ClassVar[bool] = True
    """Whether features can be told from the answer. If not, a right to some of them is enough."""

    ref: str = ""

    def needs(self) -> Collection[Right]:
        """The rights on the space that whoever asks must have."""
        return (Right.READ_FEATURES,)

    def narrowed(self, allowed: Predicate) -> Self | None:
        """The same, about only those features of which something is true; None where that cannot
        be said. Rights to read some features need it."""
        return None


class ReadFeatures(Request[Features], frozen=True, kw_only=True, tag="ReadFeatures"):
    """Features of a query. With `paged` they come in the order of their ids at one version, and
    the answer has a cursor if there are more; else as many as the limit says, in any order."""

    query: Query = MATCH_ALL
    paged: bool = False
    context: str = "default"
    """Of a composite space: all of it (`default`), only what it adds (`extension`) or only what is
    below (`super`)."""
    only_ids: bool = False
    """Whether nothing but the ids of what is there is of interest. A right to some features is
    enough then to ask for any ids: what somebody may not read still hides what lies below it."""

    @property
    def is_about_ids(self) -> bool:
        """Whether the answer tells of nothing but ids which whoever asks knows."""
        asked = msgspec.structs.replace(self.query, ids=None, states=States.LIVE, space=None)
        if asked.where == MASKS:
            asked = msgspec.structs.replace(asked, where=None)
        return self.only_ids and self.query.ids is not None and asked == MATCH_ALL

    def narrowed(self, allowed: Predicate) -> Self:
        return msgspec.structs.replace(self, query=narrowed(self.query, allowed))


class FindFeatures(Request[Findings], frozen=True, kw_only=True, tag="FindFeatures"):
    """What a query finds, without its content, in the order of some keys and then of the ids: the
    first ones after one of them, as many as the limit says (see `Reader.found`). Who changes
    features on their way does not answer it, and it is found out from what `ReadFeatures` gives."""

    query: Query = MATCH_ALL
    sort: tuple[SortKey, ...] = ()
    after: Found | None = None

    def narrowed(self, allowed: Predicate) -> Self:
        return msgspec.structs.replace(self, query=narrowed(self.query, allowed))


class CountFeatures(Request[Count], frozen=True, kw_only=True, tag="CountFeatures"):
    """How many features a query has."""

    query: Query = MATCH_ALL
    context: str = "default"

    def narrowed(self, allowed: Predicate) -> Self:
        return msgspec.structs.replace(self, query=narrowed(self.query, allowed))


class GetVersion(Request[FixedVersion | None], frozen=True, kw_only=True, tag="GetVersion"):
    """Which version the reference means; None if it means the present, which does not stay."""

    tells_features: ClassVar[bool] = False

    published: bool = False
    """Whether the last published version is taken for the present."""


class ReadTile(Request[TileBytes], frozen=True, kw_only=True, tag="ReadTile"):
    """Features of a query as a vector tile, made where they are stored. Who changes features on
    their way does not answer it, and the tile is made from what `ReadFeatures` gives."""

    tile: VectorTile
    query: Query = MATCH_ALL

    def narrowed(self, allowed: Predicate) -> Self:
        return msgspec.structs.replace(self, query=narrowed(self.query, allowed))


class GetStatistics(Request[Content], frozen=True, kw_only=True, tag="GetStatistics"):
    """What there is in the space, as its storage knows it; `fast`: estimated, if it is much."""

    fast: bool = False


class FindStorages(Request[Whereabouts], frozen=True, kw_only=True, tag="FindStorages"):
    """Where a space keeps its features: only what is in one storage has versions in common."""

    tells_features: ClassVar[bool] = False


class PurgeFeatures(Request[Purged], frozen=True, kw_only=True, tag="PurgeFeatures"):
    """Remove the tombstones of deleted features; a live feature is a Conflict."""

    changes: ClassVar[bool] = True
    guarded: ClassVar[bool] = True

    ids: tuple[str, ...]

    def needs(self) -> Collection[Right]:
        return (Right.DELETE_FEATURES,)


class IfExists(StrEnum):
    """What is done with a feature that is there.

    PATCH: what is sent is laid over it; null takes a member away, arrays are replaced.
    MERGE: what is sent is merged with what others did since the state that it says it is based on.
    REPLACE: it becomes what is sent; tags and `crid` stay when nothing is sent for them.
    DELETE: it is deleted.
    RETAIN: nothing.
    ERROR: it should not be there.
    """

    PATCH = "patch"
    MERGE = "merge"
    REPLACE = "replace"
    DELETE = "delete"
    RETAIN = "retain"
    ERROR = "error"


class IfNotExists(StrEnum):
    """What is done with a feature that is not there."""

    CREATE = "create"
    RETAIN = "retain"
    ERROR = "error"


class OnConflict(StrEnum):
    """What is done where both sides of a merge changed the same: the value that is there stays
    (RETAIN), or the one that is sent counts (REPLACE)."""

    ERROR = "error"
    RETAIN = "retain"
    REPLACE = "replace"


class Modification(msgspec.Struct, frozen=True, kw_only=True):
    """Features, or ids of features, and what is to be done with them. An id alone can be deleted,
    left alone or expected (not) to be there. Of features with the same id the last one counts.

    Where the `uuid` of a feature locks, and is that of a state of the collection, the feature is
    written only over that state, whatever the rules say (MERGE excepted, where it is the base)."""

    features: tuple[dict[str, Any], ...] = ()
    ids: tuple[str, ...] = ()
    if_exists: IfExists = IfExists.PATCH
    if_not_exists: IfNotExists = IfNotExists.CREATE
    on_conflict: OnConflict = OnConflict.ERROR
    never_there: bool = False
    """Whether what is created must never have been there: over a tombstone that masks, and over a
    live feature if `if_exists` is ERROR, it is PreconditionFailed for the whole request. A view
    sets it for features that it found in a lower layer only."""
    unmasks: bool = False
    """Whether features are deleted such that lower layers show through: their tombstones do not
    mask, and earlier tombstones of the features in `after` are replaced."""
    after: dict[str, int] = {}
    """By id, the versions of features in a lower layer; created features continue after them, so
    that a version is never given to two states that a view shows."""

    def unlocked(self) -> Modification:
        """The same with features that lock nothing. A merge keeps the `uuid`s: they name bases."""
        if self.if_exists is IfExists.MERGE:
            return self
        return msgspec.structs.replace(self, features=tuple(map(without_uuid, self.features)))


class WriteFeatures(Request[Written], frozen=True, kw_only=True, tag="WriteFeatures"):
    """Modifications of one space, as one transaction, in their order.

    `ref` is a branch, or a version that the features were read at; then a feature that was changed
    since is a Conflict, or is merged."""

    changes: ClassVar[bool] = True
    guarded: ClassVar[bool] = True

    modifications: tuple[Modification, ...]
    transactional: bool = True
    """False: what is right is written although something else is wrong."""
    conflict_detection: bool = False
    """Whether the version that a feature has with it must be the present one; one that is there
    and comes without is a Conflict too."""
    prefix_id: str = ""
    """Put before all ids."""
    add_tags: tuple[str, ...] = ()
    remove_tags: tuple[str, ...] = ()
    message: str | None = None
    """Why: kept with the transaction."""
    returning: bool = True
    """Whether the answer has the states."""
    context: str = "default"
    uuid_lock: bool = True
    """Whether the `uuid` of a feature locks. False: only where the space says so (`uuidLock`)."""
    fence: Fence | None = None
    """Of a delivery: what was written before, or comes too late, is not written."""

    def needs(self) -> Collection[Right]:
        """What the modifications may come to."""
        rights: set[Right] = set()
        for one in self.modifications:
            if one.if_exists is IfExists.DELETE:
                rights.add(Right.DELETE_FEATURES)
            elif one.if_exists not in (IfExists.RETAIN, IfExists.ERROR):
                rights.add(Right.UPDATE_FEATURES)
            if one.if_not_exists is IfNotExists.CREATE and one.features:
                rights.add(Right.CREATE_FEATURES)
        return rights or {Right.READ_FEATURES}

    def with_settled_locks(self, space_locks: bool) -> WriteFeatures:
        """The same with only those `uuid`s left that lock, or name the base of a merge. Handlers
        add locks of their own to it."""
        if self.uuid_lock:
            return self
        modifications = self.modifications
        if not space_locks:
            modifications = tuple(one.unlocked() for one in modifications)
        return msgspec.structs.replace(self, uuid_lock=True, modifications=modifications)


def without_uuid(feature: Any) -> Any:
    """A feature without the state that it was made from. One that is malformed stays as it is, for
    the checks that follow."""
    properties = feature.get("properties") if isinstance(feature, dict) else None
    namespace = properties.get(XYZ) if isinstance(properties, dict) else None
    if not isinstance(properties, dict) or not isinstance(namespace, dict):
        return feature
    if "uuid" not in namespace:
        return feature
    kept = {name: value for name, value in namespace.items() if name != "uuid"}
    return {**feature, "properties": {**properties, XYZ: kept}}


class DeleteFeatures(Request[Deleted], frozen=True, kw_only=True, tag="DeleteFeatures"):
    """Delete all that a query finds, as one transaction; without a query, everything."""

    changes: ClassVar[bool] = True
    guarded: ClassVar[bool] = True

    query: Query = MATCH_ALL
    message: str | None = None
    context: str = "default"
    unmasks: bool = False
    """As in `Modification`; earlier tombstones are replaced if nothing but ids is asked for."""

    def needs(self) -> Collection[Right]:
        return (Right.DELETE_FEATURES,)
