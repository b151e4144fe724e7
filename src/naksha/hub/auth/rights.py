"""Rights matrix: the actions that an actor may perform on resources.

    {"naksha": {"useSpaces":    [{"id": "public-*"}],
                "readFeatures": [{"storageId": "maps"}, {"tags": ["open", "checked"]}],
                "roles":        ["editor"]}}

An action has a list of attribute maps, of which one must match. A map matches if all its attributes
do, so `{}` matches everything. An attribute matches if the resource has that value, or for
`public-*` a value with that prefix; a list matches if the resource has all its values. The name of
a role stands for the role's grants. The sections `xyz-hub` and `naksha` have the same actions, but
in `xyz-hub` the right to read features of a space includes the right to see the space, and rights
on connectors include those on storages.

Everything here is immutable, and a decision takes about a microsecond: it runs on every request,
including those that handlers send.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from naksha.hub.auth.resources import FEATURE_ATTRIBUTES, SPACE_ATTRIBUTES, Attributes, Resource
from naksha.model.errors import Forbidden, InvalidArgument
from naksha.model.value_text import value_text

T = TypeVar("T")


class Right(StrEnum):
    """Rights that can be granted. The values are the action names in a matrix."""

    READ_FEATURES = "readFeatures"
    CREATE_FEATURES = "createFeatures"
    UPDATE_FEATURES = "updateFeatures"
    DELETE_FEATURES = "deleteFeatures"
    USE_SPACES = "useSpaces"
    """See the space and send requests to it."""
    MANAGE_SPACES = "manageSpaces"
    ADMIN_SPACES = "adminSpaces"
    """Change the owner of a space, which its owner cannot."""
    USE_CONNECTORS = "useConnectors"
    MANAGE_CONNECTORS = "manageConnectors"
    USE_STORAGES = "useStorages"
    MANAGE_STORAGES = "manageStorages"
    USE_SUBSCRIPTIONS = "useSubscriptions"
    MANAGE_SUBSCRIPTIONS = "manageSubscriptions"
    """Also needs the right to read all features of the source, and to write to named spaces."""
    USE_JOBS = "useJobs"
    MANAGE_JOBS = "manageJobs"
    """Submit, cancel and remove jobs. Also needs the rights for the job's own operations."""
    READ_COLLECTIONS = "readCollections"
    CREATE_COLLECTIONS = "createCollections"
    UPDATE_COLLECTIONS = "updateCollections"
    DELETE_COLLECTIONS = "deleteCollections"
    USE_CAPABILITIES = "useCapabilities"
    MANAGE_ROLES = "manageRoles"
    """An actor with this right can obtain every other right of the realm."""


ACTIONS: Final[Mapping[str, Right]] = MappingProxyType(
    {right.value: right for right in Right}
    | {
        "accessConnectors": Right.USE_CONNECTORS,
        "useEventHandlers": Right.USE_CONNECTORS,
        "manageEventHandlers": Right.MANAGE_CONNECTORS,
    }
)
"""Action names in a matrix; others belong to other services and are ignored."""

ALIASES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "space": "spaceId",
        "storage": "storageId",
        "connector": "connectorId",
        "collection": "collectionId",
        "eventHandlerIds": "connectorIds",
    }
)
"""Alternative attribute names."""

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
"""The sections of a matrix, each with the rights that a right implies."""


class AttributeCondition(NamedTuple):
    """One value, or value prefix, of one attribute in an attribute map."""

    attribute: str
    text: str
    is_prefix: bool

    def passes(self, attributes: Attributes) -> bool:
        """Return whether the resource's attribute is or contains a matching value."""
        found = attributes.get(self.attribute)
        if found is None:
            return False
        if isinstance(found, str):
            return found.startswith(self.text) if self.is_prefix else found == self.text
        if self.is_prefix:
            return any(value.startswith(self.text) for value in found)
        return self.text in found


Grant = tuple[AttributeCondition, ...]
"""An attribute map: all conditions must pass. The empty map grants everything."""
_EVERYTHING: Final[tuple[Grant, ...]] = ((),)


class RoleGrant(NamedTuple):
    """A reference to a role's grants for one right."""

    role: str
    right: Right


class FeatureScope(msgspec.Struct, frozen=True):
    """The features that a right extends to, when everything but the feature is known."""

    grants: tuple[Grant, ...]

    @property
    def is_everything(self) -> bool:
        return () in self.grants

    @property
    def is_nothing(self) -> bool:
        return not self.grants

    def allows(self, attributes: Attributes) -> bool:
        """Return whether a feature with these FEATURE_ATTRIBUTES is in scope."""
        return _is_granted(self.grants, attributes)


class Rights(msgspec.Struct, frozen=True):
    """The rights of an actor."""

    grants: Mapping[Right, tuple[Grant, ...]]
    roles: Mapping[Right, tuple[RoleGrant, ...]] = MappingProxyType({})
    """Rights from roles. Roles can change at any time, so they are resolved per request; until then
    (see `resolved`) they grant nothing."""

    def allows(self, right: Right, resource: Resource) -> bool:
        """Return whether the actor has a right on a resource."""
        return _is_granted(self.grants.get(right, ()), resource.attributes)

    def check(self, right: Right, resource: Resource) -> None:
        """Raise Forbidden unless the actor has a right on a resource."""
        if not self.allows(right, resource):
            raise forbidden(right, resource)

    def filter(
        self, right: Right, items: Iterable[T], resource_of: Callable[[T], Resource]
    ) -> list[T]:
        """Return the items on which the actor has a right."""
        grants = self.grants.get(right, ())
        return [item for item in items if _is_granted(grants, resource_of(item).attributes)]

    def scope(self, right: Right, features: Resource) -> FeatureScope:
        """Return the scope of features on which the actor has a right.

        If `is_everything`, features need not be checked individually.
        """
        return FeatureScope(tuple(_remaining(self.grants.get(right, ()), features.attributes)))

    def depends_on_features(self, right: Right) -> bool:
        """Return whether the right may extend to only some features of a space."""
        return any(
            condition.attribute in FEATURE_ATTRIBUTES
            for grant in self.grants.get(right, ())
            for condition in grant
        )

    def resolved(self, role_rights: Callable[[str], Rights | None]) -> Rights:
        """Return the rights with the roles' current grants added; a missing role grants nothing."""
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
    """Return every right on everything in the realm."""
    return _ALL_RIGHTS


def forbidden(right: Right, resource: Resource) -> Forbidden:
    """Return the error for a missing right."""
    return Forbidden(
        f"The token lacks the right {right.value} for {resource}; request a token or a role "
        f"that grants it",
        right=right.value,
        resource=str(resource),
    )


# ---- Reading a matrix ----------------------------------------------------------------------------


def parse_rights(matrix: object, *, field: str = "urm") -> Rights:
    """Parse a rights matrix; None is an empty one.

    Raises:
        InvalidArgument: The matrix is malformed; the error's field says where.
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
    """Parse the rights of a role. It cannot name roles, which rules out cycles."""
    rights = parse_rights(matrix, field=field)
    if rights.roles:
        raise InvalidArgument(
            f"Invalid rights matrix: {field} names other roles, which a role cannot; copy their "
            "attribute maps instead",
            field=field,
        )
    return rights


def _entries(entries: object, field: str) -> tuple[list[Grant], list[str]]:
    """Parse the list of an action into attribute maps and names of roles."""
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
    """Parse an attribute map; return None if an empty list of values makes it match nothing."""
    conditions: list[AttributeCondition] = []
    for name, value in attribute_map.items():
        texts = [value] if isinstance(value, str) else value
        if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
            raise InvalidArgument(
                f"Invalid rights matrix: {field}.{name} must be a string or an array of strings",
                field=f"{field}.{name}",
            )
        if not texts:
            return None
        attribute = ALIASES.get(name, name)
        conditions += [
            AttributeCondition(attribute, text.removesuffix("*"), is_prefix=text.endswith("*"))
            for text in texts
        ]
    return tuple(conditions)


def _role_names(value: object, field: str) -> Sequence[str]:
    names = _list(value, field)
    if not all(isinstance(name, str) for name in names):
        raise InvalidArgument(
            f"Invalid rights matrix: {field} must be an array of names of roles", field=field
        )
    return names


def _object(value: object, field: str, otherwise: str = "") -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise InvalidArgument(
            f"Invalid rights matrix: {field} must be an object {otherwise}".rstrip()
            + f", not {value_text(value)}",
            field=field,
        )
    return value


def _list(value: object, field: str) -> list[Any]:
    if not isinstance(value, list):
        raise InvalidArgument(
            f"Invalid rights matrix: {field} must be an array, not {value_text(value)}",
            field=field,
        )
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
    """Yield the grants' remaining conditions when all but FEATURE_ATTRIBUTES is known."""
    for grant in grants:
        rest = tuple(each for each in grant if each.attribute in FEATURE_ATTRIBUTES)
        if all(each in rest or each.passes(known) for each in grant):
            yield rest


def _carried(grants: Iterable[Grant], via: Right, right: Right) -> Iterable[Grant]:
    """Return the grants of one right that also apply to the right that it implies.

    From a right on features to the right to use their space, only grants with space attributes
    carry over: the `id` of a feature is not the `id` of a space.
    """
    if right is not Right.USE_SPACES or via not in FEATURE_RIGHTS:
        return grants
    return [
        grant
        for grant in grants
        if all(condition.attribute in SPACE_ATTRIBUTES for condition in grant)
    ]


def _frozen(granted: Mapping[Right, Sequence[Grant]]) -> Mapping[Right, tuple[Grant, ...]]:
    """Remove duplicate grants, and those made redundant by a grant of everything."""
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
