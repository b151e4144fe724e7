"""What is configured in a realm: storages, connectors and spaces.

They are kept as entities of the pointer `config`, each under `<kind>/<id>`. In JSON they look as
existing clients know them; what we do not know of them is kept and given back as it came.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, ClassVar, Final, Self, TypeVar

import msgspec

from naksha.catalog.objects import object_type
from naksha.model import limits
from naksha.model.errors import InvalidArgument
from naksha.model.json_rules import json_problem
from naksha.spi.locations import redacted

POINTER: Final = "config"
_ID: Final = re.compile(rf"[A-Za-z0-9_.-]{{1,{limits.SPACE_ID_LENGTH_MAX}}}")


class HubObject(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What all of them have. `extra` are the keys that mean nothing to us."""

    kind: ClassVar[str]
    """Its place in the catalog, and what it is called in errors."""

    id: str
    title: str = ""
    description: str = ""
    owner: str = ""
    """The app that made it."""
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
            raise InvalidArgument(problem.message, field=problem.path)
        known = {field.encode_name for field in msgspec.structs.fields(cls)} - {"extra"}
        given = {name: value[name] for name in value if name in known and value[name] is not None}
        extra = {name: value[name] for name in value if name not in known and name != "type"}
        try:
            return msgspec.convert({**given, "extra": extra}, cls)
        except msgspec.ValidationError as error:
            raise _invalid(cls.kind, error) from None

    def to_json(self) -> dict[str, Any]:
        """What a client gets."""
        plain: dict[str, Any] = msgspec.to_builtins(self)
        extra = plain.pop("extra")
        return {**extra, **plain, "type": self.type_name}

    @property
    def type_name(self) -> str:
        """What clients call it."""
        return self.kind.capitalize()


@object_type("hub-storage")
class StorageObject(HubObject, frozen=True, kw_only=True, rename="camel"):
    """A storage that the hub opens: `properties.location`, and options of its backend."""

    kind: ClassVar[str] = "storage"

    class_name: str = ""
    active: bool = True
    properties: dict[str, Any] = {}

    def to_json(self) -> dict[str, Any]:
        """Without the password."""
        plain = super().to_json()
        location = self.properties.get("location")
        if isinstance(location, str):
            plain["properties"] = {**self.properties, "location": redacted(location)}
        return plain


@object_type("hub-connector")
class Connector(HubObject, frozen=True, kw_only=True, rename="camel"):
    """The configuration of an event handler: which code, and what it is told."""

    kind: ClassVar[str] = "connector"

    class_name: str
    active: bool = True
    """An inactive one is left out of every pipeline."""
    properties: dict[str, Any] = {}

    @property
    def type_name(self) -> str:
        return "EventHandler"


class StorageChoice(msgspec.Struct, frozen=True, rename="camel"):
    """Where a space without connectors of its own is stored."""

    id: str
    params: dict[str, Any] = {}


class Extends(msgspec.Struct, frozen=True, rename="camel"):
    """The space below a composite one."""

    space_id: str


@object_type("hub-space")
class Space(HubObject, frozen=True, kw_only=True, rename="camel"):
    """A public name with an ordered pipeline of connectors.

    Without `event_handler_ids` it has a pipeline of its own: a collection of the storage that it
    names (or of the default one), over the space that it extends."""

    kind: ClassVar[str] = "space"

    event_handler_ids: tuple[str, ...] = ()
    properties: dict[str, Any] = {}
    storage: StorageChoice | None = None
    extends: Extends | None = None
    read_only: bool = False
    active: bool = True
    shared: bool = False
    tags: tuple[str, ...] = ()
    versions_to_keep: int | None = None
    """None: history is on; 1: off."""
    min_version: int = 0
    """Older versions were given up by the owner."""

    def without_versions_before(self, version: int) -> Space:
        """Older versions are given up, too; what is given up does not come back."""
        return msgspec.structs.replace(self, min_version=max(self.min_version, version))


O = TypeVar("O", bound=HubObject)  # noqa: E741


def key_of(kind: type[HubObject], id: str) -> str:
    """The key of an object in the catalog."""
    return f"{kind.kind}/{id}"


def check_object_id(id: object, field: str) -> str:
    """An id under which a space, a connector or a storage may be kept."""
    if not isinstance(id, str) or _ID.fullmatch(id) is None:
        raise InvalidArgument(
            f"{id!r:.80} is no id of a {field}: it has 1 to {limits.SPACE_ID_LENGTH_MAX} letters, "
            "digits, '_', '.' and '-'",
            field="id",
        )
    return id


def patched(kind: type[O], old: O, patch: Mapping[str, Any]) -> O:
    """The object with a merge patch (RFC 7396) applied; its id stays."""
    now = _merge_patched(old.to_json(), patch)
    if now.get("id") != old.id:
        raise InvalidArgument(f"The id of a {kind.kind} cannot be changed", field="id")
    return kind.from_json(now)


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


def _invalid(kind: str, error: msgspec.ValidationError) -> InvalidArgument:
    """msgspec says `… - at `$.title``."""
    message, _, place = str(error).partition(" - at `$.")
    return InvalidArgument(f"The {kind} is not right: {message}", field=place.rstrip("`") or kind)
