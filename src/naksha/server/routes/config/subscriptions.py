"""Subscriptions: consumers of changes, their position and their status."""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated, Any, Final

import msgspec
from pydantic import BaseModel, Field
from starlette.responses import Response

from naksha.hub.config.change_rights import check_listing, is_visible
from naksha.hub.config.objects import Space, patched, replaced
from naksha.hub.handlers.authorization import check_active
from naksha.hub.subscriptions.changes import (
    create_subscription,
    move_subscription,
    remove_subscription,
    reset_subscription,
    status_of,
    statuses_of,
)
from naksha.hub.subscriptions.objects import BEGINNING, NOW, Subscription
from naksha.model.errors import InvalidArgument, NotFound, PreconditionFailed
from naksha.model.value_text import value_text
from naksha.server.openapi.config_schemas import ID_PATTERN, body_of, changes
from naksha.server.openapi.subscription_schemas import SubscriptionDocument
from naksha.server.requests.json_body import exact_object
from naksha.server.requests.state import server_of
from naksha.server.responses.encoding import JSON, etag_of, is_current, json_response
from naksha.server.routes.config._crud import (
    ConfigRequest,
    ConfigRequestDep,
    ConfigRoutes,
    Tags,
    removed,
)
from naksha.server.routing.declarations import PathParam, Router

router = Router(tags=["subscriptions"])
SUBSCRIPTIONS: Final = "/hub/subscriptions"
SUBSCRIPTION: Final = "/hub/subscriptions/{subscription_id}"
_OF_SPACE: Final = "/hub/spaces/{space_id}/subscriptions"
_ONE_OF_SPACE: Final = "/hub/spaces/{space_id}/subscriptions/{subscription_id}"
_subscriptions: Final = ConfigRoutes(Subscription, SubscriptionDocument)
_MAKES: Final = _subscriptions.makes("The subscription, with its id.", 201)
_NOW: Final = changes(SubscriptionDocument, "The subscription after the change.")
Id = Annotated[str, PathParam(pattern=ID_PATTERN)]


class SubscriptionReset(BaseModel):
    """New position of a subscription."""

    since: str | int = Field(
        description=f"Deliver the changes after this version; `{BEGINNING}`: all; `{NOW}`: only "
        "future changes."
    )


class SubscriptionMove(BaseModel):
    """Instance that is to deliver a subscription."""

    instance: str = Field(description="Id of the instance, from `/hub/instances`.")


async def _check_active(space_id: str, request: ConfigRequest) -> None:
    """Reject requests about the changes of an inactive space."""
    space = await request.realm.registry.find(Space, space_id)
    if space is not None:
        check_active(space)


async def _shown(request: ConfigRequest, entity: Subscription, status: int = 200) -> Response:
    """Respond with a subscription and its status; the first part of the tag is the object's."""
    body = _subscription_json(entity, await status_of(request.realm, entity))
    suffix = etag_of(msgspec.json.encode(body["status"])).strip('"')
    headers = {"ETag": f'"{entity.etag()}.{suffix}"'}
    if request.http.method == "GET" and is_current(request.http, headers["ETag"]):
        return Response(status_code=304, headers=headers)
    return Response(msgspec.json.encode(body), status, headers, media_type=JSON)


def _subscription_json(entity: Subscription, status: dict[str, Any]) -> dict[str, Any]:
    """Return the JSON of a subscription, with the members that XYZ clients expect."""
    return {
        **entity.to_json(),
        "destination": entity.event_handler_ids[0],
        "config": {"type": entity.granularity.value},
        "filters": msgspec.to_builtins(entity.filter),
        "status": status,
    }


async def _listed(request: ConfigRequest, space_id: str | None = None) -> Response:
    check_listing(Subscription, request.actor)
    found = [
        one
        for one in await request.realm.registry.list(Subscription)
        if is_visible(one, request.actor) and space_id in (None, one.source.space_id)
    ]
    statuses = await statuses_of(request.realm, found)
    body = [_subscription_json(one, status) for one, status in zip(found, statuses, strict=True)]
    return json_response(request.http, body)


async def _found(id: str, request: ConfigRequest, space_id: str) -> Subscription:
    """Return a subscription to a space."""
    entity = await _subscriptions.found(id, request)
    if entity.source.space_id != space_id:
        raise NotFound(f"Space {space_id!r} has no subscription {id!r}", field="subscription")
    return entity


async def _made(request: ConfigRequest, body: dict[str, Any]) -> Response:
    made = await create_subscription(request.realm, Subscription.from_json(body), request.actor)
    return await _shown(request, made, 201)


async def _replaced(id: str, request: ConfigRequest, tags: Collection[str] | None) -> Response:
    body = await request.body()

    def change(old: Subscription) -> Subscription:
        source = msgspec.to_builtins(old.source)
        return replaced(Subscription, old, {"source": source, **body})

    registry = request.realm.registry
    return await _shown(
        request, await registry.change(Subscription, id, change, request.actor, if_match=tags)
    )


async def _removed(id: str, request: ConfigRequest, tags: Collection[str] | None) -> Response:
    subscription = await remove_subscription(request.realm, id, request.actor, if_match=tags)
    return removed(request.http, subscription)


# ---- Of a realm ----------------------------------------------------------------------------------


@router.get(SUBSCRIPTIONS, **_subscriptions.lists)
async def list_subscriptions(request: ConfigRequestDep) -> Response:
    """List the subscriptions of the realm."""
    return await _listed(request)


@router.post(SUBSCRIPTIONS, **_MAKES)
async def post_subscription(request: ConfigRequestDep) -> Response:
    """Subscribe to a space or a storage. Changes published after the response are delivered."""
    return await _made(request, await request.body())


@router.get(SUBSCRIPTION, **_subscriptions.shows)
async def get_subscription(subscription_id: Id, request: ConfigRequestDep) -> Response:
    """Return a subscription with its status."""
    return await _shown(request, await _subscriptions.found(subscription_id, request))


@router.put(SUBSCRIPTION, **_subscriptions.replaces)
async def put_subscription(subscription_id: Id, request: ConfigRequestDep, tags: Tags) -> Response:
    """Replace an existing subscription. Its position and its source stay."""
    return await _replaced(subscription_id, request, tags)


@router.patch(SUBSCRIPTION, **_subscriptions.patches)
async def patch_subscription(
    subscription_id: Id, request: ConfigRequestDep, tags: Tags
) -> Response:
    """Change a subscription by a JSON Merge Patch: `{"active": false}` pauses it."""
    patch = await request.body()
    changed = await request.realm.registry.change(
        Subscription,
        subscription_id,
        lambda old: patched(Subscription, old, patch),
        request.actor,
        if_match=tags,
    )
    return await _shown(request, changed)


@router.delete(SUBSCRIPTION, **_subscriptions.removes)
async def delete_subscription(
    subscription_id: Id, request: ConfigRequestDep, tags: Tags
) -> Response:
    """Remove a subscription; a delivery in progress may still arrive."""
    return await _removed(subscription_id, request, tags)


@router.post(
    f"{SUBSCRIPTION}/reset",
    responses={**_NOW, 410: {"description": "The changes after this version have expired."}},
    openapi_extra=body_of(SubscriptionReset, "The new position."),
)
async def post_reset(subscription_id: Id, request: ConfigRequestDep) -> Response:
    """Continue after another version, to replay or to skip changes.

    An expired subscription must be reset before it continues.
    """
    since = (await exact_object(request.http, SubscriptionReset)).get("since")
    if isinstance(since, str) and since.isdecimal():
        since = int(since)
    if isinstance(since, bool) or not isinstance(since, int | str):
        raise InvalidArgument(
            f'since must be a version number, "{NOW}" or "{BEGINNING}", not {since!r:.40}',
            field="since",
        )
    entity = await reset_subscription(request.realm, subscription_id, since, request.actor)
    return await _shown(request, entity)


@router.post(
    f"{SUBSCRIPTION}/move",
    responses=_NOW,
    openapi_extra=body_of(SubscriptionMove, "The instance that is to deliver."),
)
async def post_move(subscription_id: Id, request: ConfigRequestDep) -> Response:
    """Move a subscription to another instance of the hub."""
    instance = (await exact_object(request.http, SubscriptionMove)).get("instance")
    if not isinstance(instance, str):
        raise InvalidArgument(
            f"instance must be the id of an instance of the hub, not {value_text(instance)}",
            field="instance",
        )
    living = await server_of(request.http).hub.catalog.node.living()
    names = {lease.holder for lease in living}
    entity = await move_subscription(request.realm, subscription_id, instance, request.actor, names)
    return await _shown(request, entity)


# ---- Of a space, as in the XYZ API ---------------------------------------------------------------


@router.get(_OF_SPACE, **_subscriptions.lists)
async def list_of_space(space_id: str, request: ConfigRequestDep) -> Response:
    """List the subscriptions to a space."""
    await _check_active(space_id, request)
    return await _listed(request, space_id)


@router.post(_OF_SPACE, **_MAKES)
async def post_to_space(space_id: str, request: ConfigRequestDep) -> Response:
    """Subscribe to a space."""
    await _check_active(space_id, request)
    return await _made(request, {**await request.body(), "source": {"spaceId": space_id}})


@router.get(_ONE_OF_SPACE, **_subscriptions.shows)
async def get_of_space(space_id: str, subscription_id: Id, request: ConfigRequestDep) -> Response:
    """Return a subscription to a space."""
    await _check_active(space_id, request)
    return await _shown(request, await _found(subscription_id, request, space_id))


@router.put(
    _ONE_OF_SPACE,
    responses={**_NOW, 201: _MAKES["responses"][201]},
    openapi_extra=_subscriptions.replaces["openapi_extra"],
)
async def put_to_space(
    space_id: str, subscription_id: Id, request: ConfigRequestDep, tags: Tags
) -> Response:
    """Create or replace a subscription to a space."""
    await _check_active(space_id, request)
    if await request.realm.registry.find(Subscription, subscription_id) is None:
        if tags is not None:
            raise PreconditionFailed(
                f"Subscription {subscription_id!r} does not exist", field="If-Match"
            )
        mine = {"id": subscription_id, "source": {"spaceId": space_id}}
        return await _made(request, {**await request.body(), **mine})
    await _found(subscription_id, request, space_id)
    return await _replaced(subscription_id, request, tags)


@router.delete(_ONE_OF_SPACE, **_subscriptions.removes)
async def delete_of_space(
    space_id: str, subscription_id: Id, request: ConfigRequestDep, tags: Tags
) -> Response:
    """Remove a subscription to a space."""
    await _check_active(space_id, request)
    await _found(subscription_id, request, space_id)
    return await _removed(subscription_id, request, tags)
