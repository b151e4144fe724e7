"""Responses of the gate when the application fails, hangs or never ends."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest
from starlette.types import Message, Receive, Scope, Send

from naksha.server.middleware.admission import AdmissionController, AdmissionLimits
from naksha.server.middleware.auth import Authenticator
from naksha.server.middleware.gate import Gate
from naksha.server.middleware.request_record import RequestRecord
from naksha.server.process.settings import ServerSettings

App = Callable[[Scope, Receive, Send], Awaitable[None]]
START: Message = {"type": "http.response.start", "status": 200, "headers": []}


def part(more: bool = True) -> Message:
    return {"type": "http.response.body", "body": b"x", "more_body": more}


async def exchange(app: App, *, seconds: float = 60, after: float = 0) -> list[Message]:
    """The response to a client that sends no body, and disconnects after a while or never."""
    sent: list[Message] = []
    settings = ServerSettings(request_seconds=seconds)
    admission = AdmissionController(AdmissionLimits(1, 1, 1, 1))
    scope: Scope = {
        "type": "http",
        "asgi": {"spec_version": "2.3"},
        "method": "GET",
        "path": "/hub/x",
        "raw_path": b"/hub/x",
        "query_string": b"",
        "headers": [],
        "client": ("127.0.0.1", 1),
    }

    async def receive() -> Message:
        if after:
            await asyncio.sleep(after)
            return {"type": "http.disconnect"}
        await asyncio.Event().wait()
        raise AssertionError

    async def send(message: Message) -> None:
        if message["type"] == "http.response.start":
            begun.status = message["status"]
        sent.append(message)

    begun = RequestRecord.begin(scope)
    await Gate(app, settings, Authenticator(settings), admission)(scope, receive, send)
    assert (admission.running, admission.waiting) == (0, 0)
    return sent


def body(sent: list[Message]) -> dict[str, Any]:
    return msgspec.json.decode(sent[1]["body"], type=dict[str, Any])


async def test_exceptions_are_logged_and_not_disclosed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        raise RuntimeError("inside")

    with caplog.at_level(logging.ERROR):
        sent = await exchange(app)
    assert sent[0]["status"] == 500
    assert body(sent)["error"] == "Exception"
    assert "inside" not in str(sent)
    (record,) = caplog.records
    assert body(sent)["streamId"] in record.getMessage()
    assert record.exc_info is not None


async def test_a_failing_response_is_cut_off() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send(START)
        await send(part())
        raise RuntimeError("inside")

    assert await exchange(app) == [START, part()]


async def test_an_answer_may_take_as_long_as_it_goes_on() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send(START)
        for _ in range(5):
            await asyncio.sleep(0.5)
            await send(part())
        await send(part(more=False))

    assert len(await exchange(app, seconds=2)) == 7


async def test_an_answer_that_does_not_go_on_is_given_up() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send(START)
        await send(part())
        await asyncio.Event().wait()

    assert await exchange(app, seconds=0.1) == [START, part()]


async def test_a_timeout_of_the_application_is_not_taken_for_ours() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        raise TimeoutError

    assert (await exchange(app))[0]["status"] == 500


async def test_a_disconnect_cancels_the_application() -> None:
    ended = asyncio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    task = asyncio.create_task(exchange(app, after=0.01))
    assert await task == []
    assert ended.is_set()
    assert task.cancelling() == 0


async def test_an_application_may_ask_for_a_body_that_is_not_there() -> None:
    found = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        found.append(await receive())
        await asyncio.sleep(0.2)  # it is being watched by now
        await send(START)
        await send(part(more=False))

    assert len(await exchange(app)) == 2
    assert found == [{"type": "http.request", "body": b"", "more_body": False}]
