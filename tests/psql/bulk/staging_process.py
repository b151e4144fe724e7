"""A process that stages or applies features and is killed:
`python staging_process.py DSN COLLECTION MODE COUNT`.

It stages two parts of so many features each under the job "killed", says them, reads a line and
applies them. With the mode `stage` it ends in the middle of the second part: it says so and waits.
"""

import asyncio
import sys

import msgspec

from naksha.model.collection import CollectionInfo
from naksha.psql import PsqlStorage
from naksha.spi.staging import StagedWrite, WriteMode
from naksha.testing.storage.input_batches import given_batch
from naksha.testing.storage.suite_support import point

JOB = "killed"


def say(word: str) -> None:
    sys.stdout.write(word + "\n")
    sys.stdout.flush()


async def main(dsn: str, collection: str, mode: str, count: int) -> None:
    storage = await PsqlStorage.open(dsn, "test")
    info = CollectionInfo(id=collection)
    parts = []
    for first in range(2):
        stage = await storage.stage(JOB, info)
        ids = range(first, 2 * count, 2)
        await stage.add(given_batch([point(f"f{n}", n % 90, n % 45) for n in ids]))
        if mode == "stage" and first:
            say("in the middle")
            await asyncio.to_thread(sys.stdin.readline)
        parts.append(await stage.close())
    say(msgspec.json.encode(parts).decode())
    await asyncio.to_thread(sys.stdin.readline)
    write = StagedWrite(job=JOB, info=info, mode=WriteMode(mode), app_id="loader")
    await storage.apply_staged(write, parts)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])))
