"""Landing page and conformance of the OGC API."""

from __future__ import annotations

from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from naksha.server.ogc.links import CONFORMANCE, RELATIONS, link, url_of
from naksha.server.openapi.feature_schemas import TEXTS, object_of, reads
from naksha.server.responses.encoding import JSON, json_response
from naksha.server.routing.declarations import Router

router = Router(prefix="/ogc", tags=["ogc"])
_CLASSES: Final = (
    *("ogcapi-common-1/1.0/conf/core", "ogcapi-common-1/1.0/conf/json"),
    *("ogcapi-tiles-1/1.0/conf/core", "ogcapi-tiles-1/1.0/conf/tileset"),
    *("ogcapi-tiles-1/1.0/conf/tilesets-list", "ogcapi-tiles-1/1.0/conf/geodata-tilesets"),
    *("ogcapi-tiles-1/1.0/conf/mvt", "ogcapi-tiles-1/1.0/conf/geojson"),
    *("tms/2.0/conf/tilematrixset", "tms/2.0/conf/json-tilematrixset"),
)
_LINKS: Final = {"type": "array", "items": {"type": "object"}}


@router.get("", responses=reads("The resources.", (JSON, object_of("links", links=_LINKS))))
async def landing_page(request: Request) -> Response:
    """Return the entry to the OGC API."""
    openapi = f"{str(request.base_url).rstrip('/')}/openapi.json"
    return json_response(
        request,
        {
            "title": "Naksha",
            "description": "Versioned geospatial features; a collection is a space.",
            "links": [
                link(url_of(request), "self"),
                link(url_of(request, "conformance"), "conformance"),
                link(openapi, "service-desc", "application/vnd.oai.openapi+json;version=3.1"),
                link(url_of(request, "tileMatrixSets"), f"{RELATIONS}tiling-schemes"),
            ],
        },
    )


@router.get(
    "/conformance",
    responses=reads("URIs of conformance classes.", (JSON, object_of(conformsTo=TEXTS))),
)
async def conformance(request: Request) -> Response:
    """Return the conformance classes that the API implements."""
    classes = [f"{CONFORMANCE}{one}" for one in _CLASSES]
    return json_response(request, {"conformsTo": classes})
