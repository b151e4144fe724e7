"""A space to write to, with short calls."""

from __future__ import annotations

from typing import Any

from naksha.hub.auth.rights import all_rights
from naksha.hub.config.realm_setup import DEFAULT_STORAGE
from naksha.hub.config.space_collections import derived_collection_id, scope_of
from naksha.hub.hub import RealmHub
from naksha.hub.pipeline.request_context import Actor, RequestContext
from naksha.hub.pipeline.requests import (
    DeleteFeatures,
    IfExists,
    IfNotExists,
    Modification,
    OnConflict,
    ReadFeatures,
    WriteFeatures,
)
from naksha.hub.pipeline.responses import Deleted, Written
from naksha.model.query import Query
from naksha.model.state import XYZ, State
from naksha.spi.storage import Storage
from naksha.versioning import NameScope

Feature = dict[str, Any]
ACTOR = Actor(realm="default", app_id="tests", author="ann", rights=all_rights())
CONTEXT = RequestContext(actor=ACTOR, stream_id="test")
HERE = {"type": "Point", "coordinates": [8.5, 50.0]}


def feature(id: str | int | None, xyz: Feature | None = None, /, **properties: Any) -> Feature:
    """A feature at a place; with a namespace if given."""
    made: Feature = {"type": "Feature", "geometry": HERE, "properties": properties}
    if id is not None:
        made["id"] = id
    if xyz is not None:
        made["properties"] = {**properties, XYZ: xyz}
    return made


def modification(
    *features: Feature,
    ids: tuple[str, ...] = (),
    e: str = "patch",
    ne: str = "create",
    cr: str = "error",
) -> Modification:
    """A modification of features or ids, with XYZ's `e`, `ne` and `cr`."""
    return Modification(
        features=features,
        ids=ids,
        if_exists=IfExists(e),
        if_not_exists=IfNotExists(ne),
        on_conflict=OnConflict(cr),
    )


class Desk:
    """A space, written to and read through its pipeline."""

    def __init__(self, realm: RealmHub, space_id: str) -> None:
        self.realm = realm
        self.space_id = space_id

    @property
    def scope(self) -> NameScope:
        """The scope in which the names of its branches are unique."""
        return NameScope(
            space=scope_of(self.realm.realm_id, self.space_id),
            collections=(derived_collection_id(self.space_id),),
        )

    async def storage(self) -> Storage:
        return await self.realm.storage(DEFAULT_STORAGE)

    async def write(
        self,
        *features: Feature,
        ids: tuple[str, ...] = (),
        e: str = "patch",
        ne: str = "create",
        cr: str = "error",
        **options: Any,
    ) -> Written:
        """One modification."""
        return await self.modify(modification(*features, ids=ids, e=e, ne=ne, cr=cr), **options)

    async def modify(self, *modifications: Modification, **options: Any) -> Written:
        """Several of them."""
        request = WriteFeatures(modifications=modifications, **options)
        return await self.realm.send(self.space_id, request, CONTEXT)

    async def put(self, *features: Feature, **options: Any) -> Written:
        """Create or replace."""
        return await self.write(*features, e="replace", **options)

    async def delete(self, query: Query | None = None, **options: Any) -> Deleted:
        """Delete what a query finds."""
        request = DeleteFeatures(query=query or Query(), **options)
        return await self.realm.send(self.space_id, request, CONTEXT)

    async def states(self, ref: str = "") -> dict[str, State]:
        """All that is there, by id."""
        answer = await self.realm.send(self.space_id, ReadFeatures(ref=ref), CONTEXT)
        return {state.id: state for state in await answer.all()}

    async def state(self, id: str, ref: str = "") -> State:
        return (await self.states(ref))[id]

    async def properties(self, id: str, ref: str = "") -> Feature:
        """The properties of a feature without its namespace."""
        return properties_of(await self.state(id, ref))


def properties_of(state: State) -> Feature:
    return {name: value for name, value in state.feature["properties"].items() if name != XYZ}
