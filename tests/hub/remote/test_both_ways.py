"""The same handlers inside the hub and in a separate process, without a visible difference."""

import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from naksha.hub.auth.rights import parse_rights
from naksha.hub.config.objects import Connector as ConnectorObject
from naksha.hub.config.objects import Space
from naksha.hub.config.realm_setup import DefaultStorage
from naksha.hub.hub import Hub
from naksha.hub.pipeline.request_context import Actor, RequestContext
from naksha.hub.pipeline.requests import CountFeatures, IfExists, IfNotExists, ReadFeatures
from naksha.hub.remote.wire import PROTOCOL, WireEvent
from naksha.model.errors import (
    FeatureNotFound,
    Forbidden,
    HandlerFailed,
    InvalidArgument,
    NotImplementedHere,
)
from naksha.model.query import Query
from tests.hub.handlers.support import ACTOR, HubUnderTest, feature
from tests.hub.remote.support import forget_handlers, hosted, install

Connector = tuple[str, dict[str, Any]]
SECRET = "0123456789abcdef0123456789abcdef"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The handlers as those of an installed distribution."""
    directory = str(install(tmp_path_factory.mktemp("site")))
    sys.path.insert(0, directory)
    forget_handlers()
    yield
    sys.path.remove(directory)
    forget_handlers()


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """The handlers in a process of their own."""
    environment = {"NAKSHA_HANDLER_SECRET": SECRET}
    with hosted("tests.hub.remote.sample:choose", environment=environment) as url:
        yield url


@pytest.fixture(params=["inside", "remote"])
def connector(request: pytest.FixtureRequest, installed: None) -> Callable[..., Connector]:
    """The connector of a handler, which runs here or elsewhere."""
    if request.param == "inside":
        return lambda handler, **more: ("tests:choose", {"handler": handler, **more})
    url = request.getfixturevalue("url")
    own = {"url": f"{url}/handlers", "secret": SECRET}
    return lambda handler, **more: ("remote", {**own, "handler": handler, **more})


@pytest.fixture
async def hub(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[HubUnderTest]:
    allowed = [request.getfixturevalue("url")]
    location = f"file:{tmp_path}/{{realm}}.naksha"
    opened = await Hub.open("memory:", DefaultStorage(location=location), remote_handlers=allowed)
    try:
        yield HubUnderTest(opened, await opened.realm("default"))
    finally:
        await opened.close()


STORED: Connector = ("storage", {})


async def test_writes_and_reads_are_changed(
    hub: HubUnderTest, connector: Callable[..., Connector]
) -> None:
    await hub.space("roads", connector("Stamp", text="seen"), STORED)
    await hub.space("plain", ("storage", {"collection": "roads"}))
    written = await hub.put("roads", feature("a", n=1), feature("b"))
    assert written.inserted == ("a", "b")
    assert written.version == 1
    assert [state.feature["properties"]["stamp"] for state in written.states] == ["seen"] * 2
    assert await hub.read("plain") == {"a": {"n": 1, "stamp": "seen"}, "b": {"stamp": "seen"}}
    (state,) = await hub.states("roads", Query(ids=("a",)))
    assert state.feature["read"] == "roads tests/None test"
    assert state.xyz["space"] == "roads"
    assert await hub.count("roads") == 2
    assert await hub.pages("roads", Query(limit=1)) == [["a"], ["b"]]
    deleted = await hub.delete("roads", "a")
    assert (deleted.deleted, await hub.count("plain")) == (("a",), 1)


async def test_a_space_without_a_storage(
    hub: HubUnderTest, connector: Callable[..., Connector]
) -> None:
    await hub.space("pure", connector("Pure"))
    written = await hub.put("pure", feature("a", n=1))
    assert written.inserted == ("a",)
    assert written.states[0].feature["properties"] == {"n": 1, "stamp": "pure"}
    with pytest.raises(NotImplementedHere, match="CountFeatures"):
        await hub.count("pure")


async def test_a_request_is_changed_and_the_answer_passed_on(
    hub: HubUnderTest, connector: Callable[..., Connector]
) -> None:
    await hub.space("open", connector("Narrow"), STORED)
    await hub.put("open", feature("a", tags=["open"]), feature("b"))
    assert list(await hub.read("open")) == ["a"]
    assert await hub.count("open") == 1


async def test_errors_come_as_they_are_and_name_the_handler(
    hub: HubUnderTest, connector: Callable[..., Connector]
) -> None:
    await hub.space("refusing", connector("Refusing"), STORED)
    with pytest.raises(InvalidArgument) as refused:
        await hub.put("refusing", feature("a"))
    error = refused.value
    assert (error.message, error.field, error.feature_id) == (
        "It has no name",
        "properties.name",
        "a",
    )
    assert error.handler is not None
    assert error.handler.startswith("refusing-0-")


async def test_exceptions_of_a_handler_are_not_disclosed(
    hub: HubUnderTest, connector: Callable[..., Connector]
) -> None:
    await hub.space("failing", connector("Failing"), STORED)
    with pytest.raises(HandlerFailed) as failed:
        await hub.count("failing")
    assert "secret" not in failed.value.message
    assert failed.value.handler is not None
    assert failed.value.handler.startswith("failing-0-")


async def test_a_handler_catches_what_others_raise(
    hub: HubUnderTest, connector: Callable[..., Connector]
) -> None:
    await hub.space("catching", connector("Catching"))
    assert await hub.count("catching") == -1
    await hub.space("caught", connector("Catching"), STORED)
    with pytest.raises(Forbidden, match=f"caught: {FeatureNotFound.code}"):
        await hub.write("caught", feature("a"), e=IfExists.PATCH, ne=IfNotExists.ERROR)
    assert await hub.count("caught") == 0


async def test_several_requests_also_to_other_spaces(
    hub: HubUnderTest, connector: Callable[..., Connector]
) -> None:
    await hub.space("other")
    await hub.put("other", *(feature(f"o{n}") for n in range(3)))
    await hub.space("comparing", connector("Comparing", spaceId="other"), STORED)
    await hub.put("comparing", feature("a", tags=["open"]), feature("b"))
    assert await hub.count("comparing") == 231


async def test_a_handler_has_the_rights_of_the_caller(
    hub: HubUnderTest, connector: Callable[..., Connector]
) -> None:
    await hub.space("other")
    await hub.space("comparing", connector("Comparing", spaceId="other"), STORED)
    rights = parse_rights({"xyz-hub": {"readFeatures": [{"space": "comparing"}]}})
    context = RequestContext(actor=Actor(app_id="reader", rights=rights), stream_id="1")
    with pytest.raises(Forbidden, match="'other'"):
        await hub.realm.send("comparing", CountFeatures(), context)


async def test_a_remote_handler_is_limited_to_the_rights_of_the_caller(
    hub: HubUnderTest, url: str
) -> None:
    own = {"url": f"{url}/handlers", "secret": SECRET, "handler": "Overreaching"}
    await hub.space("watched", ("remote", own), STORED)
    await hub.put("watched", feature("a"))
    rights = parse_rights({"xyz-hub": {"readFeatures": [{"space": "watched"}]}})
    reader = RequestContext(actor=Actor(app_id="reader", rights=rights), stream_id="1")
    with pytest.raises(Forbidden, match="deleteFeatures"):
        await hub.realm.send("watched", CountFeatures(), reader)
    assert list(await hub.read("watched")) == ["a"]


async def test_rights_to_some_features_are_not_lost_on_the_way(
    hub: HubUnderTest, connector: Callable[..., Connector]
) -> None:
    await hub.space("roads", connector("Stamp", text="seen"), STORED)
    await hub.put("roads", feature("a", tags=["open"]), feature("b"))
    some = {"useSpaces": [{}], "readFeatures": [{"tags": "open"}], "updateFeatures": []}
    some |= {"createFeatures": [{"tags": "open"}]}
    context = RequestContext(
        actor=Actor(app_id="reader", author="ann", rights=parse_rights({"naksha": some})),
        stream_id="7",
    )
    answer = await hub.realm.send("roads", ReadFeatures(), context)
    assert [(state.id, state.feature["read"]) for state in await answer.all()] == [
        ("a", "roads reader/ann 7")
    ]
    assert (await hub.realm.send("roads", CountFeatures(), context)).count == 1


@pytest.mark.usefixtures("installed")
async def test_only_registered_names_are_taken(hub: HubUnderTest) -> None:
    with pytest.raises(InvalidArgument, match=r"known are: .*storage.*tests:choose") as unknown:
        await hub.space("a", ("tests.hub.remote.sample:choose", {}))
    assert unknown.value.field == "className"
    with pytest.raises(InvalidArgument, match="could not be imported"):
        await hub.space("b", ("tests:gone", {}))
    with pytest.raises(InvalidArgument, match="has invalid properties"):
        await hub.space("c", ("tests:choose", {"handler": "None"}))


@pytest.mark.parametrize("by_property", [False, True])
async def test_a_connector_with_the_property_remote_is_remote(
    hub: HubUnderTest, url: str, by_property: bool
) -> None:
    target = f"{url}/handlers"
    own = {"handler": "Stamp", "text": "seen", "secret": SECRET}
    made = ConnectorObject.from_json(
        {
            "id": "elsewhere",
            "className": "com.example.Stamp",
            "remote": True if by_property else target,
            "properties": {**own, "url": target} if by_property else own,
        }
    )
    await hub.realm.registry.create(made, ACTOR)
    await hub.space("plain", ("storage", {"collection": "stamped"}))
    (stored,) = (await hub.realm.registry.get(Space, "plain")).event_handler_ids
    space = Space(id="stamped", event_handler_ids=("elsewhere", stored))
    await hub.realm.registry.create(space, ACTOR)
    await hub.put("stamped", feature("a"))
    ((_, content),) = (await hub.read("plain")).items()
    assert "seen" in content.values()


async def test_a_remote_connector_needs_a_url(hub: HubUnderTest) -> None:
    made = ConnectorObject.from_json({"id": "x", "className": "com.example.X", "remote": True})
    with pytest.raises(InvalidArgument) as refused:
        await hub.realm.registry.create(made, ACTOR)
    assert refused.value.field == "properties.url"
    with pytest.raises(InvalidArgument) as refused:
        ConnectorObject.from_json({"id": "x", "className": "x", "remote": {"at": 1}})
    assert refused.value.field == "remote"


def test_the_protocol_is_in_every_event() -> None:
    event = WireEvent(
        stream_id="s", realm="r", app_id="a", seconds_left=1.0, space={}, connector={}
    )
    assert msgspec.json.decode(msgspec.json.encode(event))["protocol"] == PROTOCOL
