"""Sample data of a new hub: a real edit history, loaded into a storage of its own."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from naksha.cli.job_process import run_job
from naksha.cli.local_hub import with_hub
from naksha.hub.config.objects import Space, StorageChoice, StorageObject
from naksha.hub.config.space_changes import create_space
from naksha.hub.hub import Hub
from naksha.hub.pipeline.request_context import DEFAULT_REALM, anonymous
from naksha.hub.storages.changes import create_storage
from naksha.model.errors import Unavailable
from naksha.server.process.main import make_data_directory
from naksha.server.process.settings_sources import read_settings
from naksha.spi.locations import FILE
from naksha.spi.storage_factory import open_storage

NAME: Final = "airports"
"""Name of the file, the storage, the space and the collection."""
TITLE: Final = "Airports of Germany, Austria and Switzerland, 2020 to 2025"


def load_sample(arguments: Sequence[str]) -> str:
    """Load the sample unless it was loaded before; return the message to print."""
    program = "naksha sample"
    settings = read_settings(arguments, os.environ, program=program)
    make_data_directory(settings)
    path = settings.data_directory.absolute() / f"{NAME}.naksha"
    done = path.with_suffix(".sample")
    if not done.exists():
        if not path.exists():
            _make(path)
        with_hub(arguments, lambda hub: _register(hub, path), program, creates=True)
        done.touch()  # stays when the space is deleted, so that the sample is not loaded again
    return f"Space {NAME!r} contains the sample: {TITLE}."


def _make(path: Path) -> None:
    """Build the file under a temporary name, so that an interrupted load leaves no partial one."""
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
    """Check that no data is left in a WAL file, which would lose its database by the renaming.

    A load process that was killed after it finished leaves a WAL; opening and closing the storage
    merges it, if no other process has the file open.
    """
    beside = path.with_name(f"{path.name}-wal")
    if beside.exists():
        asyncio.run(_open_and_close(path))
    if beside.exists():
        raise Unavailable(f"File {path} is still in use by another process; retry later")


async def _create(path: Path) -> None:
    """Create an empty storage with the id of the sample, not one derived from the file name."""
    async with open_storage(_location(path), new_id=NAME):
        pass


async def _open_and_close(path: Path) -> None:
    async with open_storage(_location(path), must_exist=True):
        pass


def _location(path: Path) -> str:
    return f"{FILE}:{quote(str(path))}"


def sample_spec(location: str) -> dict[str, Any]:
    """Return the specification of the load job, as plain data: only its own process loads Spark.

    The target storage must be new, because the history is imported with its own dates.
    """
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
    """Register the storage and the space in the default realm."""
    actor = anonymous()
    await hub.set_up_realm(DEFAULT_REALM)
    realm = await hub.realm(DEFAULT_REALM)
    if await realm.registry.find(StorageObject, NAME) is None:
        thing = StorageObject(id=NAME, title=TITLE, properties={"location": _location(path)})
        await create_storage(realm, thing, actor)
    if await realm.registry.find(Space, NAME) is None:
        space = Space(id=NAME, title=TITLE, storage=StorageChoice(NAME))
        await create_space(realm, space, actor)
