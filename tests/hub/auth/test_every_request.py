"""Required rights of every request class, and refusal without any effect when they are missing."""

import importlib
import pkgutil
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

import naksha.hub
from naksha.hub.auth import resources
from naksha.hub.auth.rights import FEATURE_RIGHTS, Right, Rights, all_rights, parse_rights
from naksha.hub.config.objects import Space
from naksha.hub.feed.delivery_requests import DeliverChanges
from naksha.hub.handlers.authorization import Authorization
from naksha.hub.pipeline.meta_requests import PutMeta
from naksha.hub.pipeline.pipeline import Event, HubServices, Pipeline, Stage
from naksha.hub.pipeline.request_context import Actor, RequestContext
from naksha.hub.pipeline.requests import (
    Modification,
    PurgeFeatures,
    ReadTile,
    Request,
    WriteFeatures,
)
from naksha.hub.pipeline.responses import Features
from naksha.hub.subscriptions.delivery_fence import DeliveryFence
from naksha.model.errors import Forbidden, Inactive
from naksha.model.geo.tiles import VectorTile

SPACE = Space(id="roads", owner="ann")
FEATURES: tuple[dict[str, Any], ...] = ({"type": "Feature", "id": "a"},)
SAMPLES: dict[type[Request[Any]], list[dict[str, Any]]] = {
    WriteFeatures: [{"modifications": (Modification(features=FEATURES),)}],
    DeliverChanges: [
        {"fence": DeliveryFence(name="s", life=1, term=1, seq_number=1), "body": msgspec.Raw(b"{}")}
    ],
    PurgeFeatures: [{"ids": ("a",)}],
    PutMeta: [{"feature": {"id": "a"}}],
    ReadTile: [{"tile": VectorTile(west=0, south=0, east=1, north=1)}],
}
"""Requests that do something only with some content."""


class Recorder:
    """A handler that writes down what reaches it."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    async def process(self, event: Event) -> Any:
        self.events.append(event)
        return Features.of(())


def all_subclasses(kind: type[Any]) -> Iterator[type[Any]]:
    for one in kind.__subclasses__():
        yield one
        yield from all_subclasses(one)


def request_classes() -> list[type[Request[Any]]]:
    """All that can run through a pipeline."""
    for module in pkgutil.walk_packages(naksha.hub.__path__, "naksha.hub."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    return [one for one in all_subclasses(Request) if not one.__name__.startswith("_")]


def sample(kind: type[Request[Any]], **given: Any) -> Request[Any]:
    """Some request of a class."""
    for field in msgspec.structs.fields(kind):
        if field.required and field.name not in given:
            given[field.name] = {"int": 1, "str": "x"}[getattr(field.type, "__name__", "str")]
    return kind(**given)


REQUESTS = [
    pytest.param(sample(kind, **given), id=kind.__name__)
    for kind in request_classes()
    for given in SAMPLES.get(kind, [{}])
]
every_request = pytest.mark.parametrize("request_", REQUESTS)


def granting(*rights: Right, **attributes: str) -> Rights:
    """Rights to all features, or to those with some attributes."""
    return parse_rights(
        {
            "naksha": {
                right.value: [attributes if right in FEATURE_RIGHTS else {}] for right in rights
            }
        }
    )


async def send(
    request: Request[Any], rights: Rights, recorder: Recorder, space: Space = SPACE
) -> Any:
    authorization = Authorization(space, resources.features(space.resource()))
    stages = [Stage("authorization", authorization), Stage("recorder", recorder)]
    hub: HubServices = None  # type: ignore[assignment] # not used by this test
    context = RequestContext(actor=Actor(app_id="tests", rights=rights), stream_id="1")
    return await Pipeline(space, stages, hub).run(request, context)


def test_there_are_requests() -> None:
    assert len({type(each.values[0]) for each in REQUESTS}) >= 5


@every_request
def test_required_rights(request_: Request[Any]) -> None:
    needed = set(request_.needs())
    assert needed
    assert all(isinstance(right, Right) for right in needed)
    if request_.changes:
        assert needed - {Right.READ_FEATURES, Right.USE_SPACES}, "more than the right to look"
    if request_.guarded:
        assert request_.changes
        assert needed <= FEATURE_RIGHTS


@every_request
async def test_without_a_right_no_handler_sees_the_request(
    request_: Request[Any],
) -> None:
    needed = {Right.USE_SPACES, *request_.needs()}
    recorder = Recorder()
    along = {Right.USE_SPACES} if Right.MANAGE_SPACES in needed else set()
    for missing in needed - along:
        with pytest.raises(Forbidden) as refused:
            await send(request_, granting(*(needed - {missing})), recorder)
        assert refused.value.right == missing.value
        assert refused.value.handler == "authorization"
        if missing is not Right.USE_SPACES:
            with pytest.raises(Forbidden):
                await send(request_, granting(*(set(Right) - {missing})), recorder)
    with pytest.raises(Forbidden):
        await send(request_, granting(), recorder)
    assert recorder.events == []


@every_request
async def test_a_request_with_all_rights_is_unchanged(request_: Request[Any]) -> None:
    for rights in (granting(Right.USE_SPACES, *request_.needs()), all_rights()):
        recorder = Recorder()
        answer = await send(request_, rights, recorder)
        (event,) = recorder.events
        assert event.request is request_
        assert event.context.guards == ()
        assert isinstance(answer, Features)


@every_request
async def test_rights_to_some_features_narrow_or_guard_or_refuse_it(
    request_: Request[Any],
) -> None:
    recorder = Recorder()
    rights = granting(Right.USE_SPACES, *request_.needs(), tags="open")
    refusal = None
    try:
        await send(request_, rights, recorder)
    except Forbidden as error:
        refusal = error.message
    if refusal is not None:
        assert recorder.events == []
        assert "needs it for all of them" in refusal
        return
    (event,) = recorder.events
    if request_.guarded:
        assert event.request is request_
        assert set(event.context.guards[0].scopes) == set(request_.needs())
    elif request_.tells_features:
        assert event.request != request_
        assert b'"open"' in msgspec.json.encode(event.request)
    else:
        assert event.request is request_


@every_request
async def test_an_inactive_space_does_nothing(request_: Request[Any]) -> None:
    recorder = Recorder()
    space = msgspec.structs.replace(SPACE, active=False)
    with pytest.raises(Inactive):
        await send(request_, all_rights(), recorder, space)
    with pytest.raises(Forbidden):
        await send(request_, granting(), recorder, space)
    assert recorder.events == []


@every_request
async def test_a_shared_space_is_readable_for_all_and_nothing_more(request_: Request[Any]) -> None:
    recorder = Recorder()
    space = msgspec.structs.replace(SPACE, shared=True)
    if set(request_.needs()) == {Right.READ_FEATURES}:
        await send(request_, granting(), recorder, space)
        assert [event.request for event in recorder.events] == [request_]
    else:
        with pytest.raises(Forbidden):
            await send(request_, granting(), recorder, space)
        assert recorder.events == []
