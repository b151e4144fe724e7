"""What is configured in a realm: storages, connectors, spaces and roles.

They are kept as entities of the pointer `config`, each under `<kind>/<id>`. In JSON they look as
existing clients know them; what we do not know of them is kept and given back as it came.
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
from naksha.hub.auth.resources import Kind, Resource
from naksha.hub.auth.rights import Right, Rights, parse_role
from naksha.model import limits
from naksha.model.errors import InvalidArgument, LimitExceeded
from naksha.model.feature_problems import invalid_struct
from naksha.model.identity.names import text_problem
from naksha.model.json_rules import json_problem
from naksha.spi.locations import redacted

POINTER: Final = "config"
_ID: Final = re.compile(rf"[A-Za-z0-9_.-]{{1,{limits.SPACE_ID_LENGTH_MAX}}}")


class HubObject(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What all of them have. `extra` are the keys that mean nothing to us."""

    kind: ClassVar[str]
    """Its place in the catalog, and what it is called in errors."""
    use_right: ClassVar[Right]
    """To see it, and to name it in something else."""
    manage_right: ClassVar[Right]
    """To make, change and remove it."""
    computed: ClassVar[frozenset[str]] = frozenset({"type"})
    """Keys that are shown and not kept: they may come back from a client, and mean nothing."""
    switches: ClassVar[frozenset[str]] = frozenset()
    """Keys that older clients send as the texts `true` and `false`."""
    kept: ClassVar[tuple[str, ...]] = ("app_id", "author", "created_at")
    """Fields that stay as they were when the object was made, whatever a client sends."""

    id: str
    title: str = ""
    description: str = ""
    owner: str = ""
    """Who made it, or got it from an administrator: the author, else the app."""
    app_id: str = ""
    """The app that made it."""
    author: str | None = None
    """The person that it was made for."""
    tags: tuple[str, ...] = ()
    created_at: int = 0
    updated_at: int = 0
    extra: dict[str, Any] = {}

    @property
    def key(self) -> str:
        """Where it is in the catalog."""
        return key_of(type(self), self.id)

    @classmethod
    def from_json(cls, value: object) -> Self:
        """From what a client sends.

        Raises:
            InvalidArgument: Names the field that is wrong.
        """
        if not isinstance(value, dict):
            raise InvalidArgument(f"A {cls.kind} is a JSON object", field=cls.kind)
        check_object_id(value.get("id"), cls.kind)
        problem = json_problem(value)
        if problem is not None:
            raise InvalidArgument(f"{problem.path} {problem.message}", field=problem.path)
        check_numbers(value, cls.kind)
        if len(msgspec.json.encode(value)) > limits.CONFIG_OBJECT_BYTES_MAX:
            raise LimitExceeded(
                f"A {cls.kind} has at most {limits.CONFIG_OBJECT_BYTES_MAX} bytes", field=cls.kind
            )
        known = {field.encode_name for field in msgspec.structs.fields(cls)}
        known -= {"extra", *cls.computed}
        given = {
            name: _truth(value[name]) if name in cls.switches else value[name]
            for name in value
            if name in known and value[name] is not None
        }
        extra = {name: value[name] for name in value if name not in known | cls.computed}
        try:
            made = msgspec.convert({**given, "extra": extra}, cls)
        except msgspec.ValidationError as error:
            raise invalid_struct(cls.kind, error) from None
        made.check()
        return made

    def check(self) -> None:
        """What the types do not say."""
        if self.owner:
            check_field_text(self.owner, limits.APP_ID_BYTES_MAX, "owner")
        if len(self.tags) > limits.CONFIG_TAGS_MAX:
            raise InvalidArgument(f"There are at most {limits.CONFIG_TAGS_MAX} tags", field="tags")
        for place, tag in enumerate(self.tags):
            check_field_text(tag, limits.CONFIG_TAG_BYTES_MAX, f"tags[{place}]")

    def to_json(self) -> dict[str, Any]:
        """What a client gets."""
        return self.whole_json()

    def whole_json(self) -> dict[str, Any]:
        """All of it, also what nobody is shown."""
        plain: dict[str, Any] = msgspec.to_builtins(self)
        extra = plain.pop("extra")
        shown = {name: value for name, value in plain.items() if value is not None}
        return {**extra, **shown, "type": self.type_name}

    @property
    def type_name(self) -> str:
        """What clients call it."""
        return self.kind.capitalize()

    def resource(self) -> Resource:
        """What rights can be about: its id, unless a kind has more to say."""
        return Resource(Kind(self.kind), {"id": self.id})

    def etag(self) -> str:
        """Another one after every change. Made from what is shown only: it is shown too."""
        shown = msgspec.json.encode(self.to_json(), order="sorted")
        return hashlib.sha256(shown).hexdigest()[:24]


class Identity(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The id and number by which state ids name a storage, and the ids that it had before."""

    id: str
    number: int
    former_ids: tuple[str, ...] = ()


@object_type("hub-storage")
class StorageObject(HubObject, frozen=True, kw_only=True, rename="camel"):
    """A storage that the hub opens: `properties.location`, and options of its backend."""

    kind: ClassVar[str] = "storage"
    use_right: ClassVar[Right] = Right.USE_STORAGES
    manage_right: ClassVar[Right] = Right.MANAGE_STORAGES
    computed: ClassVar[frozenset[str]] = frozenset({"type", "identity"})

    class_name: str = ""
    active: bool = True
    properties: dict[str, Any] = {}
    identity: Identity | None = None
    """What the storage was when it was opened last, or will be when it is made; None while that is
    not known. A client cannot change it."""

    def to_json(self) -> dict[str, Any]:
        """Without what opens it: password and options."""
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
    """The configuration of an event handler: which code, and what it is told."""

    kind: ClassVar[str] = "connector"
    use_right: ClassVar[Right] = Right.USE_CONNECTORS
    manage_right: ClassVar[Right] = Right.MANAGE_CONNECTORS

    class_name: str
    active: bool = True
    """An inactive one is left out of every pipeline."""
    remote: bool | str = False
    """Whether the code is on a remote service: its URL, or true and the URL is `properties.url`.
    Then `class_name` is for that service."""
    properties: dict[str, Any] = {}

    @property
    def handler_name(self) -> str:
        """The registered name of the handler that the hub runs."""
        return REMOTE if self.remote else self.class_name

    @property
    def url(self) -> Any:
        """Where a remote service is, as it is configured."""
        return self.remote if isinstance(self.remote, str) else self.properties.get("url")

    @property
    def type_name(self) -> str:
        return "EventHandler"

    def to_json(self) -> dict[str, Any]:
        """Without what it shares with a remote handler only."""
        plain = self.whole_json()
        plain["properties"] = without_secret(self.properties)
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


REMOTE: Final = "remote"
"""The name of the handler that calls a remote service."""
SECRET: Final = "secret"  # noqa: S105 - the name of a property
"""Of a connector: never shown to anybody."""


def without_secret(properties: Mapping[str, Any]) -> dict[str, Any]:
    """What of the properties of a connector may be shown."""
    return {name: value for name, value in properties.items() if name != SECRET}


class StorageChoice(msgspec.Struct, frozen=True, rename="camel"):
    """Where a space without connectors of its own is stored."""

    id: str
    params: dict[str, Any] = {}


class Dateline(StrEnum):
    """What a space does with geometries that cross the date line, or have longitudes beyond ±180:
    it splits or wraps them, keeps them as they are sent, or refuses the feature."""

    SPLIT = "split"
    KEEP = "keep"
    REFUSE = "refuse"


class ProcessorRef(msgspec.Struct, frozen=True, rename="camel"):
    """A connector that a space runs requests through, with parameters of its own."""

    id: str
    params: dict[str, Any] | None = None
    order: int = 0


class Extends(msgspec.Struct, frozen=True, rename="camel"):
    """The space below a composite one."""

    space_id: str


@object_type("hub-space")
class Space(HubObject, frozen=True, kw_only=True, rename="camel"):
    """A public name with an ordered pipeline of connectors.

    Without `event_handler_ids` it has a pipeline of its own: a collection of the storage that it
    names (or of the default one), over the space that it extends."""

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
    """Whether the `uuid` of a written feature always locks, not only when the client asks."""
    dateline: Dateline = Dateline.SPLIT
    processors: Any = None
    """Connectors that run before the others, with parameters of this space, as XYZ has them."""
    listeners: Any = None
    """Refused: XYZ's form of subscriptions."""
    min_version: int = 0
    """Older versions were given up by the owner."""
    provenance: tuple[dict[str, Any], ...] = ()
    """Where the data came from, oldest first: an entry for every load (see `provenance.py`)."""
    collection_id: str = ""
    """The collection of its own, chosen when it was made; a client cannot change it."""

    def to_json(self) -> dict[str, Any]:
        """What a client gets; `shared` only when it is true, which clients test by its presence."""
        shown = super().to_json()
        if not self.shared:
            del shown["shared"]
        return shown

    def check(self) -> None:
        super().check()
        if self.versions_to_keep is not None and self.versions_to_keep < 1:
            raise InvalidArgument("At least one version is kept", field="versionsToKeep")
        if self.listeners:
            raise InvalidArgument(
                "listeners are not supported: create a subscription to the space instead "
                "(POST /hub/spaces/{id}/subscriptions). History needs no listener, it is always "
                "kept; a connector of the class activity-log shows it",
                field="listeners",
            )
        self.processor_refs()
        if self.min_version < 0:
            raise InvalidArgument("A version is not negative", field="minVersion")
        if len(self.event_handler_ids) > limits.PIPELINE_HANDLERS_MAX:
            raise InvalidArgument(
                f"A space has at most {limits.PIPELINE_HANDLERS_MAX} connectors",
                field="eventHandlerIds",
            )
        if len(self.provenance) > limits.PROVENANCE_MAX:
            raise InvalidArgument(
                f"At most {limits.PROVENANCE_MAX} entries are kept; send the newest",
                field="provenance",
            )
        for place, entry in enumerate(self.provenance):
            check_provenance(entry, f"provenance[{place}]")

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
        """The processors in their order. XYZ's clients send a reference, a list of references, or
        lists of references by the id of their connector."""
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
        """Older versions are given up, too; what is given up does not come back."""
        return msgspec.structs.replace(self, min_version=max(self.min_version, version))


@object_type("hub-role")
class Role(HubObject, frozen=True, kw_only=True, rename="camel"):
    """A named rights matrix, which tokens of the realm may name instead of having one."""

    kind: ClassVar[str] = "role"
    use_right: ClassVar[Right] = Right.MANAGE_ROLES
    manage_right: ClassVar[Right] = Right.MANAGE_ROLES

    urm: dict[str, Any] = {}

    def check(self) -> None:
        super().check()
        self.rights()

    def rights(self) -> Rights:
        """What it grants."""
        return parse_role(self.urm)


H = TypeVar("H", bound=HubObject)


def key_of(kind: type[HubObject], id: str) -> str:
    """The key of an object in the catalog."""
    return f"{kind.kind}/{id}"


def check_object_id(id: object, field: str) -> str:
    """An id under which a space, a connector, a storage or a role may be kept."""
    if not isinstance(id, str) or _ID.fullmatch(id) is None:
        raise InvalidArgument(
            f"{id!r:.80} is no id of a {field}: it has 1 to {limits.SPACE_ID_LENGTH_MAX} letters, "
            "digits, '_', '.' and '-'",
            field="id",
        )
    return id


def check_field_text(value: str, bytes_max: int, field: str) -> None:
    """A text that is not empty and not too long."""
    problem = text_problem(value, bytes_max)
    if problem is not None:
        raise InvalidArgument(f"{field} {problem}", field=field)


class _Provenance(msgspec.Struct):
    """What is known of an entry; it may say more."""

    source: str
    at: int = 0
    tool: str = ""
    by: str = ""
    counts: dict[str, int] = {}


def check_numbers(value: dict[str, Any], field: str) -> None:
    """Numbers in the configuration are those that the catalog can keep."""
    try:
        msgspec.msgpack.encode(value)
    except OverflowError:
        raise InvalidArgument(
            "Whole numbers are from -2^63 to 2^64-1; write others as texts", field=field
        ) from None


def check_provenance(entry: dict[str, Any], field: str) -> None:
    """An entry says its source, and not too much."""
    problem = json_problem(entry)
    if problem is not None:
        raise InvalidArgument(f"{problem.path} {problem.message}", field=f"{field}.{problem.path}")
    try:
        said = msgspec.convert(entry, _Provenance)
    except msgspec.ValidationError as error:
        raise invalid_struct("entry", error, field) from None
    if not said.source:
        raise InvalidArgument("An entry has a source, which is a text", field=f"{field}.source")
    check_numbers(entry, field)
    if len(msgspec.json.encode(entry)) > limits.PROVENANCE_BYTES_MAX:
        raise LimitExceeded(
            f"An entry has at most {limits.PROVENANCE_BYTES_MAX} bytes", field=field
        )


def replaced(kind: type[H], old: H, value: dict[str, Any]) -> H:
    """What takes the place of an object; its id stays."""
    _check_same_id(kind, old, value)
    return kind.from_json({**value, "id": old.id})


def patched(kind: type[H], old: H, patch: Mapping[str, Any]) -> H:
    """The object with a merge patch (RFC 7396) applied; its id stays."""
    now = _merge_patched(old.whole_json(), patch)
    _check_same_id(kind, old, now)
    return kind.from_json(now)


def _check_same_id(kind: type[HubObject], old: HubObject, value: Mapping[str, Any]) -> None:
    if value.get("id", old.id) != old.id:
        raise InvalidArgument(f"The id of a {kind.kind} cannot be changed", field="id")


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
    """The truth that a text says; everything else is as it is."""
    return {"true": True, "false": False}.get(value, value) if isinstance(value, str) else value
