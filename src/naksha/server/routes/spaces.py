"""Spaces: listed, made, changed and removed."""

from __future__ import annotations

from contextlib import suppress
from typing import Annotated, Any, Final

import msgspec
from fastapi import APIRouter, Query, Request, Response
from pydantic import Field

from naksha.hub.contents import content_updated_at
from naksha.hub.language.content_time import content_time_tests
from naksha.hub.objects import Space, patched, replaced
from naksha.hub.permissions import check_seen
from naksha.hub.provenance import add_provenance
from naksha.hub.registry import new_space_id
from naksha.hub.resources import features
from naksha.hub.rights import Right
from naksha.hub.space_changes import change_space, create_space, remove_space
from naksha.hub.space_lists import SpaceFilter, Wanted, listed
from naksha.model.errors import NakshaError
from naksha.server.answers import JSON, json_answer
from naksha.server.bodies import json_object
from naksha.server.config_documents import (
    ProvenanceDocument,
    SpaceDocument,
    answers,
    body_of,
    changes,
    patch_of,
)
from naksha.server.configured import IfMatch, etags, shown, wants_json
from naksha.server.parameters import Parameters, raw_query
from naksha.server.state import Ctx, RealmDep

router = APIRouter(tags=["spaces"])
SPACE: Final = "/hub/spaces/{space_id}"


class ListParameters(Parameters):
    """Which spaces, and what is said of them."""

    owner: str = Field("me", description="`me`, `others`, `*` for everybody, or the owner's id.")
    tag: list[str] = Field([], description="Only those with one of these tags; commas separate.")
    region: str | None = Field(None, description="Only those of this region.")
    content_updated_at: str | None = Field(
        None,
        alias="contentUpdatedAt",
        description="Only those whose content was changed then; also with other operators, "
        "such as `contentUpdatedAt>1700000000000` or `contentUpdatedAt=lte=…`.",
    )
    include_rights: bool = Field(
        False, alias="includeRights", description="Say what the actor may do with each."
    )
    include_connectors: bool = Field(
        False, alias="includeConnectors", description="Show the connectors of each."
    )
    include_counts: bool = Field(
        False,
        alias="includeCounts",
        description="Say how many features are in each, how large they are, and when they were "
        "last changed.",
    )


@router.get(
    "/hub/spaces",
    response_class=Response,
    responses=answers(list[SpaceDocument], "Those that the actor may see, ordered by id."),
)
async def list_spaces(
    request: Request,
    realm: RealmDep,
    context: Ctx,
    parameters: Annotated[ListParameters, Query()],
) -> Response:
    """The spaces of the realm."""
    wanted = SpaceFilter(
        owner=parameters.owner,
        tags=frozenset(part for one in parameters.tag for part in one.split(",") if part),
        region=parameters.region,
        content_tests=tuple(content_time_tests(raw_query(request))),
    )
    beside = Wanted(
        parameters.include_rights, parameters.include_connectors, parameters.include_counts
    )
    return json_answer(request, await listed(realm, wanted, beside, context.actor))


@router.post(
    "/hub/spaces",
    response_class=Response,
    responses=changes(SpaceDocument, "The space as it was made."),
    openapi_extra=body_of(SpaceDocument, "The space; without an id it gets one."),
)
async def post_space(request: Request, realm: RealmDep, context: Ctx) -> Response:
    """Make a space, and its collection."""
    body = await json_object(request)
    if body.get("id") is None:
        body["id"] = new_space_id()
    made = await create_space(realm, Space.from_json(body), context.actor)
    return shown(request, made)


@router.get(
    SPACE,
    response_class=Response,
    responses=answers(SpaceDocument, "The space."),
)
async def get_space(space_id: str, request: Request, realm: RealmDep, context: Ctx) -> Response:
    """A space."""
    space = await realm.registry.get(Space, space_id)
    check_seen(space, context.actor)
    more: dict[str, Any] = {}
    with suppress(NakshaError):  # the space is there though its storage is not
        more["contentUpdatedAt"] = await content_updated_at(realm, space)
    return shown(request, space, more=more)


@router.patch(
    SPACE,
    response_class=Response,
    responses=changes(SpaceDocument, "The space as it is now."),
    openapi_extra=patch_of(SpaceDocument),
)
async def patch_space(
    space_id: str, request: Request, realm: RealmDep, context: Ctx, if_match: IfMatch = None
) -> Response:
    """Change a space by a merge patch: null takes away, lists are replaced."""
    patch = await json_object(request)
    changed = await change_space(
        realm,
        space_id,
        lambda old: patched(Space, old, patch),
        context.actor,
        if_match=etags(if_match),
    )
    return shown(request, changed)


@router.put(
    SPACE,
    response_class=Response,
    responses=changes(SpaceDocument, "The space as it is now."),
    openapi_extra=body_of(SpaceDocument, "The space."),
)
async def put_space(
    space_id: str, request: Request, realm: RealmDep, context: Ctx, if_match: IfMatch = None
) -> Response:
    """Replace a space that is there."""
    body = await json_object(request)
    changed = await change_space(
        realm,
        space_id,
        lambda old: replaced(Space, old, body),
        context.actor,
        if_match=etags(if_match),
    )
    return shown(request, changed)


@router.delete(
    SPACE,
    response_class=Response,
    responses={
        204: {"description": "Done; the answer to who does not accept JSON."},
        **changes(SpaceDocument, "The space as it was."),
    },
)
async def delete_space(
    space_id: str,
    request: Request,
    realm: RealmDep,
    context: Ctx,
    if_match: IfMatch = None,
    keep_collection: Annotated[
        bool,
        Query(
            alias="keepCollection",
            description="Leave the collection, where no other space is stored in it, as it is.",
        ),
    ] = False,
) -> Response:
    """Remove a space with its tags and branches. A collection that no other space is stored in is
    deleted after a grace period; until then it can be restored by a space that names it."""
    removed = await remove_space(
        realm,
        space_id,
        context.actor,
        if_match=etags(if_match),
        keeps_collection=keep_collection,
    )
    return shown(request, removed) if wants_json(request) else Response(status_code=204)


@router.post(
    f"{SPACE}/provenance",
    response_class=Response,
    responses=changes(ProvenanceDocument, "The entry as it is kept."),
    openapi_extra=body_of(ProvenanceDocument, "Where data came from."),
)
async def post_provenance(
    space_id: str, request: Request, realm: RealmDep, context: Ctx
) -> Response:
    """Note where data of a space came from. Whoever may create features may say so."""
    space = await realm.registry.get(Space, space_id)
    context.actor.rights.check(Right.CREATE_FEATURES, features(space.resource()))
    kept = await add_provenance(realm, space_id, await json_object(request), context.actor)
    return Response(msgspec.json.encode(kept), media_type=JSON)
