"""What all endpoints about the configuration have in common: spaces, connectors, storages and roles
are listed, shown, changed and removed in the same way, and described so."""

from __future__ import annotations

from collections.abc import Callable, Collection, Coroutine
from typing import Annotated, Any, Generic, NamedTuple, Protocol, TypeVar

import msgspec
from fastapi import Depends, Header, Request, Response
from pydantic import BaseModel

from naksha.hub.config.change_rights import check_lists, check_seen, is_seen
from naksha.hub.config.objects import HubObject, patched, replaced
from naksha.hub.hub import RealmHub
from naksha.hub.pipeline.request_context import Actor, Context
from naksha.server.openapi.config_schemas import answers, body_of, changes, patch_of
from naksha.server.openapi.feature_schemas import Responses
from naksha.server.requests.json_body import json_object
from naksha.server.requests.state import Ctx, RealmDep
from naksha.server.responses.encoding import JSON, is_known, json_answer

H = TypeVar("H", bound=HubObject)
IfMatch = Annotated[
    str | None,
    Header(
        alias="If-Match",
        description="The `ETag` that was answered with what is to be changed: if it is another one "
        "by now, nothing is changed and 412 is answered.",
    ),
]


class Asked(NamedTuple):
    """A request about the configuration."""

    request: Request
    realm: RealmHub
    context: Context

    @property
    def actor(self) -> Actor:
        """Who asks."""
        return self.context.actor

    async def body(self) -> dict[str, Any]:
        """The object that was sent."""
        return await json_object(self.request)


async def asked_of(request: Request, realm: RealmDep, context: Ctx) -> Asked:
    """The request, with all that it takes to answer it."""
    return Asked(request, realm, context)


AskedDep = Annotated[Asked, Depends(asked_of)]


async def tags_of(if_match: IfMatch = None) -> Collection[str] | None:
    """The tags of objects in a header `If-Match`."""
    if if_match is None:
        return None
    tags = [tag.strip().removeprefix("W/").strip('"') for tag in if_match.split(",")]
    return [tag.partition(".")[0] for tag in tags]


Tags = Annotated[Collection[str] | None, Depends(tags_of)]
"""The `ETag`s of which an object must have one to be changed; None when any will do."""


def shown(
    request: Request, thing: HubObject, status: int = 200, more: dict[str, Any] | None = None
) -> Response:
    """An object of the configuration, with what is told of it beside; 304 to who has it already."""
    beside = more or {}
    etag = f'"{thing.etag()}{_suffix(beside)}"'
    headers = {"ETag": etag}
    if request.method == "GET" and is_known(request, etag):
        return Response(status_code=304, headers=headers)
    content = msgspec.json.encode({**thing.to_json(), **beside})
    return Response(content, status, headers, media_type=JSON)


def _suffix(beside: dict[str, Any]) -> str:
    """What makes the tag of an answer another one though the object is the same."""
    return "".join(f".{value}" for value in beside.values())


def removed(request: Request, thing: HubObject) -> Response:
    """What was removed, to who asks for an answer where there need not be one."""
    if JSON in request.headers.get("Accept", ""):
        return shown(request, thing)
    return Response(status_code=204)


class Change(Protocol[H]):
    """How an object of a kind is changed."""

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
"""What a route is declared with."""


class Routes(Generic[H]):
    """The endpoints of one kind of object: how they are described, and what they do."""

    def __init__(
        self, kind: type[H], document: type[BaseModel], change: Change[H] | None = None
    ) -> None:
        """`change` is for kinds of which something else has to follow."""
        self._kind = kind
        self._document = document
        self._change = change or self._in_registry
        name = kind.kind
        now = changes(document, f"The {name} as it is now.")
        gone: Responses = {204: {"description": "Done; the answer to who does not accept JSON."}}
        several: Any = list[document]  # type: ignore[valid-type]
        self.lists = _described(answers(several, "Those that the actor may see, ordered by id."))
        self.shows = _described(answers(document, f"The {name}."))
        self.replaces = _described(now, body_of(document, f"The {name}."))
        self.patches = _described(now, patch_of(document))
        self.removes = _described({**gone, **changes(document, f"The {name} as it was.")})

    def makes(self, body: str = "", status: int = 200) -> Description:
        """Of the endpoint by which one is made."""
        name = self._kind.kind
        described = _described(
            changes(self._document, f"The {name} as it is kept.", status),
            body_of(self._document, body or f"The {name}, with its id."),
        )
        return {**described, "status_code": status}

    async def listed(self, asked: Asked, ids: Collection[str] | None = None) -> Response:
        """All that the actor may see, or those of some ids."""
        check_lists(self._kind, asked.actor)
        found = await asked.realm.registry.list(self._kind)
        return json_answer(
            asked.request,
            [
                one.to_json()
                for one in found
                if is_seen(one, asked.actor) and (ids is None or one.id in ids)
            ],
        )

    async def found(self, id: str, asked: Asked) -> H:
        """One that the actor may see."""
        thing = await asked.realm.registry.get(self._kind, id)
        check_seen(thing, asked.actor)
        return thing

    async def shown(self, id: str, asked: Asked) -> Response:
        """The same as an answer."""
        return shown(asked.request, await self.found(id, asked))

    async def made(self, asked: Asked, status: int = 200) -> Response:
        """One that is new."""
        thing = self._kind.from_json(await asked.body())
        return shown(asked.request, await asked.realm.registry.create(thing, asked.actor), status)

    async def replaced(self, id: str, asked: Asked, tags: Collection[str] | None) -> Response:
        """What is there is what was sent."""
        body = await asked.body()
        return await self._changed(id, lambda old: replaced(self._kind, old, body), asked, tags)

    async def patched(self, id: str, asked: Asked, tags: Collection[str] | None) -> Response:
        """What is there is changed by what was sent."""
        patch = await asked.body()
        return await self._changed(id, lambda old: patched(self._kind, old, patch), asked, tags)

    async def removed(self, id: str, asked: Asked, tags: Collection[str] | None) -> Response:
        """Gone."""
        registry = asked.realm.registry
        return removed(
            asked.request, await registry.remove(self._kind, id, asked.actor, if_match=tags)
        )

    async def _changed(
        self,
        id: str,
        changed: Callable[[H], H],
        asked: Asked,
        tags: Collection[str] | None,
    ) -> Response:
        thing = await self._change(asked.realm, id, changed, asked.actor, if_match=tags)
        return shown(asked.request, thing)

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
    return {"response_class": Response, "responses": responses, "openapi_extra": body}
