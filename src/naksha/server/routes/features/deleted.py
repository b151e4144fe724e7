"""List deleted features of a space, and purge them."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
from pydantic import Field
from starlette.responses import Response

from naksha.hub.pipeline.requests import PurgeFeatures, ReadFeatures
from naksha.hub.query_language.tags import id_list
from naksha.model.errors import InvalidArgument
from naksha.model.query import States
from naksha.server.openapi.feature_schemas import FEATURES, TEXTS, object_of, reads, write_errors
from naksha.server.requests.parameters import (
    PROPERTY_QUERY,
    BranchParameters,
    DeletedParameters,
    once,
    query_of,
    raw_query,
)
from naksha.server.responses.encoding import GEO_JSON, JSON, feature_collection
from naksha.server.responses.feature_collections import SpaceRequestDep, projection_of
from naksha.server.responses.iterate_handles import cursor_of, handle_of
from naksha.server.routing.declarations import QueryParam, Router

router = Router(tags=["features"])
DELETED: Final = "/hub/spaces/{space_id}/deleted"
_PURGED: Final = object_of("purged", "retained", purged=TEXTS, retained=TEXTS)
_PURGES: Final = {
    200: {"description": "The ids by outcome.", "content": {JSON: {"schema": _PURGED}}},
    **write_errors(),
}


@router.get(
    DELETED,
    responses=reads("A page; has `handle` if more follow.", (GEO_JSON, FEATURES)),
    openapi_extra=PROPERTY_QUERY,
)
async def list_deleted(
    request: SpaceRequestDep, parameters: Annotated[DeletedParameters, QueryParam()]
) -> Response:
    """List deleted features in their last state, ordered by id.

    A rollback can restore them until they are purged.
    """
    once(request.http, "handle")
    query = query_of(request.http, parameters, limit=parameters.limit, states=States.DELETED)
    query = msgspec.structs.replace(query, cursor=cursor_of(parameters.handle))
    read = ReadFeatures(query=query, ref=parameters.ref, context=parameters.context, paged=True)
    found = await request.send(read)
    return await feature_collection(
        found, projection_of(request.http, parameters), handle=handle_of
    )


class PurgeParameters(BranchParameters):
    """Selection of the features to purge."""

    id: list[str] = Field([], description="Feature ids, separated by commas or repeated.")


@router.delete(DELETED, responses=_PURGES)
async def purge_deleted(
    request: SpaceRequestDep, parameters: Annotated[PurgeParameters, QueryParam()]
) -> Response:
    """Purge deleted features by id. Past versions show them until their history expires."""
    ids = id_list(raw_query(request.http))
    if not ids:
        raise InvalidArgument('Parameter "id" is required: the ids to purge', field="id")
    purged = await request.send(PurgeFeatures(ids=ids, ref=parameters.ref))
    return Response(msgspec.json.encode(purged), media_type=JSON)
