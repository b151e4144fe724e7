"""Statistics of a space."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from starlette.responses import Response

from naksha.hub.config.objects import Space
from naksha.hub.pipeline.requests import GetStatistics, ReadFeatures
from naksha.hub.pipeline.responses import SpaceStatistics
from naksha.hub.render.space_contents import content_updated_at
from naksha.hub.render.space_counts import StatisticsCounter
from naksha.model.statistics import Figure, KeyCount
from naksha.server.openapi.feature_schemas import STATISTICS, reads
from naksha.server.requests.parameters import StatisticsParameters
from naksha.server.responses.encoding import JSON, json_response
from naksha.server.responses.feature_collections import SpaceRequest, SpaceRequestDep
from naksha.server.routing.declarations import QueryParam, Router

router = Router(tags=["features"])


@router.get(
    "/hub/spaces/{space_id}/statistics",
    responses=reads("Figures, each marked if it is an estimate.", (JSON, STATISTICS)),
)
async def statistics(
    request: SpaceRequestDep, parameters: Annotated[StatisticsParameters, QueryParam()]
) -> Response:
    """Return the number, extent, geometry types, properties and tags of the features."""
    return json_response(request.http, _answer(await _content(request, parameters)))


async def _content(request: SpaceRequest, parameters: StatisticsParameters) -> SpaceStatistics:
    if await request.is_plain():
        return await request.send(GetStatistics(ref=parameters.ref, fast=parameters.fast_mode))
    tally = StatisticsCounter()
    read = ReadFeatures(ref=parameters.ref, context=parameters.context)
    await tally.read(await request.send(read))
    space = await request.realm.registry.get(Space, request.space_id)
    updated_at = await content_updated_at(request.realm, space)
    return SpaceStatistics(statistics=tally.statistics(), updated_at=updated_at)


def _answer(content: SpaceStatistics) -> dict[str, Any]:
    found = content.statistics
    box = found.bbox.value
    edges = None if box is None else [box.west, box.south, box.east, box.north]
    response = {
        "type": "StatisticsResponse",
        "count": found.count,
        "byteSize": found.byte_size,
        "dataSize": found.byte_size,
        "bbox": Figure(edges, found.bbox.estimated),
        "geometryTypes": found.geometry_types,
        "properties": {**_keys(found.properties, searchable=True), "searchable": "ALL"},
        "tags": _keys(found.tags),
    }
    versions = {
        "contentUpdatedAt": content.updated_at,
        "minVersion": content.min_version,
        "maxVersion": content.max_version,
    }
    return response | {name: Figure(value) for name, value in versions.items() if value is not None}


def _keys(figure: Figure[tuple[KeyCount, ...]], **more: bool) -> dict[str, Any]:
    return {
        "value": [{**msgspec.structs.asdict(each), **more} for each in figure.value],
        "estimated": figure.estimated,
    }
