"""The change log of the configuration."""

from __future__ import annotations

from typing import Annotated

from starlette.responses import Response

from naksha.hub.config.change_log import ConfigLog
from naksha.model import limits
from naksha.model.errors import InvalidArgument
from naksha.server.openapi.config_schemas import ConfigurationChangesDocument, returns
from naksha.server.responses.encoding import json_response
from naksha.server.routes.config._crud import ConfigRequestDep
from naksha.server.routing.declarations import QueryParam, Router

router = Router(tags=["configuration"])


@router.get(
    "/hub/configuration/changes",
    responses={
        **returns(ConfigurationChangesDocument, "Commits of the configuration."),
        410: {"description": "The requested part of the log has been deleted."},
    },
)
async def read_changes(
    request: ConfigRequestDep,
    after: Annotated[
        str | None,
        QueryParam(
            max_length=limits.FEED_POSITION_LENGTH_MAX,
            description="The `next` of the previous page, or the `cursor` of a commit.",
        ),
    ] = None,
    since: Annotated[
        int | None,
        QueryParam(
            ge=0, le=limits.INT8_MAX // 1000, description="Commits from this time (epoch ms) on."
        ),
    ] = None,
    newest_first: Annotated[
        bool,
        QueryParam(alias="newestFirst", description="Newest first, from the end or from `after`."),
    ] = False,
    limit: Annotated[int, QueryParam(ge=1, le=limits.LOG_PAGE_MAX)] = 100,
) -> Response:
    """List the commits to the configuration, oldest first, with time and author.

    They cover spaces, connectors, storages, roles and subscriptions. Objects that the actor may not
    see are left out.
    """
    log = ConfigLog(request.realm.opened, request.actor)
    if since is not None:
        if after is not None or newest_first:
            raise InvalidArgument(
                'The parameter "since" cannot be combined with "after" and "newestFirst"',
                field="since",
            )
        page = await log.since(since, limit)
    elif newest_first:
        page = await log.newest_first(after, limit)
    else:
        page = await log.oldest_first(after, limit)
    return json_response(request.http, page)
