"""A process that loads a collection and is killed: `python bulk_process.py DSN FORM COUNT`.

It says `added` when everything is added and `committing` before it commits, and reads a line before
it goes on.
"""

import asyncio
import sys

from naksha.model.collection import CollectionInfo
from naksha.psql import PsqlStorage
from naksha.testing.storage.suite_support import point


def say(word: str) -> None:
    sys.stdout.write(word + "\n")
    sys.stdout.flush()


async def main(dsn: str, form: str, count: int) -> None:
    storage = await PsqlStorage.open(dsn, "test")
    writer = await storage.bulk_writer(
        CollectionInfo(id="loaded"), "loader", exclusive=form == "exclusive"
    )
    await writer.add(point(f"f{n}", n % 90, n % 45) for n in range(count))
    say("added")
    await asyncio.to_thread(sys.stdin.readline)
    say("committing")
    await writer.commit()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
