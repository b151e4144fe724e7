"""Collections of a storage: settings, scheduled deletion, drop and restore."""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec
from starlette.responses import Response

from naksha.hub.auth.rights import Right
from naksha.hub.storages.access import storage_for
from naksha.model.collection import CollectionChange, CollectionInfo
from naksha.model.errors import InvalidArgument
from naksha.model.feature_problems import invalid_struct
from naksha.model.limits import INT8_MAX
from naksha.server.openapi.config_schemas import (
    CollectionDocument,
    CollectionSettings,
    body_of,
    changes,
    returns,
)
from naksha.server.responses.encoding import JSON, json_response
from naksha.server.routes.config._crud import ConfigRequest, ConfigRequestDep
from naksha.server.routing.declarations import QueryParam, Router

router = Router(tags=["storages"])
COLLECTIONS: Final = "/hub/storages/{storage_id}/collections"
COLLECTION: Final = "/hub/storages/{storage_id}/collections/{collection_id}"
_SETTINGS: Final = {field.encode_name for field in msgspec.structs.fields(CollectionChange)}
Dropped = Annotated[bool, QueryParam(description="Include dropped collections.")]


@router.get(
    COLLECTIONS,
    responses=returns(list[CollectionDocument], "The collections."),
)
async def list_collections(
    storage_id: str, request: ConfigRequestDep, dropped: Dropped = False
) -> Response:
    """List the collections of a storage; requires the right to use the storage."""
    storage = await storage_for(request.realm, storage_id, request.actor, Right.USE_STORAGES)
    found = await storage.collections(dropped=dropped)
    return json_response(request.http, found)


@router.get(COLLECTION, responses=returns(CollectionDocument, "The collection."))
async def get_collection(
    storage_id: str, collection_id: str, request: ConfigRequestDep
) -> Response:
    """Return a collection, also a dropped one."""
    storage = await storage_for(request.realm, storage_id, request.actor, Right.USE_STORAGES)
    return json_response(request.http, await storage.collection(collection_id, dropped=True))


@router.patch(
    COLLECTION,
    responses=changes(CollectionDocument, "The collection."),
    openapi_extra=body_of(CollectionSettings, "The settings to change."),
)
async def patch_collection(
    storage_id: str, collection_id: str, request: ConfigRequestDep
) -> Response:
    """Change settings.

    `deleteAt` schedules the deletion, and 0 cancels it; the collection stays usable until then.
    """
    change = _change_of(await request.body())
    return await _run(request, storage_id, lambda s: s.change_collection(collection_id, change))


@router.delete(COLLECTION, responses=changes(CollectionDocument, "The collection."))
async def drop_collection(
    storage_id: str,
    collection_id: str,
    request: ConfigRequestDep,
    delete_at: Annotated[
        int | None,
        QueryParam(
            alias="deleteAt",
            ge=0,
            le=INT8_MAX,
            description="Until when it can be restored (epoch milliseconds). Default: now.",
        ),
    ] = None,
) -> Response:
    """Drop a collection: it is hidden at once and can be restored until `deleteAt`."""

    async def drop(session: Any) -> CollectionInfo:
        await session.drop_collection(collection_id, delete_at)
        info: CollectionInfo = await session.collection(collection_id, dropped=True)
        return info

    return await _run(request, storage_id, drop)


@router.post(
    f"{COLLECTION}/restore",
    responses=changes(CollectionDocument, "The collection."),
)
async def restore_collection(
    storage_id: str, collection_id: str, request: ConfigRequestDep
) -> Response:
    """Restore a dropped collection with all its features and history."""
    return await _run(request, storage_id, lambda s: s.restore_collection(collection_id))


async def _run(request: ConfigRequest, storage_id: str, work: Any) -> Response:
    storage = await storage_for(request.realm, storage_id, request.actor, Right.MANAGE_STORAGES)
    info = await storage.run(work, request.actor.app_id, request.actor.author)
    return Response(msgspec.json.encode(info), media_type=JSON)


def _change_of(body: dict[str, Any]) -> CollectionChange:
    unknown = sorted(body.keys() - _SETTINGS)
    if unknown:
        raise InvalidArgument(
            f"{unknown[0]!r:.64} is not a collection setting that can be changed; accepted: "
            f"{', '.join(sorted(_SETTINGS))}",
            field=unknown[0][:64],
        )
    try:
        return msgspec.convert(body, CollectionChange)
    except msgspec.ValidationError as error:
        raise invalid_struct("collection", error) from None
