"""What the OpenAPI document says of storages, connectors, spaces and roles."""

from __future__ import annotations

from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from naksha.model import limits
from naksha.server.openapi.feature_schemas import Responses, failures
from naksha.server.responses.encoding import GEO_JSON, JSON

ID_PATTERN: Final = rf"^[A-Za-z0-9_.-]{{1,{limits.SPACE_ID_LENGTH_MAX}}}$"
_ERRORS: Final = {
    400: "The request is wrong; `field` says where.",
    401: "Who asks did not say who they are.",
    403: "Who asks may not do this.",
    404: "It is not there.",
    413: "It is too large.",
    500: "The hub failed.",
    503: "Busy, or a storage cannot be reached; try again after `Retry-After` seconds.",
    504: "It took too long.",
}
_CHANGE_ERRORS: Final = {
    409: "There is one of this id already, or it is still in use; the message names by what.",
    412: "It is not any more what `If-Match` says.",
}


class ConfiguredDocument(BaseModel):
    """What all objects of the configuration have."""

    model_config = ConfigDict(extra="allow")

    id: str = Field("", pattern=ID_PATTERN)
    title: str = ""
    description: str = ""
    owner: str = Field("", description="The author, else the app, that made it.")
    appId: str = Field("", description="The app that made it; read only.")  # noqa: N815
    author: str = Field("", description="The person that it was made for; read only.")
    tags: list[str] = Field([], max_length=limits.CONFIG_TAGS_MAX)
    createdAt: int = Field(0, description="Epoch milliseconds; read only.")  # noqa: N815
    updatedAt: int = Field(0, description="Epoch milliseconds; read only.")  # noqa: N815


class SpaceDocument(ConfiguredDocument):
    """A public name with a pipeline of connectors."""

    type: str = "Space"
    eventHandlerIds: list[str] = Field(  # noqa: N815
        [],
        max_length=limits.PIPELINE_HANDLERS_MAX,
        description="Its connectors, in the order in which requests run through them. Without any, "
        "it is stored in a collection of its own.",
    )
    properties: dict[str, Any] = Field(
        {}, description="`collection`: the id, or an object with the settings, of its collection."
    )
    storage: dict[str, Any] | None = Field(
        None, description="`id` of the storage, and `params` for it; else the default storage."
    )
    extends: dict[str, Any] | None = Field(None, description="`spaceId` of the space below.")
    readOnly: bool = False  # noqa: N815
    active: bool = True
    shared: bool = False
    packages: list[str] = []
    region: str | None = None
    versionsToKeep: int | None = Field(  # noqa: N815
        None, ge=1, description="1: no history; else there is one."
    )
    uuidLock: bool = Field(  # noqa: N815
        False,
        description="Refuse (409) every feature whose `uuid` is not that of the current state. "
        "Without it, only with `conflictDetection=true` or `If-Match`.",
    )
    dateline: Literal["split", "keep", "refuse"] = Field(
        "split",
        description="Geometries that cross the date line, or have longitudes beyond ±180: split "
        "or wrap them (with a notice), keep them as they are, or refuse the feature.",
    )
    minVersion: int = Field(0, ge=0)  # noqa: N815
    provenance: list[dict[str, Any]] = Field(
        [],
        max_length=limits.PROVENANCE_MAX,
        description="Where the data came from, a load each: `source`, `at`, `tool`, `by`, …",
    )
    collectionId: str = Field("", description="Its own collection; read only.")  # noqa: N815
    contentUpdatedAt: int | None = Field(  # noqa: N815
        None, description="When a feature was last changed (epoch milliseconds); read only."
    )
    featureCount: int | None = Field(None, description="With `includeCounts`.")  # noqa: N815
    byteSize: int | None = Field(None, description="With `includeCounts`.")  # noqa: N815
    estimated: bool | None = Field(None, description="Whether the counts are estimates.")
    rights: list[str] | None = Field(None, description="With `includeRights`.")
    connectors: list[dict[str, Any]] | None = Field(None, description="With `includeConnectors`.")


class ConnectorDocument(ConfiguredDocument):
    """The configuration of an event handler."""

    type: str = "EventHandler"
    className: str = Field("", description="The registered name of the handler.")  # noqa: N815
    active: bool = True
    remote: bool | str = Field(
        False,
        description="Whether the handler runs on a remote service: its URL, or true with the URL "
        "in `properties.url`. Then `className` is for that service.",
    )
    properties: dict[str, Any] = Field({}, description="What the handler is told.")


class IdentityDocument(BaseModel):
    """The id and number by which state ids name a storage."""

    id: str = Field(description="The first part of a state id (GUID).")
    number: int = Field(description="The last 40 bits of the UUID of a state or a transaction.")
    formerIds: list[str] = Field(  # noqa: N815
        [], description="Ids that the storage had before it was forked; it still answers to them."
    )


class StorageDocument(ConfiguredDocument):
    """A storage that the hub opens."""

    type: str = "Storage"
    className: str = ""  # noqa: N815
    active: bool = True
    properties: dict[str, Any] = Field(
        {},
        description="`location`, for example `postgresql://user@host/database`, and options of "
        "the storage; or `master` and `readers`. Passwords and options are never shown; who sends "
        "the location as it is shown keeps them.",
    )
    identity: IdentityDocument | None = Field(
        None,
        description="Set by the hub: what the storage was when it was opened last, or will be "
        "when it is made. A value that a client sends is ignored.",
    )


class CollectionSettings(BaseModel):
    """The settings of a collection that can be changed."""

    maxAge: int = Field(36_500, ge=0, description="Days of history.")  # noqa: N815
    historyEnabled: bool = True  # noqa: N815
    idPrefix: str | None = None  # noqa: N815
    author: str | None = None
    optimalPartitioning: bool = False  # noqa: N815
    deleteAt: int = Field(  # noqa: N815
        0, ge=0, description="When it is deleted, epoch milliseconds; 0: never."
    )
    partitions: Literal[1, 16] = Field(
        1, description="Tables of the current states on PostgreSQL; it only grows."
    )


class CollectionDocument(CollectionSettings):
    """A collection of a storage."""

    id: str
    number: int
    pointsOnly: bool = False  # noqa: N815
    droppedAt: int = Field(  # noqa: N815
        0, description="Since when it is hidden, epoch milliseconds; 0: it is not dropped."
    )
    estimatedFeatureCount: int = -1  # noqa: N815
    byteSize: int = -1  # noqa: N815
    compressedSize: int = -1  # noqa: N815


class SnapshotDocument(BaseModel):
    """A named version of a storage."""

    id: str
    version: int
    time: int = Field(description="When the version was published, epoch milliseconds.")
    description: str
    author: str
    createdAt: int  # noqa: N815


class ConfigurationChange(BaseModel):
    """What a commit did to an object."""

    action: Literal["create", "update", "delete"]
    kind: str
    id: str


class ConfigurationCommit(BaseModel):
    """A change of the configuration."""

    cursor: str
    version: int
    time: int = Field(description="Epoch milliseconds.")
    message: str
    appId: str  # noqa: N815
    author: str
    changes: list[ConfigurationChange]


class ConfigurationChangesDocument(BaseModel):
    """A page of the change log of the configuration."""

    type: str = "ConfigurationChanges"
    commits: list[ConfigurationCommit]
    next: str = Field(description="The place to go on from, as `after`.")


class RoleDocument(ConfiguredDocument):
    """A named rights matrix."""

    type: str = "Role"
    urm: dict[str, Any] = Field({}, description="A matrix as tokens have it.")


class ProvenanceDocument(BaseModel):
    """An entry about a load."""

    model_config = ConfigDict(extra="allow")

    source: str = Field(min_length=1)
    at: int = Field(0, description="Epoch milliseconds; now, when it is not said.")
    tool: str = ""
    by: str = Field("", description="Who; filled in.")
    counts: dict[str, int] = {}


def errors(*more: int) -> Responses:
    """The errors that such an endpoint answers."""
    return failures({**_ERRORS, **{status: _CHANGE_ERRORS[status] for status in more}})


def answers(model: Any, description: str, status: int = 200) -> Responses:
    """What an endpoint answers that reads."""
    return {
        status: {"model": model, "description": description},
        304: {"description": "The client has this answer already."},
        **errors(),
    }


def changes(model: Any, description: str, status: int = 200) -> Responses:
    """What an endpoint answers that makes or changes something."""
    return {status: {"model": model, "description": description}, **errors(409, 412)}


def body_of(model: type[BaseModel], description: str) -> dict[str, Any]:
    """The body of a request, which clients call one or the other."""
    # What it refers to is described with the answers.
    schema = model.model_json_schema(ref_template="#/components/schemas/{model}")
    schema = {**schema, "additionalProperties": True}
    schema.pop("$defs", None)
    content = {media: {"schema": schema} for media in (JSON, GEO_JSON)}
    return {"requestBody": {"required": True, "description": description, "content": content}}


def patch_of(model: type[BaseModel]) -> dict[str, Any]:
    """The body of a merge patch."""
    schema = {"type": "object", "description": f"A merge patch (RFC 7396) of {model.__doc__}"}
    content = {media: {"schema": schema} for media in (JSON, "application/merge-patch+json")}
    return {"requestBody": {"required": True, "content": content}}
