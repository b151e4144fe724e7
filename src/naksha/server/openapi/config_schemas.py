"""OpenAPI schemas and responses for storages, connectors, spaces and roles."""

from __future__ import annotations

from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from naksha.model import limits
from naksha.server.openapi.feature_schemas import failures
from naksha.server.responses.encoding import GEO_JSON, JSON
from naksha.server.routing.declarations import Responses

ID_PATTERN: Final = rf"^[A-Za-z0-9_.-]{{1,{limits.SPACE_ID_LENGTH_MAX}}}$"
_ERRORS: Final = {
    400: "The request is invalid; `field` names the parameter or member.",
    401: "Missing or invalid token.",
    403: "The actor does not have the required right.",
    404: "Not found.",
    413: "The request is too large.",
    500: "Internal error of the hub.",
    503: "The hub is busy or a storage is unavailable; retry after `Retry-After` seconds.",
    504: "The request timed out.",
}
_CHANGE_ERRORS: Final = {
    409: "The id already exists, or the object is in use; the message names its users.",
    412: "The object has changed since the `If-Match` state.",
}


class ConfiguredDocument(BaseModel):
    """Members common to all objects of the configuration."""

    model_config = ConfigDict(extra="allow")

    id: str = Field("", pattern=ID_PATTERN)
    title: str = ""
    description: str = ""
    owner: str = Field("", description="The author, or else the app, that created it.")
    appId: str = Field("", description="The app that created it; read only.")  # noqa: N815
    author: str = Field("", description="The person who created it; read only.")
    tags: list[str] = Field([], max_length=limits.CONFIG_TAGS_MAX)
    createdAt: int = Field(0, description="Epoch milliseconds; read only.")  # noqa: N815
    updatedAt: int = Field(0, description="Epoch milliseconds; read only.")  # noqa: N815


class SpaceDocument(ConfiguredDocument):
    """A space: a public name with a pipeline of connectors."""

    type: str = "Space"
    eventHandlerIds: list[str] = Field(  # noqa: N815
        [],
        max_length=limits.PIPELINE_HANDLERS_MAX,
        description="The ids of its connectors, in the order in which they process requests. "
        "Without connectors the space has its own collection.",
    )
    properties: dict[str, Any] = Field(
        {}, description="`collection`: the id of its collection, or an object with its settings."
    )
    storage: dict[str, Any] | None = Field(
        None, description="`id` of the storage, and its `params`. Default: the default storage."
    )
    extends: dict[str, Any] | None = Field(None, description="`spaceId` of the extended space.")
    readOnly: bool = False  # noqa: N815
    active: bool = True
    shared: bool = False
    packages: list[str] = []
    region: str | None = None
    versionsToKeep: int | None = Field(  # noqa: N815
        None, ge=1, description="1: no history; more: with history."
    )
    uuidLock: bool = Field(  # noqa: N815
        False,
        description="Reject (409) every feature whose `uuid` is not the current one. Otherwise "
        "only with `conflictDetection=true` or `If-Match`.",
    )
    dateline: Literal["split", "keep", "refuse"] = Field(
        "split",
        description="Geometries that cross the antimeridian, or have longitudes beyond ±180: split "
        "or wrap them (with a notice), store them unchanged, or reject the feature.",
    )
    minVersion: int = Field(0, ge=0)  # noqa: N815
    provenance: list[dict[str, Any]] = Field(
        [],
        max_length=limits.PROVENANCE_MAX,
        description="The origin of the data, one entry per load: `source`, `at`, `tool`, `by`, …",
    )
    collectionId: str = Field("", description="Id of its own collection; read only.")  # noqa: N815
    contentUpdatedAt: int | None = Field(  # noqa: N815
        None, description="Time of the last feature change (epoch milliseconds); read only."
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
        "in `properties.url`. `className` is then interpreted by that service.",
    )
    properties: dict[str, Any] = Field({}, description="Settings of the handler.")


class IdentityDocument(BaseModel):
    """The id and number of a storage in state ids."""

    id: str = Field(description="The first part of a state id (GUID).")
    number: int = Field(description="The last 40 bits of the UUID of a state or a transaction.")
    formerIds: list[str] = Field(  # noqa: N815
        [], description="Ids of the storage before it was forked; still accepted."
    )


class StorageDocument(ConfiguredDocument):
    """A storage of the hub."""

    type: str = "Storage"
    className: str = ""  # noqa: N815
    active: bool = True
    properties: dict[str, Any] = Field(
        {},
        description="`location`, for example `postgresql://user@host/database`, and options of "
        "the storage; or `master` and `readers`. Passwords and options are never shown; to keep "
        "them, send the location as it is shown.",
    )
    identity: IdentityDocument | None = Field(
        None,
        description="Set by the hub when it creates or opens the storage. A value in a request is "
        "ignored.",
    )


class CollectionSettings(BaseModel):
    """Settings of a collection that can be changed."""

    maxAge: int = Field(36_500, ge=0, description="Retention of history, in days.")  # noqa: N815
    historyEnabled: bool = True  # noqa: N815
    idPrefix: str | None = None  # noqa: N815
    author: str | None = None
    optimalPartitioning: bool = False  # noqa: N815
    deleteAt: int = Field(  # noqa: N815
        0, ge=0, description="Time of the scheduled deletion (epoch milliseconds); 0: never."
    )
    partitions: Literal[1, 16] = Field(
        1, description="Number of PostgreSQL tables for current states; cannot be reduced."
    )


class CollectionDocument(CollectionSettings):
    """A collection of a storage."""

    id: str
    number: int
    pointsOnly: bool = False  # noqa: N815
    droppedAt: int = Field(  # noqa: N815
        0, description="Time when it was dropped (epoch milliseconds); 0: not dropped."
    )
    estimatedFeatureCount: int = -1  # noqa: N815
    byteSize: int = -1  # noqa: N815
    compressedSize: int = -1  # noqa: N815


class SnapshotDocument(BaseModel):
    """A named version of a storage."""

    id: str
    version: int
    time: int = Field(description="Publication time of the version (epoch milliseconds).")
    description: str
    author: str
    createdAt: int  # noqa: N815


class ConfigurationChange(BaseModel):
    """One changed object in a commit."""

    action: Literal["create", "update", "delete"]
    kind: str
    id: str


class ConfigurationCommit(BaseModel):
    """A commit to the configuration."""

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
    next: str = Field(description="Position of the next page, for `after`.")


class RoleDocument(ConfiguredDocument):
    """A named rights matrix."""

    type: str = "Role"
    urm: dict[str, Any] = Field({}, description="Rights matrix, as in a token.")


class ProvenanceDocument(BaseModel):
    """A provenance entry: one load of data."""

    model_config = ConfigDict(extra="allow")

    source: str = Field(min_length=1)
    at: int = Field(0, description="Time of the load (epoch milliseconds). Default: now.")
    tool: str = ""
    by: str = Field("", description="The author; set by the hub.")
    counts: dict[str, int] = {}


def errors(*more: int) -> Responses:
    """Return the error responses of a configuration endpoint."""
    return failures({**_ERRORS, **{status: _CHANGE_ERRORS[status] for status in more}})


def returns(model: Any, description: str, status: int = 200) -> Responses:
    """Return the responses of an endpoint that reads."""
    return {
        status: {"model": model, "description": description},
        304: {"description": "The client's copy is current."},
        **errors(),
    }


def changes(model: Any, description: str, status: int = 200) -> Responses:
    """Return the responses of an endpoint that creates or changes something."""
    return {status: {"model": model, "description": description}, **errors(409, 412)}


def body_of(model: type[BaseModel], description: str) -> dict[str, Any]:
    """Describe the body of a request, under either of the media types that clients use."""
    # Referenced definitions are in the document already, with the responses.
    schema = model.model_json_schema(ref_template="#/components/schemas/{model}")
    schema = {**schema, "additionalProperties": True}
    schema.pop("$defs", None)
    content = {media: {"schema": schema} for media in (JSON, GEO_JSON)}
    return {"requestBody": {"required": True, "description": description, "content": content}}


def patch_of(model: type[BaseModel]) -> dict[str, Any]:
    """Describe the body of a JSON Merge Patch request."""
    schema = {"type": "object", "description": f"JSON Merge Patch (RFC 7396) of: {model.__doc__}"}
    content = {media: {"schema": schema} for media in (JSON, "application/merge-patch+json")}
    return {"requestBody": {"required": True, "content": content}}
