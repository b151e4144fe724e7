"""Configuration objects of a realm: storages, connectors, spaces and roles.

They are stored as entities of the pointer `config`, each under `<kind>/<id>`. Their JSON form is
the one that existing clients know; unknown members are stored and returned unchanged.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, ClassVar, Final, Self, TypeVar

import msgspec

from naksha.catalog.objects import object_type
from naksha.hub.auth import resources
from naksha.hub.auth.resources import Resource, ResourceKind
from naksha.hub.auth.rights import Right, Rights, parse_role
from naksha.model import limits
from naksha.model.errors import InvalidArgument, LimitExceeded
from naksha.model.feature_problems import invalid_struct
from naksha.model.identity.names import text_problem
from naksha.model.json_rules import json_problem
from naksha.model.value_text import value_text
from naksha.spi.locations import redacted

POINTER: Final = "config"
_ID: Final = re.compile(rf"[A-Za-z0-9_.-]{{1,{limits.SPACE_ID_LENGTH_MAX}}}")


class HubObject(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Base class of configuration objects. `extra` holds unknown members."""

    kind: ClassVar[str]
    """Key prefix in the catalog, and noun in error messages."""
    use_right: ClassVar[Right]
    """The right to see the object and to reference it from other objects."""
    manage_right: ClassVar[Right]
    """The right to create, change and remove the object."""
    computed: ClassVar[frozenset[str]] = frozenset({"type"})
    """Members of the response that are not stored; ignored when a client sends them back."""
    switches: ClassVar[frozenset[str]] = frozenset()
    """Boolean members that older clients send as the strings `true` and `false`."""
    kept: ClassVar[tuple[str, ...]] = ("app_id", "author", "created_at")
    """Fields that keep their value from creation, whatever a client sends."""

    id: str
    title: str = ""
    description: str = ""
    owner: str = ""
    """The author (else the app) that created the object or was made owner by an administrator."""
    app_id: str = ""
    """The app that created the object."""
    author: str | None = None
    """The person on whose behalf the object was created."""
    tags: tuple[str, ...] = ()
    created_at: int = 0
    updated_at: int = 0
    extra: dict[str, Any] = {}

    @property
    def key(self) -> str:
        """The object's key in the catalog."""
        return key_of(type(self), self.id)

    @classmethod
    def from_json(cls, value: object) -> Self:
        """Parse the JSON that a client sends.

        Raises:
            InvalidArgument: Names the invalid field.
            LimitExceeded: The object is too large.
        """
        if not isinstance(value, dict):
            raise InvalidArgument(
                f"A {cls.kind} must be a JSON object, not {value_text(value)}", field=cls.kind
            )
        check_object_id(value.get("id"), cls.kind)
        problem = json_problem(value)
        if problem is not None:
            raise InvalidArgument(
                f"Invalid {cls.kind}: {problem.path} {problem.message}", field=problem.path
            )
        check_numbers(value, cls.kind)
        if len(msgspec.json.encode(value)) > limits.CONFIG_OBJECT_BYTES_MAX:
            raise LimitExceeded(
                f"The {cls.kind} is too large; the limit is {limits.CONFIG_OBJECT_BYTES_MAX} bytes",
                field=cls.kind,
            )
        known = {field.encode_name for field in msgspec.structs.fields(cls)}
        known -= {"extra", *cls.computed}
        members = {
            name: _truth(value[name]) if name in cls.switches else value[name]
            for name in value
            if name in known and value[name] is not None
        }
        extra = {name: value[name] for name in value if name not in known | cls.computed}
        try:
            made = msgspec.convert({**members, "extra": extra}, cls)
        except msgspec.ValidationError as error:
            raise invalid_struct(cls.kind, error) from None
        made.check()
        return made

    def check(self) -> None:
        """Check constraints that the field types do not express."""
        if self.owner:
            _check_field_text(self.owner, limits.APP_ID_BYTES_MAX, "owner")
        if len(self.tags) > limits.CONFIG_TAGS_MAX:
            raise InvalidArgument(
                f"The object has {len(self.tags)} tags; the maximum is {limits.CONFIG_TAGS_MAX}",
                field="tags",
            )
        for index, tag in enumerate(self.tags):
            _check_field_text(tag, limits.CONFIG_TAG_BYTES_MAX, f"tags[{index}]")

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form for clients, without secrets."""
        return self.whole_json()

    def whole_json(self) -> dict[str, Any]:
        """Return the complete JSON form, including secrets that no client may see."""
        plain: dict[str, Any] = msgspec.to_builtins(self)
        extra = plain.pop("extra")
        shown = {name: value for name, value in plain.items() if value is not None}
        return {**extra, **shown, "type": self.type_name}

    @property
    def type_name(self) -> str:
        """The `type` member of the JSON form."""
        return self.kind.capitalize()

    def resource(self) -> Resource:
        """Return the attributes that rights are matched against; by default only the id."""
        return Resource(ResourceKind(self.kind), {"id": self.id})

    def etag(self) -> str:
        """Return a hash that changes with every visible change.

        It covers only the client's JSON form, since the ETag itself is visible to clients.
        """
        shown = msgspec.json.encode(self.to_json(), order="sorted")
        return hashlib.sha256(shown).hexdigest()[:24]


class Identity(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The id and number by which state ids name a storage, and the storage's former ids."""

    id: str
    number: int
    former_ids: tuple[str, ...] = ()


@object_type("hub-storage")
class StorageObject(HubObject, frozen=True, kw_only=True, rename="camel"):
    """A storage that the hub opens: `properties.location` and options of its backend."""

    kind: ClassVar[str] = "storage"
    use_right: ClassVar[Right] = Right.USE_STORAGES
    manage_right: ClassVar[Right] = Right.MANAGE_STORAGES
    computed: ClassVar[frozenset[str]] = frozenset({"type", "identity"})

    class_name: str = ""
    active: bool = True
    properties: dict[str, Any] = {}
    identity: Identity | None = None
    """The identity at the last opening, or the one it will be created with; None while unknown. A
    client cannot change it."""

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form for clients, without credentials and backend options."""
        plain = self.whole_json()
        location = self.properties.get("location")
        plain["properties"] = {"location": redacted(location)} if isinstance(location, str) else {}
        return plain

    def resource(self) -> Resource:
        return resources.storage(
            self.id,
            class_name=self.class_name or None,
            owner=self.owner,
            tags=self.tags,
            app_id=self.app_id,
            author=self.author,
        )


@object_type("hub-connector")
class Connector(HubObject, frozen=True, kw_only=True, rename="camel"):
    """Configuration of an event handler: its class and its properties."""

    kind: ClassVar[str] = "connector"
    use_right: ClassVar[Right] = Right.USE_CONNECTORS
    manage_right: ClassVar[Right] = Right.MANAGE_CONNECTORS

    class_name: str
    active: bool = True
    """Inactive connectors are left out of every pipeline."""
    remote: bool | str = False
    """The URL of the remote service that runs the handler, or true if it is in `properties.url`.
    `class_name` is then interpreted by that service."""
    properties: dict[str, Any] = {}

    @property
    def handler_name(self) -> str:
        """The registered name of the handler class that the hub runs."""
        return _REMOTE if self.remote else self.class_name

    @property
    def url(self) -> Any:
        """The configured URL of the remote service, not validated."""
        return self.remote if isinstance(self.remote, str) else self.properties.get("url")

    @property
    def type_name(self) -> str:
        return "EventHandler"

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form for clients, without the secret shared with a remote handler."""
        plain = self.whole_json()
        plain["properties"] = _without_secret(self.properties)
        return plain

    def resource(self) -> Resource:
        return resources.connector(
            self.id,
            class_name=self.handler_name,
            owner=self.owner,
            tags=self.tags,
            app_id=self.app_id,
            author=self.author,
        )


_REMOTE: Final = "remote"
"""Name of the handler that calls a remote service."""
SECRET: Final = "secret"  # noqa: S105 - the name of a property
"""Connector property that is never returned to a client."""


def _without_secret(properties: Mapping[str, Any]) -> dict[str, Any]:
    """Return a connector's properties without the secret."""
    return {name: value for name, value in properties.items() if name != SECRET}


class StorageChoice(msgspec.Struct, frozen=True, rename="camel"):
    """The storage of a space without connectors."""

    id: str
    params: dict[str, Any] = {}


class Dateline(StrEnum):
    """Handling of geometries that cross the date line or have longitudes beyond ±180.

    SPLIT splits or wraps them, KEEP stores them unchanged, REFUSE rejects the feature.
    """

    SPLIT = "split"
    KEEP = "keep"
    REFUSE = "refuse"


class ProcessorRef(msgspec.Struct, frozen=True, rename="camel"):
    """A connector that preprocesses a space's requests, with parameters of the space."""

    id: str
    params: dict[str, Any] | None = None
    order: int = 0


class Extends(msgspec.Struct, frozen=True, rename="camel"):
    """The base space of a composite space."""

    space_id: str


@object_type("hub-space")
class Space(HubObject, frozen=True, kw_only=True, rename="camel"):
    """A public name with an ordered pipeline of connectors.

    Without `event_handler_ids` it has a default pipeline: a collection in the named (or default)
    storage, layered over the space that it extends.
    """

    kind: ClassVar[str] = "space"
    use_right: ClassVar[Right] = Right.USE_SPACES
    manage_right: ClassVar[Right] = Right.MANAGE_SPACES
    computed: ClassVar[frozenset[str]] = frozenset(
        {"type", "rights", "connectors", "contentUpdatedAt", "featureCount", "byteSize"}
    )
    switches: ClassVar[frozenset[str]] = frozenset({"shared"})
    kept: ClassVar[tuple[str, ...]] = (*HubObject.kept, "collection_id")

    event_handler_ids: tuple[str, ...] = ()
    properties: dict[str, Any] = {}
    storage: StorageChoice | None = None
    extends: Extends | None = None
    read_only: bool = False
    active: bool = True
    shared: bool = False
    packages: tuple[str, ...] = ()
    region: str | None = None
    versions_to_keep: int | None = None
    """None: history is on; 1: off."""
    uuid_lock: bool = False
    """Whether the `uuid` of a written feature is always checked, not only on request."""
    dateline: Dateline = Dateline.SPLIT
    processors: Any = None
    """Connectors that run before the others, with parameters of this space, in XYZ's format."""
    listeners: Any = None
    """XYZ's form of subscriptions; rejected."""
    min_version: int = 0
    """Oldest readable version: the owner gave up all earlier ones."""
    provenance: tuple[dict[str, Any], ...] = ()
    """Sources of the data, oldest first, with one entry per load (see `provenance.py`)."""
    collection_id: str = ""
    """The space's own collection, chosen at creation; a client cannot change it."""

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form for clients; `shared` only if true, as clients test its presence."""
        shown = super().to_json()
        if not self.shared:
            del shown["shared"]
        return shown

    def check(self) -> None:
        super().check()
        if self.versions_to_keep is not None and self.versions_to_keep < 1:
            raise InvalidArgument(
                f"versionsToKeep is {self.versions_to_keep}; the minimum is 1 (no history)",
                field="versionsToKeep",
            )
        if self.listeners:
            raise InvalidArgument(
                "listeners are not supported: create a subscription to the space instead "
                "(POST /hub/spaces/{id}/subscriptions). History needs no listener, it is always "
                "recorded; a connector of the class activity-log returns it",
                field="listeners",
            )
        self.processor_refs()
        if self.min_version < 0:
            raise InvalidArgument(
                f"minVersion is {self.min_version}; it must be 0 or more", field="minVersion"
            )
        if len(self.event_handler_ids) > limits.PIPELINE_HANDLERS_MAX:
            raise InvalidArgument(
                f"The space names {len(self.event_handler_ids)} connectors; the maximum is "
                f"{limits.PIPELINE_HANDLERS_MAX}",
                field="eventHandlerIds",
            )
        if len(self.provenance) > limits.PROVENANCE_MAX:
            raise InvalidArgument(
                f"The space has {len(self.provenance)} provenance entries; the maximum is "
                f"{limits.PROVENANCE_MAX}, so send only the newest",
                field="provenance",
            )
        for index, entry in enumerate(self.provenance):
            check_provenance(entry, f"provenance[{index}]")

    def resource(self) -> Resource:
        return resources.space(
            self.id,
            owner=self.owner,
            tags=self.tags,
            app_id=self.app_id,
            author=self.author,
            packages=self.packages,
            connector_ids=self.event_handler_ids,
        )

    def processor_refs(self) -> list[ProcessorRef]:
        """Return the processors, sorted by `order`.

        XYZ clients send one reference, a list of references, or an object that maps connector ids
        to lists of references.
        """
        found = self.processors or []
        if isinstance(found, dict) and "id" not in found:
            found = [
                {"id": id, **one} if isinstance(one, dict) else one
                for id, refs in found.items()
                for one in (refs if isinstance(refs, list | tuple) else [refs])
            ]
        try:
            refs = msgspec.convert(
                [found] if isinstance(found, dict) else found, list[ProcessorRef], strict=False
            )
        except msgspec.ValidationError as error:
            raise invalid_struct("processor", error, "processors") from None
        return sorted(refs, key=lambda ref: ref.order)

    def without_versions_before(self, version: int) -> Space:
        """Return the space with `min_version` raised to a version; it is never lowered."""
        return msgspec.structs.replace(self, min_version=max(self.min_version, version))


@object_type("hub-role")
class Role(HubObject, frozen=True, kw_only=True, rename="camel"):
    """A named rights matrix that tokens of the realm can reference instead of containing one."""

    kind: ClassVar[str] = "role"
    use_right: ClassVar[Right] = Right.MANAGE_ROLES
    manage_right: ClassVar[Right] = Right.MANAGE_ROLES

    urm: dict[str, Any] = {}

    def check(self) -> None:
        super().check()
        self.rights()

    def rights(self) -> Rights:
        """Parse and return the rights that the role grants."""
        return parse_role(self.urm)


H = TypeVar("H", bound=HubObject)


def key_of(kind: type[HubObject], id: str) -> str:
    """Return the catalog key of an object."""
    return f"{kind.kind}/{id}"


def check_object_id(id: object, field: str) -> str:
    """Return a valid id of a space, connector, storage or role, else raise InvalidArgument."""
    if not isinstance(id, str) or _ID.fullmatch(id) is None:
        raise InvalidArgument(
            f"{id!r:.80} is not a valid {field} id: use 1 to {limits.SPACE_ID_LENGTH_MAX} letters, "
            "digits, '_', '.' or '-'",
            field="id",
        )
    return id


def _check_field_text(value: str, bytes_max: int, field: str) -> None:
    """Raise InvalidArgument unless a text is not empty and within its size limit."""
    problem = text_problem(value, bytes_max)
    if problem is not None:
        raise InvalidArgument(f"{field} {problem}", field=field)


class _Provenance(msgspec.Struct):
    """The known members of a provenance entry; others are allowed."""

    source: str
    at: int = 0
    tool: str = ""
    by: str = ""
    counts: dict[str, int] = {}


def check_numbers(value: dict[str, Any], field: str) -> None:
    """Raise InvalidArgument if a number exceeds the range that the catalog can store."""
    try:
        msgspec.msgpack.encode(value)
    except OverflowError:
        raise InvalidArgument(
            f"The {field} contains an integer outside -2^63..2^64-1; send it as a string",
            field=field,
        ) from None


def check_provenance(entry: dict[str, Any], field: str) -> None:
    """Validate a provenance entry: it needs a source and must not be too large."""
    problem = json_problem(entry)
    if problem is not None:
        raise InvalidArgument(
            f"Invalid provenance entry: {problem.path} {problem.message}",
            field=f"{field}.{problem.path}",
        )
    try:
        parsed = msgspec.convert(entry, _Provenance)
    except msgspec.ValidationError as error:
        raise invalid_struct("provenance entry", error, field) from None
    if not parsed.source:
        raise InvalidArgument(
            "The source of a provenance entry is empty; name the origin of the data",
            field=f"{field}.source",
        )
    check_numbers(entry, field)
    if len(msgspec.json.encode(entry)) > limits.PROVENANCE_BYTES_MAX:
        raise LimitExceeded(
            f"The provenance entry is too large; shorten it to {limits.PROVENANCE_BYTES_MAX} "
            "bytes of JSON",
            field=field,
        )


def replaced(kind: type[H], old: H, value: dict[str, Any]) -> H:
    """Parse the replacement of an object; the id must not change."""
    _check_same_id(kind, old, value)
    return kind.from_json({**value, "id": old.id})


def patched(kind: type[H], old: H, patch: Mapping[str, Any]) -> H:
    """Apply a merge patch (RFC 7396) to an object; the id must not change."""
    now = _merge_patched(old.whole_json(), patch)
    _check_same_id(kind, old, now)
    return kind.from_json(now)


def _check_same_id(kind: type[HubObject], old: HubObject, value: Mapping[str, Any]) -> None:
    if value.get("id", old.id) != old.id:
        raise InvalidArgument(
            f"The {kind.kind} {old.id!r} cannot get the id {value.get('id')!r:.80}: ids are "
            "permanent",
            field="id",
        )


def _merge_patched(old: Any, patch: Any) -> Any:
    if not isinstance(patch, Mapping):
        return patch
    result = dict(old) if isinstance(old, Mapping) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = _merge_patched(result.get(name), value)
    return result


def _truth(value: object) -> object:
    """Convert the strings `true` and `false` to booleans; return any other value unchanged."""
    return {"true": True, "false": False}.get(value, value) if isinstance(value, str) else value
