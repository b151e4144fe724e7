"""Requests that run through pipelines: plain data, so that they can be sent to remote handlers.

The type parameter is the type of the response: `Request[Features]` is answered with `Features`.
"""

from __future__ import annotations

from collections.abc import Collection
from enum import StrEnum
from typing import Any, ClassVar, Final, Generic, Self, TypeVar

import msgspec

from naksha.hub.auth.rights import Right
from naksha.hub.auth.row_rights import narrowed
from naksha.hub.pipeline.responses import (
    Count,
    Deleted,
    Features,
    FeatureStorages,
    FixedVersion,
    FoundFeatures,
    Purged,
    SpaceStatistics,
    TileBytes,
    Written,
)
from naksha.hub.subscriptions.delivery_fence import DeliveryFence
from naksha.model.geo.tiles import VectorTile
from naksha.model.query import Not, Op, Predicate, Query, SortKey, States, Test
from naksha.model.state import XYZ, MatchingState

R = TypeVar("R")
MATCH_ALL = Query()
MASKS: Final = Not(Test(("properties", XYZ, "masks"), Op.EQ, False))
"""Matches tombstones that hide the feature of the same id in lower layers."""


class Request(msgspec.Struct, Generic[R], frozen=True, kw_only=True, tag_field="request"):
    """Base class of requests.

    The tag is the name on the wire; it is empty for classes that only serve as a base. `ref`
    selects the branch and version (`naksha.versioning.version_refs`).
    """

    changes: ClassVar[bool] = False
    """Whether the request changes data."""
    guarded: ClassVar[bool] = False
    """Whether the executing handler passes every change of a feature to the guards of the context
    (`RequestContext.check_change`), so that rights on some features suffice."""
    tells_features: ClassVar[bool] = True
    """Whether the response reveals features. If not, a right on some of them suffices."""

    ref: str = ""

    def needs(self) -> Collection[Right]:
        """Return the rights on the space that the actor must have."""
        return (Right.READ_FEATURES,)

    def narrowed(self, allowed: Predicate) -> Self | None:
        """Return the request restricted to features that satisfy a predicate.

        None if the request cannot be restricted; then a right to read only some features does not
        suffice.
        """
        return None


class ReadFeatures(Request[Features], frozen=True, kw_only=True, tag="ReadFeatures"):
    """Read the features of a query.

    With `paged`, they are ordered by id and read at one version, and the response has a cursor if
    there are more. Otherwise, at most `limit` features are returned in any order.
    """

    query: Query = MATCH_ALL
    paged: bool = False
    context: str = "default"
    """Part of a composite space: all (`default`), only its own features (`extension`), or only
    those of the base space (`super`)."""
    only_ids: bool = False
    """Whether only the ids of existing features matter. A right on some features then suffices to
    query any ids: a feature that the actor may not read still hides the one in the layer below."""

    @property
    def is_about_ids(self) -> bool:
        """Whether the response reveals nothing but which of the given ids exist."""
        requested = msgspec.structs.replace(self.query, ids=None, states=States.LIVE, space=None)
        if requested.where == MASKS:
            requested = msgspec.structs.replace(requested, where=None)
        return self.only_ids and self.query.ids is not None and requested == MATCH_ALL

    def narrowed(self, allowed: Predicate) -> Self:
        return msgspec.structs.replace(self, query=narrowed(self.query, allowed))


class FindFeatures(Request[FoundFeatures], frozen=True, kw_only=True, tag="FindFeatures"):
    """Find the states of a query without their content, ordered by sort keys and then by id.

    Returns at most `limit` states after the state `after`, see `StorageReader.matching_states`.
    Handlers that transform features do not support it; the result is then derived from
    `ReadFeatures`.
    """

    query: Query = MATCH_ALL
    sort: tuple[SortKey, ...] = ()
    after: MatchingState | None = None

    def narrowed(self, allowed: Predicate) -> Self:
        return msgspec.structs.replace(self, query=narrowed(self.query, allowed))


class CountFeatures(Request[Count], frozen=True, kw_only=True, tag="CountFeatures"):
    """Count the features of a query."""

    query: Query = MATCH_ALL
    context: str = "default"

    def narrowed(self, allowed: Predicate) -> Self:
        return msgspec.structs.replace(self, query=narrowed(self.query, allowed))


class GetVersion(Request[FixedVersion | None], frozen=True, kw_only=True, tag="GetVersion"):
    """Resolve the reference to a fixed version; None if it means HEAD, which moves."""

    tells_features: ClassVar[bool] = False

    published: bool = False
    """Whether HEAD resolves to the last published version."""


class ReadTile(Request[TileBytes], frozen=True, kw_only=True, tag="ReadTile"):
    """Render the features of a query as a vector tile, inside the storage.

    Handlers that transform features do not support it; the tile is then rendered from
    `ReadFeatures`.
    """

    tile: VectorTile
    query: Query = MATCH_ALL

    def narrowed(self, allowed: Predicate) -> Self:
        return msgspec.structs.replace(self, query=narrowed(self.query, allowed))


class GetStatistics(Request[SpaceStatistics], frozen=True, kw_only=True, tag="GetStatistics"):
    """Read the storage's statistics of the space; `fast` allows estimates for large collections."""

    fast: bool = False


class FindStorages(Request[FeatureStorages], frozen=True, kw_only=True, tag="FindStorages"):
    """Find the storages of a space's features. Only features in one storage share versions."""

    tells_features: ClassVar[bool] = False


class PurgeFeatures(Request[Purged], frozen=True, kw_only=True, tag="PurgeFeatures"):
    """Remove the tombstones of deleted features; a live feature raises Conflict."""

    changes: ClassVar[bool] = True
    guarded: ClassVar[bool] = True

    ids: tuple[str, ...]

    def needs(self) -> Collection[Right]:
        return (Right.DELETE_FEATURES,)


class IfExists(StrEnum):
    """Action for a feature that exists.

    PATCH: merge patch: members are overwritten, null removes a member, arrays are replaced.
    MERGE: three-way merge with changes by others since the state that the feature is based on.
    REPLACE: replace the feature; tags and `crid` are kept if the request has none.
    DELETE: delete the feature.
    RETAIN: leave the feature unchanged.
    ERROR: fail.
    """

    PATCH = "patch"
    MERGE = "merge"
    REPLACE = "replace"
    DELETE = "delete"
    RETAIN = "retain"
    ERROR = "error"


class IfNotExists(StrEnum):
    """Action for a feature that does not exist."""

    CREATE = "create"
    RETAIN = "retain"
    ERROR = "error"


class OnConflict(StrEnum):
    """Action for a property that both sides of a merge changed.

    RETAIN keeps the existing value, REPLACE takes the one in the request, ERROR fails.
    """

    ERROR = "error"
    RETAIN = "retain"
    REPLACE = "replace"


class Modification(msgspec.Struct, frozen=True, kw_only=True):
    """Features or feature ids, and the actions to apply to them.

    An id alone can only be deleted, retained, or checked for (non-)existence. Of features with the
    same id the last one counts.

    If the `uuid` of a feature locks and names a state of the collection, the feature is written
    only over that state, whatever the actions are. Except with MERGE: there it is the base.
    """

    features: tuple[dict[str, Any], ...] = ()
    ids: tuple[str, ...] = ()
    if_exists: IfExists = IfExists.PATCH
    if_not_exists: IfNotExists = IfNotExists.CREATE
    on_conflict: OnConflict = OnConflict.ERROR
    never_there: bool = False
    """Whether created features must not have existed before. A masking tombstone, or a live feature
    if `if_exists` is ERROR, then raises PreconditionFailed for the whole request. A view sets it
    for features that it found only in a lower layer."""
    unmasks: bool = False
    """Whether deletions make lower layers visible again: their tombstones do not mask, and earlier
    tombstones of the features in `after` are replaced."""
    after: dict[str, int] = {}
    """Feature versions in a lower layer, by id. Created features continue after them, so that no
    two states that a view shows have the same version."""

    def unlocked(self) -> Modification:
        """Return the modification without locks. A merge keeps the `uuid`s: they name bases."""
        if self.if_exists is IfExists.MERGE:
            return self
        return msgspec.structs.replace(self, features=tuple(map(_without_uuid, self.features)))


class WriteFeatures(Request[Written], frozen=True, kw_only=True, tag="WriteFeatures"):
    """Apply modifications to one space, in order, as one transaction.

    `ref` is a branch, or the version at which the features were read; then a feature that has
    changed since raises Conflict or is merged.
    """

    changes: ClassVar[bool] = True
    guarded: ClassVar[bool] = True

    modifications: tuple[Modification, ...]
    transactional: bool = True
    """If false, valid features are written even if others fail."""
    conflict_detection: bool = False
    """Whether the version in a feature must be the current one. A feature that exists and is sent
    without a version is a Conflict, too."""
    prefix_id: str = ""
    """Prefix added to all ids."""
    add_tags: tuple[str, ...] = ()
    remove_tags: tuple[str, ...] = ()
    message: str | None = None
    """Commit message, stored with the transaction."""
    returning: bool = True
    """Whether the response contains the states."""
    context: str = "default"
    uuid_lock: bool = True
    """Whether the `uuid` of a feature locks. False: only if the space sets `uuidLock`."""
    fence: DeliveryFence | None = None
    """Fence of a delivery: a repeated or outdated delivery writes nothing."""

    def needs(self) -> Collection[Right]:
        """Return the rights for all changes that the modifications can lead to."""
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
        """Remove all `uuid`s that neither lock nor name the base of a merge.

        In the result `uuid_lock` is set, so locks that handlers add take effect.
        """
        if self.uuid_lock:
            return self
        modifications = self.modifications
        if not space_locks:
            modifications = tuple(one.unlocked() for one in modifications)
        return msgspec.structs.replace(self, uuid_lock=True, modifications=modifications)


def _without_uuid(feature: Any) -> Any:
    """Return a feature without its `uuid`.

    A malformed feature is returned unchanged; later checks report it.
    """
    properties = feature.get("properties") if isinstance(feature, dict) else None
    namespace = properties.get(XYZ) if isinstance(properties, dict) else None
    if not isinstance(properties, dict) or not isinstance(namespace, dict):
        return feature
    if "uuid" not in namespace:
        return feature
    kept = {name: value for name, value in namespace.items() if name != "uuid"}
    return {**feature, "properties": {**properties, XYZ: kept}}


class DeleteFeatures(Request[Deleted], frozen=True, kw_only=True, tag="DeleteFeatures"):
    """Delete all features of a query (by default, all features) as one transaction."""

    changes: ClassVar[bool] = True
    guarded: ClassVar[bool] = True

    query: Query = MATCH_ALL
    message: str | None = None
    context: str = "default"
    unmasks: bool = False
    """As in `Modification`; earlier tombstones are replaced only if the query is by ids alone."""

    def needs(self) -> Collection[Right]:
        return (Right.DELETE_FEATURES,)
