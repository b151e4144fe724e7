"""A process that grows a collection and is killed:
`python -m tests.psql.maintenance.growth_process DSN COLLECTION STEP`.

At its step it prints `reached` and waits for a line. The step `sql` prints it before it calls
`naksha_grow`, and does not wait.
"""

import asyncio
import sys
from typing import Any, Final

from naksha.psql import PsqlStorage
from naksha.psql.bulk.lanes import Lanes
from naksha.psql.maintenance import growth

BEFORE: Final = {"begun": (growth._GrowthRun, "_fill"), "filled": (growth._GrowthRun, "_swap")}
AFTER: Final = {"copied": (Lanes, "first"), "swapped": (growth._GrowthRun, "_swap")}


async def reached() -> None:
    sys.stdout.write("reached\n")
    sys.stdout.flush()
    await asyncio.to_thread(sys.stdin.readline)


def stop_at(step: str) -> None:
    owner: Any
    owner, name = (BEFORE | AFTER)[step]
    method = getattr(owner, name)

    async def stopping(*values: Any) -> Any:
        if step in BEFORE:
            await reached()
        result = await method(*values)
        if step in AFTER and (step != "copied" or "grow_fill" in values):
            await reached()
        return result

    setattr(owner, name, stopping)


async def main(dsn: str, collection: str, step: str) -> None:
    storage = await PsqlStorage.open(dsn, "test")
    if step == "sql":
        connection = await storage._server.connect()
        sys.stdout.write("reached\n")
        sys.stdout.flush()
        await connection.fetchval("SELECT naksha_grow($1)", collection)
    else:
        stop_at(step)
        await growth.grow(storage._server, collection)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:4]))
