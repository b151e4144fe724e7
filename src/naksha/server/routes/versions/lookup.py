"""Look up states and transactions by id, in any storage of the realm."""

from __future__ import annotations

from typing import Annotated, Any, Final

from starlette.requests import Request
from starlette.responses import Response

from naksha.hub.lookup import find_state, find_transaction, transaction_json
from naksha.server.openapi.config_schemas import errors
from naksha.server.openapi.feature_schemas import FEATURE
from naksha.server.requests.state import Ctx, RealmDep
from naksha.server.responses.encoding import GEO_JSON, complete_response, json_response
from naksha.server.routing.declarations import QueryParam, Responses, Router

router = Router(tags=["lookup"])
_KNOWN: Final[Responses] = {304: {"description": "The client's copy is current."}}
_TRANSACTION: Final[dict[str, Any]] = {
    "type": "object",
    "required": ["type", "uuid", "txn", "storageId", "collections", "messages"],
    "properties": {
        "type": {"type": "string", "const": "Transaction"},
        "uuid": {"type": "string"},
        "txn": {"type": "string", "pattern": "^[0-9]+$"},
        "storageId": {"type": "string"},
        "version": {"type": ["integer", "null"], "description": "Null until it is published."},
        "startedAt": {"type": "integer"},
        "publishedAt": {"type": ["integer", "null"]},
        "appId": {"type": "string"},
        "author": {"type": ["string", "null"]},
        "isOnBranch": {"type": "boolean"},
        "collections": {
            "type": "array",
            "description": "The changed collections, with the spaces stored there; only those "
            "the actor may read.",
            "items": {"type": "object"},
        },
        "messages": {"type": "array", "items": {"type": "object"}},
    },
}


@router.get(
    "/hub/states/{state_id}",
    responses={
        200: {
            "description": "The feature in this state.",
            "content": {GEO_JSON: {"schema": FEATURE}},
        },
        **_KNOWN,
        **errors(),
        409: {"description": "Several storages have a state with this id; the error lists them."},
        410: {"description": "The history of the state has expired."},
    },
)
async def get_state(
    state_id: str,
    request: Request,
    realm: RealmDep,
    context: Ctx,
    storage: Annotated[
        str | None,
        QueryParam(description="The storage to search. Default: all storages of the realm."),
    ] = None,
) -> Response:
    """Return a state of a feature by GUID or UUID, from any storage of the realm.

    The status is 404 for actors who may read no space that shows it.
    """
    state = await find_state(realm, state_id, context, storage)
    return complete_response(request, state.raw, GEO_JSON)


@router.get(
    "/hub/transactions/{transaction_id}",
    responses={
        200: {
            "description": "The transaction.",
            "content": {"application/json": {"schema": _TRANSACTION}},
        },
        **_KNOWN,
        **errors(),
        409: {"description": "Several storages have a transaction with this UUID."},
        410: {"description": "The transaction log of that time has expired."},
    },
)
async def get_transaction(
    transaction_id: str,
    request: Request,
    realm: RealmDep,
    context: Ctx,
    storage: Annotated[
        str | None,
        QueryParam(description="The storage of the transaction. Default: all of the realm."),
    ] = None,
) -> Response:
    """Return a transaction by UUID or number.

    The status is 404 for actors who may read no space stored in the changed collections; otherwise
    only the collections they may read are listed.
    """
    found = await find_transaction(realm, transaction_id, storage, context)
    return json_response(request, transaction_json(found))
