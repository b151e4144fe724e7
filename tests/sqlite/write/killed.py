"""A process that forks writers to be killed: `python -m tests.sqlite.write.killed FILE`.

For each line on standard input it forks a writer and prints its process id. The writer commits one
transaction after the other, several at a time, and prints the number of each once it is
acknowledged.
"""

from __future__ import annotations

import asyncio
import os
import sys

from naksha.spi.storage import WriteSession
from naksha.sqlite import SqliteStorage
from naksha.testing.storage.suite_support import point

WRITERS = 3
FEATURES = 5


async def write(path: str, round_: int) -> None:
    storage = await SqliteStorage.open(path)

    async def writer(number: int) -> None:
        for n in range(10_000):
            key = f"{round_}/{number}/{n}"

            async def work(
                session: WriteSession, key: str = key, last: str = f"{round_}/{number}/{n - 1}"
            ) -> None:
                await session.create("roads", [point(key)])
                counters = [point(f"counter {k}", key=key) for k in range(FEATURES)]
                await session.upsert("places", counters)
                await session.delete("roads", [last])

            await storage.run(work, "killed")
            os.write(1, f"{key}\n".encode())

    await asyncio.gather(*map(writer, range(WRITERS)))


def main(path: str) -> None:
    for round_, _ in enumerate(sys.stdin):
        child = os.fork()
        if child == 0:
            asyncio.run(write(path, round_))
            os._exit(0)
        os.write(1, f"pid {child}\n".encode())
        os.waitpid(child, 0)
        os.write(1, b"gone\n")


if __name__ == "__main__":
    main(sys.argv[1])
