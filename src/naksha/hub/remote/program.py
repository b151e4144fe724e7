"""Standalone process that hosts one event handler class.

    python -m naksha.hub.remote acme.handlers:Stamp --port 9000
    serve(Stamp, port=9000)

The class can run inside a hub unchanged. A connector with the class name `remote` and the URL of
this process sends it events; the handler gets the properties of that connector.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import ipaddress
import logging
import os
import signal
import sys
from collections.abc import Sequence
from http import HTTPStatus
from typing import Any, Final

import msgspec

from naksha.hub.remote.host import HandlerHost, MakeHandler
from naksha.hub.remote.http_server import HttpHost, HttpRequest, HttpResponse
from naksha.hub.remote.signatures import HEADER, check_secret, check_signature
from naksha.hub.remote.wire import HandlerReply, WireEvent, encode_error
from naksha.model.errors import InvalidArgument, NakshaError, Unauthorized

SECRET_VARIABLE: Final = "NAKSHA_HANDLER_SECRET"  # noqa: S105 - the name of a variable
_log: Final = logging.getLogger(__name__)
_decode: Final = msgspec.json.Decoder(WireEvent).decode


class RemoteHost:
    """Host of one handler class, for programs that already run an event loop."""

    def __init__(self, handler: MakeHandler, *, secret: str | None = None) -> None:
        """With a secret, the host accepts only events that are signed with it."""
        self._secret = None if secret is None else check_secret(secret, field="secret")
        self._host = HandlerHost(handler)
        self._http = HttpHost(self._respond)

    async def start(self, host: str = "127.0.0.1", port: int = 0) -> int:
        """Listen and return the port.

        Raises:
            InvalidArgument: The address is not loopback and there is no secret.
        """
        if self._secret is None and not _is_loopback(host):
            raise InvalidArgument(
                f"Refusing to listen on the non-loopback address {host!r} without a secret; "
                f"set {SECRET_VARIABLE}, or use 127.0.0.1",
                field="host",
            )
        return await self._http.start(host, port)

    async def close(self) -> None:
        """Shut down: finish or cancel the events in progress."""
        await self._http.close()
        await self._host.close()

    async def _respond(self, received: HttpRequest) -> HttpResponse:
        if received.method != "POST":
            status = HTTPStatus.OK if received.method == "GET" else HTTPStatus.METHOD_NOT_ALLOWED
            return HttpResponse(status, b'{"status":"OK"}' if status is HTTPStatus.OK else b"{}")
        try:
            if self._secret is not None:
                signed = received.headers.get(HEADER.lower(), "")
                check_signature(self._secret, received.body, signed)
            event = _decode(received.body)
        except Unauthorized as error:
            return _refusal(HTTPStatus.UNAUTHORIZED, error)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            wrong = InvalidArgument(f"The body is not a valid event: {error}", field="body")
            return _refusal(HTTPStatus.BAD_REQUEST, wrong)
        reply = await self._host.handle(event)
        return HttpResponse(HTTPStatus.OK, msgspec.json.encode(reply))


def _refusal(status: HTTPStatus, error: NakshaError) -> HttpResponse:
    return HttpResponse(status, msgspec.json.encode(HandlerReply(error=encode_error(error))))


def serve(
    handler: MakeHandler,
    *,
    host: str = "127.0.0.1",
    port: int = 9000,
    secret: str | None = None,
) -> None:
    """Host a handler class until the process receives SIGINT or SIGTERM."""
    asyncio.run(_serve(handler, host, port, secret))


async def _serve(handler: MakeHandler, host: str, port: int, secret: str | None) -> None:
    remote = RemoteHost(handler, secret=secret)
    ended = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    listening = await remote.start(host, port)
    name = getattr(handler, "__name__", str(handler))
    _log.info("%s handles events at http://%s:%d", name, host, listening)
    try:
        await ended.wait()
    finally:
        await remote.close()


def load_handler(name: str) -> MakeHandler:
    """Import the class that `package.module:Class` names."""
    module, _, attribute = name.partition(":")
    if not module or not attribute:
        raise InvalidArgument(
            f"{name!r} is not a valid class name; use a form like acme.handlers:Stamp",
            field="handler",
        )
    try:
        found: Any = importlib.import_module(module)
        for part in attribute.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise InvalidArgument(
            f"{name!r} could not be imported: {error}", field="handler"
        ) from error
    if not callable(found):
        raise InvalidArgument(f"{name!r} is not a class", field="handler")
    made: MakeHandler = found
    return made


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run `python -m naksha.hub.remote`."""
    parser = argparse.ArgumentParser(
        prog="naksha.hub.remote", description="Host an event handler for a hub elsewhere."
    )
    parser.add_argument("handler", help="Handler class, as in acme.handlers:Stamp.")
    parser.add_argument("--host", default="127.0.0.1", help="Address to listen on [127.0.0.1].")
    parser.add_argument("--port", type=int, default=9000, help="Port to listen on [9000].")
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    try:
        handler = load_handler(options.handler)
        secret = os.environ.get(SECRET_VARIABLE)
        serve(handler, host=options.host, port=options.port, secret=secret)
    except (NakshaError, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 2
    return 0
