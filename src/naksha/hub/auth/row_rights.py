"""Rights that extend to some features only: as a part of a query, and as a guard of a write.

What is read is narrowed by the storage itself, so that limits, counts and pages are those of what
the actor may see. What is written is checked in the transaction that writes it, where the state
that is there cannot change any more: whoever carries out a request that is `guarded` lets every
guard of its context look at every change.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from naksha.hub.auth import resources
from naksha.hub.auth.resources import Resource
from naksha.hub.auth.rights import Condition, Right, Scope, forbidden
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


# ---- What is read --------------------------------------------------------------------------------


def predicate_of(scope: Scope) -> Predicate:
    """What is true of the features of a scope, and of no others."""
    return Or(tuple(And(tuple(map(_test, grant))) for grant in scope.grants))


def _test(condition: Condition) -> Predicate:
    attribute, text, is_prefix = condition
    if not _can_be_stored(text):
        return _NEVER
    if attribute != "tags":
        return Test(_PATHS[attribute], Op.STARTS_WITH if is_prefix else Op.EQ, text)
    if is_prefix:
        return Test(TAGS, Op.ANY_STARTS_WITH, text)
    return Test(TAGS, Op.CONTAINS, [text])


def _can_be_stored(text: str) -> bool:
    """Whether a text can be that of a feature at all; a storage refuses to look for others."""
    return "\0" not in text and not any("\ud800" <= sign <= "\udfff" for sign in text)


def narrowed(query: Query, allowed: Predicate) -> Query:
    """A query for those of its features of which something is true."""
    where = allowed if query.where is None else And((allowed, query.where))
    return msgspec.structs.replace(query, where=where)


# ---- What rights look at in a feature ------------------------------------------------------------


class Marks(NamedTuple):
    """The attributes of a feature that rights can be about."""

    id: str
    tags: Collection[str] = ()
    app_id: str | None = None
    author: str | None = None

    def among(self, features: Resource) -> Resource:
        """The feature as one of a space."""
        return resources.feature(
            features, self.id, tags=self.tags, app_id=self.app_id, author=self.author
        )


class _Namespace(msgspec.Struct, rename="camel", gc=False):
    tags: list[str] | None = None
    app_id: str | None = None
    author: str | None = None


class _Properties(msgspec.Struct, rename={"xyz": XYZ}, gc=False):
    xyz: _Namespace = msgspec.field(default_factory=_Namespace)


class _Feature(msgspec.Struct, gc=False):
    properties: _Properties | None = None


_decode: Final = msgspec.json.Decoder(_Feature).decode


def marks_of(state: State) -> Marks:
    """Those of a state. A handler may have made it without a namespace, or with a strange one: it
    has no marks then but its id, and few rights are about that."""
    try:
        properties = state.decoded_by(_decode).properties
    except (msgspec.DecodeError, StorageCorrupt):
        properties = None
    if properties is None:
        return Marks(state.id)
    found = properties.xyz
    return Marks(state.id, found.tags or (), found.app_id, found.author)


def marks_in(feature: Mapping[str, Any]) -> Marks:
    """Those of a parsed feature."""
    return marks_of(State(str(feature.get("id")), msgspec.json.encode(feature)))


# ---- What is written -----------------------------------------------------------------------------


class Guard(msgspec.Struct, frozen=True):
    """The features that a write may change, by the right that it takes, of all that it needs."""

    features: Resource
    """Those of the space that was asked, none in particular."""
    scopes: Mapping[Right, Scope]

    def check(self, old: Marks | None, new: Marks | None) -> None:
        """Forbidden when a feature, as it was or as it will be, is not one of them. What the
        request cannot come to by itself, a handler does that moves a feature or brings it up from
        another space: that is a part of changing it."""
        right = right_for(old, new)
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


def right_for(old: Marks | None, new: Marks | None) -> Right:
    """What it takes to make one out of the other."""
    if new is None:
        return Right.DELETE_FEATURES
    return Right.CREATE_FEATURES if old is None else Right.UPDATE_FEATURES
