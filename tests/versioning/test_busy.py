"""Merge, rollback, revert and rebase of collections under permanent writes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from naksha.model.errors import Conflict, Retryable
from naksha.model.version import AtTxn
from naksha.psql import PsqlStorage
from naksha.spi.storage import Storage
from naksha.versioning import (
    WriteReport,
    create_branch,
    line_of,
    merge,
    open_branch,
    place_of,
    rebase,
    revert,
    rollback,
)
from tests.versioning.town import ANN, BOB, content, make, place, put

IDS = tuple(f"p{number:02}" for number in range(60))
WRITERS = 3
PATIENCE_S = 60


def town(**properties: Any) -> list[dict[str, Any]]:
    return [place(id_, **properties) for id_ in IDS]


async def write(storage: Storage, features: list[dict[str, Any]]) -> None:
    await storage.run(lambda session: session.upsert("places", features), "busy")


@asynccontextmanager
async def busy(storage: Storage, **properties: Any) -> AsyncIterator[None]:
    """Inside, all features are written again and again; only `m` changes after the first time."""
    is_over = False
    has_begun = asyncio.Event()

    async def disturb(number: int) -> None:
        round_ = 0
        while not is_over:
            round_ += 1
            await write(storage, town(**properties, m=f"{number}-{round_}"))
            has_begun.set()

    writers = [asyncio.create_task(disturb(number)) for number in range(WRITERS)]
    try:
        async with asyncio.timeout(PATIENCE_S):
            await has_begun.wait()
            yield
    finally:
        is_over = True
        await asyncio.gather(*writers)


async def check(storage: Storage, done: WriteReport, **expected: Any) -> None:
    """At the version that was made all features have these properties."""
    assert done.txn is not None
    assert await storage.wait_published(done.txn, PATIENCE_S) is not None
    found = await content(storage, at=AtTxn(done.txn))
    for id_ in IDS:
        assert {key: found[id_].get(key) for key in expected} == expected


async def test_merge(storage: Storage) -> None:
    await make(storage)
    await put(storage, *town(n=1))
    await create_branch(storage, "fix", ANN)
    await put((await open_branch(storage, "fix")).storage, *town(n=2))
    async with busy(storage, n=1):
        done = await merge(storage, "fix", "main", BOB)
    await check(storage, done, n=2)
    assert done.updated == {"places": list(IDS)}


async def test_merge_into_a_branch(storage: Storage) -> None:
    await make(storage)
    await put(storage, *town(n=1))
    await create_branch(storage, "fix", ANN)
    fix = (await open_branch(storage, "fix")).storage
    await put(storage, *town(n=2))
    async with busy(fix, n=1):
        done = await merge(storage, "main", "fix", BOB)
    await check(fix, done, n=2)


async def test_rollback(storage: Storage) -> None:
    await make(storage)
    then = await put(storage, *town(n=1, m=0))
    line = await line_of(storage, "main")
    to = await place_of(storage, str(then.seq_number))
    async with busy(storage, n=2):
        done = await rollback(line, to, BOB)
    await check(storage, done, n=1, m=0)


async def test_revert(storage: Storage) -> None:
    await make(storage)
    await put(storage, *town(n=1))
    bad = await put(storage, *town(n=2))
    line = await line_of(storage, "main")
    changeset = await place_of(storage, str(bad.seq_number))
    async with busy(storage, n=2):
        done = await revert(line, changeset, BOB)
    await check(storage, done, n=1)


async def test_rebase_loses_nothing(storage: Storage) -> None:
    await make(storage)
    await put(storage, *town(n=1))
    await create_branch(storage, "fix", ANN)
    fix = (await open_branch(storage, "fix")).storage
    await put(storage, *town(n=2))
    last: dict[str, int] = dict.fromkeys(IDS[:WRITERS], 0)

    async def disturb(id_: str) -> None:
        """Until the branch has another base. Sessions overlap, so that one is always open."""
        while True:
            async with fix.write("busy") as session:
                await session.upsert("places", [place(id_, n=1, m=last[id_] + 1)])
                await asyncio.sleep(0.002)
            last[id_] += 1

    writers = [asyncio.create_task(disturb(id_)) for id_ in last]
    async with asyncio.timeout(PATIENCE_S):
        await asyncio.sleep(0.1)
        await rebase(storage, "fix", BOB)
        ends = await asyncio.gather(*writers, return_exceptions=True)
    assert all(isinstance(end, Conflict | Retryable) for end in ends)
    found = await content((await open_branch(storage, "fix")).storage)
    assert found == {id_: {"n": 2, "m": last[id_]} if last.get(id_) else {"n": 2} for id_ in IDS}


async def test_as_many_writers_as_connections(database: str) -> None:
    """A writer waiting for the gate has a connection; its holder must not need another one."""
    storage = await PsqlStorage.open(database, "town", pool_max=3)
    try:
        await make(storage)
        await put(storage, *town(n=1))
        await create_branch(storage, "fix", ANN)
        await put((await open_branch(storage, "fix")).storage, *town(n=2))
        async with busy(storage, n=1):
            done = await merge(storage, "fix", "main", BOB)
        await check(storage, done, n=2)
    finally:
        await storage.close()
