"""`naksha demo`: sets up a storage, edits a small town in it, and shows what Naksha keeps of it."""

from __future__ import annotations

import asyncio
from typing import Final

import msgspec
import typer

from naksha.api.storages import open_storage, redacted
from naksha.cli.demo_print import show
from naksha.cli.demo_story import Story, Teller
from naksha.cli.failures import readable
from naksha.model.errors import InvalidArgument

STORAGE_ID: Final = "demo"


def demo(storage: str | None, schema: str, as_json: bool) -> None:
    """Run the demonstration and print it."""
    with readable(as_json=as_json):
        story = asyncio.run(_tell(storage, schema))
    if as_json:
        typer.echo(msgspec.json.format(msgspec.json.encode(story)))
        return
    from rich.console import Console

    console = Console()
    show(story, console)
    console.print(
        f"\nAll of it is in the schema {schema} of that database: "
        f"[bold]DROP SCHEMA {schema} CASCADE[/] removes it, a throw-away server takes it along."
    )


async def _tell(location: str | None, schema: str) -> Story:
    if location is None:
        raise InvalidArgument(
            "No storage: give --storage postgresql://…, set NAKSHA_STORAGE, or use `make run`, "
            "which starts a PostgreSQL for it"
        )
    async with open_storage(location, STORAGE_ID, schema=schema) as storage:
        return await Teller(storage, location, schema).tell(redacted(location))
