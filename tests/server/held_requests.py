"""Requests that a test holds as long as it likes, by locking the table they read."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import asyncpg
import httpx

from naksha.testing.servers.hub_server import HubServer

SPACE: Final = "roads"
PATH: Final = f"/hub/spaces/{SPACE}/features/main"
ROAD: Final[dict[str, Any]] = {
    "type": "Feature",
    "id": "main",
    "geometry": {"type": "Point", "coordinates": [8.6, 50.1]},
    "properties": {"name": "Main"},
}


def fill(hub: HubServer) -> None:
    """A space with one feature."""
    with httpx.Client(base_url=f"{hub.url}/hub", timeout=60) as client:
        client.post("/spaces", json={"id": SPACE}).raise_for_status()
        client.put(f"/spaces/{SPACE}/features", json=ROAD).raise_for_status()
    assert httpx.get(f"{hub.url}{PATH}").json()["id"] == "main"


class Table:
    """The table of the space, locked."""

    def __init__(self, connection: "asyncpg.Connection[Any]", others: "asyncpg.Pool[Any]") -> None:
        self._connection = connection
        self._others = others

    async def waiters(self) -> int:
        """Queries that wait for the lock."""
        found: int = await self._others.fetchval(
            "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
            " AND datname = current_database()"
        )
        return found

    async def wait_for(self, waiters: int, seconds: float = 60) -> None:
        """Until so many wait."""
        async with asyncio.timeout(seconds):
            while True:
                if await self.waiters() == waiters:
                    return
                await asyncio.sleep(0.02)

    async def release(self) -> None:
        """Let them go on."""
        await self._connection.execute("ROLLBACK")


@asynccontextmanager
async def locked(dsn: str) -> AsyncIterator[Table]:
    """Block reads of the space inside of the block, until it is released."""
    async with asyncpg.create_pool(dsn, min_size=1, max_size=1) as pool:
        connection = await asyncpg.connect(dsn)
        try:
            await connection.execute("BEGIN")
            await connection.execute(f"LOCK TABLE naksha.{SPACE} IN ACCESS EXCLUSIVE MODE")
            yield Table(connection, pool)
        finally:
            await connection.close()
