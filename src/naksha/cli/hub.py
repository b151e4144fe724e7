"""Implementation of the commands `serve` and `realm`."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

from naksha.catalog.realms import check_realm_id
from naksha.hub.config.realm_setup import DEFAULT_STORAGE
from naksha.hub.hub import Hub
from naksha.server.process.main import make_data_directory, serve
from naksha.server.process.open_hub import open_hub
from naksha.server.process.settings_sources import read_settings

T = TypeVar("T")


def run_server(arguments: Sequence[str]) -> None:
    """Serve until stopped by a signal."""
    serve(arguments, program="naksha serve")


def make_realm(id: str, arguments: Sequence[str]) -> str:
    """Create a realm, and return the message to print."""

    async def make(hub: Hub) -> str:
        check_realm_id(id)
        known = {realm.id for realm in await hub.catalog.realms.list()}
        realm = await hub.set_up_realm(id)
        await realm.storage(DEFAULT_STORAGE)  # fails now if its location is wrong
        return f"Realm {id!r} {'already exists' if id in known else 'created'}."

    return with_hub(arguments, make, "naksha realm create")


def realm_lines(arguments: Sequence[str]) -> list[str]:
    """Return one line per realm, with its status."""

    async def read_lines(hub: Hub) -> list[str]:
        return [f"{realm.id}\t{realm.status}" for realm in await hub.catalog.realms.list()]

    return with_hub(arguments, read_lines, "naksha realm list")


def with_hub(
    arguments: Sequence[str], work: Callable[[Hub], Coroutine[Any, Any, T]], program: str
) -> T:
    """Run `work` with the hub that the settings describe."""
    settings = read_settings(arguments, os.environ, program=program)
    make_data_directory(settings)

    async def run() -> T:
        hub = await open_hub(settings)
        try:
            return await work(hub)
        finally:
            await hub.close()

    return asyncio.run(run())
