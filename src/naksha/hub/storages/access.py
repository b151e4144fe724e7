"""Direct access to a realm's storage for actors with a right on the storage itself."""

from __future__ import annotations

from naksha.hub.auth.rights import Right
from naksha.hub.config.objects import StorageObject
from naksha.hub.hub import RealmHub
from naksha.hub.pipeline.request_context import Actor
from naksha.spi.storage import Storage
from naksha.versioning import Attribution


async def storage_for(realm: RealmHub, id: str, actor: Actor, right: Right) -> Storage:
    """Return an open storage.

    Raises:
            NotFound: The storage does not exist.
        Forbidden: The actor does not have the right on it.
    """
    entity = await realm.registry.get(StorageObject, id)
    actor.rights.check(right, entity.resource())
    return await realm.storage(id)


def signature_of(actor: Actor, message: str | None = None) -> Attribution:
    """Return the signature of an actor for a change of a storage."""
    return Attribution(actor.app_id, actor.author, message)
