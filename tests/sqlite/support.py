"""Helpers of the SQLite storage tests."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from naksha.model.collection import CollectionInfo
from naksha.model.query import Query, States
from naksha.model.state import State
from naksha.sqlite import SqliteStorage
from naksha.testing.storage.suite_support import in_order

SHELL = shutil.which("sqlite3")
assert SHELL is not None, "the tests need the program sqlite3"


@asynccontextmanager
async def opened(path: Path) -> AsyncIterator[SqliteStorage]:
    """A new storage with the collections `roads` and `places`, and a view of the former."""
    storage = await SqliteStorage.open(path, "test", number=7)
    try:
        async with storage.write("setup") as session:
            await session.create_collection(CollectionInfo(id="roads"))
            await session.create_collection(CollectionInfo(id="places"))
        await storage.add_view("roads")
        yield storage
    finally:
        await storage.close()


class ShellError(Exception):
    """An error message of the shell."""


def shell(path: Path, *statements: str) -> str:
    """Run statements in SQLite's own shell, each by itself, with none of our code loaded."""
    assert SHELL is not None
    done = subprocess.run(
        [SHELL, "-batch", "-bail", str(path)],
        input=";\n".join(statements) + ";\n",
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0 or done.stderr:
        raise ShellError(done.stderr)
    return done.stdout.strip()


def rows(path: Path, text: str, *values: Any) -> list[Any]:
    """Look into the file from outside."""
    connection = sqlite3.connect(path)
    try:
        return connection.execute(text, values).fetchall()
    finally:
        connection.close()


async def all_states(storage: SqliteStorage, name: str) -> list[State]:
    query = Query(states=States.ALL)
    return in_order([state async for state in storage.states(name, query)])
