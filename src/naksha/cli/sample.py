"""The sample of a new hub: a real edit history, which the pipeline loads into its own storage."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import msgspec

from naksha.cli.hub import with_hub
from naksha.cli.job_progress import JobBar
from naksha.hub.context import DEFAULT_REALM, anonymous
from naksha.hub.hub import Hub
from naksha.hub.objects import Space, StorageChoice, StorageObject
from naksha.hub.space_changes import create_space
from naksha.hub.storage_changes import create_storage
from naksha.model.errors import NotSupported
from naksha.server.main import make_data_directory
from naksha.server.sources import read_settings
from naksha.spi.job_process import JobProcess
from naksha.spi.jobs import Done, Failed
from naksha.spi.locations import FILE

NAME: Final = "airports"
"""Of the file, the storage, the space and the collection."""
TITLE: Final = "Airports of Germany, Austria and Switzerland, 2020 to 2025"
NO_JAVA: Final = "The sample is loaded by Spark, which needs Java 17; it was left out."


def load_sample(arguments: Sequence[str]) -> str:
    """Load the sample, unless it is there; what to say about it. Flags are those of the server."""
    program = "naksha sample"
    settings = read_settings(arguments, os.environ, program=program)
    make_data_directory(settings)
    path = settings.data_directory.absolute() / f"{NAME}.naksha"
    done = path.with_suffix(".sample")
    if not done.exists():
        if not path.exists():
            _make(path)
        with_hub(arguments, lambda hub: _register(hub, path), program)
        done.touch()  # Whoever does not want it any more deletes the space, and keeps this.
    return f"The space {NAME!r} has the sample: {TITLE}."


def _make(path: Path) -> None:
    """Whoever dies on the way leaves nothing that looks like a whole sample."""
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        raise NotSupported(NO_JAVA)
    unfinished = path.with_suffix(f".{os.getpid()}.part")
    try:
        asyncio.run(_load(_location(unfinished)))
        unfinished.rename(path)
    finally:
        for left in path.parent.glob(f"{unfinished.name}*"):
            left.unlink()


def _location(path: Path) -> str:
    return f"{FILE}:{quote(str(path))}"


async def _load(location: str) -> dict[str, Any]:
    from naksha.spark.sample import sample_load

    process = await JobProcess.start(msgspec.to_builtins(sample_load(location)))
    try:
        with JobBar() as bar:
            async for line in process.lines():
                if isinstance(line, Failed):
                    raise line.error()
                if isinstance(line, Done):
                    return line.report
                bar.show(line)
    finally:
        await process.close()
    raise AssertionError("the last line of a job is its end")


async def _register(hub: Hub, path: Path) -> None:
    """Let the default realm know of it."""
    actor = anonymous()
    await hub.set_up_realm(DEFAULT_REALM)
    realm = await hub.realm(DEFAULT_REALM)
    if await realm.registry.find(StorageObject, NAME) is None:
        thing = StorageObject(id=NAME, title=TITLE, properties={"location": _location(path)})
        await create_storage(realm, thing, actor)
    if await realm.registry.find(Space, NAME) is None:
        space = Space(id=NAME, title=TITLE, storage=StorageChoice(NAME))
        await create_space(realm, space, actor)
