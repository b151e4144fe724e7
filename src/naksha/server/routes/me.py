"""The caller: who they are, and what they may do in their realm."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import BaseModel, Field
from starlette.requests import Request
from starlette.responses import Response

from naksha.hub.auth.rights import Right
from naksha.hub.pipeline.request_context import Actor
from naksha.server.openapi.config_schemas import returns
from naksha.server.requests.state import Ctx
from naksha.server.responses.encoding import json_response
from naksha.server.routing.declarations import Router

router = Router(tags=["operation"])
Extent = Annotated[
    Literal["all", "some"],
    Field(description="`all`: on everything in the realm; `some`: on the resources of its grants."),
]


class CallerLimits(BaseModel):
    """Usage limits of the caller's token; null is unlimited."""

    maxSpaces: int | None = None  # noqa: N815
    maxFeaturesPerSpace: int | None = None  # noqa: N815


class Caller(BaseModel):
    """The sender of a request, and their rights."""

    type: Literal["Caller"]
    appId: str  # noqa: N815
    author: str | None
    realm: str
    anonymous: bool = Field(description="Whether the request has no token.")
    rights: dict[str, Extent] = Field(
        description="The rights of the token and its roles; those that are missing are not granted."
    )
    limits: CallerLimits


_CALLER: Final = returns(Caller, "The caller.")


@router.get("/hub/me", responses=_CALLER)
async def get_caller(request: Request, context: Ctx) -> Response:
    """Return who sends the request, and their rights.

    `GET /hub/spaces?includeRights=true` returns the rights on each space.
    """
    actor = context.actor
    return json_response(
        request,
        {
            "type": "Caller",
            "appId": actor.app_id,
            "author": actor.author,
            "realm": actor.realm,
            "anonymous": actor.is_anonymous,
            "rights": {right.value: extent for right in Right if (extent := _extent(actor, right))},
            "limits": {
                "maxSpaces": actor.limits.max_spaces,
                "maxFeaturesPerSpace": actor.limits.max_features_per_space,
            },
        },
    )


def _extent(actor: Actor, right: Right) -> str | None:
    grants = actor.rights.grants.get(right, ())
    if not grants:
        return None
    return "all" if () in grants else "some"
