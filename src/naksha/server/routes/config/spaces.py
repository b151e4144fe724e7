"""Endpoints that list, create, change and remove spaces."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import Annotated, Any, Final

import msgspec
from pydantic import Field
from starlette.responses import Response

from naksha.hub.auth.resources import features
from naksha.hub.auth.rights import Right, forbidden
from naksha.hub.auth.row_scope import scope_in
from naksha.hub.config.change_rights import check_listing
from naksha.hub.config.objects import Space
from naksha.hub.config.provenance import add_provenance
from naksha.hub.config.registry import new_space_id
from naksha.hub.config.space_changes import change_space, create_space, remove_space
from naksha.hub.config.space_lists import SpaceFilter, SpaceListMembers, visible_spaces
from naksha.hub.handlers.authorization import check_active
from naksha.hub.query_language.content_time import content_time_tests
from naksha.hub.render.space_contents import content_updated_at
from naksha.model.errors import NakshaError
from naksha.server.openapi.config_schemas import ProvenanceDocument, SpaceDocument, body_of, changes
from naksha.server.requests.parameter_checks import OPERATORS
from naksha.server.requests.parameters import DryRunSwitch, Parameters, raw_query
from naksha.server.responses.encoding import JSON, json_response
from naksha.server.routes.config._crud import ConfigRequestDep, ConfigRoutes, Tags, removed, shown
from naksha.server.routing.declarations import QueryParam, Router

router = Router(tags=["spaces"])
SPACES: Final = "/hub/spaces"
SPACE: Final = "/hub/spaces/{space_id}"
KeepCollection = Annotated[
    bool,
    QueryParam(
        alias="keepCollection",
        description="Keep the collection, even if no other space is stored in it.",
    ),
]
DryRun = Annotated[
    DryRunSwitch,
    QueryParam(alias="dryRun", description="Validate the request and respond, but change nothing."),
]
_spaces: Final = ConfigRoutes(Space, SpaceDocument, change_space)
_dry_spaces: Final = ConfigRoutes(Space, SpaceDocument, partial(change_space, dry_run=True))


class ListParameters(Parameters):
    """Filter and extra members of a list of spaces."""

    owner: str = Field("me", description="`me`, `others`, `*` for all, or the id of the owner.")
    tag: list[str] = Field(
        [],
        description="Only spaces with one of these as a tag or as a version tag; separated by "
        "commas.",
    )
    region: str | None = Field(None, description="Only spaces of this region.")
    content_updated_at: str | None = Field(
        None,
        alias="contentUpdatedAt",
        description="Only spaces whose content changed at this time; accepts other operators, "
        "such as `contentUpdatedAt>1700000000000` or `contentUpdatedAt=lte=…`.",
        json_schema_extra={OPERATORS: True},
    )
    include_rights: bool = Field(
        False, alias="includeRights", description="Include the actor's rights on each space."
    )
    include_connectors: bool = Field(
        False, alias="includeConnectors", description="Include the connectors of each space."
    )
    include_counts: bool = Field(
        False,
        alias="includeCounts",
        description="Include the number of features, the size and the time of the last change of "
        "each space.",
    )


@router.get(SPACES, **_spaces.lists)
async def list_spaces(
    request: ConfigRequestDep, parameters: Annotated[ListParameters, QueryParam()]
) -> Response:
    """List the spaces of the realm."""
    where = SpaceFilter(
        owner=parameters.owner,
        tags=frozenset(part for one in parameters.tag for part in one.split(",") if part),
        region=parameters.region,
        content_tests=tuple(content_time_tests(raw_query(request.http))),
    )
    beside = SpaceListMembers(
        parameters.include_rights, parameters.include_connectors, parameters.include_counts
    )
    found = await visible_spaces(request.realm, where, beside, request.context)
    if not found:  # shared spaces are visible without the right
        check_listing(Space, request.actor)
    return json_response(request.http, found)


@router.post(SPACES, **_spaces.makes("The space; the id is optional."))
async def post_space(request: ConfigRequestDep, dry_run: DryRun = False) -> Response:
    """Create a space, and its collection."""
    body = await request.body()
    if body.get("id") is None:
        body["id"] = new_space_id()
    space = Space.from_json(body)
    made = await create_space(request.realm, space, request.actor, dry_run=dry_run)
    return shown(request.http, made)


@router.get(SPACE, **_spaces.shows)
async def get_space(space_id: str, request: ConfigRequestDep) -> Response:
    """Return a space."""
    space = await _spaces.found(space_id, request)
    more: dict[str, Any] = {}
    with suppress(NakshaError):  # show the space even if its storage is unavailable
        more["contentUpdatedAt"] = await content_updated_at(request.realm, space)
    return shown(request.http, space, more=more)


@router.patch(SPACE, **_spaces.patches)
async def patch_space(
    space_id: str, request: ConfigRequestDep, tags: Tags, dry_run: DryRun = False
) -> Response:
    """Change a space by a JSON Merge Patch: null removes a member, arrays are replaced."""
    return await (_dry_spaces if dry_run else _spaces).patched(space_id, request, tags)


@router.put(SPACE, **_spaces.replaces)
async def put_space(
    space_id: str, request: ConfigRequestDep, tags: Tags, dry_run: DryRun = False
) -> Response:
    """Replace an existing space."""
    return await (_dry_spaces if dry_run else _spaces).replaced(space_id, request, tags)


@router.delete(SPACE, **_spaces.removes)
async def delete_space(
    space_id: str,
    request: ConfigRequestDep,
    tags: Tags,
    keep_collection: KeepCollection = False,
    dry_run: DryRun = False,
) -> Response:
    """Remove a space with its tags and branches.

    A collection in which no other space is stored is deleted after a grace period; until then a new
    space that names it restores it.
    """
    space = await remove_space(
        request.realm,
        space_id,
        request.actor,
        if_match=tags,
        keeps_collection=keep_collection,
        dry_run=dry_run,
    )
    return removed(request.http, space)


@router.post(
    f"{SPACE}/provenance",
    responses=changes(ProvenanceDocument, "The entry as stored."),
    openapi_extra=body_of(ProvenanceDocument, "The origin of data."),
)
async def post_provenance(space_id: str, request: ConfigRequestDep) -> Response:
    """Record the origin of data of a space; requires the right to create features in it."""
    pipeline = await request.context.configured.pipeline(space_id)
    check_active(pipeline.space)
    if not scope_in(pipeline, request.actor.rights, Right.CREATE_FEATURES).is_everything:
        raise forbidden(Right.CREATE_FEATURES, features(pipeline.space.resource()))
    kept = await add_provenance(request.realm, space_id, await request.body(), request.actor)
    return Response(msgspec.json.encode(kept), media_type=JSON)
