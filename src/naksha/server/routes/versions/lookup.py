"""States and transactions, wherever they are stored."""

from __future__ import annotations

from typing import Annotated, Any, Final

from fastapi import APIRouter, Query, Request, Response

from naksha.hub.lookup import find_state, find_transaction, transaction_json
from naksha.server.openapi.config_schemas import errors
from naksha.server.openapi.feature_schemas import FEATURE, Responses
from naksha.server.requests.state import Ctx, RealmDep
from naksha.server.responses.encoding import GEO_JSON, json_answer, whole

router = APIRouter(tags=["lookup"])
_KNOWN: Final[Responses] = {304: {"description": "The client has this answer already."}}
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
            "description": "What was changed, with the spaces that are stored there; only those "
            "that the actor may read.",
            "items": {"type": "object"},
        },
        "messages": {"type": "array", "items": {"type": "object"}},
    },
}


@router.get(
    "/hub/states/{state_id}",
    response_class=Response,
    responses={
        200: {
            "description": "The feature as it was in this state.",
            "content": {GEO_JSON: {"schema": FEATURE}},
        },
        **_KNOWN,
        **errors(),
        409: {"description": "Several storages have a state with this id; the error names them."},
        410: {"description": "It was there; its history is gone."},
    },
)
async def get_state(
    state_id: str,
    request: Request,
    realm: RealmDep,
    context: Ctx,
    storage: Annotated[
        str | None,
        Query(description="The storage to look in; by default all storages of the realm."),
    ] = None,
) -> Response:
    """The state of a feature, by its GUID or UUID, in whatever storage of the realm it is. Who may
    not read any space that shows it is answered 404."""
    state = await find_state(realm, state_id, context, storage)
    return whole(request, state.raw, GEO_JSON)


@router.get(
    "/hub/transactions/{transaction_id}",
    response_class=Response,
    responses={
        200: {
            "description": "The transaction.",
            "content": {"application/json": {"schema": _TRANSACTION}},
        },
        **_KNOWN,
        **errors(),
        409: {"description": "Several storages have a transaction with this UUID."},
        410: {"description": "It was there; the log does not go back so far any more."},
    },
)
async def get_transaction(
    transaction_id: str,
    request: Request,
    realm: RealmDep,
    context: Ctx,
    storage: Annotated[
        str | None,
        Query(description="The storage that a number is of; else all of the realm are asked."),
    ] = None,
) -> Response:
    """A transaction by its UUID or number. Who may not read any space that is stored in what it
    changed is answered 404; of what it changed, the actor is shown what he may read."""
    found = await find_transaction(realm, transaction_id, storage, context)
    return json_answer(request, transaction_json(found))
