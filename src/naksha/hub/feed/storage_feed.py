"""Change feed of a whole storage, independent of spaces."""

from __future__ import annotations

from naksha.hub.auth.resources import stored_features
from naksha.hub.auth.rights import Right, forbidden
from naksha.hub.config.change_rights import check_visible
from naksha.hub.config.objects import StorageObject
from naksha.hub.feed.pages import FeedSource, next_changes
from naksha.hub.hub import RealmHub
from naksha.hub.pipeline.request_context import Actor
from naksha.hub.pipeline.version_requests import ReadChanges
from naksha.hub.pipeline.version_responses import Changes
from naksha.versioning import FeedFilter, line_of
from naksha.versioning.version_refs import MAIN_BRANCH


async def read_storage_changes(
    realm: RealmHub,
    storage_id: str,
    collections: tuple[str, ...],
    request: ReadChanges,
    actor: Actor,
) -> Changes:
    """Read the next changes of a storage, or of some of its collections.

    Handlers of spaces, which may hide or change features, do not apply here. So the actor needs the
    right to use the storage, and the right to read all features in it (or in those collections),
    independent of their space.
    """
    thing = await realm.registry.get(StorageObject, storage_id)
    check_visible(thing, actor)
    for name in collections or (None,):
        features = stored_features(thing.resource(), name)
        if not actor.rights.scope(Right.READ_FEATURES, features).is_everything:
            raise forbidden(Right.READ_FEATURES, features)
    storage = await realm.storage(storage_id)
    where = FeedFilter(
        collections=collections or None, actions=request.actions, query=request.query
    )
    line = await line_of(storage, MAIN_BRANCH)
    return await next_changes(FeedSource(storage_id, line, where), request)
