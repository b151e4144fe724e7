"""Statistics of a space."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from starlette.responses import Response

from naksha.hub.config.objects import Space
from naksha.hub.pipeline.requests import GetStatistics, ReadFeatures
from naksha.hub.pipeline.responses import Content
from naksha.hub.render.space_contents import content_updated_at
from naksha.hub.render.space_counts import StatisticsCounter
from naksha.model.statistics import Figure, KeyCount
from naksha.server.openapi.feature_schemas import STATISTICS, reads
from naksha.server.requests.parameters import StatisticsParameters
from naksha.server.responses.encoding import JSON, json_answer
from naksha.server.responses.feature_collections import Asked, AskedDep
from naksha.server.routing.declarations import QueryParam, Router

router = Router(tags=["features"])


@router.get(
    "/hub/spaces/{space_id}/statistics",
    responses=reads("Figures, each marked if it is an estimate.", (JSON, STATISTICS)),
)
async def statistics(
    asked: AskedDep, parameters: Annotated[StatisticsParameters, QueryParam()]
) -> Response:
    """Return the number, extent, geometry types, properties and tags of the features."""
    return json_answer(asked.request, _answer(await _content(asked, parameters)))


async def _content(asked: Asked, parameters: StatisticsParameters) -> Content:
    if await asked.is_plain():
        return await asked.send(GetStatistics(ref=parameters.ref, fast=parameters.fast_mode))
    tally = StatisticsCounter()
    read = ReadFeatures(ref=parameters.ref, context=parameters.context)
    await tally.read(await asked.send(read))
    space = await asked.realm.registry.get(Space, asked.space_id)
    updated_at = await content_updated_at(asked.realm, space)
    return Content(statistics=tally.statistics(), updated_at=updated_at)


def _answer(content: Content) -> dict[str, Any]:
    found = content.statistics
    box = found.bbox.value
    edges = None if box is None else [box.west, box.south, box.east, box.north]
    answer = {
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
    return answer | {name: Figure(value) for name, value in versions.items() if value is not None}


def _keys(figure: Figure[tuple[KeyCount, ...]], **more: bool) -> dict[str, Any]:
    return {
        "value": [{**msgspec.structs.asdict(each), **more} for each in figure.value],
        "estimated": figure.estimated,
    }
