"""Common parts of the endpoints that respond with a FeatureCollection."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, TypeVar

import shapely
from starlette.requests import Request
from starlette.responses import Response

from naksha.hub.auth.rights import Right
from naksha.hub.auth.row_scope import scope_in
from naksha.hub.handlers.stored.storage import plain_storage
from naksha.hub.hub import RealmHub
from naksha.hub.pipeline import requests
from naksha.hub.pipeline.request_context import RequestContext
from naksha.hub.pipeline.requests import GetVersion, ReadFeatures
from naksha.hub.pipeline.responses import Features
from naksha.hub.query_language.selection import selection_of
from naksha.hub.render.projection import StateProjection
from naksha.model.errors import NakshaError, NotImplementedHere
from naksha.server.requests.parameters import SelectionParameters, raw_query
from naksha.server.requests.state import Ctx, RealmDep
from naksha.server.responses.encoding import etag_of, feature_collection, is_current
from naksha.server.routing.declarations import Depends

R = TypeVar("R")


def projection_of(
    request: Request, parameters: SelectionParameters, clip: shapely.Geometry | None = None
) -> StateProjection:
    """Return the projection of the returned features that the parameters ask for."""
    return StateProjection(
        selection=selection_of(raw_query(request)), force_2d=parameters.force_2d, clip=clip
    )


class SpaceRequest:
    """An HTTP request to a space, with its realm and context."""

    def __init__(
        self, http: Request, space_id: str, realm: RealmHub, context: RequestContext
    ) -> None:
        self.http = http
        self.space_id = space_id
        self.realm = realm
        self.context = context

    async def send(self, request: requests.Request[R]) -> R:
        """Send a request through the pipeline of the space."""
        return await self.realm.send(self.space_id, request, self.context)

    async def features(
        self,
        read: ReadFeatures,
        shaping: StateProjection,
        handle: Callable[[str], str] | None = None,
    ) -> Response:
        """Stream features; 304 if the client's copy of a fixed version is current."""
        etag = await self.etag(read.ref)
        if etag is not None and is_current(self.http, etag):
            return Response(status_code=304, headers={"ETag": etag})
        found = await self.send(read)
        return await feature_collection(found, shaping, etag=etag, handle=handle)

    async def stream(self, found: Features, shaping: StateProjection) -> Response:
        """Stream features that have been read already."""
        return await feature_collection(found, shaping)

    async def pinned(self, ref: str) -> str:
        """Resolve a reference to a fixed version, so that it keeps its meaning.

        If the space has no versions, or its parts do not share them, the reference is returned
        unchanged.
        """
        try:
            version = await self.send(GetVersion(ref=ref, published=True))
        except NotImplementedHere:
            return ref
        return ref if version is None else version.ref

    async def is_plain(self) -> bool:
        """Return whether the pipeline only reads from and writes to the storage."""
        return plain_storage(await self.context.configured.pipeline(self.space_id)) is not None

    async def etag(self, ref: str) -> str | None:
        """Return an entity tag for this request, if it reads a fixed version.

        Such a response changes only with the configuration and the rights, which the tag includes.
        An error has none: reading reports it.
        """
        if not ref or ref == "HEAD":
            return None
        pipeline = await self.context.configured.pipeline(self.space_id)
        stored = plain_storage(pipeline)
        readable = scope_in(pipeline, self.context.actor.rights, Right.READ_FEATURES)
        if stored is None or readable.is_nothing:
            return None
        try:
            version = (await stored.resolved(self.context, ref)).fixed
        except NakshaError:
            return None
        if version is None:
            return None
        return etag_of(
            repr(self.context.configured.commit).encode(),
            repr(self.context.actor.rights).encode(),
            f"{version.line}/{version.seq_number}".encode(),
            self.http.url.path.encode(),
            raw_query(self.http),
        )


async def _space_request_of(
    request: Request, space_id: str, realm: RealmDep, context: Ctx
) -> SpaceRequest:
    """Bundle a request with its space, realm and context."""
    return SpaceRequest(request, space_id, realm, context)


SpaceRequestDep = Annotated[SpaceRequest, Depends(_space_request_of)]
