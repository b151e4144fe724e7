"""The instances of a hub: every process that has its catalog open."""

from __future__ import annotations

from typing import Final

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, Field

from naksha.server.openapi.config_schemas import answers
from naksha.server.requests.state import Ctx, server_of
from naksha.server.responses.encoding import json_answer
from naksha.server.routes.operation import check_operator

router = APIRouter(tags=["operation"])


class Instance(BaseModel):
    """A process that serves."""

    id: str = Field(description="Its name, a new one with every start.")
    self: bool = Field(description="Whether it is the one that answers.")
    node: int = Field(description="Its number among all of them.")
    startedAt: int = Field(description="Epoch milliseconds.")  # noqa: N815
    leasedUntil: int = Field(  # noqa: N815
        description="When it is forgotten, if it does not say before that it lives."
    )


_LISTED: Final = answers(list[Instance], "Those that live, as far as is known.")


@router.get("/hub/instances", response_class=Response, responses=_LISTED)
async def list_instances(request: Request, context: Ctx) -> Response:
    """The processes that serve this hub: for who runs it."""
    check_operator(context.actor)
    node = server_of(request).hub.catalog.node
    found = [
        {
            "id": lease.holder,
            "self": lease.holder == node.instance,
            "node": lease.node,
            "startedAt": lease.start_ms,
            "leasedUntil": lease.end_ms,
        }
        for lease in await node.living()
    ]
    return json_answer(request, found)
