"""Another process on the same file: `python -m tests.sqlite.connection.other_process FILE
read|write NAME`."""

from __future__ import annotations

import asyncio
import sys

from naksha.model.query import Query
from naksha.model.version import HEAD, AtSeq
from naksha.spi.storage import WriteSession
from naksha.sqlite import SqliteStorage
from naksha.testing.storage.suite_support import point

FEATURES = 5
ROUNDS = 25


async def read(storage: SqliteStorage) -> None:
    """Every version is whole: all features were written by the same transaction."""
    for _ in range(ROUNDS):
        version = await storage.resolve(HEAD)
        states = (await storage.page("roads", Query(), AtSeq(version.seq_number))).states
        assert len(states) == FEATURES
        assert len({state.feature["properties"]["by"] for state in states}) == 1
        await asyncio.sleep(0.005)


async def write(storage: SqliteStorage, name: str) -> None:
    for n in range(ROUNDS):

        async def work(session: WriteSession, by: str = f"{name} {n}") -> None:
            await session.upsert("roads", [point(f"k{k}", by=by) for k in range(FEATURES)])
            await session.create("places", [point(by)])

        await storage.run(work, name)


async def main(path: str, what: str, name: str) -> None:
    storage = await SqliteStorage.open(path)
    await (read(storage) if what == "read" else write(storage, name))
    await storage.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
