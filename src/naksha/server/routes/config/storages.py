"""Storages of a realm; their credentials are never shown."""

from __future__ import annotations

from typing import Annotated, Final

from starlette.responses import Response

from naksha.hub.config.objects import StorageObject, check_object_id
from naksha.hub.storages.changes import create_storage, replace_storage
from naksha.model.errors import InvalidArgument
from naksha.server.openapi.config_schemas import StorageDocument
from naksha.server.routes.config._crud import AskedDep, ConfigRoutes, Tags, shown
from naksha.server.routing.declarations import QueryParam, Router

router = Router(tags=["storages"])
STORAGES: Final = "/hub/storages"
STORAGE: Final = "/hub/storages/{storage_id}"
Check = Annotated[
    bool, QueryParam(description="Reject a storage that cannot be opened now. Default: true.")
]
_storages: Final = ConfigRoutes(StorageObject, StorageDocument)


@router.get(STORAGES, **_storages.lists)
async def list_storages(asked: AskedDep) -> Response:
    """List the storages of the realm."""
    return await _storages.listed(asked)


@router.post(STORAGES, **_storages.makes())
async def post_storage(asked: AskedDep, check: Check = True) -> Response:
    """Add a storage, after opening it; a new one is initialized."""
    storage = StorageObject.from_json(await asked.body())
    made = await create_storage(asked.realm, storage, asked.actor, is_tried=check)
    return shown(asked.request, made)


@router.get(STORAGE, **_storages.shows)
async def get_storage(storage_id: str, asked: AskedDep) -> Response:
    """Return a storage."""
    return await _storages.shown(storage_id, asked)


@router.put(STORAGE, **_storages.replaces)
async def put_storage(
    storage_id: str, asked: AskedDep, tags: Tags, check: Check = True
) -> Response:
    """Replace an existing storage.

    If the location is sent as it was shown, the password and all options that are not sent stay;
    null removes an option.
    """
    body = await asked.body()
    if body.get("id", storage_id) != storage_id:
        raise InvalidArgument("The id of a storage cannot be changed", field="id")
    check_object_id(storage_id, "storage")
    changed = await replace_storage(
        asked.realm,
        StorageObject.from_json({**body, "id": storage_id}),
        asked.actor,
        if_match=tags,
        is_tried=check,
    )
    return shown(asked.request, changed)


@router.delete(STORAGE, **_storages.removes)
async def delete_storage(storage_id: str, asked: AskedDep, tags: Tags) -> Response:
    """Remove a storage that no connector and no space uses; its data stays."""
    return await _storages.removed(storage_id, asked, tags)
