"""Subscriptions: who gets to know of changes, how far he is, and where he shall go on."""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec
from fastapi import APIRouter, Path, Request, Response
from pydantic import BaseModel, Field

from naksha.hub.context import Context
from naksha.hub.hub import RealmHub
from naksha.hub.objects import patched, replaced
from naksha.hub.permissions import check_seen, is_seen
from naksha.hub.subscription_objects import BEGINNING, NOW, Subscription
from naksha.hub.subscriptions.changes import (
    create_subscription,
    move_subscription,
    remove_subscription,
    reset_subscription,
    status_of,
    statuses_of,
)
from naksha.model.errors import InvalidArgument, NotFound
from naksha.server.answers import JSON, etag_of, is_known, json_answer
from naksha.server.bodies import json_object
from naksha.server.config_documents import ID_PATTERN, answers, body_of, changes, patch_of
from naksha.server.configured import IfMatch, etags, wants_json
from naksha.server.state import Ctx, RealmDep, server_of
from naksha.server.subscription_documents import SubscriptionDocument

router = APIRouter(tags=["subscriptions"])
SUBSCRIPTIONS: Final = "/hub/subscriptions"
SUBSCRIPTION: Final = "/hub/subscriptions/{subscription_id}"
OF_SPACE: Final = "/hub/spaces/{space_id}/subscriptions"
ONE_OF_SPACE: Final = "/hub/spaces/{space_id}/subscriptions/{subscription_id}"
_LISTED: Final = answers(list[SubscriptionDocument], "Those that the actor may see, ordered by id.")
_SHOWN: Final = answers(SubscriptionDocument, "The subscription, and how far it is.")
_MADE: Final = changes(SubscriptionDocument, "The subscription as it is kept.", 201)
_CHANGED: Final = changes(SubscriptionDocument, "The subscription as it is now.")
_REMOVED: Final = {
    204: {"description": "Done; the answer to who does not accept JSON."},
    **changes(SubscriptionDocument, "The subscription as it was."),
}
_BODY: Final = body_of(SubscriptionDocument, "The subscription.")
Id = Annotated[str, Path(pattern=ID_PATTERN)]


class Reset(BaseModel):
    """Where a subscription shall go on."""

    since: str | int = Field(
        description=f"Deliver what comes after this version; `{BEGINNING}`: everything; `{NOW}`: "
        "only what comes from now on."
    )


class Move(BaseModel):
    """Which instance shall deliver."""

    instance: str = Field(description="Its name, as `/hub/instances` tells it.")


async def _shown(
    request: Request, realm: RealmHub, thing: Subscription, status: int = 200
) -> Response:
    """A subscription with its status; the first part of the tag is that of what can be changed."""
    told = await status_of(realm, thing)
    etag = f'"{thing.etag()}.{etag_of(msgspec.json.encode(told)).strip(chr(34))}"'
    if request.method == "GET" and is_known(request, etag):
        return Response(status_code=304, headers={"ETag": etag})
    content = msgspec.json.encode({**thing.to_json(), **_as_xyz_says(thing), "status": told})
    return Response(content, status, {"ETag": etag}, media_type=JSON)


def _as_xyz_says(thing: Subscription) -> dict[str, Any]:
    """What XYZ's clients look for."""
    return {
        "destination": thing.event_handler_ids[0],
        "config": {"type": thing.granularity.value},
    }


async def _list(
    request: Request, realm: RealmHub, context: Context, space_id: str | None = None
) -> Response:
    found = [
        one
        for one in await realm.registry.list(Subscription)
        if is_seen(one, context.actor) and space_id in (None, one.source.space_id)
    ]
    told = [
        {**one.to_json(), **_as_xyz_says(one), "status": status}
        for one, status in zip(found, await statuses_of(realm, found), strict=True)
    ]
    return json_answer(request, told)


async def _found(
    realm: RealmHub, id: str, context: Context, space_id: str | None = None
) -> Subscription:
    thing = await realm.registry.get(Subscription, id)
    check_seen(thing, context.actor)
    if space_id not in (None, thing.source.space_id):
        raise NotFound(f"The space {space_id!r} has no subscription {id!r}", field="subscription")
    return thing


async def _made(
    request: Request, realm: RealmHub, context: Context, body: dict[str, Any]
) -> Response:
    thing = Subscription.from_json(body)
    made = await create_subscription(realm, thing, context.actor)
    return await _shown(request, realm, made, 201)


async def _replaced(
    request: Request, realm: RealmHub, context: Context, id: str, if_match: str | None
) -> Response:
    body = await json_object(request)
    changed = await realm.registry.change(
        Subscription,
        id,
        lambda old: replaced(Subscription, old, {"source": _source(old), **body}),
        context.actor,
        if_match=etags(if_match),
    )
    return await _shown(request, realm, changed)


def _source(thing: Subscription) -> dict[str, Any]:
    plain: dict[str, Any] = msgspec.to_builtins(thing.source)
    return plain


async def _removed(
    request: Request, realm: RealmHub, context: Context, id: str, if_match: str | None
) -> Response:
    removed = await remove_subscription(realm, id, context.actor, if_match=etags(if_match))
    if not wants_json(request):
        return Response(status_code=204)
    return Response(msgspec.json.encode(removed.to_json()), media_type=JSON)


# ---- Of a realm ----------------------------------------------------------------------------------


@router.get(SUBSCRIPTIONS, response_class=Response, responses=_LISTED)
async def list_subscriptions(request: Request, realm: RealmDep, context: Ctx) -> Response:
    """The subscriptions of the realm."""
    return await _list(request, realm, context)


@router.post(
    SUBSCRIPTIONS,
    response_class=Response,
    status_code=201,
    responses=_MADE,
    openapi_extra=_BODY,
)
async def post_subscription(request: Request, realm: RealmDep, context: Ctx) -> Response:
    """Subscribe to a space or a storage. Whatever is published after the answer is delivered."""
    return await _made(request, realm, context, await json_object(request))


@router.get(SUBSCRIPTION, response_class=Response, responses=_SHOWN)
async def get_subscription(
    subscription_id: Id, request: Request, realm: RealmDep, context: Ctx
) -> Response:
    """A subscription, and how far it is."""
    return await _shown(request, realm, await _found(realm, subscription_id, context))


@router.put(SUBSCRIPTION, response_class=Response, responses=_CHANGED, openapi_extra=_BODY)
async def put_subscription(
    subscription_id: Id,
    request: Request,
    realm: RealmDep,
    context: Ctx,
    if_match: IfMatch = None,
) -> Response:
    """Replace a subscription that is there. It goes on where it was; its source stays."""
    return await _replaced(request, realm, context, subscription_id, if_match)


@router.patch(
    SUBSCRIPTION,
    response_class=Response,
    responses=_CHANGED,
    openapi_extra=patch_of(SubscriptionDocument),
)
async def patch_subscription(
    subscription_id: Id,
    request: Request,
    realm: RealmDep,
    context: Ctx,
    if_match: IfMatch = None,
) -> Response:
    """Change a subscription by a merge patch: `{"active": false}` pauses it."""
    patch = await json_object(request)
    changed = await realm.registry.change(
        Subscription,
        subscription_id,
        lambda old: patched(Subscription, old, patch),
        context.actor,
        if_match=etags(if_match),
    )
    return await _shown(request, realm, changed)


@router.delete(SUBSCRIPTION, response_class=Response, responses=_REMOVED)
async def delete_subscription(
    subscription_id: Id,
    request: Request,
    realm: RealmDep,
    context: Ctx,
    if_match: IfMatch = None,
) -> Response:
    """Remove a subscription; a delivery that is under way may still arrive."""
    return await _removed(request, realm, context, subscription_id, if_match)


@router.post(
    f"{SUBSCRIPTION}/reset",
    response_class=Response,
    responses={**_CHANGED, 410: {"description": "What it should go on with is gone."}},
    openapi_extra=body_of(Reset, "Where it shall go on."),
)
async def post_reset(
    subscription_id: Id, request: Request, realm: RealmDep, context: Ctx
) -> Response:
    """Go on after another version: to get everything since then again, or to leave something out.
    An expired subscription goes on only after this."""
    since = (await json_object(request)).get("since")
    if isinstance(since, str) and since.isdecimal():
        since = int(since)
    if isinstance(since, bool) or not isinstance(since, int | str):
        raise InvalidArgument(f"It is a version, {NOW} or {BEGINNING}", field="since")
    thing = await reset_subscription(realm, subscription_id, since, context.actor)
    return await _shown(request, realm, thing)


@router.post(
    f"{SUBSCRIPTION}/move",
    response_class=Response,
    responses=_CHANGED,
    openapi_extra=body_of(Move, "Who shall deliver it."),
)
async def post_move(
    subscription_id: Id, request: Request, realm: RealmDep, context: Ctx
) -> Response:
    """Let another instance of the hub deliver it."""
    instance = (await json_object(request)).get("instance")
    if not isinstance(instance, str):
        raise InvalidArgument("It is the name of an instance", field="instance")
    living = await server_of(request).hub.catalog.node.living()
    names = {lease.holder for lease in living}
    thing = await move_subscription(realm, subscription_id, instance, context.actor, names)
    return await _shown(request, realm, thing)


# ---- Of a space, as XYZ has them -----------------------------------------------------------------


@router.get(OF_SPACE, response_class=Response, responses=_LISTED)
async def list_of_space(space_id: str, request: Request, realm: RealmDep, context: Ctx) -> Response:
    """The subscriptions to a space."""
    return await _list(request, realm, context, space_id)


@router.post(
    OF_SPACE,
    response_class=Response,
    status_code=201,
    responses=_MADE,
    openapi_extra=_BODY,
)
async def post_to_space(space_id: str, request: Request, realm: RealmDep, context: Ctx) -> Response:
    """Subscribe to a space."""
    body = await json_object(request)
    return await _made(request, realm, context, {**body, "source": {"spaceId": space_id}})


@router.get(ONE_OF_SPACE, response_class=Response, responses=_SHOWN)
async def get_of_space(
    space_id: str, subscription_id: Id, request: Request, realm: RealmDep, context: Ctx
) -> Response:
    """A subscription to a space."""
    thing = await _found(realm, subscription_id, context, space_id)
    return await _shown(request, realm, thing)


@router.put(
    ONE_OF_SPACE,
    response_class=Response,
    responses={**_CHANGED, 201: _MADE[201]},
    openapi_extra=_BODY,
)
async def put_to_space(
    space_id: str,
    subscription_id: Id,
    request: Request,
    realm: RealmDep,
    context: Ctx,
    if_match: IfMatch = None,
) -> Response:
    """Make a subscription to a space, or replace it."""
    if await realm.registry.find(Subscription, subscription_id) is None:
        body = await json_object(request)
        mine = {**body, "id": subscription_id, "source": {"spaceId": space_id}}
        return await _made(request, realm, context, mine)
    await _found(realm, subscription_id, context, space_id)
    return await _replaced(request, realm, context, subscription_id, if_match)


@router.delete(ONE_OF_SPACE, response_class=Response, responses=_REMOVED)
async def delete_of_space(
    space_id: str,
    subscription_id: Id,
    request: Request,
    realm: RealmDep,
    context: Ctx,
    if_match: IfMatch = None,
) -> Response:
    """Remove a subscription to a space."""
    await _found(realm, subscription_id, context, space_id)
    return await _removed(request, realm, context, subscription_id, if_match)
