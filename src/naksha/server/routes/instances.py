"""Instances of a hub: all processes that have its catalog open."""

from __future__ import annotations

from typing import Final

from pydantic import BaseModel, Field
from starlette.requests import Request
from starlette.responses import Response

from naksha.server.openapi.config_schemas import returns
from naksha.server.requests.state import Ctx, server_of
from naksha.server.responses.encoding import json_response
from naksha.server.routes.operation import check_operator
from naksha.server.routing.declarations import Router

router = Router(tags=["operation"])


class Instance(BaseModel):
    """A server process."""

    id: str = Field(description="Id of the process, new with every start.")
    self: bool = Field(description="Whether this process sent the response.")
    node: int = Field(description="Number of the process among all instances.")
    startedAt: int = Field(description="Epoch milliseconds.")  # noqa: N815
    leasedUntil: int = Field(  # noqa: N815
        description="End of the lease (epoch milliseconds), unless the process renews it."
    )


_LISTED: Final = returns(list[Instance], "The instances with a valid lease.")


@router.get("/hub/instances", responses=_LISTED)
async def list_instances(request: Request, context: Ctx) -> Response:
    """List the processes of this hub; for operators only."""
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
    return json_response(request, found)
