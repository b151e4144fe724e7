"""Row-level rights: query predicates for reads and guards for writes.

Reads are narrowed in the storage itself, so that limits, counts and pages cover exactly the
features that the actor may see. Writes are checked inside the writing transaction, where the
existing state can no longer change: the handler that executes a `guarded` request passes every
change to every guard of the request context.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from naksha.hub.auth import resources
from naksha.hub.auth.resources import Resource
from naksha.hub.auth.rights import AttributeCondition, FeatureScope, Right, forbidden
from naksha.model.errors import StorageCorrupt
from naksha.model.query import And, Op, Or, Predicate, Query, Test
from naksha.model.state import XYZ, State

TAGS: Final = ("properties", XYZ, "tags")
_PATHS: Final[Mapping[str, tuple[str, ...]]] = {
    "id": ("id",),
    "appId": ("properties", XYZ, "appId"),
    "author": ("properties", XYZ, "author"),
}
_NEVER: Final = Or(())


# ---- Reads ---------------------------------------------------------------------------------------


def predicate_of(scope: FeatureScope) -> Predicate:
    """Return the predicate that exactly the features of a scope satisfy."""
    return Or(tuple(And(tuple(map(_test, grant))) for grant in scope.grants))


def _test(condition: AttributeCondition) -> Predicate:
    attribute, text, is_prefix = condition
    if not _can_be_stored(text):
        return _NEVER
    if attribute != "tags":
        return Test(_PATHS[attribute], Op.STARTS_WITH if is_prefix else Op.EQ, text)
    if is_prefix:
        return Test(TAGS, Op.ANY_STARTS_WITH, text)
    return Test(TAGS, Op.CONTAINS, [text])


def _can_be_stored(text: str) -> bool:
    """Return whether a stored feature can contain a text; a storage rejects queries for others."""
    return "\0" not in text and not any("\ud800" <= sign <= "\udfff" for sign in text)


def narrowed(query: Query, allowed: Predicate) -> Query:
    """Restrict a query to features that also satisfy a predicate."""
    where = allowed if query.where is None else And((allowed, query.where))
    return msgspec.structs.replace(query, where=where)


# ---- Feature attributes --------------------------------------------------------------------------


class RightsAttributes(NamedTuple):
    """The attributes of a feature that rights can be matched against."""

    id: str
    tags: Collection[str] = ()
    app_id: str | None = None
    author: str | None = None

    def among(self, features: Resource) -> Resource:
        """Return the resource of this feature among the features of a space."""
        return resources.feature(
            features, self.id, tags=self.tags, app_id=self.app_id, author=self.author
        )


class _AttributedNamespace(msgspec.Struct, rename="camel", gc=False):
    tags: list[str] | None = None
    app_id: str | None = None
    author: str | None = None


class _AttributedProperties(msgspec.Struct, rename={"xyz": XYZ}, gc=False):
    xyz: _AttributedNamespace = msgspec.field(default_factory=_AttributedNamespace)


class _AttributedFeature(msgspec.Struct, gc=False):
    properties: _AttributedProperties | None = None


_decode: Final = msgspec.json.Decoder(_AttributedFeature).decode


def rights_attributes_of(state: State) -> RightsAttributes:
    """Return the marks of a state.

    A handler may have created the state without a namespace or with an invalid one. Such a state
    has only its id, so only few attribute maps match it.
    """
    try:
        properties = state.decoded_by(_decode).properties
    except (msgspec.DecodeError, StorageCorrupt):
        properties = None
    if properties is None:
        return RightsAttributes(state.id)
    found = properties.xyz
    return RightsAttributes(state.id, found.tags or (), found.app_id, found.author)


def rights_attributes_in(feature: Mapping[str, Any]) -> RightsAttributes:
    """Return the marks of a parsed feature."""
    return rights_attributes_of(State(str(feature.get("id")), msgspec.json.encode(feature)))


# ---- Writes --------------------------------------------------------------------------------------


class RowGuard(msgspec.Struct, frozen=True):
    """The scope of features that a write may change, per right that the write requires."""

    features: Resource
    """The features of the requested space, no particular one."""
    scopes: Mapping[Right, FeatureScope]

    def check(self, old: RightsAttributes | None, new: RightsAttributes | None) -> None:
        """Raise Forbidden if the feature's old or new state is out of scope.

        A change whose right the request does not require comes from a handler that moves a feature
        or copies it from another space; it is checked as an update.
        """
        right = _right_for(old, new)
        if right not in self.scopes:
            right = Right.UPDATE_FEATURES
        scope = self.scopes.get(right)
        if scope is None:
            return
        for marks in (old, new):
            if marks is not None:
                resource = marks.among(self.features)
                if not scope.allows(resource.attributes):
                    error = forbidden(right, resource)
                    error.feature_id = marks.id
                    raise error


def _right_for(old: RightsAttributes | None, new: RightsAttributes | None) -> Right:
    """Return the right needed to change a feature from the old to the new state."""
    if new is None:
        return Right.DELETE_FEATURES
    return Right.CREATE_FEATURES if old is None else Right.UPDATE_FEATURES
