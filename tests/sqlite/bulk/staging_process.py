"""A process that stages or applies: `python -m tests.sqlite.bulk.staging_process FILE WHAT JOB`.

`stage` stages features whose ids begin with the next argument and prints the part; `hang` does not
end; `apply` applies the parts that it reads and prints what became of it, `die` is killed in the
midst of that.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from typing import NoReturn

import msgspec

from naksha.model.collection import CollectionInfo
from naksha.spi.staging import StagedPart, StagedWrite, WriteMode
from naksha.sqlite import SqliteStorage
from naksha.sqlite.read import objects
from naksha.testing.storage.input_batches import given_batch
from naksha.testing.storage.suite_support import point

FEATURES = 50
INFO = CollectionInfo(id="staged")


def say(value: object) -> None:
    """Print one line."""
    os.write(1, msgspec.json.encode(value) + b"\n")


async def stage(storage: SqliteStorage, what: str, job: str, start: str) -> None:
    begun = await storage.stage(job, INFO)
    await begun.add(given_batch([point(f"{start}{n}") for n in range(FEATURES)]))
    if what == "hang":
        say("hanging")
        await asyncio.sleep(3600)
    say(await begun.close())


async def apply(storage: SqliteStorage, what: str, job: str) -> None:
    parts = msgspec.json.decode(sys.stdin.readline(), type=list[StagedPart])
    if what == "die":
        # The last thing that is done: all rows are written, nothing is committed.
        setattr(objects, "keep", _die)  # noqa: B010 - it is not what it was
    write = StagedWrite(job=job, info=INFO, mode=WriteMode.CREATE, app_id="test")
    say(await storage.apply_staged(write, parts))


def _die(*_: object) -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("unreachable")


async def main(path: str, what: str, job: str, start: str = "") -> None:
    storage = await SqliteStorage.open(path)
    try:
        if what in ("stage", "hang"):
            await stage(storage, what, job, start)
        else:
            await apply(storage, what, job)
    finally:
        await storage.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
