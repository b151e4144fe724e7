"""Iterate over all features of a space, page by page, at one version."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import msgspec
from starlette.responses import Response

from naksha.hub.pipeline.iterate_parts import parse_part, restrict_to_part
from naksha.hub.pipeline.requests import ReadFeatures
from naksha.hub.pipeline.responses import Features
from naksha.hub.render.sorted_pages import (
    decode_after,
    parse_sort,
    read_sorted,
    sort_in_memory,
    sort_in_storage,
)
from naksha.model.errors import InvalidArgument
from naksha.server.openapi.feature_schemas import FEATURES, reads
from naksha.server.requests.parameters import PROPERTY_QUERY, IterateParameters, once, query_of
from naksha.server.responses.encoding import GEO_JSON, feature_collection
from naksha.server.responses.feature_collections import SpaceRequest, SpaceRequestDep, projection_of
from naksha.server.responses.iterate_handles import cursor_of, handle_of
from naksha.server.routing.declarations import QueryParam, Router

router = Router(tags=["features"])


@router.get(
    "/hub/spaces/{space_id}/iterate",
    responses=reads(
        "A page; has `handle`, also as `nextPageToken`, if more follow.",
        (GEO_JSON, FEATURES),
    ),
    openapi_extra=PROPERTY_QUERY,
)
async def iterate(
    request: SpaceRequestDep, parameters: Annotated[IterateParameters, QueryParam()]
) -> Response:
    """Return all features, or those that match a query, ordered by id.

    All pages read the version of the first one.
    """
    once(request.http, "handle", "sort", "part")
    cursor = cursor_of(parameters.handle)
    part = None if parameters.part is None else parse_part(parameters.part)
    read = ReadFeatures(
        query=query_of(request.http, parameters, limit=parameters.limit, part=part),
        ref=parameters.ref,
        context=parameters.context,
        paged=True,
    )
    with _of_the_handle():
        found = await _page(request, read, parameters.sort, cursor)
    return await feature_collection(
        found, projection_of(request.http, parameters), handle=handle_of
    )


async def _page(
    request: SpaceRequest, read: ReadFeatures, sort: str | None, cursor: str | None
) -> Features:
    part = read.query.part
    is_plain = (sort is not None or part is not None) and await request.is_plain()
    send = request.send if part is None or is_plain else restrict_to_part(part, request.send)
    if sort is None:
        query = msgspec.structs.replace(read.query, cursor=cursor)
        return await send(msgspec.structs.replace(read, query=query))
    keys = parse_sort(sort)
    after = None if cursor is None else decode_after(cursor)
    ref = await request.pinned(read.ref) if after is None else after.ref
    read = msgspec.structs.replace(read, ref=ref)
    find = sort_in_storage(request.send) if is_plain else sort_in_memory(send)
    return await read_sorted(send, find, read, keys, after)


@contextmanager
def _of_the_handle() -> Iterator[None]:
    """Report errors of the page token under the client's parameter name, `handle`."""
    try:
        yield
    except InvalidArgument as error:
        if error.field not in ("after", "cursor"):
            raise
        raise InvalidArgument(error.message, field="handle") from error
