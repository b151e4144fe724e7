"""Storages of a realm; their credentials are never shown."""

from __future__ import annotations

from typing import Annotated, Final

from starlette.responses import Response

from naksha.hub.config.objects import StorageObject, check_object_id
from naksha.hub.storages.changes import create_storage, replace_storage
from naksha.model.errors import InvalidArgument
from naksha.server.openapi.config_schemas import StorageDocument
from naksha.server.routes.config._crud import ConfigRequestDep, ConfigRoutes, Tags, shown
from naksha.server.routing.declarations import QueryParam, Router

router = Router(tags=["storages"])
STORAGES: Final = "/hub/storages"
STORAGE: Final = "/hub/storages/{storage_id}"
Check = Annotated[
    bool, QueryParam(description="Reject a storage that cannot be opened now. Default: true.")
]
_storages: Final = ConfigRoutes(StorageObject, StorageDocument)


@router.get(STORAGES, **_storages.lists)
async def list_storages(request: ConfigRequestDep) -> Response:
    """List the storages of the realm."""
    return await _storages.listed(request)


@router.post(STORAGES, **_storages.makes())
async def post_storage(request: ConfigRequestDep, check: Check = True) -> Response:
    """Add a storage, after opening it; a new one is initialized."""
    storage = StorageObject.from_json(await request.body())
    made = await create_storage(request.realm, storage, request.actor, is_tried=check)
    return shown(request.http, made)


@router.get(STORAGE, **_storages.shows)
async def get_storage(storage_id: str, request: ConfigRequestDep) -> Response:
    """Return a storage."""
    return await _storages.shown(storage_id, request)


@router.put(STORAGE, **_storages.replaces)
async def put_storage(
    storage_id: str, request: ConfigRequestDep, tags: Tags, check: Check = True
) -> Response:
    """Replace an existing storage.

    If the location is sent as it was shown, the password and all options that are not sent stay;
    null removes an option.
    """
    body = await request.body()
    if body.get("id", storage_id) != storage_id:
        raise InvalidArgument(
            f"The storage {storage_id!r} cannot get the id {body['id']!r:.80}: ids are permanent",
            field="id",
        )
    check_object_id(storage_id, "storage")
    changed = await replace_storage(
        request.realm,
        StorageObject.from_json({**body, "id": storage_id}),
        request.actor,
        if_match=tags,
        is_tried=check,
    )
    return shown(request.http, changed)


@router.delete(STORAGE, **_storages.removes)
async def delete_storage(storage_id: str, request: ConfigRequestDep, tags: Tags) -> Response:
    """Remove a storage that no connector and no space uses; its data stays."""
    return await _storages.removed(storage_id, request, tags)
