"""OpenAPI schemas and responses for the feature endpoints."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pydantic import BaseModel, ConfigDict

from naksha.server.responses.encoding import FAILED, GEO_JSON
from naksha.server.routing.declarations import Responses

MVT: Final = "application/vnd.mapbox-vector-tile"
MODIFICATIONS: Final = "application/vnd.here.feature-modification-list"


class ErrorResponse(BaseModel):
    """An error."""

    model_config = ConfigDict(extra="allow")

    type: str
    streamId: str  # noqa: N815 - name in the API
    error: str
    errorMessage: str  # noqa: N815
    code: str | None = None
    field: str | None = None
    featureId: str | None = None  # noqa: N815
    failed: list[dict[str, Any]] | None = None
    failedCount: int | None = None  # noqa: N815
    head: dict[str, Any] | None = None


_ERRORS: Final = {
    400: "The request is invalid; `field` names the parameter or member.",
    401: "Missing or invalid token.",
    403: "The actor does not have the required right.",
    404: "The space, the feature or the version does not exist.",
    410: "The history of the version has expired.",
    413: "The request or its result is too large.",
    500: "Internal error of the hub, or of a handler of the space.",
    501: "No handler of the space supports this request.",
    502: "A remote handler failed.",
    503: "The hub is busy; retry after `Retry-After` seconds.",
    504: "The request timed out.",
}
_WRITE_ERRORS: Final = {
    405: "The space is read-only.",
    409: "The write conflicts with another one.",
}


def reference(name: str) -> dict[str, str]:
    """Return a reference to a schema of the document."""
    return {"$ref": f"#/components/schemas/{name}"}


def failures(described: Mapping[int, str]) -> Responses:
    """Build responses with an `ErrorResponse`, by status."""
    content = {"application/json": {"schema": reference(ErrorResponse.__name__)}}
    return {status: {"description": text, "content": content} for status, text in described.items()}


def errors(more: dict[int, str] | None = None) -> Responses:
    """Return the error responses of an endpoint that reads features."""
    return failures({**_ERRORS, **(more or {})})


def some_errors(*statuses: int) -> Responses:
    """Return only the error responses with these statuses."""
    return {status: response for status, response in errors().items() if status in statuses}


def write_errors() -> Responses:
    """Return the error responses of an endpoint that writes."""
    return errors(_WRITE_ERRORS)


def reads(description: str, *schemas: tuple[str, dict[str, Any]]) -> Responses:
    """Return the responses of an endpoint that reads."""
    content = {media: {"schema": schema} for media, schema in schemas}
    return {
        200: {"description": description, "content": content},
        304: {"description": "The client's copy is current."},
        **errors(),
    }


def writes(description: str, schema: dict[str, Any]) -> Responses:
    """Return the responses of an endpoint that writes features."""
    failed = {
        "description": "Number of features that were not written; absent if all were.",
        "schema": {"type": "integer"},
    }
    return {
        200: {
            "description": description,
            "content": {GEO_JSON: {"schema": schema}},
            "headers": {FAILED: failed},
        },
        204: {"description": "All features were written."},
        **write_errors(),
    }


def deletes() -> Responses:
    """Return the responses of an endpoint that deletes one object."""
    return {204: {"description": "Deleted."}, **errors(_WRITE_ERRORS)}


NOT_MATCHED: Final = failures({412: "The feature has changed since the `If-Match` state."})
"""Additional responses of endpoints that accept `If-Match`."""


def takes(*schemas: tuple[str, dict[str, Any]], description: str) -> dict[str, Any]:
    """Describe the body of a request."""
    content = {media: {"schema": schema} for media, schema in schemas}
    return {"requestBody": {"required": True, "description": description, "content": content}}


FEATURE: Final = reference("Feature")
FEATURES: Final = reference("FeatureCollection")
WRITTEN: Final = reference("WrittenCollection")
GEOMETRY: Final = reference("Geometry")
MODIFICATION_LIST: Final = reference("FeatureModificationList")
COUNT: Final = reference("CountResponse")
STATISTICS: Final = reference("StatisticsResponse")
BATCH_REQUEST: Final = reference("SpatialBatch")
BATCH_ANSWER: Final = reference("SpatialBatchResponse")
BINARY: Final = {"type": "string", "format": "binary"}

TEXTS: Final = {"type": "array", "items": {"type": "string"}}
_REPORT: Final = {
    "type": "object",
    "properties": {
        "id": {"type": ["string", "null"]},
        "position": {"type": ["integer", "null"], "description": "Index in the request."},
        "message": {"type": "string"},
        "code": {"type": "string"},
        "field": {"type": "string"},
    },
    "required": ["message"],
}
_PAGE: Final = {
    "handle": {"type": "string", "pattern": "^[0-9]+$"},
    "nextPageToken": {"type": "string", "description": "Same as `handle`."},
}


def object_of(*required: str, **properties: Any) -> dict[str, Any]:
    """Build the schema of an object."""
    return {"type": "object", "properties": properties, "required": [*required]}


def listed(items: dict[str, Any]) -> dict[str, Any]:
    """Build the schema of an array."""
    return {"type": "array", "items": items}


def typed(name: str) -> dict[str, Any]:
    """Build the schema of a `type` member."""
    return {"type": "string", "const": name}


def _figure(value: dict[str, Any]) -> dict[str, Any]:
    return object_of("value", "estimated", value=value, estimated={"type": "boolean"})


_GEOMETRY_TYPES: Final = [
    *("Point", "MultiPoint", "LineString", "MultiLineString", "Polygon", "MultiPolygon"),
    "GeometryCollection",
]
INTEGER: Final = {"type": "integer"}

SCHEMAS: Final[dict[str, Any]] = {
    "Geometry": object_of(
        "type",
        type={"type": "string", "enum": _GEOMETRY_TYPES},
        coordinates={"type": "array"},
        geometries={"type": "array"},
    ),
    "Feature": object_of(
        "type",
        id={"type": "string"},
        type=typed("Feature"),
        geometry={"oneOf": [GEOMETRY, {"type": "null"}]},
        properties={"type": "object"},
    ),
    "FeatureCollection": object_of(
        "type", "features", type=typed("FeatureCollection"), features=listed(FEATURE), **_PAGE
    ),
    "WrittenCollection": object_of(
        "type",
        "features",
        type=typed("FeatureCollection"),
        features=listed(FEATURE),
        inserted=TEXTS,
        updated=TEXTS,
        deleted=TEXTS,
        deletedCount={**INTEGER, "description": "Number of deletions, if not all are listed."},
        failed=listed(_REPORT),
        failedCount=INTEGER,
        notices=listed(_REPORT),
        violations=listed({"type": "object"}),
        version=INTEGER,
    ),
    "FeatureModificationList": object_of(
        "type",
        "modifications",
        type=typed("FeatureModificationList"),
        modifications=listed(reference("FeatureModification")),
    ),
    "FeatureModification": object_of(
        type=typed("FeatureModification"),
        onFeatureExists={
            "type": "string",
            "enum": ["patch", "merge", "replace", "delete", "retain", "error"],
        },
        onFeatureNotExists={"type": "string", "enum": ["create", "retain", "error"]},
        onMergeConflict={"type": "string", "enum": ["error", "retain", "replace"]},
        featureData=FEATURES,
        featureIds=TEXTS,
    ),
    "CountResponse": object_of(
        *("type", "count", "estimated"),
        type=typed("CountResponse"),
        count=INTEGER,
        estimated={"type": "boolean"},
    ),
    "StatisticsResponse": object_of(
        *("type", "count"),
        type=typed("StatisticsResponse"),
        count=_figure(INTEGER),
        dataSize=_figure(INTEGER),
        byteSize=_figure(INTEGER),
        bbox=_figure({"type": ["array", "null"], "items": {"type": "number"}}),
        geometryTypes=_figure(TEXTS),
        properties=_figure(listed({"type": "object"})),
        tags=_figure(listed({"type": "object"})),
        contentUpdatedAt=_figure({"type": ["integer", "null"]}),
        minVersion=_figure(INTEGER),
        maxVersion=_figure(INTEGER),
    ),
    "SpatialBatch": object_of(
        "refSpaceId",
        refSpaceId={"type": "string", "description": "The space of the reference features."},
        refVersionRef={"type": "string", "description": "Its version. Default: current."},
        ids={**TEXTS, "description": "Only reference features with these ids."},
        query={
            "type": "string",
            "description": "Only those that match this query, such as `p.kind=park&tags=a,b+c`.",
        },
        limit={**INTEGER, "description": "Maximum number of reference features, ordered by id."},
        handle={"type": "string", "description": "The `handle` of the previous page."},
    ),
    "SpatialBatchResponse": object_of(
        *("type", "results"),
        type=typed("SpatialBatchResponse"),
        results=listed(
            object_of(
                *("refFeatureId", "features"),
                refFeatureId={"type": "string"},
                features=listed(FEATURE),
            )
        ),
        **_PAGE,
    ),
}
