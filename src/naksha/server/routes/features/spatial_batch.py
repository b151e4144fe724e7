"""Batched spatial search: around each feature of a query, in this space or another one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated, Any, Final

import msgspec
from starlette.responses import Response

from naksha.hub.pipeline.requests import ReadFeatures
from naksha.hub.pipeline.responses import Features
from naksha.hub.query_language.properties import property_query
from naksha.hub.query_language.tags import tag_query
from naksha.hub.render.buffer import buffered_shape
from naksha.hub.render.feature_shapes import shape_of
from naksha.hub.render.projection import shaped
from naksha.model import limits
from naksha.model.feature_problems import invalid_struct
from naksha.model.identity.names import check_feature_id
from naksha.model.json_text import close_object
from naksha.model.query import Query as FeatureQuery
from naksha.model.state import State
from naksha.server.openapi.feature_schemas import BATCH_ANSWER, BATCH_REQUEST, reads, takes
from naksha.server.requests.json_body import json_object
from naksha.server.requests.parameters import PROPERTY_QUERY, AroundParameters, once, query_of
from naksha.server.responses.encoding import JSON, join_states, streaming_response
from naksha.server.responses.feature_collections import SpaceRequest, SpaceRequestDep, projection_of
from naksha.server.responses.iterate_handles import cursor_of, handle_of
from naksha.server.routes.features.spatial import around_shape
from naksha.server.routing.declarations import QueryParam, Router

router = Router(tags=["features"])
_BEGIN: Final = b'{"type":"SpatialBatchResponse","results":[\n'


class SpatialBatch(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Selection of the reference features: those to search around."""

    ref_space_id: str
    ref_version_ref: str = ""
    ids: tuple[str, ...] | None = None
    query: str = ""
    limit: int = limits.PAGE_DEFAULT
    handle: str = "0"


@router.post(
    "/hub/spaces/{space_id}/spatial/batch",
    responses=reads("The results per reference feature, ordered by id.", (JSON, BATCH_ANSWER)),
    openapi_extra=takes((JSON, BATCH_REQUEST), description="The reference features.")
    | PROPERTY_QUERY,
)
async def around_each(
    request: SpaceRequestDep, parameters: Annotated[AroundParameters, QueryParam()]
) -> Response:
    """Find features that intersect each reference feature, or are within a radius of it.

    The parameters apply to the features found (`limit`: maximum per reference feature), the body
    selects the reference features.
    """
    once(request.http, "radius")
    batch = _batch(await json_object(request.http))
    ref = await request.pinned(parameters.ref)
    # Run an empty search first: its errors are raised before the response begins.
    nothing = FeatureQuery(ids=())
    await request.send(ReadFeatures(query=nothing, ref=ref, context=parameters.context))
    references = await request.realm.send(batch.ref_space_id, _references(batch), request.context)
    body = _streamed(request, parameters, references, ref)
    return streaming_response(body, JSON)


def _batch(body: dict[str, Any]) -> SpatialBatch:
    try:
        return msgspec.convert(body, SpatialBatch)
    except msgspec.ValidationError as error:
        raise invalid_struct("batch", error) from None


def _references(batch: SpatialBatch) -> ReadFeatures:
    ids = None
    if batch.ids is not None:
        ids = tuple(check_feature_id(id, field=f"ids[{n}]") for n, id in enumerate(batch.ids))
    query = FeatureQuery(
        ids=ids,
        where=property_query(batch.query),
        tags=tag_query(batch.query),
        limit=batch.limit,
        cursor=cursor_of(batch.handle),
    )
    return ReadFeatures(query=query, ref=batch.ref_version_ref, paged=True)


async def _streamed(
    request: SpaceRequest, parameters: AroundParameters, references: Features, ref: str
) -> AsyncIterator[bytes]:
    begin = _BEGIN
    try:
        async for states in references:
            for state in states:
                async for piece in _result(request, parameters, state, ref):
                    yield begin + piece
                    begin = b""
                begin = b",\n"
    finally:
        await references.aclose()
    tail = {}
    if references.cursor is not None:
        handle = handle_of(references.cursor)
        tail = {"handle": handle, "nextPageToken": handle}
    yield (_BEGIN if begin is _BEGIN else b"") + b"\n]" + close_object(tail)


async def _result(
    request: SpaceRequest, parameters: AroundParameters, reference: State, ref: str
) -> AsyncIterator[bytes]:
    """Yield the result for one reference feature."""
    yield b'{"refFeatureId":' + msgspec.json.encode(reference.id) + b',"features":['
    shape = shape_of(reference)
    separator = b"\n"
    if shape is not None:
        clip = buffered_shape(shape, parameters.radius) if parameters.clips else None
        shaping = projection_of(request.http, parameters, clip)
        spatial = around_shape(shape, parameters.radius)
        query = query_of(request.http, parameters, spatial=spatial, limit=parameters.limit)
        found = await request.send(ReadFeatures(query=query, ref=ref, context=parameters.context))
        async for states in found:
            content = join_states(shaped(states, shaping))
            if content:
                yield separator + content
                separator = b",\n"
    yield b"]}"
