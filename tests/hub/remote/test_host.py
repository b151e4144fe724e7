"""A host of handlers as a server that receives arbitrary input."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from naksha.hub.config.objects import Connector, Space
from naksha.hub.pipeline.pipeline import Event, Setup
from naksha.hub.pipeline.requests import CountFeatures
from naksha.hub.pipeline.responses import Count
from naksha.hub.remote.program import RemoteHost, load_handler, main
from naksha.hub.remote.signatures import check_signature, signature
from naksha.hub.remote.wire import WireEvent, encode_request
from naksha.model import limits
from naksha.model.errors import InvalidArgument, Unauthorized

SECRET = "0123456789abcdef0123456789abcdef"


class Counting:
    """Handler that counts the features of several reads."""

    made = 0

    def __init__(self, setup: Setup) -> None:
        type(self).made += 1
        self._times = int(setup.connector.properties.get("times", 1))

    async def process(self, event: Event) -> Any:
        total = 0
        for _ in range(self._times):
            total += (await event.send_upstream()).count
        return Count(total)


def event(**more: Any) -> bytes:
    """An event as a hub posts it."""
    times = more.pop("times", 1)
    connector = Connector(id="c", class_name="remote", properties={"times": times})
    made = WireEvent(
        stream_id="1",
        realm="default",
        app_id="tests",
        seconds_left=more.pop("seconds_left", 5.0),
        space=Space(id="roads").to_json(),
        connector=connector.to_json(),
        **{"request": encode_request(CountFeatures()), **more},
    )
    return msgspec.json.encode(made)


def request(body: bytes, head: str = "", method: str = "POST") -> bytes:
    first = f"{method} / HTTP/1.1\r\nHost: h\r\nContent-Length: {len(body)}\r\n{head}\r\n"
    return first.encode() + body


class Client:
    """A connection to a host."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def send(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    async def answer(self) -> tuple[int, Any]:
        """Status and body of the next answer; -1 when the connection has ended."""
        try:
            head = await asyncio.wait_for(self._reader.readuntil(b"\r\n\r\n"), 5)
        except (asyncio.IncompleteReadError, ConnectionResetError):
            return -1, None
        status = int(head.split()[1])
        headers = dict(
            line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:] if b": " in line
        )
        body = await self._reader.readexactly(int(headers.get(b"content-length", b"0")))
        return status, json.loads(body) if body else None

    async def ask(self, data: bytes) -> tuple[int, Any]:
        await self.send(data)
        return await self.answer()

    def close(self) -> None:
        self._writer.close()


@asynccontextmanager
async def hosting(secret: str | None = None) -> AsyncIterator[int]:
    host = RemoteHost(Counting, secret=secret)
    port = await host.start()
    try:
        yield port
    finally:
        await host.close()


@asynccontextmanager
async def connected(port: int) -> AsyncIterator[Client]:
    client = Client(*await asyncio.open_connection("127.0.0.1", port))
    try:
        yield client
    finally:
        client.close()


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    async with hosting() as port, connected(port) as connection:
        yield connection


async def test_one_event_over_one_connection(client: Client) -> None:
    status, first = await client.ask(request(event(times=2)))
    assert (status, list(first)) == (200, ["send", "continuation"])
    assert first["send"] == {}
    again = event(times=2, continuation=first["continuation"], response=msgspec.Raw(b'{"count":3}'))
    status, second = await client.ask(request(again))
    assert second["continuation"] != first["continuation"]
    again = event(
        times=2, continuation=second["continuation"], response=msgspec.Raw(b'{"count":4}')
    )
    assert await client.ask(request(again)) == (
        200,
        {"response": {"count": 7, "estimated": False}},
    )
    status, late = await client.ask(request(again))
    assert late["error"]["code"] == "not_found"


async def test_a_handler_is_made_once_for_a_configuration(client: Client) -> None:
    Counting.made = 0
    for _ in range(3):
        await client.ask(request(event()))
    assert Counting.made == 1
    await client.ask(request(event(times=2)))
    assert Counting.made == 2
    _, told = await client.ask(request(event(times="many")))
    assert told["error"]["code"] == "invalid_argument"
    assert told["error"]["field"] == "properties"


async def test_abandoned_exchanges_expire(client: Client) -> None:
    _, first = await client.ask(request(event(seconds_left=0.1)))
    await asyncio.sleep(0.2)
    await client.ask(request(event()))
    late = event(continuation=first["continuation"], response=msgspec.Raw(b'{"count":3}'))
    _, told = await client.ask(request(late))
    assert told["error"]["code"] == "not_found"


async def test_too_many_events_are_refused(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "HOST_EVENTS_MAX", 2)
    answers = [(await client.ask(request(event())))[1] for _ in range(3)]
    assert ["error" in each for each in answers] == [False, False, True]
    assert answers[2]["error"]["code"] == "unavailable"
    last = event(continuation=answers[0]["continuation"], response=msgspec.Raw(b'{"count":3}'))
    assert "response" in (await client.ask(request(last)))[1]
    assert "send" in (await client.ask(request(event())))[1]


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b"", 400, "invalid_argument"),
        (b"[]", 400, "invalid_argument"),
        (b"\xff\xfe", 400, "invalid_argument"),
        (event(protocol=2), 200, "not_supported"),
        (event(request=msgspec.Raw(b'{"request":"None"}')), 200, "invalid_argument"),
        (event(continuation="x"), 200, "not_found"),
    ],
)
async def test_invalid_events_are_rejected(
    client: Client, body: bytes, status: int, code: str
) -> None:
    answered, told = await client.ask(request(body))
    assert (answered, told["error"]["code"]) == (status, code)
    assert "send" in (await client.ask(request(event())))[1]


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"no HTTP at all\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: -1\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: gzip\r\n\r\n", 501),
        (b"POST / HTTP/1.1\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: h\r\nX: " + b"x" * limits.REMOTE_HEAD_BYTES_MAX * 2, 431),
        (b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 99999999999\r\n\r\n", 413),
    ],
)
async def test_invalid_requests_are_rejected(client: Client, data: bytes, status: int) -> None:
    assert (await client.ask(data))[0] == status
    assert (await client.answer())[0] == -1


async def test_a_body_that_grows_too_large_is_refused(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "REMOTE_BODY_BYTES_MAX", 1_000)
    await client.send(b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n")
    await client.send(b"3e8\r\n" + b"x" * 1_000 + b"\r\n" + b"1\r\nx\r\n0\r\n\r\n")
    assert (await client.answer())[0] == 413


async def test_ways_to_send_a_body(client: Client) -> None:
    body = event()
    half = len(body) // 2
    head = b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
    parts = b"".join(b"%x\r\n%s\r\n" % (len(p), p) for p in (body[:half], body[half:], b""))
    for byte in (head[:10], head[10:], parts[:20], parts[20:]):
        await client.send(byte)
        await asyncio.sleep(0.01)
    assert "send" in (await client.answer())[1]
    await client.send(request(body, "Expect: 100-continue\r\n")[: -len(body)])
    assert await client.answer() == (100, None)
    await client.send(body)
    assert "send" in (await client.answer())[1]
    assert await client.ask(request(b"", method="GET")) == (200, {"status": "OK"})
    assert (await client.ask(request(b"", method="PUT")))[0] == 405
    assert "send" in (await client.ask(request(body, "Connection: close\r\n")))[1]
    assert (await client.answer())[0] == -1


async def test_silence_ends_a_connection(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "HOST_IDLE_SECONDS", 0.1)
    monkeypatch.setattr(limits, "HOST_READ_SECONDS", 0.1)
    async with hosting() as port, connected(port) as silent, connected(port) as slow:
        assert (await silent.answer())[0] == -1
        await slow.send(request(event())[:-5])
        assert (await slow.answer())[0] == -1


async def test_excess_connections_get_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "HOST_CONNECTIONS_MAX", 1)
    async with hosting() as port, connected(port) as first:
        assert (await first.ask(request(event())))[0] == 200
        async with connected(port) as second:
            assert (await second.ask(request(event())))[0] == 503
        assert (await first.ask(request(event())))[0] == 200


async def test_a_closed_host_cancels_its_events() -> None:
    host = RemoteHost(Counting)
    port = await host.start()
    async with connected(port) as client, connected(port):
        assert (await client.ask(request(event())))[0] == 200
        started = time.monotonic()
        await host.close()
        assert time.monotonic() - started < limits.HOST_IDLE_SECONDS / 2
        assert (await client.answer())[0] == -1
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", port)


# ---- Signatures ----------------------------------------------------------------------------------


async def test_with_a_secret_only_signed_events_are_handled() -> None:
    body, key = event(), SECRET.encode()
    now = int(time.time())
    async with hosting(SECRET) as port, connected(port) as client:
        for head in (
            "",
            "Naksha-Signature: none\r\n",
            f"Naksha-Signature: {signature(b'x' * 32, body)}\r\n",
            f"Naksha-Signature: {signature(key, body + b' ')}\r\n",
            f"Naksha-Signature: {signature(key, body, now - 400)}\r\n",
            f"Naksha-Signature: {signature(key, body).replace(str(now), str(now + 1))}\r\n",
        ):
            status, told = await client.ask(request(body, head))
            assert (status, told["error"]["code"]) == (401, "handler_failed"), head
            assert SECRET not in json.dumps(told)
        signed = f"Naksha-Signature: {signature(key, body)}\r\n"
        assert "send" in (await client.ask(request(body, signed)))[1]


def test_a_signature_is_of_a_body_and_a_time() -> None:
    key = SECRET.encode()
    made = signature(key, b"{}", 1_700_000_000)
    check_signature(key, b"{}", made, 1_700_000_299)
    for body, then in ((b"{ }", 1_700_000_000), (b"{}", 1_700_000_301), (b"{}", 1_699_999_699)):
        with pytest.raises(Unauthorized):
            check_signature(key, body, made, then)


async def test_without_a_secret_only_this_machine_is_served() -> None:
    with pytest.raises(InvalidArgument, match="non-loopback address"):
        await RemoteHost(Counting).start("0.0.0.0", 0)
    with pytest.raises(InvalidArgument, match="at least 32 bytes"):
        RemoteHost(Counting, secret="short")


def test_which_class_is_meant(capsys: pytest.CaptureFixture[str]) -> None:
    assert load_handler("tests.hub.remote.sample:Stamp").__name__ == "Stamp"
    for name in ("tests.hub.remote.sample", "tests.hub.remote.none:X", "json:None", "json:__doc__"):
        assert main([name]) == 2
        assert name.split(":")[0] in capsys.readouterr().err
