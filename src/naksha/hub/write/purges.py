"""PurgeFeatures: remove the tombstones of deleted features."""

from __future__ import annotations

from naksha.hub.pipeline.request_context import RequestContext
from naksha.hub.pipeline.requests import PurgeFeatures
from naksha.hub.pipeline.responses import Purged
from naksha.hub.pipeline.targets import CollectionTarget
from naksha.hub.write.guards import WritePermissions
from naksha.hub.write.written_line import WrittenLine, on_line
from naksha.model.errors import CollectionNotFound, Expired, VersionNotFound
from naksha.model.query import Query, States
from naksha.model.version import HEAD
from naksha.spi.storage import WriteSession


async def purge_features(
    target: CollectionTarget, request: PurgeFeatures, context: RequestContext
) -> Purged:
    """Purge features by their ids; history keeps their states until it expires."""
    permissions, collection = WritePermissions(context), target.collection.id

    async def purge(session: WriteSession) -> Purged:
        if permissions:
            query = Query(ids=request.ids, states=States.DELETED)
            for state in (await session.page(collection, query)).states:
                permissions.check(state, None)
        outcomes = await session.purge(collection, request.ids, commit=True)
        return Purged(
            purged=tuple(each.id for each in outcomes if each.action == "PURGED"),
            retained=tuple(each.id for each in outcomes if each.action != "PURGED"),
        )

    async def write(line: WrittenLine) -> Purged:
        # Only published tombstones can be purged, so publish recent deletions first.
        await line.storage.resolve(HEAD)
        return await line.storage.run(purge, context.actor.app_id, context.actor.author)

    try:
        return await on_line(target, request.ref, write)
    except (CollectionNotFound, Expired, VersionNotFound):
        return Purged(retained=request.ids)
