"""A hub for tests, with short calls that create, write and read spaces."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from naksha.hub.auth.rights import all_rights
from naksha.hub.config.objects import Connector, Extends, Space, StorageChoice, StorageObject
from naksha.hub.config.realm_setup import DefaultStorage
from naksha.hub.hub import Hub, RealmHub
from naksha.hub.pipeline.request_context import Actor, RequestContext
from naksha.hub.pipeline.requests import (
    CountFeatures,
    IfExists,
    IfNotExists,
    Modification,
    ReadFeatures,
    WriteFeatures,
)
from naksha.hub.pipeline.responses import Written
from naksha.model.query import Query
from naksha.model.state import XYZ, State

ACTOR = Actor(realm="default", app_id="tests", rights=all_rights())
CONTEXT = RequestContext(actor=ACTOR, stream_id="test")
Feature = dict[str, Any]


def feature(id: str | None, *, tags: Sequence[str] = (), **properties: Any) -> Feature:
    """A point somewhere."""
    namespace = {XYZ: {"tags": list(tags)}} if tags else {}
    made = {
        "type": "Feature",
        "geometry": {"type": "Point", "coordinates": [8.6, 50.1]},
        "properties": {**properties, **namespace},
    }
    return made if id is None else {**made, "id": id}


def content(state: State) -> dict[str, Any]:
    """The properties without the namespace."""
    return {name: value for name, value in state.feature["properties"].items() if name != XYZ}


class HubUnderTest:
    """The default realm of a hub."""

    def __init__(self, hub: Hub, realm: RealmHub) -> None:
        self.hub = hub
        self.realm = realm

    async def storage(self, id: str, location: str) -> None:
        await self.realm.registry.create(
            StorageObject(id=id, properties={"location": location}), ACTOR
        )

    async def space(
        self,
        id: str,
        *connectors: tuple[str, dict[str, Any]],
        storage: str | None = None,
        extends: str | None = None,
        read_only: bool = False,
    ) -> str:
        """A space with connectors of its own: class names and properties."""
        ids = []
        for number, (class_name, properties) in enumerate(connectors):
            ids.append(f"{id}-{number}-{class_name}")
            connector = Connector(id=ids[-1], class_name=class_name, properties=properties)
            await self.realm.registry.create(connector, ACTOR)
        space = Space(
            id=id,
            event_handler_ids=tuple(ids),
            storage=None if storage is None else StorageChoice(id=storage),
            extends=None if extends is None else Extends(space_id=extends),
            read_only=read_only,
        )
        await self.realm.registry.create(space, ACTOR)
        return id

    async def write(
        self,
        space: str,
        *features: Feature,
        ids: Sequence[str] = (),
        e: IfExists = IfExists.PATCH,
        ne: IfNotExists = IfNotExists.CREATE,
        **options: Any,
    ) -> Written:
        one = Modification(features=features, ids=tuple(ids), if_exists=e, if_not_exists=ne)
        request = WriteFeatures(modifications=(one,), **options)
        return await self.realm.send(space, request, CONTEXT)

    async def put(self, space: str, *features: Feature, **options: Any) -> Written:
        return await self.write(space, *features, e=IfExists.REPLACE, **options)

    async def delete(self, space: str, *ids: str, **options: Any) -> Written:
        return await self.write(space, ids=ids, e=IfExists.DELETE, ne=IfNotExists.RETAIN, **options)

    async def states(self, space: str, query: Query | None = None, **options: Any) -> list[State]:
        request = ReadFeatures(query=query or Query(), **options)
        return await (await self.realm.send(space, request, CONTEXT)).all()

    async def read(self, space: str, query: Query | None = None, **options: Any) -> dict[str, Any]:
        """Ids and properties, in the order of the ids."""
        states = await self.states(space, query, **options)
        return {state.id: content(state) for state in sorted(states, key=lambda s: s.id)}

    async def pages(self, space: str, query: Query, **options: Any) -> list[list[str]]:
        """The ids of all pages."""
        pages = []
        while True:
            request = ReadFeatures(query=query, paged=True, **options)
            answer = await self.realm.send(space, request, CONTEXT)
            pages.append([state.id for state in await answer.all()])
            if answer.cursor is None:
                return pages
            query = Query(**{**_fields(query), "cursor": answer.cursor})

    async def count(self, space: str, query: Query | None = None, **options: Any) -> int:
        request = CountFeatures(query=query or Query(), **options)
        return (await self.realm.send(space, request, CONTEXT)).count


def _fields(query: Query) -> dict[str, Any]:
    return {name: getattr(query, name) for name in query.__struct_fields__}


@asynccontextmanager
async def open_hub(storage: str) -> AsyncIterator[HubUnderTest]:
    """A hub with its catalog in memory."""
    hub = await Hub.open("memory:", DefaultStorage(location=storage))
    try:
        yield HubUnderTest(hub, await hub.realm("default"))
    finally:
        await hub.close()
