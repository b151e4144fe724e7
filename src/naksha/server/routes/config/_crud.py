"""Shared CRUD routes of configuration objects: spaces, connectors, storages and roles."""

from __future__ import annotations

from collections.abc import Callable, Collection, Coroutine
from typing import Annotated, Any, Generic, NamedTuple, Protocol, TypeVar

import msgspec
from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response

from naksha.hub.config.change_rights import check_listing, check_visible, is_visible
from naksha.hub.config.objects import HubObject, patched, replaced
from naksha.hub.hub import RealmHub
from naksha.hub.pipeline.request_context import Actor, RequestContext
from naksha.server.openapi.config_schemas import body_of, changes, patch_of, returns
from naksha.server.requests.json_body import json_object
from naksha.server.requests.state import Ctx, RealmDep
from naksha.server.responses.encoding import JSON, is_current, json_response
from naksha.server.routing.declarations import Depends, HeaderParam, Responses

H = TypeVar("H", bound=HubObject)
IfMatch = Annotated[
    str | None,
    HeaderParam(
        alias="If-Match",
        description="The `ETag` of the object as you know it. If the object has changed since, "
        "nothing is changed and the status is 412.",
    ),
]


class ConfigRequest(NamedTuple):
    """A configuration request with its realm and context."""

    http: Request
    realm: RealmHub
    context: RequestContext

    @property
    def actor(self) -> Actor:
        """The actor of the request."""
        return self.context.actor

    async def body(self) -> dict[str, Any]:
        """Parse the object in the request body."""
        return await json_object(self.http)


async def _config_request_of(request: Request, realm: RealmDep, context: Ctx) -> ConfigRequest:
    """Bundle a request with its realm and context."""
    return ConfigRequest(request, realm, context)


ConfigRequestDep = Annotated[ConfigRequest, Depends(_config_request_of)]


async def tags_of(if_match: IfMatch = None) -> Collection[str] | None:
    """Return the object tags of an `If-Match` header."""
    if if_match is None:
        return None
    tags = [tag.strip().removeprefix("W/").strip('"') for tag in if_match.split(",")]
    return [tag.partition(".")[0] for tag in tags]


Tags = Annotated[Collection[str] | None, Depends(tags_of)]
"""Entity tags that allow a change; None allows any."""


def shown(
    request: Request, entity: HubObject, status: int = 200, more: dict[str, Any] | None = None
) -> Response:
    """Build the response with an object and extra members, or 304 if the client has it already."""
    beside = more or {}
    etag = f'"{entity.etag()}{_suffix(beside)}"'
    headers = {"ETag": etag}
    if request.method == "GET" and is_current(request, etag):
        return Response(status_code=304, headers=headers)
    content = msgspec.json.encode({**entity.to_json(), **beside})
    return Response(content, status, headers, media_type=JSON)


def _suffix(beside: dict[str, Any]) -> str:
    """Return the part of the entity tag that changes with the extra members."""
    return "".join(f".{value}" for value in beside.values())


def removed(request: Request, entity: HubObject) -> Response:
    """Build the response to a removal: the object for clients that accept JSON, else 204."""
    if JSON in request.headers.get("Accept", ""):
        return shown(request, entity)
    return Response(status_code=204)


class ChangeFunction(Protocol[H]):
    """Function that changes an object of one kind."""

    def __call__(
        self,
        realm: RealmHub,
        id: str,
        changed: Callable[[H], H],
        actor: Actor,
        *,
        if_match: Collection[str] | None = None,
    ) -> Coroutine[Any, Any, H]: ...


Description = dict[str, Any]
"""Keyword arguments of a route declaration."""


class ConfigRoutes(Generic[H]):
    """Endpoints of one kind of object: their OpenAPI description and their implementation."""

    def __init__(
        self, kind: type[H], document: type[BaseModel], change: ChangeFunction[H] | None = None
    ) -> None:
        """Describe the endpoints; `change` is for kinds whose changes have side effects."""
        self._kind = kind
        self._document = document
        self._change = change or self._in_registry
        name = kind.kind
        now = changes(document, f"The {name} after the change.")
        gone: Responses = {204: {"description": "Removed; for clients that do not accept JSON."}}
        several: Any = list[document]  # type: ignore[valid-type]
        self.lists = _described(returns(several, "The objects visible to the actor, by id."))
        self.shows = _described(returns(document, f"The {name}."))
        self.replaces = _described(now, body_of(document, f"The {name}."))
        self.patches = _described(now, patch_of(document))
        self.removes = _described({**gone, **changes(document, f"The removed {name}.")})

    def makes(self, body: str = "", status: int = 200) -> Description:
        """Describe the endpoint that creates an object."""
        name = self._kind.kind
        described = _described(
            changes(self._document, f"The {name} as stored.", status),
            body_of(self._document, body or f"The {name}, with its id."),
        )
        return {**described, "status_code": status}

    async def listed(self, request: ConfigRequest, ids: Collection[str] | None = None) -> Response:
        """List the objects visible to the actor, or those of them with given ids."""
        check_listing(self._kind, request.actor)
        found = await request.realm.registry.list(self._kind)
        return json_response(
            request.http,
            [
                one.to_json()
                for one in found
                if is_visible(one, request.actor) and (ids is None or one.id in ids)
            ],
        )

    async def found(self, id: str, request: ConfigRequest) -> H:
        """Return an object if it is visible to the actor."""
        entity = await request.realm.registry.get(self._kind, id)
        check_visible(entity, request.actor)
        return entity

    async def shown(self, id: str, request: ConfigRequest) -> Response:
        """Respond with an object if it is visible to the actor."""
        return shown(request.http, await self.found(id, request))

    async def made(self, request: ConfigRequest, status: int = 200) -> Response:
        """Create an object."""
        entity = self._kind.from_json(await request.body())
        return shown(
            request.http, await request.realm.registry.create(entity, request.actor), status
        )

    async def replaced(
        self, id: str, request: ConfigRequest, tags: Collection[str] | None
    ) -> Response:
        """Replace an object by the one in the body."""
        body = await request.body()
        return await self._changed(id, lambda old: replaced(self._kind, old, body), request, tags)

    async def patched(
        self, id: str, request: ConfigRequest, tags: Collection[str] | None
    ) -> Response:
        """Apply the JSON Merge Patch in the body to an object."""
        patch = await request.body()
        return await self._changed(id, lambda old: patched(self._kind, old, patch), request, tags)

    async def removed(
        self, id: str, request: ConfigRequest, tags: Collection[str] | None
    ) -> Response:
        """Remove an object."""
        registry = request.realm.registry
        return removed(
            request.http, await registry.remove(self._kind, id, request.actor, if_match=tags)
        )

    async def _changed(
        self,
        id: str,
        changed: Callable[[H], H],
        request: ConfigRequest,
        tags: Collection[str] | None,
    ) -> Response:
        entity = await self._change(request.realm, id, changed, request.actor, if_match=tags)
        return shown(request.http, entity)

    async def _in_registry(
        self,
        realm: RealmHub,
        id: str,
        changed: Callable[[H], H],
        actor: Actor,
        *,
        if_match: Collection[str] | None = None,
    ) -> H:
        return await realm.registry.change(self._kind, id, changed, actor, if_match=if_match)


def _described(responses: Responses, body: Description | None = None) -> Description:
    return {"responses": responses, "openapi_extra": body}
