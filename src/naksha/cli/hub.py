"""What the commands `serve`, `token` and `realm` do."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from naksha.catalog.realms import check_realm_id
from naksha.hub.hub import Hub
from naksha.hub.keys import KeyFile, read_signing_key
from naksha.hub.rights import Right
from naksha.hub.tokens import actor_of, mint
from naksha.model.errors import InvalidArgument
from naksha.server.app import open_hub
from naksha.server.main import make_data_directory, serve
from naksha.server.sources import read_settings

T = TypeVar("T")
_EVERYTHING: Final[dict[str, Any]] = {right.value: [{}] for right in Right}


def run_server(arguments: Sequence[str]) -> None:
    """Serve until told to stop."""
    serve(arguments, program="naksha serve")


def minted(
    app_id: str,
    key: str,
    author: str | None,
    realm: str,
    rights: str | None,
    roles: Sequence[str],
    hours: float,
    key_id: str | None,
) -> str:
    """A token, if a server would understand it."""
    check_realm_id(realm)
    matrix = _matrix(rights, roles)
    claims = {"appId": app_id, "userId": author, "realm": realm, "urm": matrix}
    claims = {name: value for name, value in claims.items() if value is not None}
    actor_of(claims)
    signing = read_signing_key(msgspec.structs.replace(KeyFile.parse(key), kid=key_id))
    return mint(signing, claims, seconds=hours * 3_600)


def make_realm(id: str, arguments: Sequence[str]) -> str:
    """Make a realm; what to say about it."""

    async def make(hub: Hub) -> str:
        check_realm_id(id)
        known = {realm.id for realm in await hub.catalog.realms.list()}
        await hub.set_up_realm(id)
        return f"The realm {id!r} {'was there already' if id in known else 'was made'}."

    return _with_hub(arguments, make, "naksha realm create")


def realm_lines(arguments: Sequence[str]) -> list[str]:
    """All realms with their states."""

    async def look(hub: Hub) -> list[str]:
        return [f"{realm.id}\t{realm.status}" for realm in await hub.catalog.realms.list()]

    return _with_hub(arguments, look, "naksha realm list")


def _with_hub(
    arguments: Sequence[str], work: Callable[[Hub], Coroutine[Any, Any, T]], program: str
) -> T:
    settings = read_settings(arguments, os.environ, program=program)
    make_data_directory(settings)

    async def run() -> T:
        hub = await open_hub(settings)
        try:
            return await work(hub)
        finally:
            await hub.close()

    return asyncio.run(run())


def _matrix(rights: str | None, roles: Sequence[str]) -> dict[str, Any]:
    if rights is None:
        return {"naksha": {"roles": list(roles)} if roles else _EVERYTHING}
    text = rights
    if rights.startswith("@"):
        try:
            text = Path(rights[1:]).read_text()
        except OSError as error:
            raise InvalidArgument(
                f"The file {rights[1:]!r} cannot be read: {error.strerror}", field="rights"
            ) from error
    try:
        matrix = msgspec.json.decode(text, type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise InvalidArgument(f"The rights are no JSON object: {error}", field="rights") from None
    if roles:
        section = matrix.setdefault("naksha", {})
        section["roles"] = [*section.get("roles", ()), *roles]
    return matrix
