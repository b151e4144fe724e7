"""Another process that generates ids: `python -m tests.catalog.cluster.id_process LOCATION COUNT`.

It says that its node is leased, waits for a line so that all begin together, and writes its ids as
8 bytes each."""

from __future__ import annotations

import array
import asyncio
import sys

from naksha.catalog.backends import open_backend
from naksha.catalog.cluster.clock import MonotonicClock
from naksha.catalog.cluster.nodes import Node
from naksha.catalog.cluster.snowflake import load_spec


async def main(location: str, count: int) -> None:
    backend = await open_backend(location)
    clock = MonotonicClock()
    node = await Node(backend, await load_spec(backend, clock), clock).start()
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    await asyncio.to_thread(sys.stdin.readline)
    ids = array.array("q", (node.ids.next_id() for _ in range(count)))
    await node.close()
    await backend.close()
    sys.stdout.buffer.write(ids.tobytes())


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
