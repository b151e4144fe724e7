"""A process whose files may not grow beyond a size: `python -m tests.sqlite.connection.out_of_room
FILE`.

It writes until the system refuses a write to the log of the file, then tries to go on, then gets
room again and goes on. It prints a word and its value per line: what was written, refused, read.
"""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import sys

from naksha.model.errors import NakshaError
from naksha.sqlite import SqliteStorage
from naksha.testing.storage.suite_support import Handle, ids_of, point

ROOM = 2_000_000
"""Bytes: more than the file has, less than it takes before SQLite begins its log again."""


def tell(*words: str) -> None:
    os.write(1, f"{' '.join(words)}\n".encode())


def allow(size: int) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


async def write(roads: Handle, id_: str, text: str) -> bool:
    """Whether it was acknowledged."""
    try:
        await roads.create(point(id_, text=text))
    except NakshaError as error:
        tell("refused", error.code, error.message)
        return False
    tell("written", id_)
    return True


async def main(path: str) -> None:
    roads = Handle(await SqliteStorage.open(path), "roads")
    allow(ROOM)
    n = 0
    while n < 1_000 and await write(roads, f"k{n}", "x" * 2_000):
        n += 1
    await asyncio.gather(*(write(roads, f"large{n}", "x" * ROOM) for n in range(3)))
    tell("read", *ids_of(await roads.live()))
    allow(resource.RLIM_INFINITY)
    await write(roads, "after", "")
    await roads.storage.close()


if __name__ == "__main__":
    # Without it the process would be ended in place of an error.
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    asyncio.run(main(sys.argv[1]))
