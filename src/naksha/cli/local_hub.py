"""A hub in this process, for verbs: its catalog and storages, without deliveries and jobs."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Final, TypeVar
from urllib.parse import unquote, urlencode

import msgspec

from naksha.cli.hub_client import JSON, HubClient, HubTarget, parsed
from naksha.hub.hub import Hub
from naksha.hub.pipeline.request_context import DEFAULT_REALM, Actor, anonymous
from naksha.model.errors import Conflict, NotFound, NotSupported
from naksha.server.app import Application, create_app
from naksha.server.middleware.auth import Authenticator
from naksha.server.process.lock_file import FOR_VERBS, files_locked
from naksha.server.process.main import make_data_directory
from naksha.server.process.open_hub import open_hub
from naksha.server.process.settings import ServerSettings
from naksha.server.process.settings_sources import read_settings
from naksha.server.requests.state import ServerState
from naksha.spi.backups import check_empty
from naksha.spi.locations import CATALOGS, FILE, path_of, redacted

APP_ID: Final = "naksha"
T = TypeVar("T")


def settings_of(arguments: Sequence[str], program: str) -> ServerSettings:
    """Read the settings of a hub, else raise NotFound if its catalog does not exist."""
    settings = read_settings(arguments, os.environ, program=program)
    if CATALOGS.scheme_of(settings.catalog_location) == FILE:
        path = path_of(settings.catalog_location)
        if not path.exists():
            raise _no_hub(f"the file {str(path)!r}")
    return settings


async def _check_exists(settings: ServerSettings) -> None:
    """Raise NotFound if the catalog does not exist.

    Catalogs that Naksha does not back up are not checked.
    """
    location = settings.catalog_location
    try:
        await check_empty(CATALOGS, location, {})
    except (Conflict, NotSupported):
        return
    raise _no_hub(f"a catalog in {redacted(location)!r}")


def _no_hub(what: str) -> NotFound:
    return NotFound(
        f"There is no hub: {what} does not exist; pass --data or --catalog as to naksha serve, or "
        "--hub with the address of a running hub",
        field="catalog",
    )


@asynccontextmanager
async def reading_hub(settings: ServerSettings) -> AsyncIterator[Hub]:
    """Open an existing hub for the block, without writing to its catalog."""
    await _check_exists(settings)
    hub = await open_hub(settings, reads_only=True)
    try:
        yield hub
    finally:
        await hub.close()


@contextmanager
def local_settings(
    arguments: Sequence[str], program: str, *, creates: bool = False, remedy: str = FOR_VERBS
) -> Iterator[ServerSettings]:
    """Read the settings, and keep the files of the hub from other processes for the block.

    Raises:
        NotFound: The catalog does not exist, and the verb does not create it (`creates`).
        Unavailable: A hub is using the files; the message names it.
    """
    if creates:
        settings = read_settings(arguments, os.environ, program=program)
        make_data_directory(settings)
    else:
        settings = settings_of(arguments, program)
    with files_locked(settings, remedy):
        yield settings


def with_hub(
    arguments: Sequence[str],
    work: Callable[[Hub], Coroutine[Any, Any, T]],
    program: str,
    *,
    creates: bool = False,
    remedy: str = FOR_VERBS,
) -> T:
    """Run `work` with the hub that the settings describe."""
    with local_settings(arguments, program, creates=creates, remedy=remedy) as settings:
        return asyncio.run(_run(settings, work, creates=creates))


async def _run(
    settings: ServerSettings, work: Callable[[Hub], Coroutine[Any, Any, T]], *, creates: bool
) -> T:
    if not creates:
        await _check_exists(settings)
    hub = await open_hub(settings)
    try:
        return await work(hub)
    finally:
        await hub.close()


@contextmanager
def local_client(target: HubTarget) -> Iterator[HubClient]:
    """Return a client of the hub that the settings describe, for the block."""
    with (
        local_settings(target.arguments, target.program) as settings,
        asyncio.Runner() as runner,
    ):
        # The operator who can open the catalog has all rights in it.
        settings = msgspec.structs.replace(settings, keys=(), host="127.0.0.1")
        opened = _opened(settings, target.realm or DEFAULT_REALM)
        app = runner.run(opened.__aenter__())
        try:
            yield _LocalClient(runner, app)
        finally:
            runner.run(opened.__aexit__(None, None, None))


class _Operator(Authenticator):
    """Every request is of the operator, in one realm."""

    def __init__(self, settings: ServerSettings, realm: str) -> None:
        super().__init__(settings)
        self._operator = msgspec.structs.replace(anonymous(realm), app_id=APP_ID)

    def actor(self, *_: object) -> Actor:
        return self._operator


@asynccontextmanager
async def _opened(settings: ServerSettings, realm: str) -> AsyncIterator[Application]:
    await _check_exists(settings)
    app = create_app(settings, authenticator=_Operator(settings, realm))
    hub = await open_hub(settings)
    try:
        state = app.state
        state.server = ServerState(hub, settings, state.authenticator, state.admission)
        yield app
    finally:
        await hub.close()


class _LocalClient:
    """Client of an application in this process."""

    def __init__(self, runner: asyncio.Runner, app: Application) -> None:
        self._runner = runner
        self._app = app

    def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        parameters: Mapping[str, Any] | None = None,
    ) -> Any:
        """See `HubClient.request`."""
        content = b"" if body is None else msgspec.json.encode(body)
        fields = {"accept": JSON, "content-type": JSON, "content-length": str(len(content))}
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": unquote(path),
            "raw_path": path.encode(),
            "root_path": "",
            "query_string": urlencode(parameters or {}).encode(),
            "headers": [(name.encode(), value.encode()) for name, value in fields.items()],
            "client": ("127.0.0.1", 0),
            "server": ("127.0.0.1", 0),
        }
        return parsed(*self._runner.run(self._answer(scope, content)), "The hub")

    async def _answer(self, scope: dict[str, Any], content: bytes) -> tuple[int, bytes]:
        status, chunks = 500, []
        is_sent = False

        async def receive() -> dict[str, Any]:
            nonlocal is_sent
            if is_sent:
                await asyncio.Event().wait()  # the client stays connected
            is_sent = True
            return {"type": "http.request", "body": content, "more_body": False}

        async def send(message: Any) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            else:
                chunks.append(message.get("body", b""))

        await self._app(scope, receive, send)
        return status, b"".join(chunks)
