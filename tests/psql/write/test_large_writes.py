"""Large writes fit into the memory of the server."""

from __future__ import annotations

import asyncpg

from naksha.model.collection import CollectionInfo
from naksha.psql import PsqlStorage
from naksha.testing.storage.suite_support import point

FEATURES = 5_000
FILES = "SELECT temp_files FROM pg_stat_database WHERE datname = current_database()"


async def test_a_large_write_needs_no_temporary_files(database: str) -> None:
    """The whole batch fits into memory: it was there already when it was received."""
    first = [point(f"f{n}", n=1, text="x" * 500) for n in range(FEATURES)]
    second = [point(f"f{n}", n=2, text="x" * 500) for n in range(FEATURES)]
    storage = await PsqlStorage.open(database, "large")
    async with storage.write("app") as session:
        await session.create_collection(CollectionInfo(id="roads"))
    await storage.run(lambda s: s.create("roads", first, commit=True), "app")
    await storage.run(lambda s: s.update("roads", second, commit=True), "app")
    ids = [feature["id"] for feature in second]
    await storage.run(lambda s: s.delete("roads", ids, commit=True), "app")
    await storage.close()
    connection = await asyncpg.connect(database)
    assert await connection.fetchval(FILES) == 0
    await connection.close()
