"""A process that is killed while it maintains a catalog.

python -m tests.catalog.maintenance.killed LOCATION BATCHES
"""

import asyncio
import sys
from collections.abc import Sequence

from naksha.catalog.backends import open_backend
from naksha.spi.catalog import Scanned
from tests.catalog.maintenance.support import GRACE, SHORT, Store


async def main(location: str, batches: int) -> None:
    store = await Store.open(await open_backend(location))
    store.time.passes(GRACE + 1)
    count = 0

    async def say(rows: Sequence[Scanned]) -> None:
        nonlocal count
        count += 1
        if count > batches:
            sys.stdout.write("now\n")
            sys.stdout.flush()
            await asyncio.Event().wait()

    store.between.before_delete = say
    await (await store.maintenance(rules=[SHORT])).run()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
