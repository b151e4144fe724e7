"""Meta features of a stored space: objects stored alongside its collection."""

from __future__ import annotations

from typing import Any, Final

from naksha.hub.handlers.stored.refs import ensure_collection
from naksha.hub.pipeline.meta_requests import (
    GetMeta,
    ListMeta,
    PutMeta,
    RemoveMeta,
)
from naksha.hub.pipeline.pipeline import Event
from naksha.hub.pipeline.targets import CollectionTarget
from naksha.model.errors import CollectionNotFound, NotFound


async def list_meta(
    target: CollectionTarget, request: ListMeta, event: Event
) -> list[dict[str, Any]]:
    """Return all meta features; none before the first write to the collection."""
    try:
        return await target.storage.all_meta(target.collection.id)
    except CollectionNotFound:
        return []


async def get_meta(target: CollectionTarget, request: GetMeta, event: Event) -> dict[str, Any]:
    """Return one meta feature."""
    found = await target.storage.meta(target.collection.id, request.id)
    if found is None:
        raise NotFound(
            f"The meta feature {request.id!r} does not exist; correct its id", field="id"
        )
    return found


async def put_meta(target: CollectionTarget, request: PutMeta, event: Event) -> dict[str, Any]:
    """Write a meta feature and return it as stored."""
    await ensure_collection(target, event.context.actor)
    await target.storage.put_meta(target.collection.id, request.feature)
    id = str(request.feature["id"])
    return await get_meta(target, GetMeta(id=id), event)


async def remove_meta(target: CollectionTarget, request: RemoveMeta, event: Event) -> None:
    """Delete a meta feature."""
    if not await target.storage.remove_meta(target.collection.id, request.id):
        raise NotFound(
            f"The meta feature {request.id!r} does not exist; correct its id", field="id"
        )


META_FUNCTIONS: Final[dict[Any, Any]] = {
    ListMeta: list_meta,
    GetMeta: get_meta,
    PutMeta: put_meta,
    RemoveMeta: remove_meta,
}
