"""Endpoints for operators, and token introspection for XYZ clients."""

from __future__ import annotations

from typing import Any, Final

from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response

from naksha.hub.auth.resources import storage
from naksha.hub.auth.rights import Right
from naksha.hub.config.realm_setup import DEFAULT_STORAGE
from naksha.hub.pipeline.request_context import DEFAULT_REALM, Actor
from naksha.model.errors import Forbidden, Unauthorized
from naksha.server.metrics import CONTENT_TYPE_LATEST, exposition
from naksha.server.openapi.feature_schemas import some_errors
from naksha.server.requests.state import context_of, realm_of, server_of
from naksha.server.responses.encoding import JSON
from naksha.server.routing.declarations import Responses, Router

router = Router(tags=["operation"])


class Token(BaseModel):
    """Content of a token."""

    type: str
    valid: bool
    cid: str | None = None
    aid: str | None = None
    realm: str | None = None


_METRICS: Final[Responses] = {
    200: {
        "description": "Metrics in the Prometheus text format.",
        "content": {"text/plain": {"schema": {"type": "string"}}},
    },
    **some_errors(400, 401, 413, 503, 504),
}
_TOKEN: Final[Responses] = {
    200: {"model": Token, "description": "The content of the token."},
    **some_errors(404, 413, 504),
}


@router.get("/openapi.json", documented=False)
async def openapi_document(request: Request) -> Response:
    """Return the OpenAPI document."""
    return Response(request.app.openapi_json(), media_type=JSON)


@router.get("/metrics", responses=_METRICS)
async def metrics(request: Request) -> Response:
    """Return metrics of all realms in the Prometheus text format.

    Requires the right to manage the storage of the default realm, unless the setting `open_metrics`
    is on.
    """
    settings = server_of(request).settings
    if not settings.open_metrics:
        check_operator((await context_of(request, await realm_of(request))).actor)
    is_one_of_many = settings.workers > 1
    return Response(exposition(is_one_of_many), media_type=CONTENT_TYPE_LATEST)


def check_operator(actor: Actor) -> None:
    """Raise Forbidden unless the actor manages the storage of the default realm."""
    if actor.realm != DEFAULT_REALM:
        raise Forbidden(
            f"This endpoint covers all realms; use a token of the realm {DEFAULT_REALM!r}"
        )
    actor.rights.check(Right.MANAGE_STORAGES, storage(DEFAULT_STORAGE))


def is_operator(actor: Actor) -> bool:
    """Return whether the actor manages the storage of the default realm."""
    try:
        check_operator(actor)
    except Forbidden:
        return False
    return True


@router.get("/token-api/tokens/{token}", responses=_TOKEN)
async def token(token: str, request: Request) -> dict[str, Any]:
    """Return the content of a token; of an invalid token only that it is not valid."""
    tokens = server_of(request).authenticator.tokens
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
