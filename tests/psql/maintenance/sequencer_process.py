"""A process with an open storage, whose sequencer runs until the process ends.

Arguments: DSN, storage id, the name that its sequencer's connection is known by at the server.
Says `ready` when it is.
"""

from __future__ import annotations

import asyncio
import sys

from naksha.psql import PsqlStorage
from naksha.psql.connection.driver import Direct
from naksha.psql.connection.servers import DatabaseServer


async def main(dsn: str, storage_id: str, name: str) -> None:
    connect = DatabaseServer.connect

    async def connect_named(server: DatabaseServer, **settings: str) -> Direct:
        return await connect(server, **settings | {"application_name": name})

    setattr(DatabaseServer, "connect", connect_named)  # noqa: B010
    await PsqlStorage.open(dsn, storage_id, pool_max=2)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
