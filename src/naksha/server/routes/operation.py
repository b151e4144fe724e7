"""For those who run a hub, and for older clients that look at their token first."""

from __future__ import annotations

from typing import Any, Final

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel

from naksha.hub.auth.resources import storage
from naksha.hub.auth.rights import Right
from naksha.hub.config.realm_setup import DEFAULT_STORAGE
from naksha.hub.pipeline.request_context import DEFAULT_REALM, Actor
from naksha.model.errors import Forbidden, Unauthorized
from naksha.server.metrics import CONTENT_TYPE_LATEST, exposition
from naksha.server.openapi.feature_schemas import Responses, some_errors
from naksha.server.requests.state import context_of, server_of

router = APIRouter(tags=["operation"])


class Token(BaseModel):
    """What a token says."""

    type: str
    valid: bool
    cid: str | None = None
    aid: str | None = None
    realm: str | None = None


_METRICS: Final[Responses] = {
    200: {
        "description": "The figures.",
        "content": {"text/plain": {"schema": {"type": "string"}}},
    },
    **some_errors(400, 401, 413, 503, 504),
}
_TOKEN: Final[Responses] = {
    200: {"model": Token, "description": "What it says."},
    **some_errors(404, 413, 504),
}


@router.get("/metrics", response_class=Response, responses=_METRICS)
async def metrics(request: Request) -> Response:
    """Counters and gauges of all realms, as Prometheus reads them: for who manages the storage of
    the default realm, unless they are open to everybody."""
    settings = server_of(request).settings
    if not settings.open_metrics:
        check_operator((await context_of(request)).actor)
    is_one_of_many = settings.workers > 1
    return Response(exposition(is_one_of_many), media_type=CONTENT_TYPE_LATEST)


def check_operator(actor: Actor) -> None:
    """Forbidden to whom figures of all realms are none of his business."""
    if actor.realm != DEFAULT_REALM:
        raise Forbidden(f"This is about all realms; it is shown to the realm {DEFAULT_REALM!r}")
    actor.rights.check(Right.MANAGE_STORAGES, storage(DEFAULT_STORAGE))


@router.get("/token-api/tokens/{token}", response_model=None, responses=_TOKEN)
async def token(token: str, request: Request) -> dict[str, Any]:
    """What a token says, to who has it; nothing is told of one that is not valid here."""
    tokens = server_of(request).doorkeeper.tokens
    if tokens is None:
        return {"type": "Token", "valid": False}
    try:
        actor = tokens.actor(token)
    except Unauthorized:
        return {"type": "Token", "valid": False}
    return {
        "type": "Token",
        "valid": True,
        "cid": actor.app_id,
        "aid": actor.author,
        "realm": actor.realm,
    }
