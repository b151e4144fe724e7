"""Objects of a user that need the only leaf of a collection, and growth, which replaces it."""

from typing import Any

import asyncpg
import pytest

from naksha.model.errors import InUse
from naksha.psql import PsqlStorage
from naksha.psql.connection.driver import Direct
from naksha.psql.maintenance import growth
from naksha.psql.maintenance.growth import grow
from naksha.testing.storage.suite_support import Handle, point
from tests.psql.bulk.tables import staging_tables
from tests.psql.maintenance.test_growth import edited, partitions_of
from tests.psql.support import Connect

BLOCKERS = {
    "view": ("CREATE VIEW mine AS SELECT i FROM ways_p0", "view mine"),
    "materialized": (
        "CREATE MATERIALIZED VIEW mine AS SELECT i FROM ways_p0",
        "materialized view mine",
    ),
    "column": (
        "CREATE VIEW public.mine AS SELECT i FROM ways_p0; CREATE VIEW more AS SELECT i FROM mine",
        "view mine",
    ),
    "function": (
        """CREATE FUNCTION mine() RETURNS int8 LANGUAGE sql
           BEGIN ATOMIC SELECT count(*) FROM ways_p0; END""",
        r"function mine\(\)",
    ),
    "key": (
        """CREATE UNIQUE INDEX ways_p0_own ON ways_p0 (i);
           ALTER TABLE ways_p0 ADD CONSTRAINT own_key UNIQUE USING INDEX ways_p0_own;
           CREATE TABLE mine (i int8 REFERENCES ways_p0 (i))""",
        "constraint mine_i_fkey on table mine",
    ),
}


@pytest.mark.parametrize(("statements", "blocker"), BLOCKERS.values(), ids=BLOCKERS)
@pytest.mark.parametrize("how", ["library", "sql"])
async def test_objects_on_the_only_leaf_are_named_before_writers_wait(
    storage: PsqlStorage,
    connect: Connect,
    monkeypatch: pytest.MonkeyPatch,
    statements: str,
    blocker: str,
    how: str,
) -> None:
    filled: list[str] = []

    async def fill(*_: object) -> None:
        filled.append("library")

    monkeypatch.setattr(growth._GrowthRun, "_fill", fill)
    handle, connection = await edited(storage), await connect()
    await connection.execute(statements)
    reason = f"'ways' cannot grow: {blocker} needs its table ways_p0"
    if how == "library":
        with pytest.raises(InUse, match=reason) as caught:
            await grow(storage._server, handle.name)
        assert caught.value.collection_id == "ways"
    else:
        with pytest.raises(asyncpg.PostgresError, match=reason) as raised:
            await connection.execute("SELECT naksha_grow('ways')")
        assert "create it on ways instead" in str(raised.value.hint)
    assert filled == []
    assert await partitions_of(connection, "ways") == 1
    await handle.update(point("w1", 9, 9))
    assert await staging_tables(connection) == 0


async def test_obstacles_found_only_at_the_swap_are_named(
    storage: PsqlStorage, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A view that is created while growth fills the tables."""
    handle, connection = await edited(storage), await connect()
    swap = growth._GrowthRun._swap

    async def late(self: Any, control: Direct, job: int) -> None:
        await connection.execute("CREATE VIEW mine AS SELECT i FROM ways_p0")
        await swap(self, control, job)

    monkeypatch.setattr(growth._GrowthRun, "_swap", late)
    with pytest.raises(InUse, match="view mine"):
        await grow(storage._server, handle.name)
    assert await partitions_of(connection, "ways") == 1
    await handle.update(point("w1", 9, 9))
    await connection.execute("SELECT naksha_sweep_staging()")
    assert await staging_tables(connection) == 0


async def test_a_collection_that_cannot_grow_does_not_stop_others(
    storage: PsqlStorage, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(growth, "GROW_ROWS", 50)
    await edited(storage)
    await Handle(storage, "roads").create(*(point(f"r{n}") for n in range(60)))
    connection = await connect()
    await connection.execute("CREATE VIEW mine AS SELECT i FROM roads_p0; ANALYZE ways, roads")
    with pytest.raises(InUse, match=r"growth of roads: .*view mine"):
        await storage.maintain()
    assert await partitions_of(connection, "ways") == 16
    assert await partitions_of(connection, "roads") == 1
