"""Opening of a space's collection in a write session."""

from __future__ import annotations

from naksha.hub.config.space_collections import collection_missing
from naksha.hub.pipeline.targets import CollectionTarget
from naksha.model.collection import CollectionInfo
from naksha.model.errors import CollectionExists, CollectionNotFound, Retryable
from naksha.spi.storage import WriteSession


async def open_collection(
    session: WriteSession, target: CollectionTarget, *, may_create: bool
) -> CollectionInfo | None:
    """Return the collection, and create or restore it if needed.

    A dropped collection that is still kept is restored. Returns None if the collection does not
    exist and must not be created by this request.

    Raises:
        CollectionNotFound: It should be created, but the connector does not allow that.
    """
    id = target.collection.id
    try:
        return await session.resolve_collection(id)
    except CollectionNotFound as error:
        if not may_create:
            return None
        if not target.auto_create:
            raise collection_missing(id) from error
    try:
        await session.collection(id, dropped=True)
    except CollectionNotFound:
        try:
            return await session.create_collection(target.collection)
        except CollectionExists as error:
            raise Retryable(
                f"Another writer created collection {id!r} during the write; retry the request"
            ) from error
    return await session.restore_collection(id)
