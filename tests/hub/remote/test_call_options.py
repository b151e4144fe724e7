"""Calls of remote handlers that are missing, slow, or return invalid responses."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import h11
import pytest

from naksha.hub.config.objects import Connector
from naksha.hub.config.realm_setup import DefaultStorage
from naksha.hub.hub import Hub
from naksha.hub.pipeline.request_context import RequestContext
from naksha.hub.pipeline.requests import CountFeatures
from naksha.hub.remote.signatures import check_signature
from naksha.model import limits
from naksha.model.errors import (
    Forbidden,
    InvalidArgument,
    LimitExceeded,
    NakshaError,
    OutcomeUnknown,
    RemoteFailed,
    TimedOut,
)
from naksha.testing.servers._private_server import free_port
from tests.hub.handlers.support import ACTOR, CONTEXT, HubUnderTest, feature

SECRET = "0123456789abcdef0123456789abcdef"
Answer = Callable[["Call"], Awaitable[bytes | None]]


class Call:
    """A request that the hub has sent."""

    def __init__(self, headers: dict[str, str], body: bytes) -> None:
        self.headers = headers
        self.body = body
        self.event: dict[str, Any] = json.loads(body)


def http(body: bytes, status: int = 200, headers: str = "") -> bytes:
    head = f"HTTP/1.1 {status} X\r\nContent-Length: {len(body)}\r\n{headers}\r\n"
    return head.encode() + body


def reply(**members: Any) -> bytes:
    return http(json.dumps(members).encode())


class Service:
    """A service that answers as a test says; None breaks the connection."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self.calls: list[Call] = []
        self.connections = 0
        self.port = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while True:
                call = await self._call(reader)
                if call is None:
                    return
                self.calls.append(call)
                answer = await self._answer(call)
                if answer is None:
                    return
                writer.write(answer)
                await writer.drain()
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    async def _call(self, reader: asyncio.StreamReader) -> Call | None:
        connection = h11.Connection(h11.SERVER)
        headers: dict[str, str] = {}
        body = b""
        while True:
            event = connection.next_event()
            if event is h11.NEED_DATA:
                connection.receive_data(await reader.read(65_536))
            elif isinstance(event, h11.Request):
                headers = {n.decode(): v.decode() for n, v in event.headers}
            elif isinstance(event, h11.Data):
                body += event.data
            elif isinstance(event, h11.EndOfMessage):
                return Call(headers, body)
            else:
                return None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


@asynccontextmanager
async def serving(answer: Answer) -> AsyncIterator[Service]:
    service = Service(answer)
    server = await asyncio.start_server(service.serve, "127.0.0.1", 0)
    service.port = server.sockets[0].getsockname()[1]
    try:
        yield service
    finally:
        server.close()


@asynccontextmanager
async def opened(tmp_path: Path, *allowed: str) -> AsyncIterator[HubUnderTest]:
    storage = DefaultStorage(location=f"file:{tmp_path}/{{realm}}.naksha")
    hub = await Hub.open("memory:", storage, remote_handlers=allowed)
    try:
        yield HubUnderTest(hub, await hub.realm("default"))
    finally:
        await hub.close()


@asynccontextmanager
async def calling(
    tmp_path: Path, answer: Answer, **properties: Any
) -> AsyncIterator[tuple[HubUnderTest, Service]]:
    """A hub with the space `roads`, whose handler is a service."""
    async with serving(answer) as service, opened(tmp_path, service.url) as hub:
        remote = {"url": f"{service.url}/stamp", **properties}
        await hub.space("roads", ("remote", remote), ("storage", {}))
        yield hub, service


def always(answer: bytes | None) -> Answer:
    async def same(call: Call) -> bytes | None:
        return answer

    return same


async def test_members_of_an_event(tmp_path: Path) -> None:
    answer = always(reply(send={}))
    async with calling(tmp_path, answer, secret=SECRET, colour="red") as (hub, service):
        assert await hub.count("roads") == 0
    (call,) = service.calls
    check_signature(SECRET.encode(), call.body, call.headers["naksha-signature"])
    assert call.headers["stream-id"] == "test"
    assert call.headers["content-type"] == "application/json"
    event = call.event
    assert event["request"]["request"] == "CountFeatures"
    assert (event["realm"], event["appId"], event["streamId"]) == ("default", "tests", "test")
    assert event["connector"]["id"] == "roads-0-remote"
    assert event["connector"]["properties"] == {"url": f"{service.url}/stamp", "colour": "red"}
    assert event["space"]["id"] == "roads"
    assert 0 < event["secondsLeft"] <= limits.REMOTE_SECONDS
    assert SECRET not in call.body.decode()
    assert "rights" not in call.body.decode()


async def test_connections_are_kept(tmp_path: Path) -> None:
    async with calling(tmp_path, always(reply(send={}))) as (hub, service):
        for _ in range(5):
            assert await hub.count("roads") == 0
        assert (len(service.calls), service.connections) == (5, 1)


async def test_a_secret_is_never_shown(tmp_path: Path) -> None:
    async with calling(tmp_path, always(reply(send={})), secret=SECRET) as (hub, _):
        connector = await hub.realm.registry.get(Connector, "roads-0-remote")
        assert connector.properties["secret"] == SECRET
        assert "secret" not in connector.to_json()["properties"]


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (http(b"{}", 500), "status 500"),
        (http(b"", 302, "Location: http://127.0.0.1:1/\r\n"), "status 302"),
        (http(b"{}", 404), "status 404"),
        (http(b""), "not a valid handler reply"),
        (http(b"no JSON"), "not a valid handler reply"),
        (http(b"[]"), "not a valid handler reply"),
        (reply(), "not a valid handler reply"),
        (reply(response={"count": 1}, send={}), "not a valid handler reply"),
        (reply(response={"counts": 1}), "response that does not match the request"),
        (reply(response=None), "response that does not match the request"),
        (reply(send={"request": {"request": "Nothing"}}), "sent an invalid request"),
        (reply(send={"request": {"request": "CountFeatures", "query": 7}}), "invalid request"),
        (http(b"{}", 200, "Content-Encoding: gzip\r\n"), "sent a compressed response"),
        (b"SMTP ready\r\n\r\n", "connection broke"),
    ],
)
async def test_nonsense(tmp_path: Path, answer: bytes, message: str) -> None:
    async with calling(tmp_path, always(answer)) as (hub, service):
        with pytest.raises(RemoteFailed, match=message) as failed:
            await hub.count("roads")
    assert failed.value.handler == "roads-0-remote"
    assert "127.0.0.1" not in failed.value.message
    assert str(service.port) not in failed.value.message


async def test_an_answer_of_its_own(tmp_path: Path) -> None:
    async with calling(tmp_path, always(reply(response={"count": 7}))) as (hub, _):
        assert await hub.count("roads") == 7


@pytest.mark.parametrize(
    ("code", "kind"),
    [("forbidden", Forbidden), ("invalid_argument", InvalidArgument), ("remote", NakshaError)],
)
async def test_errors_returned_to_the_hub(
    tmp_path: Path, code: str, kind: type[NakshaError]
) -> None:
    told = {"code": code, "message": "no", "field": "id", "featureId": "a"}
    async with calling(tmp_path, always(reply(error=told))) as (hub, _):
        with pytest.raises(kind, match="no") as failed:
            await hub.count("roads")
    assert (failed.value.field, failed.value.feature_id) == ("id", "a")
    assert failed.value.handler == "roads-0-remote"


async def test_too_large_answers_are_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "REMOTE_BODY_BYTES_MAX", 100_000)
    async with calling(tmp_path, always(http(b" " * 200_000))) as (hub, _):
        with pytest.raises(RemoteFailed, match="exceeds 100000 bytes"):
            await hub.count("roads")


async def test_too_large_events_are_not_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with calling(tmp_path, always(reply(send={}, continuation="1"))) as (hub, service):
        monkeypatch.setattr(limits, "REMOTE_BODY_BYTES_MAX", 50_000)
        with pytest.raises(LimitExceeded, match="50000 bytes"):
            await hub.put("roads", feature("a", text="x" * 60_000))
        assert service.calls == []


async def test_a_handler_gets_an_error_for_a_large_response(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def answer(call: Call) -> bytes:
        if call.event.get("continuation") is None:
            return reply(send={}, continuation="1")
        return reply(error=call.event["error"])

    async with calling(tmp_path, answer) as (hub, _):
        await hub.space("plain", ("storage", {"collection": "roads"}))
        await hub.put("plain", *(feature(f"f{n}", text="x" * 10_000) for n in range(10)))
        monkeypatch.setattr(limits, "REMOTE_BODY_BYTES_MAX", 50_000)
        with pytest.raises(LimitExceeded, match="request fewer features"):
            await hub.read("roads")


async def test_without_a_continuation_answers_of_any_size_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with calling(tmp_path, always(reply(send={}))) as (hub, _):
        await hub.space("plain", ("storage", {"collection": "roads"}))
        await hub.put("plain", *(feature(f"f{n}", text="x" * 10_000) for n in range(10)))
        monkeypatch.setattr(limits, "REMOTE_BODY_BYTES_MAX", 50_000)
        assert len(await hub.read("roads")) == 10


async def test_an_endless_exchange_is_stopped(tmp_path: Path) -> None:
    async with calling(tmp_path, always(reply(send={}, continuation="1"))) as (hub, service):
        with pytest.raises(LimitExceeded, match="more than 100 requests"):
            await hub.count("roads")
        assert len(service.calls) == limits.REMOTE_STEPS_MAX


# ---- Time, and trying again ----------------------------------------------------------------------


async def test_a_slow_handler_is_given_up(tmp_path: Path) -> None:
    async def slow(call: Call) -> bytes:
        await asyncio.sleep(20)
        return reply(send={})

    async with calling(tmp_path, slow, timeout=0.2) as (hub, service):
        with pytest.raises(TimedOut, match=r"0\.2 s"):
            await hub.count("roads")
        assert len(service.calls) <= 1, "it is not called again"
        with pytest.raises(OutcomeUnknown, match="read them before you retry"):
            await hub.put("roads", feature("a"))
        context = RequestContext.within(ACTOR, "test", 0.1)
        with pytest.raises(TimedOut):
            await hub.realm.send("roads", CountFeatures(), context)


async def test_a_dripping_server_times_out(tmp_path: Path) -> None:
    """Each part comes in time, the whole does not."""

    async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(100)
        writer.write(b"HTTP/1.1 200 X\r\nContent-Length: 1000\r\n\r\n")
        for _ in range(100):
            writer.write(b" ")
            await asyncio.sleep(0.05)
        writer.close()

    server = await asyncio.start_server(drip, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with opened(tmp_path, url) as hub:
        await hub.space("roads", ("remote", {"url": url, "timeout": 0.3}))
        with pytest.raises(TimedOut):
            await hub.count("roads")
    server.close()


async def test_an_unreachable_server_is_retried_a_few_times(tmp_path: Path) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    async with opened(tmp_path, url) as hub:
        await hub.space("roads", ("remote", {"url": url}))
        started = asyncio.get_running_loop().time()
        with pytest.raises(RemoteFailed, match="cannot be reached"):
            await hub.put("roads", feature("a"))
        assert asyncio.get_running_loop().time() - started >= 3 * limits.REMOTE_PAUSE_SECONDS


async def test_a_server_that_restarts_in_time_is_reached(tmp_path: Path) -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    service = Service(always(reply(response={"count": 3})))
    async with opened(tmp_path, url) as hub:
        await hub.space("roads", ("remote", {"url": url}))
        asking = asyncio.create_task(hub.realm.send("roads", CountFeatures(), CONTEXT))
        await asyncio.sleep(limits.REMOTE_PAUSE_SECONDS / 2)
        server = await asyncio.start_server(service.serve, "127.0.0.1", port)
        assert (await asking).count == 3
        server.close()


async def test_only_reads_are_retried(tmp_path: Path) -> None:
    async with calling(tmp_path, always(None)) as (hub, service):
        with pytest.raises(RemoteFailed, match="connection broke"):
            await hub.count("roads")
        assert len(service.calls) == limits.REMOTE_ATTEMPTS
        service.calls.clear()
        with pytest.raises(OutcomeUnknown):
            await hub.put("roads", feature("a"))
        assert len(service.calls) == 1


async def test_a_write_before_a_failure_has_an_unknown_outcome(tmp_path: Path) -> None:
    async def answer(call: Call) -> bytes | None:
        if call.event.get("continuation") is None:
            return reply(send={}, continuation="1")
        return None

    async with calling(tmp_path, answer) as (hub, service):
        with pytest.raises(OutcomeUnknown):
            await hub.put("roads", feature("a"))
        await hub.space("plain", ("storage", {"collection": "roads"}))
        assert list(await hub.read("plain")) == ["a"]
        assert len(service.calls) == 2


# ---- Configuration -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("properties", "field"),
    [
        ({}, "properties.url"),
        ({"url": "http://127.0.0.1:1/?a"}, "properties.url"),
        ({"url": "http://127.0.0.1:1/", "timeout": 0}, "properties.timeout"),
        ({"url": "http://127.0.0.1:1/", "timeout": 1e9}, "properties.timeout"),
        ({"url": "http://127.0.0.1:1/", "connectTimeout": "5"}, "properties.connectTimeout"),
        ({"url": "http://127.0.0.1:1/", "secret": "short"}, "properties.secret"),
        ({"url": "http://127.0.0.1:1/", "secret": 7}, "properties.secret"),
    ],
)
async def test_a_wrong_connector_is_not_kept(
    tmp_path: Path, properties: dict[str, Any], field: str
) -> None:
    async with opened(tmp_path, "http://127.0.0.1:1") as hub:
        with pytest.raises(InvalidArgument) as refused:
            await hub.space("roads", ("remote", properties))
        assert refused.value.field == field


async def test_a_target_that_is_not_listed_is_refused(tmp_path: Path) -> None:
    async with opened(tmp_path) as hub:
        with pytest.raises(Forbidden, match="--remote-handlers"):
            await hub.space("roads", ("remote", {"url": "http://127.0.0.1:1/"}))
