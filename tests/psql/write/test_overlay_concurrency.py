"""Branches under load: many concurrent writers, plain SQL, and maintenance."""

from __future__ import annotations

import asyncio
import re
from datetime import date
from itertools import pairwise

import asyncpg
import pytest

from naksha.model.collection import CollectionChange, CollectionInfo
from naksha.model.errors import (
    NotFound,
    Retryable,
)
from naksha.model.query import Query, States
from naksha.psql import PsqlStorage
from naksha.psql.connection.driver import Direct
from naksha.spi.storage import WriteSession
from naksha.testing.storage.suite_support import point, published, rolled_back
from tests.psql.aging import DayClock, place
from tests.psql.read.branches import (
    APP,
    EVERY,
    Branch,
    all_of,
    get,
    new_branch,
    put,
    raw_of,
)
from tests.psql.support import Connect, begin, until, until_blocked

# ---- Many at once ------------------------------------------------------------------------------


async def test_first_writers_of_a_collection_and_a_feature_all_end(
    storage: PsqlStorage, branch: Branch
) -> None:
    async def add(n: int) -> None:
        async def work(session: WriteSession) -> None:
            await session.upsert("roads", [point("b", n=n), point(f"own {n}")])

        await branch.storage.run(work, APP)

    await asyncio.gather(*(add(n) for n in range(8)))
    assert await branch.storage.count("roads", Query()) == 10
    states = await all_of(branch.storage, Query(ids=("b",), states=States.ALL))
    assert [s.xyz["version"] for s in states] == list(range(1, 10))
    for before, after in pairwise(states):
        assert after.xyz["puuid"] == before.uuid
        assert before.xyz["txn_next"] == str(after.txn)


async def test_the_second_writer_of_a_feature_follows_the_first(
    storage: PsqlStorage, branch: Branch, connect: Connect
) -> None:
    """Also when the first one deletes it: the copy from below must not come back."""
    shell = await connect()
    async with branch.storage.write(APP) as first:
        await first.delete("roads", ["b"])
        second = asyncio.create_task(put(branch.storage, point("b", n="second")))
        await until(lambda: waits(shell))
    await second
    state = await get(branch.storage, "b")
    assert (state.xyz["version"], state.xyz["action"]) == (3, "CREATE")
    dead = await all_of(branch.storage, EVERY[States.DELETED])
    assert [tomb.id for tomb in dead] == ["c"]


async def waits(shell: Direct) -> bool:
    found: bool = await shell.fetchval("SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted)")
    return found


async def test_a_rolled_back_first_write_creates_no_overlay(branch: Branch) -> None:
    await rolled_back(branch.storage, lambda s: s.delete("roads", ["a", "b"]))
    assert [s.id for s in await all_of(branch.storage, Query())] == ["a", "b"]
    await put(branch.storage, point("b", n=2))
    assert (await get(branch.storage, "b")).xyz["version"] == 2


async def test_a_later_transaction_is_in_the_way(branch: Branch) -> None:
    await put(branch.storage, point("a", n=7))
    with pytest.raises(Retryable):
        async with branch.storage.write(APP) as early:
            await early.message("draws", "its number")
            await put(branch.storage, point("b", n="later"))
            await early.upsert("roads", [point("b", n="early")])
    assert (await get(branch.storage, "b")).feature["properties"]["n"] == "later"


async def test_a_day_of_the_history_that_is_made_meanwhile_is_noticed(bare: str) -> None:
    clock = DayClock(date(2031, 5, 1))
    storage = await PsqlStorage.open(bare, "test", clock=clock)
    try:
        await put(storage, place("x", 1), place("y", 1))
        branch = await new_branch(storage)
        async with branch.storage.write(APP) as session:
            await session.upsert("roads", [place("y", 2)])
            clock.day = date(2031, 5, 2)
            await put(storage, place("x", 99))
            assert await session.count("roads", Query(ids=("x",))) == 1
            await session.upsert("roads", [place("x", 2)])
        state = await get(branch.storage, "x")
        assert (state.xyz["version"], state.feature["properties"]["n"]) == (2, 2)
    finally:
        await storage.close()


# ---- Where plain SQL and maintenance come in ---------------------------------------------------


async def test_plain_sql_writes_on_a_branch_through_functions_only(
    storage: PsqlStorage, branch: Branch, connect: Connect
) -> None:
    await put(branch.storage, point("a", n=7))
    shell = await connect()
    number = await shell.fetchval("SELECT number FROM naksha_collection WHERE id = 'roads'")
    table = f"naksha_o{branch.overlay}_{number}"
    for name in (table, f"{table}_p0", f"{table}_del", f"{table}_ids"):
        for statement in (f"DELETE FROM {name}", f"TRUNCATE {name}"):
            await begin(shell)
            with pytest.raises(asyncpg.PostgresError) as error:
                await shell.execute(statement)
            assert error.value.sqlstate == "N0008", statement
            await shell.execute("ROLLBACK")
    layers = [layer.overlay for layer in branch.layers], [layer.txn for layer in branch.layers]
    await begin(shell)
    await shell.execute("SELECT naksha_tx_branch($1, $2)", *layers)
    with pytest.raises(asyncpg.PostgresError) as error:
        await shell.execute("DELETE FROM roads")
    assert error.value.sqlstate == "N0009"
    await shell.execute("ROLLBACK")
    await begin(shell)
    await shell.execute("SELECT naksha_tx_branch($1, $2)", *layers)
    await shell.execute("SELECT naksha_upsert('roads', '{\"id\": \"b\"}')")
    await shell.execute("COMMIT")
    assert (await get(branch.storage, "b")).xyz["version"] == 2
    assert (await get(storage, "b")).feature["properties"]["n"] == "main"
    await begin(shell)
    await shell.execute("SELECT naksha_tx_message('m', 't')")
    with pytest.raises(asyncpg.PostgresError, match="after it has written"):
        await shell.execute("SELECT naksha_tx_branch($1, $2)", *layers)
    await shell.execute("ROLLBACK")


async def test_a_dropped_overlay_is_gone_with_its_tables(
    storage: PsqlStorage, branch: Branch, connect: Connect
) -> None:
    await put(branch.storage, point("a", n=7))
    await storage.run(lambda s: s.drop_overlay(branch.overlay), APP)
    for call in (
        branch.storage.count("roads", Query()),
        put(branch.storage, point("a", n=8)),
    ):
        with pytest.raises(NotFound, match=rf"in use \(overlay {branch.overlay}\)"):
            await call
    await storage.maintain()
    shell = await connect()
    left = "SELECT count(*) FROM pg_class WHERE relname LIKE 'naksha\\_o' || $1 || '\\_%'"
    assert await shell.fetchval(left, str(branch.overlay)) == 0
    assert await shell.fetchval("SELECT count(*) FROM naksha_collection WHERE overlay <> 0") == 0
    assert await storage.run(lambda s: s.new_overlay(), APP) > branch.overlay


async def test_dropping_an_overlay_waits_for_its_writers(
    storage: PsqlStorage, branch: Branch, connect: Connect
) -> None:
    shell, dropper = await connect(), await connect()
    async with branch.storage.write(APP) as session:
        await session.upsert("roads", [point("a", n=7)])
        task = asyncio.create_task(
            dropper.execute("SELECT naksha_overlay_drop($1)", branch.overlay)
        )
        await until_blocked(shell, dropper)
    await task


async def test_a_collection_goes_with_its_overlays(storage: PsqlStorage, connect: Connect) -> None:
    await put(storage, point("x"))
    branch = await new_branch(storage)
    await put(branch.storage, point("x", n=2))
    await storage.unpin(f"branch {branch.overlay}")
    await storage.run(lambda s: s.drop_collection("roads", 1), APP)
    await storage.maintain()
    shell = await connect()
    assert await shell.fetchval("SELECT count(*) FROM naksha_collection WHERE overlay <> 0") == 0
    await storage.run(lambda s: s.create_collection(CollectionInfo(id="roads")), APP)
    await put(storage, point("x"))
    assert int((await get(storage, "x")).uuid.rsplit(":", 1)[1]) > 2


async def test_history_needed_by_a_branch_is_kept_and_its_days_are_merged(
    bare: str, connect: Connect
) -> None:
    clock = DayClock(date(2031, 5, 1))
    storage = await PsqlStorage.open(bare, "test", clock=clock)
    try:
        change = CollectionChange(max_age=60)
        await storage.run(lambda s: s.change_collection("roads", change), APP)
        await put(storage, place("x", 0), place("y", 0))
        branch = await new_branch(storage)
        for day in range(1, 28):
            clock.day = date(2031, 5, day)
            await put(branch.storage, place("x", day))
            await put(storage, place("x", -day), place("y", -day))
        versions = [t.txn for t in await branch.storage.transactions()]
        before = [await raw_of(branch.storage, txn) for txn in versions]
        clock.day = date(2032, 3, 1)
        await put(branch.storage, place("z", 1))
        await published(storage)
        await storage.maintain()
        assert [await raw_of(branch.storage, txn) for txn in versions] == before
        shell = await connect()
        overlay = await shell.fetchval("SELECT id FROM naksha_collection WHERE overlay <> 0")
        days = "SELECT count(*) FROM naksha_partitions($1 || '_hst')"
        assert await shell.fetchval(days, overlay) < 5
    finally:
        await storage.close()


async def test_the_overlays_tables_are_replicated(branch: Branch, connect: Connect) -> None:
    await put(branch.storage, point("a", n=7))
    shell = await connect()
    for by_root in (False, True):
        rows = await shell.fetch(
            "SELECT t, to_regclass(quote_ident(t)) IS NOT NULL AS there"
            " FROM naksha_replicated_tables($1) t",
            by_root,
        )
        assert [row["t"] for row in rows if not row["there"]] == []
        mine = {re.sub(r".*_o\d+_\d+", "", row["t"]) for row in rows if "naksha_o" in row["t"]}
        assert mine - {"naksha_overlay"} == ({"_hst"} if by_root else {"_p0", "_del", "_ids"})


async def test_an_open_session_keeps_no_other_writer_waiting(branch: Branch) -> None:
    """Not even the first one of a collection, and not when it is taken back."""
    async with asyncio.timeout(20):
        async with branch.storage.write(APP) as session:
            await session.upsert("roads", [point("a", n=7)])
            await put(branch.storage, point("b", n=7))
        await rolled_back(branch.storage, lambda s: s.upsert("places", [point("x")]))
        await put(branch.storage, point("x"), name="places")
    assert [s.xyz["version"] for s in await all_of(branch.storage, Query())] == [3, 2]
