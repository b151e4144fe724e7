"""The collection of a space, in the session that writes to it."""

from __future__ import annotations

from naksha.hub.config.space_collections import not_to_be_made
from naksha.hub.pipeline.targets import Target
from naksha.model.collection import CollectionInfo
from naksha.model.errors import CollectionExists, CollectionNotFound, Retryable
from naksha.spi.storage import WriteSession


async def open_collection(
    session: WriteSession, target: Target, *, may_create: bool
) -> CollectionInfo | None:
    """What there is of the collection. When it is not there it is made, or brought back if it was
    dropped and is still kept; None when it may not.

    Raises:
        CollectionNotFound: It should be made, but the connector does not want that.
    """
    id = target.collection.id
    try:
        return await session.collection(id)
    except CollectionNotFound as error:
        if not may_create:
            return None
        if not target.auto_create:
            raise not_to_be_made(id) from error
    try:
        await session.collection(id, dropped=True)
    except CollectionNotFound:
        try:
            return await session.create_collection(target.collection)
        except CollectionExists as error:
            raise Retryable("The collection was made at the same time") from error
    return await session.restore_collection(id)
