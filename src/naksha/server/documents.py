"""What the OpenAPI document says of bodies and answers of the endpoints about features."""

from __future__ import annotations

from typing import Any, Final

from fastapi import FastAPI
from pydantic import BaseModel, ConfigDict

from naksha.server.answers import FAILED, GEO_JSON

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


def _ref(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{name}"}


def _errors(more: dict[int, str] | None = None) -> Responses:
    described = {**_ERRORS, **(more or {})}
    return {
        status: {"model": ErrorResponse, "description": text} for status, text in described.items()
    }


def reads(description: str, *schemas: tuple[str, dict[str, Any]]) -> Responses:
    """What an endpoint answers that reads."""
    content = {media: {"schema": schema} for media, schema in schemas}
    return {
        200: {"description": description, "content": content},
        304: {"description": "The client has this answer already."},
        **_errors(),
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
        **_errors(_WRITE_ERRORS),
    }


def takes(*schemas: tuple[str, dict[str, Any]], description: str) -> dict[str, Any]:
    """The body of a request."""
    content = {media: {"schema": schema} for media, schema in schemas}
    return {"requestBody": {"required": True, "description": description, "content": content}}


FEATURE: Final = _ref("Feature")
FEATURES: Final = _ref("FeatureCollection")
WRITTEN: Final = _ref("WrittenCollection")
GEOMETRY: Final = _ref("Geometry")
MODIFICATION_LIST: Final = _ref("FeatureModificationList")
COUNT: Final = _ref("CountResponse")
STATISTICS: Final = _ref("StatisticsResponse")
BATCH_REQUEST: Final = _ref("SpatialBatch")
BATCH_ANSWER: Final = _ref("SpatialBatchResponse")
BINARY: Final = {"type": "string", "format": "binary"}

_TEXTS: Final = {"type": "array", "items": {"type": "string"}}
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


def _object(*required: str, **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": [*required]}


def _list(items: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": items}


def _typed(name: str) -> dict[str, Any]:
    return {"type": "string", "const": name}


def _figure(value: dict[str, Any]) -> dict[str, Any]:
    return _object("value", "estimated", value=value, estimated={"type": "boolean"})


_GEOMETRY_TYPES: Final = [
    *("Point", "MultiPoint", "LineString", "MultiLineString", "Polygon", "MultiPolygon"),
    "GeometryCollection",
]
_INTEGER: Final = {"type": "integer"}

SCHEMAS: Final[dict[str, Any]] = {
    "Geometry": _object(
        "type",
        type={"type": "string", "enum": _GEOMETRY_TYPES},
        coordinates={"type": "array"},
        geometries={"type": "array"},
    ),
    "Feature": _object(
        "type",
        id={"type": "string"},
        type=_typed("Feature"),
        geometry={"oneOf": [GEOMETRY, {"type": "null"}]},
        properties={"type": "object"},
    ),
    "FeatureCollection": _object(
        "type", "features", type=_typed("FeatureCollection"), features=_list(FEATURE), **_PAGE
    ),
    "WrittenCollection": _object(
        "type",
        "features",
        type=_typed("FeatureCollection"),
        features=_list(FEATURE),
        inserted=_TEXTS,
        updated=_TEXTS,
        deleted=_TEXTS,
        deletedCount={**_INTEGER, "description": "How many, when not all of them are listed."},
        failed=_list(_REPORT),
        failedCount=_INTEGER,
        notices=_list(_REPORT),
        violations=_list({"type": "object"}),
        version=_INTEGER,
    ),
    "FeatureModificationList": _object(
        "type",
        "modifications",
        type=_typed("FeatureModificationList"),
        modifications=_list(_ref("FeatureModification")),
    ),
    "FeatureModification": _object(
        type=_typed("FeatureModification"),
        onFeatureExists={
            "type": "string",
            "enum": ["patch", "merge", "replace", "delete", "retain", "error"],
        },
        onFeatureNotExists={"type": "string", "enum": ["create", "retain", "error"]},
        onMergeConflict={"type": "string", "enum": ["error", "retain", "replace"]},
        featureData=FEATURES,
        featureIds=_TEXTS,
    ),
    "CountResponse": _object(
        *("type", "count", "estimated"),
        type=_typed("CountResponse"),
        count=_INTEGER,
        estimated={"type": "boolean"},
    ),
    "StatisticsResponse": _object(
        *("type", "count"),
        type=_typed("StatisticsResponse"),
        count=_figure(_INTEGER),
        dataSize=_figure(_INTEGER),
        byteSize=_figure(_INTEGER),
        bbox=_figure({"type": ["array", "null"], "items": {"type": "number"}}),
        geometryTypes=_figure(_TEXTS),
        properties=_figure(_list({"type": "object"})),
        tags=_figure(_list({"type": "object"})),
        contentUpdatedAt=_figure({"type": ["integer", "null"]}),
        minVersion=_figure(_INTEGER),
        maxVersion=_figure(_INTEGER),
    ),
    "SpatialBatch": _object(
        "refSpaceId",
        refSpaceId={"type": "string", "description": "The space of the reference features."},
        refVersionRef={"type": "string", "description": "Its version; default is the present."},
        ids={**_TEXTS, "description": "Only the reference features with these ids."},
        query={
            "type": "string",
            "description": "Only those of this query string, such as `p.kind=park&tags=a,b+c`.",
        },
        limit={**_INTEGER, "description": "How many of them, in the order of their ids."},
        handle={"type": "string", "description": "Where the answer before this one ended."},
    ),
    "SpatialBatchResponse": _object(
        *("type", "results"),
        type=_typed("SpatialBatchResponse"),
        results=_list(
            _object(
                *("refFeatureId", "features"),
                refFeatureId={"type": "string"},
                features=_list(FEATURE),
            )
        ),
        **_PAGE,
    ),
}


def complete_document(app: FastAPI) -> None:
    """Add our schemas to the OpenAPI document, and take out of it what we never answer."""
    made = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            document = made()
            schemas = document.setdefault("components", {}).setdefault("schemas", {})
            schemas.update(SCHEMAS)
            for name in ("HTTPValidationError", "ValidationError"):
                schemas.pop(name, None)
            for path in document["paths"].values():
                for operation in path.values():
                    operation["responses"].pop("422", None)
        assert app.openapi_schema is not None
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]
