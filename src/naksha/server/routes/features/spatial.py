"""Spatial search around a point, a geometry, an H3 cell or another feature."""

from __future__ import annotations

from typing import Annotated, Final

import shapely
from starlette.responses import Response

from naksha.hub.pipeline.requests import ReadFeatures
from naksha.hub.query_language.tiles import hexagon
from naksha.hub.render.buffer import buffered_shape
from naksha.hub.render.feature_shapes import sent_shape, shape_of
from naksha.model.errors import FeatureNotFound, InvalidArgument
from naksha.model.identity.names import check_feature_id
from naksha.model.query import Intersects
from naksha.model.query import Query as FeatureQuery
from naksha.server.openapi.feature_schemas import FEATURES, GEOMETRY, reads, takes
from naksha.server.requests.json_body import json_object
from naksha.server.requests.parameters import (
    PROPERTY_QUERY,
    AroundParameters,
    SpatialParameters,
    once,
    query_of,
)
from naksha.server.responses.encoding import GEO_JSON, JSON
from naksha.server.responses.feature_collections import SpaceRequest, SpaceRequestDep, projection_of
from naksha.server.routing.declarations import QueryParam, Router

router = Router(tags=["features"])
PATH: Final = "/hub/spaces/{space_id}/spatial"
_ONE: Final = ("lat", "lon", "refSpaceId", "refFeatureId", "h3Index", "radius")
_WAYS: Final = "Pass exactly one of: lat and lon; refSpaceId and refFeatureId; h3Index"


@router.get(
    PATH,
    responses=reads("The features found, in any order.", (GEO_JSON, FEATURES)),
    openapi_extra=PROPERTY_QUERY,
)
async def around(
    request: SpaceRequestDep, parameters: Annotated[SpatialParameters, QueryParam()]
) -> Response:
    """Find features that intersect a point, a feature or an H3 cell, or are within a radius."""
    once(request.http, *_ONE)
    return await _found(request, parameters, await _shape(request, parameters))


@router.post(
    PATH,
    responses=reads("The features found, in any order.", (GEO_JSON, FEATURES)),
    openapi_extra=takes(
        (GEO_JSON, GEOMETRY), (JSON, GEOMETRY), description="A geometry, not a feature."
    )
    | PROPERTY_QUERY,
)
async def around_geometry(
    request: SpaceRequestDep, parameters: Annotated[AroundParameters, QueryParam()]
) -> Response:
    """Find features that intersect a geometry, or are within a radius of it."""
    once(request.http, "radius")
    return await _found(request, parameters, sent_shape(await json_object(request.http)))


async def _found(
    request: SpaceRequest, parameters: AroundParameters, shape: shapely.Geometry
) -> Response:
    clip = buffered_shape(shape, parameters.radius) if parameters.clips else None
    spatial = around_shape(shape, parameters.radius)
    read = ReadFeatures(
        query=query_of(request.http, parameters, spatial=spatial, limit=parameters.limit),
        ref=parameters.ref,
        context=parameters.context,
    )
    return await request.features(read, projection_of(request.http, parameters, clip))


def around_shape(shape: shapely.Geometry, radius: float) -> Intersects:
    """Build the condition to intersect a shape, or to be within a radius of it."""
    return Intersects(shapely.to_wkb(shapely.force_2d(shape)), radius)


async def _shape(request: SpaceRequest, parameters: SpatialParameters) -> shapely.Geometry:
    point = (parameters.lat, parameters.lon)
    reference = (parameters.ref_space_id, parameters.ref_feature_id)
    ways = [point != (None, None), reference != (None, None), parameters.h3_index is not None]
    if sum(ways) != 1:
        raise InvalidArgument(_WAYS, field="lat")
    if parameters.h3_index is not None:
        return hexagon(parameters.h3_index)
    if parameters.lat is not None and parameters.lon is not None:
        return shapely.Point(parameters.lon, parameters.lat)
    if parameters.ref_space_id is not None and parameters.ref_feature_id is not None:
        return await _reference(request, parameters.ref_space_id, parameters.ref_feature_id)
    pairs: dict[str, object] = {"lat": parameters.lat, "lon": parameters.lon}
    if point == (None, None):
        pairs = {"refSpaceId": parameters.ref_space_id, "refFeatureId": parameters.ref_feature_id}
    missing = next(name for name, value in pairs.items() if value is None)
    raise InvalidArgument(f'Parameter "{missing}" is missing. {_WAYS}', field=missing)


async def _reference(request: SpaceRequest, space_id: str, feature_id: str) -> shapely.Geometry:
    """Return the geometry of a feature, if the actor may read it."""
    query = FeatureQuery(ids=(check_feature_id(feature_id, field="refFeatureId"),))
    found = await request.realm.send(space_id, ReadFeatures(query=query), request.context)
    states = await found.all()
    if not states:
        raise FeatureNotFound(
            f"Space {space_id!r} has no feature {feature_id!r}",
            field="refFeatureId",
            feature_id=feature_id,
        )
    shape = shape_of(states[0])
    if shape is None:
        raise InvalidArgument(
            f"Feature {feature_id!r} has no geometry to search around", field="refFeatureId"
        )
    return shape
