"""`naksha demo`: create a storage, edit a small town in it, and show its history."""

from __future__ import annotations

import asyncio
from typing import Final

import msgspec
import typer

from naksha.cli.demo_print import show
from naksha.cli.demo_story import DemoResults, DemoRunner
from naksha.cli.failures import readable_errors
from naksha.cli.storages import check_not_served
from naksha.spi.locations import FILE, path_of, redacted
from naksha.spi.storage_factory import open_storage

_STORAGE_ID: Final = "demo"


def demo(storage: str, schema: str, as_json: bool) -> None:
    """Run the demonstration and print it."""
    in_schema = None if storage.startswith(f"{FILE}:") else schema
    with readable_errors(as_json=as_json):
        check_not_served(storage)
        story = asyncio.run(_run_demo(storage, in_schema))
    if as_json:
        typer.echo(msgspec.json.format(msgspec.json.encode(story)))
        return
    from rich.console import Console

    console = Console()
    show(story, console)
    if in_schema is None:
        console.print(
            f"\nEverything is in one file, [bold]{path_of(storage)}[/]; delete it at any time."
        )
        return
    console.print(
        f"\nEverything is in the schema {schema} of that database; "
        f"[bold]DROP SCHEMA {schema} CASCADE[/] removes it."
    )


async def _run_demo(location: str, schema: str | None) -> DemoResults:
    options = {} if schema is None else {"schema": schema}
    async with open_storage(location, _STORAGE_ID, **options) as storage:
        return await DemoRunner(storage, location, schema).run(redacted(location))
