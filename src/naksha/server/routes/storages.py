"""Storages of a realm; what opens them is never shown."""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import APIRouter, Query, Request, Response

from naksha.hub.objects import StorageObject, check_object_id
from naksha.hub.permissions import check_seen, is_seen
from naksha.hub.storage_changes import create_storage, replace_storage
from naksha.model.errors import InvalidArgument
from naksha.server.answers import json_answer
from naksha.server.bodies import json_object
from naksha.server.config_documents import StorageDocument, answers, body_of, changes
from naksha.server.configured import IfMatch, etags, shown, wants_json
from naksha.server.state import Ctx, RealmDep

router = APIRouter(tags=["storages"])
STORAGES: Final = "/hub/storages"
STORAGE: Final = "/hub/storages/{storage_id}"
Check = Annotated[
    bool, Query(description="Refuse a storage that cannot be opened now. Default is true.")
]


@router.get(
    STORAGES,
    response_class=Response,
    responses=answers(list[StorageDocument], "Those that the actor may see, ordered by id."),
)
async def list_storages(request: Request, realm: RealmDep, context: Ctx) -> Response:
    """The storages of the realm."""
    found = await realm.registry.list(StorageObject)
    return json_answer(request, [one.to_json() for one in found if is_seen(one, context.actor)])


@router.post(
    STORAGES,
    response_class=Response,
    responses=changes(StorageDocument, "The storage as it is kept."),
    openapi_extra=body_of(StorageDocument, "The storage, with its id."),
)
async def post_storage(
    request: Request, realm: RealmDep, context: Ctx, check: Check = True
) -> Response:
    """Add a storage; it is opened first, and set up when it is new."""
    storage = StorageObject.from_json(await json_object(request))
    made = await create_storage(realm, storage, context.actor, is_tried=check)
    return shown(request, made)


@router.get(STORAGE, response_class=Response, responses=answers(StorageDocument, "The storage."))
async def get_storage(storage_id: str, request: Request, realm: RealmDep, context: Ctx) -> Response:
    """A storage."""
    storage = await realm.registry.get(StorageObject, storage_id)
    check_seen(storage, context.actor)
    return shown(request, storage)


@router.put(
    STORAGE,
    response_class=Response,
    responses=changes(StorageDocument, "The storage as it is kept."),
    openapi_extra=body_of(StorageDocument, "The storage."),
)
async def put_storage(
    storage_id: str,
    request: Request,
    realm: RealmDep,
    context: Ctx,
    check: Check = True,
    if_match: IfMatch = None,
) -> Response:
    """Replace a storage that is there. With its location as it was shown, the password and all
    options stay that are not given anew; null takes one away."""
    body = await json_object(request)
    if body.get("id", storage_id) != storage_id:
        raise InvalidArgument("The id of a storage cannot be changed", field="id")
    check_object_id(storage_id, "storage")
    changed = await replace_storage(
        realm,
        StorageObject.from_json({**body, "id": storage_id}),
        context.actor,
        if_match=etags(if_match),
        is_tried=check,
    )
    return shown(request, changed)


@router.delete(
    STORAGE,
    response_class=Response,
    responses={
        204: {"description": "Done; the answer to who does not accept JSON."},
        **changes(StorageDocument, "The storage as it was."),
    },
)
async def delete_storage(
    storage_id: str, request: Request, realm: RealmDep, context: Ctx, if_match: IfMatch = None
) -> Response:
    """Forget a storage that no connector and no space uses; what is in it stays there."""
    removed = await realm.registry.remove(
        StorageObject, storage_id, context.actor, if_match=etags(if_match)
    )
    return shown(request, removed) if wants_json(request) else Response(status_code=204)
