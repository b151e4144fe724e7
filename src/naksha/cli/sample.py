"""The sample of a new hub: a real edit history, which the pipeline loads into its own storage."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from naksha.cli.hub import with_hub
from naksha.cli.job_running import run_job
from naksha.hub.config.objects import Space, StorageChoice, StorageObject
from naksha.hub.config.space_changes import create_space
from naksha.hub.hub import Hub
from naksha.hub.pipeline.request_context import DEFAULT_REALM, anonymous
from naksha.hub.storages.changes import create_storage
from naksha.model.errors import Unavailable
from naksha.server.process.main import make_data_directory
from naksha.server.process.settings_sources import read_settings
from naksha.spi.locations import FILE
from naksha.spi.opening import open_storage

NAME: Final = "airports"
"""Of the file, the storage, the space and the collection."""
TITLE: Final = "Airports of Germany, Austria and Switzerland, 2020 to 2025"


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
    unfinished = path.with_suffix(f".{os.getpid()}.part")
    try:
        asyncio.run(_create(unfinished))
        run_job(sample_spec(_location(unfinished)))
        _check_whole(unfinished)
        unfinished.rename(path)
    finally:
        for left in path.parent.glob(f"{unfinished.name}*"):
            left.unlink()


def _check_whole(path: Path) -> None:
    """A process that was killed after it was done leaves some of it in a file beside, which would
    lose its name: who opens the storage and is the last to close it brings that in."""
    beside = path.with_name(f"{path.name}-wal")
    if beside.exists():
        asyncio.run(_open_and_close(path))
    if beside.exists():
        raise Unavailable(f"The file {path} is still in use; try again later")


async def _create(path: Path) -> None:
    """An empty storage with the id of the sample, not one made from the name of the file."""
    async with open_storage(_location(path), new_id=NAME):
        pass


async def _open_and_close(path: Path) -> None:
    async with open_storage(_location(path), must_exist=True):
        pass


def _location(path: Path) -> str:
    return f"{FILE}:{quote(str(path))}"


def sample_spec(location: str) -> dict[str, Any]:
    """The load of the sample into a storage of its own, which must be fresh: it is dated. Plain
    data, so that only its own process loads Spark and what is about it."""
    return {
        "job": "load",
        "place": {"location": location},
        "collection": NAME,
        "files": [str(files("naksha") / "spark" / "sample" / "airports.jsonl.bz2")],
        "app_id": "naksha-sample",
        "author": "airportsdata",
        "history": True,
    }


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
