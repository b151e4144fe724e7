"""For those who run a hub, and for older clients that look at their token first."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request, Response

from naksha.model.errors import Unauthorized
from naksha.server.metrics import CONTENT_TYPE_LATEST, exposition
from naksha.server.state import server_of

router = APIRouter(tags=["operation"])


@router.get("/metrics", response_class=Response, responses={200: {"content": {"text/plain": {}}}})
async def metrics(request: Request) -> Response:
    """Counters and gauges, as Prometheus reads them."""
    is_one_of_many = server_of(request).settings.workers > 1
    return Response(exposition(is_one_of_many), media_type=CONTENT_TYPE_LATEST)


@router.get("/token-api/tokens/{token}")
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
