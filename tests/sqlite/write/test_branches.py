"""Branches in the file: creation and removal of their tables, protection from the shell.

Repeated operations also have the right result.
"""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path

import pytest

from naksha.model.errors import Expired
from naksha.spi.storage import WriteSession
from naksha.sqlite import SqliteStorage
from naksha.testing.storage.branch_case import BranchCase, branch_of, new_overlay, raw_states
from naksha.testing.storage.suite_support import APP, DAY_MS, Handle, ids_of, point, with_xyz
from naksha.testing.storage.write.suite_concurrency import check_history
from tests.sqlite.support import ShellError, rows, shell

PAUSE_S = 0.3
"""Longer than a session may do nothing before it has to step aside."""


@pytest.fixture
async def roads(storage: SqliteStorage) -> Handle:
    handle = Handle(storage, "roads")
    await handle.create(*(with_xyz(point(f"k{n}", n, n, n=n), tags=["t"]) for n in range(6)))
    await handle.delete("k5")
    return handle


@pytest.fixture
async def branch(roads: Handle) -> BranchCase:
    return await branch_of(roads.storage)


def rows_of(path: Path, branch: BranchCase) -> list[int]:
    """The table numbers that the file holds rows of, but for those of main and other branches."""
    others = (
        "SELECT t FROM naksha_collection UNION SELECT t FROM naksha_overlaid WHERE overlay <> ?"
    )
    found = "SELECT n >> 40 FROM naksha_head UNION SELECT n >> 40 FROM naksha_del"
    found += " UNION SELECT n >> 40 FROM naksha_hst UNION SELECT t FROM naksha_ids"
    return [t for (t,) in rows(path, f"{found} EXCEPT SELECT * FROM ({others})", branch.overlay)]


async def test_rows_come_with_the_first_write_and_are_removed(
    roads: Handle, branch: BranchCase, path: Path
) -> None:
    await branch.on(roads).live()
    assert rows_of(path, branch) == []
    await branch.on(roads).update(point("k1", n="branch"))
    assert rows_of(path, branch)
    others = await branch_of(branch.main)
    await others.on(roads).update(point("k1", n="other"))
    await branch.main.run(lambda s: s.drop_overlay(branch.overlay), APP)
    await branch.main.maintain()
    assert rows_of(path, branch) == []
    assert rows_of(path, others)
    assert rows(path, "SELECT overlay FROM naksha_overlaid") == [(others.overlay,)]


async def test_a_removed_collection_takes_its_overlays_along(
    roads: Handle, branch: BranchCase, path: Path
) -> None:
    await branch.on(roads).update(point("k1", n="branch"))
    gone = await branch_of(branch.main)
    await gone.on(roads).delete("k1")
    await branch.main.run(lambda s: s.drop_overlay(gone.overlay), APP)
    await branch.main.run(lambda s: s.drop_collection("roads", 1), APP)
    await branch.main.maintain()
    assert rows_of(path, branch) == rows_of(path, gone) == []
    assert rows(path, "SELECT * FROM naksha_overlaid") == []
    assert rows(path, "SELECT * FROM naksha_head") == []


async def test_the_shell_cannot_write_there(roads: Handle, branch: BranchCase, path: Path) -> None:
    there = branch.on(roads)
    await there.update(point("k1", n="branch"))
    before = await raw_states(there)
    ((t,),) = rows(path, "SELECT t FROM naksha_overlaid")
    for statement in (
        f"INSERT INTO naksha_meta VALUES ({t}, 'x', '{{}}')",
        f"UPDATE naksha_head SET jsondata = '{{}}' WHERE t = {t}",
        f"DELETE FROM naksha_head WHERE t = {t}",
        f"DELETE FROM naksha_hst WHERE t = {t}",
        f"DELETE FROM naksha_ids WHERE t = {t}",
    ):
        with pytest.raises(ShellError, match="not allowed"):
            shell(path, statement)
    assert await raw_states(there) == before


async def test_the_shell_writes_to_main_only(roads: Handle, branch: BranchCase, path: Path) -> None:
    there = branch.on(roads)
    await there.update(point("k1", n="branch"))
    before = await raw_states(there)
    shell(
        path,
        "UPDATE roads SET jsondata = json_set(jsondata, '$.properties.n', 99)",
        "DELETE FROM roads WHERE id = 'k2'",
    )
    assert await raw_states(there) == before
    await there.update(point("k1", n="again"), point("k2", n="branch"))
    (log,) = await branch.main.transactions(limit=1, newest_first=True)
    assert (log.app_id, log.overlay) == ("sqlite3", 0)
    for place in (roads, there):
        await check_history(place)


async def test_a_repeated_write_takes_a_table_number_again(
    roads: Handle, branch: BranchCase
) -> None:
    there = branch.on(roads)
    async with branch.storage.write(APP) as session:
        (first,) = await session.update("roads", [point("k1", n=1000)])
        await roads.update(point("k1", n="main"))
        await asyncio.sleep(PAUSE_S)
        (second,) = await session.update("roads", [point("k2", n=2000)])
        await there.create(point("other"))
        await asyncio.sleep(PAUSE_S)
        await session.delete("roads", ["k3"])
    assert (await there.get("k1")).uuid == first.uuid
    assert (await there.get("k2")).uuid == second.uuid
    assert ids_of(await there.live()) == ["k0", "k1", "k2", "k4", "other"]
    await check_history(there)


async def test_given_up_nothing_is_left(roads: Handle, branch: BranchCase, path: Path) -> None:
    with pytest.raises(RuntimeError):
        async with branch.storage.write(APP) as session:
            await session.update("roads", [point("k1", n=1000)])
            await asyncio.sleep(PAUSE_S)
            raise RuntimeError
    assert rows_of(path, branch) == []


async def test_overlays_keep_their_numbers(storage: SqliteStorage, path: Path) -> None:
    second = await SqliteStorage.open(path)
    async with storage.write(APP) as session:
        mine = await session.new_overlay()
        await asyncio.sleep(PAUSE_S)
        others = [await new_overlay(storage), await new_overlay(second)]
        later = await session.new_overlay()
    assert len({mine, later, *others}) == 4
    found = rows(path, "SELECT number FROM naksha_overlay ORDER BY 1")
    assert [number for (number,) in found] == sorted([mine, later, *others])
    await second.close()


async def test_two_instances_make_the_tables_at_once(
    roads: Handle, branch: BranchCase, path: Path
) -> None:
    second = await SqliteStorage.open(path)
    places = [branch.on(roads), Handle(second.on_branch(branch.layers), "roads")]

    async def write(n: int) -> None:
        await places[n % 2].upsert(point(f"k{n % 3}", n=f"{n}"))

    await asyncio.gather(*(write(n) for n in range(12)))
    chains = await check_history(places[0])
    assert [chains[f"k{n}"][-1].xyz["version"] for n in range(3)] == [5, 5, 5]
    assert await raw_states(places[0]) == await raw_states(places[1])
    await second.close()


async def test_many_at_once(roads: Handle) -> None:
    count = 3_000
    await roads.create(*(point(f"m{n}", n / 100, 1, n=n) for n in range(count)))
    there = (await branch_of(roads.storage)).on(roads)
    await there.update(*(point(f"m{n}", n / 100, 2, n=-n) for n in range(0, count, 2)))
    assert len(await there.live()) == count + 5
    assert sum(s.xyz["version"] == 2 for s in await there.live()) == count // 2
    await check_history(there)


async def test_a_base_that_the_log_no_longer_has(
    roads: Handle, branch: BranchCase, path: Path
) -> None:
    """The collection is complete, but the base of the branch is no longer known."""
    storage, there = branch.main, branch.on(roads)
    await there.update(point("k1", n="branch"))
    await roads.update(point("k2", n="main"))
    before = await raw_states(there)
    connection = sqlite3.connect(path)
    connection.execute("UPDATE naksha_storage SET tx_log_days = 1")
    connection.commit()
    connection.close()
    later = (await roads.published()).published_ms + 5 * DAY_MS
    await storage.pin("branch", branch.base)
    await storage.maintain(later)
    assert await raw_states(there) == before
    await storage.unpin("branch")
    await storage.maintain(later)
    with pytest.raises(Expired):
        await there.live()

    async def write(session: WriteSession) -> None:
        await session.update("roads", [point("k3", n=1)])

    with pytest.raises(Expired):
        await branch.storage.run(write, APP)
