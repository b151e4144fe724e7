"""What the OpenAPI document says of bodies and answers of the endpoints about features."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from fastapi import FastAPI
from pydantic import BaseModel, ConfigDict

from naksha.server.openapi.descriptions import describe
from naksha.server.responses.encoding import FAILED, GEO_JSON

MVT: Final = "application/vnd.mapbox-vector-tile"
MODIFICATIONS: Final = "application/vnd.here.feature-modification-list"
Responses = dict[int | str, dict[str, Any]]


class ErrorResponse(BaseModel):
    """What went wrong."""

    model_config = ConfigDict(extra="allow")

    type: str
    streamId: str  # noqa: N815 - as clients know it
    error: str
    errorMessage: str  # noqa: N815
    code: str | None = None
    field: str | None = None
    featureId: str | None = None  # noqa: N815
    failed: list[dict[str, Any]] | None = None
    failedCount: int | None = None  # noqa: N815
    head: dict[str, Any] | None = None


_ERRORS: Final = {
    400: "The request is wrong; `field` says where.",
    401: "Who asks did not say who they are.",
    403: "Who asks may not do this.",
    404: "The space, the feature or the version is not there.",
    410: "The version was there; its history is gone.",
    413: "It is too much at once.",
    500: "The hub, or a handler of the space, failed.",
    501: "No handler of the space answers this.",
    502: "A remote handler failed.",
    503: "Busy; try again after `Retry-After` seconds.",
    504: "It took too long.",
}
_WRITE_ERRORS: Final = {405: "The space is read-only.", 409: "Somebody else was first."}


def reference(name: str) -> dict[str, str]:
    """A schema of the document."""
    return {"$ref": f"#/components/schemas/{name}"}


def failures(described: Mapping[int, str]) -> Responses:
    """Answers that are an `ErrorResponse`, by their status."""
    # Not as a `model`: FastAPI would make a validator of each, a thousand in every process.
    content = {"application/json": {"schema": reference(ErrorResponse.__name__)}}
    return {status: {"description": text, "content": content} for status, text in described.items()}


def errors(more: dict[int, str] | None = None) -> Responses:
    """What goes wrong where features are read."""
    return failures({**_ERRORS, **(more or {})})


def some_errors(*statuses: int) -> Responses:
    """Only these."""
    return {status: answer for status, answer in errors().items() if status in statuses}


def write_errors() -> Responses:
    """What goes wrong where something is changed."""
    return errors(_WRITE_ERRORS)


def reads(description: str, *schemas: tuple[str, dict[str, Any]]) -> Responses:
    """What an endpoint answers that reads."""
    content = {media: {"schema": schema} for media, schema in schemas}
    return {
        200: {"description": description, "content": content},
        304: {"description": "The client has this answer already."},
        **errors(),
    }


def writes(description: str, schema: dict[str, Any]) -> Responses:
    """What an endpoint answers that changes features."""
    failed = {
        "description": "How many features were not written; absent if all were.",
        "schema": {"type": "integer"},
    }
    return {
        200: {
            "description": description,
            "content": {GEO_JSON: {"schema": schema}},
            "headers": {FAILED: failed},
        },
        204: {"description": "Done, and nothing failed."},
        **write_errors(),
    }


def deletes() -> Responses:
    """What an endpoint answers that deletes one thing."""
    return {204: {"description": "Deleted."}, **errors(_WRITE_ERRORS)}


NOT_MATCHED: Final = failures({412: "The feature is not the one that `If-Match` names."})
"""The response of endpoints that take `If-Match`."""


def takes(*schemas: tuple[str, dict[str, Any]], description: str) -> dict[str, Any]:
    """The body of a request."""
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
        "position": {"type": ["integer", "null"], "description": "The place in the request."},
        "message": {"type": "string"},
        "code": {"type": "string"},
        "field": {"type": "string"},
    },
    "required": ["message"],
}
_PAGE: Final = {
    "handle": {"type": "string", "pattern": "^[0-9]+$"},
    "nextPageToken": {"type": "string", "description": "The same as `handle`."},
}


def object_of(*required: str, **properties: Any) -> dict[str, Any]:
    """The schema of an object."""
    return {"type": "object", "properties": properties, "required": [*required]}


def listed(items: dict[str, Any]) -> dict[str, Any]:
    """The schema of an array."""
    return {"type": "array", "items": items}


def typed(name: str) -> dict[str, Any]:
    """The schema of what an object is called."""
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
        deletedCount={**INTEGER, "description": "How many, when not all of them are listed."},
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
        refVersionRef={"type": "string", "description": "Its version; default is the present."},
        ids={**TEXTS, "description": "Only the reference features with these ids."},
        query={
            "type": "string",
            "description": "Only those of this query string, such as `p.kind=park&tags=a,b+c`.",
        },
        limit={**INTEGER, "description": "How many of them, in the order of their ids."},
        handle={"type": "string", "description": "Where the answer before this one ended."},
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


_SECURITY: Final = {
    "token": {"type": "http", "scheme": "bearer", "bearerFormat": "JWT"},
    "access_token": {"type": "apiKey", "in": "query", "name": "access_token"},
}


def complete_document(app: FastAPI, more: Mapping[str, Any], *, needs_token: bool) -> None:
    """Add our schemas, and how to say who one is, to the OpenAPI document, and take out of it what
    we never answer."""
    made = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            document = made()
            schemas = document.setdefault("components", {}).setdefault("schemas", {})
            schemas.update({**SCHEMAS, **more})
            document["components"]["securitySchemes"] = _SECURITY
            document["security"] = [{name: []} for name in _SECURITY]
            if not needs_token:
                document["security"].append({})
            for name in ("HTTPValidationError", "ValidationError"):
                schemas.pop(name, None)
            for path in document["paths"].values():
                for operation in path.values():
                    operation["responses"].pop("422", None)
            describe(document)
        assert app.openapi_schema is not None
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]
