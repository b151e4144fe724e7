"""All features of a space, page by page, at one version."""

from __future__ import annotations

from typing import Annotated

import msgspec
from fastapi import APIRouter, Query, Response

from naksha.hub.parts import Part, parse_part, read_part
from naksha.hub.requests import ReadFeatures
from naksha.hub.responses import Features
from naksha.hub.sorting import decode_after, parse_sort, read_sorted
from naksha.server.answers import GEO_JSON, feature_collection
from naksha.server.documents import FEATURES, reads
from naksha.server.handles import cursor_of, handle_of
from naksha.server.parameters import PROPERTY_QUERY, IterateParameters, once, query_of
from naksha.server.reading import Asked, AskedDep, shaping_of

router = APIRouter(tags=["features"])


@router.get(
    "/hub/spaces/{space_id}/iterate",
    response_class=Response,
    responses=reads(
        "A page; with `handle`, which is also called `nextPageToken`, if there are more.",
        (GEO_JSON, FEATURES),
    ),
    openapi_extra=PROPERTY_QUERY,
)
async def iterate(asked: AskedDep, parameters: Annotated[IterateParameters, Query()]) -> Response:
    """All features, or those of a query, in the order of their ids. All pages show the version that
    the first one showed."""
    once(asked.request, "handle", "sort", "part")
    cursor = cursor_of(parameters.handle)
    part = None if parameters.part is None else parse_part(parameters.part)
    read = ReadFeatures(
        query=query_of(asked.request, limit=parameters.limit),
        ref=parameters.ref,
        context=parameters.context,
        paged=True,
    )
    if parameters.sort is not None:
        found = await _sorted(asked, read, parameters.sort, part, cursor)
    elif part is not None:
        found = await read_part(asked.send, read, part, cursor)
    else:
        query = msgspec.structs.replace(read.query, cursor=cursor)
        found = await asked.send(msgspec.structs.replace(read, query=query))
    return feature_collection(found, shaping_of(asked.request, parameters), handle=handle_of)


async def _sorted(
    asked: Asked, read: ReadFeatures, sort: str, part: Part | None, cursor: str | None
) -> Features:
    after = None if cursor is None else decode_after(cursor)
    ref = await asked.pinned(read.ref) if after is None else after.ref
    read = msgspec.structs.replace(read, ref=ref)
    takes = None if part is None else part.has
    return await read_sorted(asked.send, read, parse_sort(sort), after, takes)
