"""One dump with everything: history, tags, branches and open conflicts."""

from __future__ import annotations

import sqlite3
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import pytest

from naksha.model.errors import MergeConflict
from naksha.model.query import Query, States
from naksha.psql import PsqlStorage
from naksha.spi.storage import Storage
from naksha.sqlite import SqliteStorage
from naksha.testing.fixtures import DatabaseFactory
from naksha.testing.servers.postgres import PostgresCluster
from naksha.versioning import (
    branches,
    conflicts,
    create_branch,
    create_tag,
    merge,
    open_branch,
    place_of,
    rebase,
    tags,
)
from tests.versioning.town import ANN, BOB, content, delete, make, place, put


async def tell_a_story(storage: Storage) -> None:
    """A bit of everything."""
    await make(storage)
    await put(storage, place("a", n=1), place("b", n=1), place("c", n=1))
    await create_tag(storage, "first", ANN)
    await create_branch(storage, "fix", ANN)
    fix = (await open_branch(storage, "fix")).storage
    await put(fix, place("a", n=2), place("new"))
    await delete(fix, "c")
    await put(storage, place("b", n=2))
    await merge(storage, "fix", "main", BOB)
    await rebase(storage, "fix", BOB)
    fix = (await open_branch(storage, "fix")).storage
    await create_branch(storage, "child", ANN, "fix")
    await put((await open_branch(storage, "child")).storage, place("b", n=7))
    await put(fix, place("a", n=3))
    await put(storage, place("a", n=4))
    with pytest.raises(MergeConflict):
        await merge(storage, "fix", "main", BOB)


async def all_of_it(storage: Storage) -> dict[str, Any]:
    """Everything that can be read."""
    last = (await storage.publication()).last_seq_number
    found: dict[str, Any] = {
        "log": [await storage.transaction(t.txn) for t in await storage.transactions()],
        "tags": await tags(storage),
        "branches": await branches(storage),
        "conflicts": await conflicts(storage),
    }
    for line in ("main", "fix", "child"):
        for seq_number in range(1, last + 1):
            at = await place_of(storage, f"{line}:{seq_number}")
            for kind in States:
                states = at.storage.states("places", Query(states=kind), at.at)
                found[f"{line}:{seq_number}:{kind}"] = sorted([s.raw async for s in states])
    return found


async def goes_on(storage: Storage) -> None:
    """The copy is a storage like any other."""
    before = (await storage.publication()).last_seq_number
    await put((await open_branch(storage, "child")).storage, place("b", n=8))
    await merge(storage, "child", "main", BOB)
    assert (await content(storage))["b"] == {"n": 8}
    assert (await storage.publication()).last_seq_number == before + 2


@asynccontextmanager
async def opened(storage: Storage) -> AsyncIterator[Storage]:
    try:
        yield storage
    finally:
        await storage.close()


async def test_a_file_is_copied_while_it_is_open(tmp_path: Path) -> None:
    async with opened(await SqliteStorage.open(tmp_path / "town.naksha", "town")) as storage:
        await tell_a_story(storage)
        expected = await all_of_it(storage)
        source = sqlite3.connect(tmp_path / "town.naksha")
        target = sqlite3.connect(tmp_path / "copy.naksha")
        with closing(source), closing(target):
            source.backup(target)
    async with opened(await SqliteStorage.open(tmp_path / "copy.naksha", "town")) as copy:
        assert await all_of_it(copy) == expected
        await goes_on(copy)


async def test_a_schema_is_dumped_and_restored(
    database_factory: DatabaseFactory, postgres_cluster: PostgresCluster
) -> None:
    program = postgres_cluster.install.program
    with database_factory.fresh() as here, database_factory.fresh() as there:
        async with opened(await PsqlStorage.open(here, "town")) as storage:
            await tell_a_story(storage)
            expected = await all_of_it(storage)
            dump = [program("pg_dump"), "--schema=naksha", here]
            text = subprocess.run(dump, capture_output=True, check=True).stdout
        psql = [program("psql"), "-Xq", "-v", "ON_ERROR_STOP=1", there]
        subprocess.run(psql, input=text, stdout=subprocess.DEVNULL, check=True)
        async with opened(await PsqlStorage.open(there, "town")) as copy:
            assert await all_of_it(copy) == expected
            await goes_on(copy)
