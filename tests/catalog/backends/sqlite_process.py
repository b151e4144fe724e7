"""Other processes on a catalog file: `python -m tests.catalog.backends.sqlite_process FILE`.

For each line on standard input it forks one: a line `write` makes a process that publishes on
several pointers at once and prints each number once it is acknowledged; `count N` makes one that
counts N times on a pointer that others count on, too.
"""

from __future__ import annotations

import asyncio
import os
import sys

from naksha.sqlite import SqliteCatalog
from naksha.testing.catalog.suite_support import get_pointer, moved, pointer, thing

REALM = "killed"
WRITERS = 4
OBJECTS = 3
"""Objects of one commit."""


async def write(path: str) -> None:
    backend = await SqliteCatalog.open(f"file:{path}")

    async def writer(number: int) -> None:
        name = f"p{number}"
        await backend.create_pointer(REALM, pointer(name, b"0", created=number))
        row = await get_pointer(backend, REALM, name)
        assert row is not None
        while True:
            n = int(row.target) + 1
            objects = [thing(n, part=number * OBJECTS + part) for part in range(OBJECTS)]
            after = moved(row, b"%d" % n)
            assert await backend.publish(REALM, objects, row, after)
            os.write(1, f"{number} {n}\n".encode())
            row = after

    await asyncio.gather(*map(writer, range(WRITERS)))


async def count(path: str, times: int) -> None:
    backend = await SqliteCatalog.open(f"file:{path}")
    await backend.create_pointer("counted", pointer("counter", b"0", created=1))
    for _ in range(times):
        while True:
            row = await get_pointer(backend, "counted", "counter")
            assert row is not None
            if await backend.swap_pointer(
                "counted", row, moved(row, b"%d" % (int(row.target) + 1))
            ):
                break
    await backend.close()


def main(path: str) -> None:
    for line in sys.stdin:
        what, *times = line.split()
        child = os.fork()
        if child == 0:
            asyncio.run(write(path) if what == "write" else count(path, int(times[0])))
            os._exit(0)
        os.write(1, f"pid {child}\n".encode())
        if what == "write":
            os.waitpid(child, 0)
            os.write(1, b"gone\n")
    while True:
        try:
            _, status = os.wait()
        except ChildProcessError:
            return
        assert status == 0


if __name__ == "__main__":
    main(sys.argv[1])
