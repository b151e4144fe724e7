"""Hubs for tests: in one process, on a file, with actors of all kinds."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from naksha.hub import lookup
from naksha.hub.auth.rights import all_rights, parse_rights
from naksha.hub.config.realm_setup import DefaultStorage
from naksha.hub.hub import Hub, RealmHub
from naksha.hub.lookup import FoundTransaction
from naksha.hub.pipeline.request_context import Actor, RequestContext
from naksha.hub.pipeline.requests import IfExists, Modification, WriteFeatures
from naksha.hub.pipeline.responses import Written
from naksha.model.state import State

ADMIN = Actor(app_id="tests", rights=all_rights())
AS_ADMIN = RequestContext(actor=ADMIN, stream_id="test")


def an_actor(app_id: str = "someone", **urm: Any) -> Actor:
    """An actor with the given rights of the section `naksha`."""
    return Actor(app_id=app_id, rights=parse_rights({"naksha": urm}))


def acting(actor: Actor) -> RequestContext:
    """A request of an actor."""
    return RequestContext(actor=actor, stream_id="test")


@asynccontextmanager
async def a_hub(directory: Path, **options: Any) -> AsyncIterator[Hub]:
    """A hub with the default realm."""
    storage = DefaultStorage(location=f"file:{directory}/{{realm}}.naksha")
    hub = await Hub.open("memory:", storage, **options)
    try:
        yield hub
    finally:
        await hub.close()


@asynccontextmanager
async def a_realm(directory: Path, **options: Any) -> AsyncIterator[RealmHub]:
    """The default realm of a hub."""
    async with a_hub(directory, **options) as hub:
        yield await hub.realm("default")


def a_feature(id: str, *tags: str, **properties: Any) -> dict[str, Any]:
    """A feature without a geometry."""
    namespace = {"@ns:com:here:xyz": {"tags": list(tags)}} if tags else {}
    return {
        "type": "Feature",
        "id": id,
        "geometry": None,
        "properties": {**properties, **namespace},
    }


async def find_state(
    realm: RealmHub, id: str, context: RequestContext, storage_id: str | None = None
) -> State:
    """Find a state, as a request that arrives now."""
    return await lookup.find_state(realm, id, await realm.resolved(context), storage_id)


async def find_transaction(
    realm: RealmHub, id: str, storage_id: str | None, context: RequestContext
) -> FoundTransaction:
    """Find a transaction, as a request that arrives now."""
    return await lookup.find_transaction(realm, id, storage_id, await realm.resolved(context))


async def put(realm: RealmHub, space: str, *features: dict[str, Any]) -> Written:
    """Write features."""
    one = Modification(features=features, if_exists=IfExists.REPLACE)
    return await realm.send(space, WriteFeatures(modifications=(one,)), AS_ADMIN)
