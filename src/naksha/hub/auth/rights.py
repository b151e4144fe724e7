"""The rights matrix: which actor may do what with which resource.

    {"naksha": {"useSpaces":    [{"id": "public-*"}],
                "readFeatures": [{"storageId": "maps"}, {"tags": ["open", "checked"]}],
                "roles":        ["editor"]}}

An action has attribute maps, of which one must match; a map matches when all its attributes do, so
`{}` matches everything. An attribute matches when the resource has that value, or for `public-*`
one that begins so; a list matches when the resource has all its values. Names of roles stand for
what the role grants. The sections `xyz-hub` and `naksha` know the same actions, but in XYZ whoever
may read the features of a space sees the space, and a storage is a connector.

Everything here is immutable and decided in about a microsecond: it runs on every request, and on
every request that a handler makes for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from naksha.hub.auth.resources import FEATURE_ATTRIBUTES, SPACE_ATTRIBUTES, Attributes, Resource
from naksha.model.errors import Forbidden, InvalidArgument

T = TypeVar("T")


class Right(StrEnum):
    """What can be granted. Values are the names of actions in a matrix."""

    READ_FEATURES = "readFeatures"
    CREATE_FEATURES = "createFeatures"
    UPDATE_FEATURES = "updateFeatures"
    DELETE_FEATURES = "deleteFeatures"
    USE_SPACES = "useSpaces"
    """See that it exists, and send requests to it."""
    MANAGE_SPACES = "manageSpaces"
    ADMIN_SPACES = "adminSpaces"
    """Change what a space's owner cannot: its owner."""
    USE_CONNECTORS = "useConnectors"
    MANAGE_CONNECTORS = "manageConnectors"
    USE_STORAGES = "useStorages"
    MANAGE_STORAGES = "manageStorages"
    USE_SUBSCRIPTIONS = "useSubscriptions"
    MANAGE_SUBSCRIPTIONS = "manageSubscriptions"
    """Also needs the right to read all features of the source, and to write to what it names."""
    USE_JOBS = "useJobs"
    MANAGE_JOBS = "manageJobs"
    """Submit, cancel and remove them. Also needs the rights to what a job does."""
    READ_COLLECTIONS = "readCollections"
    CREATE_COLLECTIONS = "createCollections"
    UPDATE_COLLECTIONS = "updateCollections"
    DELETE_COLLECTIONS = "deleteCollections"
    USE_CAPABILITIES = "useCapabilities"
    MANAGE_ROLES = "manageRoles"
    """Whoever has it can give himself every other right of the realm."""


ACTIONS: Final[Mapping[str, Right]] = MappingProxyType(
    {right.value: right for right in Right}
    | {
        "accessConnectors": Right.USE_CONNECTORS,
        "useEventHandlers": Right.USE_CONNECTORS,
        "manageEventHandlers": Right.MANAGE_CONNECTORS,
    }
)
"""The names that a matrix may use; others are of other services and are ignored."""

ALIASES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "space": "spaceId",
        "storage": "storageId",
        "connector": "connectorId",
        "collection": "collectionId",
        "eventHandlerIds": "connectorIds",
    }
)
"""Attributes that others call otherwise."""

FEATURE_RIGHTS: Final = frozenset(
    {Right.READ_FEATURES, Right.CREATE_FEATURES, Right.UPDATE_FEATURES, Right.DELETE_FEATURES}
)
_IMPLIED_EVERYWHERE: Final[Mapping[Right, tuple[Right, ...]]] = {
    Right.MANAGE_SPACES: (Right.USE_SPACES,),
    Right.ADMIN_SPACES: (Right.USE_SPACES,),
    Right.MANAGE_CONNECTORS: (Right.USE_CONNECTORS,),
    Right.MANAGE_STORAGES: (Right.USE_STORAGES,),
    Right.MANAGE_SUBSCRIPTIONS: (Right.USE_SUBSCRIPTIONS,),
    Right.MANAGE_JOBS: (Right.USE_JOBS,),
}
SECTIONS: Final[Mapping[str, Mapping[Right, tuple[Right, ...]]]] = MappingProxyType(
    {
        "naksha": {
            **_IMPLIED_EVERYWHERE,
            Right.MANAGE_SPACES: (Right.ADMIN_SPACES, Right.USE_SPACES),
        },
        "xyz-hub": {
            **_IMPLIED_EVERYWHERE,
            **dict.fromkeys(FEATURE_RIGHTS, (Right.USE_SPACES,)),
            Right.MANAGE_SPACES: (
                Right.USE_SPACES,
                Right.MANAGE_SUBSCRIPTIONS,
                Right.USE_SUBSCRIPTIONS,
            ),
            Right.USE_CONNECTORS: (Right.USE_STORAGES,),
            Right.MANAGE_CONNECTORS: (Right.USE_CONNECTORS, Right.USE_STORAGES),
        },
    }
)
"""The sections of a matrix, each with the rights that come along with a right."""


class Condition(NamedTuple):
    """One value of one attribute of a map."""

    attribute: str
    text: str
    is_prefix: bool

    def passes(self, attributes: Attributes) -> bool:
        """Whether a resource has the value, or one among its values."""
        found = attributes.get(self.attribute)
        if found is None:
            return False
        if isinstance(found, str):
            return found.startswith(self.text) if self.is_prefix else found == self.text
        if self.is_prefix:
            return any(value.startswith(self.text) for value in found)
        return self.text in found


Grant = tuple[Condition, ...]
"""An attribute map: all of it must pass. The empty one grants everything."""
_EVERYTHING: Final[tuple[Grant, ...]] = ((),)


class RoleGrant(NamedTuple):
    """What a role grants for one right, which counts here as well."""

    role: str
    right: Right


class Scope(msgspec.Struct, frozen=True):
    """Which features a right extends to, once everything but the feature is known."""

    grants: tuple[Grant, ...]

    @property
    def is_everything(self) -> bool:
        return () in self.grants

    @property
    def is_nothing(self) -> bool:
        return not self.grants

    def allows(self, attributes: Attributes) -> bool:
        """Whether a feature with these FEATURE_ATTRIBUTES is one of them."""
        return _is_granted(self.grants, attributes)


class Rights(msgspec.Struct, frozen=True):
    """What an actor may do."""

    grants: Mapping[Right, tuple[Grant, ...]]
    roles: Mapping[Right, tuple[RoleGrant, ...]] = MappingProxyType({})
    """What is to be had from roles. They can change at any time, so they are looked up with every
    request; as long as they are not (see `resolved`) they grant nothing."""

    def allows(self, right: Right, resource: Resource) -> bool:
        """Whether the actor has a right on a resource."""
        return _is_granted(self.grants.get(right, ()), resource.attributes)

    def check(self, right: Right, resource: Resource) -> None:
        """Forbidden unless the actor has a right on a resource."""
        if not self.allows(right, resource):
            raise forbidden(right, resource)

    def filter(
        self, right: Right, items: Iterable[T], resource_of: Callable[[T], Resource]
    ) -> list[T]:
        """Those on which the actor has a right: what he may not see is left out of a list."""
        grants = self.grants.get(right, ())
        return [item for item in items if _is_granted(grants, resource_of(item).attributes)]

    def scope(self, right: Right, features: Resource) -> Scope:
        """Which of the features the actor has a right on. With `is_everything` none of them need
        be looked at."""
        return Scope(tuple(_remaining(self.grants.get(right, ()), features.attributes)))

    def tells_features_apart(self, right: Right) -> bool:
        """Whether in some space the right may extend to some features only."""
        return any(
            condition.attribute in FEATURE_ATTRIBUTES
            for grant in self.grants.get(right, ())
            for condition in grant
        )

    def resolved(self, role_rights: Callable[[str], Rights | None]) -> Rights:
        """The same with what the roles grant now; one that does not exist grants nothing."""
        if not self.roles:
            return self
        found = {
            name: role_rights(name)
            for name in {grant.role for grants in self.roles.values() for grant in grants}
        }
        granted: dict[Right, list[Grant]] = {
            right: list(grants) for right, grants in self.grants.items()
        }
        for right, role_grants in self.roles.items():
            for role, via in role_grants:
                rights = found[role]
                if rights is not None:
                    carried = _carried(rights.grants.get(via, ()), via, right)
                    granted.setdefault(right, []).extend(carried)
        return Rights(_frozen(granted))


NO_RIGHTS: Final = Rights(MappingProxyType({}))
_ALL_RIGHTS: Final = Rights(MappingProxyType(dict.fromkeys(Right, _EVERYTHING)))


def all_rights() -> Rights:
    """Every right on everything in the realm."""
    return _ALL_RIGHTS


def forbidden(right: Right, resource: Resource) -> Forbidden:
    """The error for a missing right."""
    return Forbidden(
        f"The right {right.value} is missing for {resource}; ask for a token, or a role, "
        f"that grants it",
        right=right.value,
        resource=str(resource),
    )


# ---- Reading a matrix ----------------------------------------------------------------------------


def parse_rights(matrix: object, *, field: str = "urm") -> Rights:
    """The rights of a matrix; None is an empty one.

    Raises:
        InvalidArgument: It is not built as a matrix is; the message says where.
    """
    if matrix is None:
        return NO_RIGHTS
    sections = _object(matrix, field)
    granted: dict[Right, list[Grant]] = {}
    roles: dict[Right, list[RoleGrant]] = {}
    for section, implied in SECTIONS.items():
        where = f"{field}.{section}"
        for action, entries in _object(sections.get(section, {}), where).items():
            listed = f"{where}.{action}"
            if action == "roles":
                for name in _role_names(entries, listed):
                    for right in Right:
                        roles.setdefault(right, []).append(RoleGrant(name, right))
                continue
            via = ACTIONS.get(action)
            if via is None:
                continue
            grants, names = _entries(entries, listed)
            for right in (via, *implied.get(via, ())):
                granted.setdefault(right, []).extend(_carried(grants, via, right))
                roles.setdefault(right, []).extend(RoleGrant(name, via) for name in names)
    return Rights(_frozen(granted), _frozen_roles(roles))


def parse_role(matrix: object, *, field: str = "urm") -> Rights:
    """The rights of a role, which can name no other roles: so none can name itself."""
    rights = parse_rights(matrix, field=field)
    if rights.roles:
        raise InvalidArgument(
            "A role cannot name other roles; give it their attribute maps", field=field
        )
    return rights


def _entries(entries: object, field: str) -> tuple[list[Grant], list[str]]:
    """The attribute maps and the names of roles in the list of an action."""
    grants: list[Grant] = []
    names: list[str] = []
    for n, entry in enumerate(_list(entries, field)):
        if isinstance(entry, str):
            names.append(entry)
            continue
        grant = _grant(_object(entry, f"{field}[{n}]", "or the name of a role"), f"{field}[{n}]")
        if grant is not None:
            grants.append(grant)
    return grants, names


def _grant(attribute_map: Mapping[str, Any], field: str) -> Grant | None:
    """None for a map that can match nothing, because a list of values is empty."""
    conditions: list[Condition] = []
    for name, value in attribute_map.items():
        texts = [value] if isinstance(value, str) else value
        if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
            raise InvalidArgument(
                "An attribute is compared with a text or a list of texts", field=f"{field}.{name}"
            )
        if not texts:
            return None
        attribute = ALIASES.get(name, name)
        conditions += [
            Condition(attribute, text.removesuffix("*"), is_prefix=text.endswith("*"))
            for text in texts
        ]
    return tuple(conditions)


def _role_names(value: object, field: str) -> Sequence[str]:
    names = _list(value, field)
    if not all(isinstance(name, str) for name in names):
        raise InvalidArgument("Roles are named by texts", field=field)
    return names


def _object(value: object, field: str, otherwise: str = "") -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise InvalidArgument(
            f"must be an object {otherwise}".rstrip() + f", not {type(value).__name__}", field=field
        )
    return value


def _list(value: object, field: str) -> list[Any]:
    if not isinstance(value, list):
        raise InvalidArgument(f"must be a list, not {type(value).__name__}", field=field)
    return value


# ---- Deciding ------------------------------------------------------------------------------------


def _is_granted(grants: tuple[Grant, ...], attributes: Attributes) -> bool:
    for grant in grants:
        for condition in grant:
            if not condition.passes(attributes):
                break
        else:
            return True
    return False


def _remaining(grants: tuple[Grant, ...], known: Attributes) -> Iterator[Grant]:
    """What is left to be seen of grants when all but FEATURE_ATTRIBUTES is known."""
    for grant in grants:
        rest = tuple(each for each in grant if each.attribute in FEATURE_ATTRIBUTES)
        if all(each in rest or each.passes(known) for each in grant):
            yield rest


def _carried(grants: Iterable[Grant], via: Right, right: Right) -> Iterable[Grant]:
    """The grants of one right that count for another. On the way from features to their space only
    those do that are about the space: the `id` of a feature is not the `id` of a space."""
    if right is not Right.USE_SPACES or via not in FEATURE_RIGHTS:
        return grants
    return [
        grant
        for grant in grants
        if all(condition.attribute in SPACE_ATTRIBUTES for condition in grant)
    ]


def _frozen(granted: Mapping[Right, Sequence[Grant]]) -> Mapping[Right, tuple[Grant, ...]]:
    """Without repetitions, and without what is of no account beside a grant of everything."""
    return MappingProxyType(
        {
            right: _EVERYTHING if () in grants else tuple(dict.fromkeys(grants))
            for right, grants in granted.items()
            if grants
        }
    )


def _frozen_roles(
    roles: Mapping[Right, Sequence[RoleGrant]],
) -> Mapping[Right, tuple[RoleGrant, ...]]:
    return MappingProxyType(
        {right: tuple(dict.fromkeys(grants)) for right, grants in roles.items() if grants}
    )
