"""Edits in sqlite3, without any Naksha code loaded, that keep all invariants."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from naksha.model.collection import CollectionChange
from naksha.model.query import Bbox, Query
from naksha.model.state import XYZ, State
from naksha.model.version import HEAD, AtSeq
from naksha.sqlite import SqliteStorage
from naksha.testing.storage.suite_support import Handle, content, feature, ids_of, point, with_xyz
from naksha.testing.storage.write.suite_concurrency import check_history, check_log
from tests.sqlite.support import ShellError, all_states, rows, shell

SET = "UPDATE roads SET jsondata = json_set(jsondata, '$.properties.{}', {})"
TIMES = ("createdAt", "updatedAt", "rtcts", "rtuts")


def by(states: list[State], key: str) -> list[State]:
    return [state for state in states if state.id == key]


async def test_an_update_is_a_state_of_its_own(storage: SqliteStorage, path: Path) -> None:
    roads = Handle(storage, "roads")
    await roads.create(with_xyz(point("a", n=1), tags=["x"], crid="c"), point("b", n=1))
    before = await roads.get("a")
    shell(path, SET.format("n", 2) + " WHERE id = 'a'")
    after = await roads.get("a")
    assert content(after) == point("a", n=2)
    old, new = dict(before.xyz), dict(after.xyz)
    assert (new["action"], new["version"], new["puuid"]) == ("UPDATE", 2, old["uuid"])
    assert (new["appId"], new["author"]) == ("sqlite3", old["author"])
    assert (new["tags"], new["crid"], new["mrid"], new["qrid"]) == (["x"], "c", "c", old["qrid"])
    assert (new["createdAt"], new["rtcts"]) == (old["createdAt"], old["rtcts"])
    assert new["updatedAt"] >= old["updatedAt"]
    assert (await storage.state(before.uuid)).xyz["txn_next"] == new["txn"]
    assert (await storage.state(after.uuid)).raw == after.raw
    await check_history(roads)
    await check_log(storage)


async def test_a_statement_is_one_transaction(storage: SqliteStorage, path: Path) -> None:
    roads = Handle(storage, "roads")
    await roads.create(*(point(f"k{n}", n, n, v=0) for n in range(9)))
    before = await roads.published()
    shell(
        path,
        SET.format("v", 1),
        SET.format("v", 2) + " WHERE id < 'k3'",
        "BEGIN",
        SET.format("v", 3) + " WHERE id = 'k8'",
        "DELETE FROM roads WHERE id >= 'k7'",
        "COMMIT",
    )
    log = await storage.transactions(before.seq_number)
    counts = [(t.signals[0].updated, t.signals[0].deleted) for t in log]
    assert counts == [(9, 0), (3, 0), (1, 0), (0, 2)]
    assert log[0].signals[0].bbox == (0.0, 0.0, 8.0, 8.0)
    assert log[1].signals[0].bbox == (0.0, 0.0, 2.0, 2.0)
    for number, expected in enumerate([1, 2], before.seq_number + 1):
        (state,) = (await storage.page("roads", Query(ids=("k0",)), AtSeq(number))).states
        assert state.feature["properties"]["v"] == expected
    await check_history(roads)
    await check_log(storage)


async def test_many_statements_in_one_millisecond(storage: SqliteStorage, path: Path) -> None:
    roads = Handle(storage, "roads")
    await roads.create(point("a"), point("b"))
    before = await roads.published()
    shell(path, *(SET.format("v", n) for n in range(200)))
    log = await storage.transactions(before.seq_number)
    assert [t.signals[0].updated for t in log] == [2] * 200
    await check_history(roads)
    await check_log(storage)


async def test_delete_and_insert_again(storage: SqliteStorage, path: Path) -> None:
    roads = Handle(storage, "roads")
    await roads.create(point("a", n=1))
    old = await roads.get("a")
    shell(path, "DELETE FROM roads WHERE id = 'a'")
    assert await roads.live() == []
    (tomb,) = await roads.deleted()
    assert (tomb.xyz["action"], tomb.xyz["version"], tomb.xyz["puuid"]) == ("DELETE", 2, old.uuid)
    assert await roads.states(Query(spatial=Bbox(-180, -90, 180, 90))) == []
    shell(path, """INSERT INTO roads (jsondata) VALUES ('{"id": "a", "properties": {"n": 3}}')""")
    new = await roads.get("a")
    assert (new.xyz["action"], new.xyz["version"], new.xyz["puuid"]) == ("CREATE", 3, None)
    assert content(new) == feature("a", n=3)
    assert await roads.deleted() == []
    await check_history(roads)
    await check_log(storage)


async def test_inserted_with_tags_and_crid(storage: SqliteStorage, path: Path) -> None:
    roads = Handle(storage, "roads")
    document = f'{{"id": "a", "properties": {{"{XYZ}": {{"tags": ["x", "y"], "crid": "c"}}}}}}'
    shell(path, f"INSERT INTO roads (jsondata) VALUES ('{document}')")
    state = await roads.get("a")
    assert (state.xyz["tags"], state.xyz["crid"], state.xyz["mrid"]) == (["x", "y"], "c", "c")
    assert ids_of(await roads.states(Query(tags=(("x", "y"),)))) == ["a"]
    assert ids_of(await roads.states(Query(mrid_prefix="c"))) == ["a"]
    first = await roads.published()
    tags = f"""UPDATE roads SET jsondata =
        json_set(jsondata, '$.properties."{XYZ}".tags', json('["z"]'))"""
    shell(path, tags)
    assert await roads.states(Query(tags=(("x",),))) == []
    assert ids_of(await roads.states(Query(tags=(("z",),)))) == ["a"]
    assert ids_of(await roads.states(Query(tags=(("x",),)), AtSeq(first.seq_number))) == ["a"]


async def test_the_same_as_the_library(storage: SqliteStorage, path: Path) -> None:
    """The same edits through both leave the same behind, but for names, numbers and times."""
    roads, places = Handle(storage, "roads"), Handle(storage, "places")
    for handle in (roads, places):
        await handle.create(feature("a", n=1), feature("b", n=1), feature("c", n=1), app="sqlite3")
    shell(path, SET.format("n", 2) + " WHERE id <> 'c'", "DELETE FROM roads WHERE id = 'b'")
    await places.update(feature("a", n=2), feature("b", n=2), app="sqlite3")
    await places.delete("b", app="sqlite3")
    left, right = await all_states(storage, "roads"), await all_states(storage, "places")
    assert [_comparable(state) for state in left] == [_comparable(state) for state in right]


def _comparable(state: State) -> dict[str, Any]:
    xyz = {
        k: v for k, v in state.xyz.items() if k not in ("txn", "txn_next", "uuid", "puuid", *TIMES)
    }
    ended = state.xyz["txn_next"] != "0"
    return content(state) | {XYZ: xyz, "ended": ended, "follows": state.xyz["puuid"] is not None}


async def test_equal_content_writes_no_state(storage: SqliteStorage, path: Path) -> None:
    roads = Handle(storage, "roads")
    await roads.create(point("a", n=1), point("b", n=1))
    before, version = await roads.live(), await roads.published()
    spoiled = f"""UPDATE roads SET jsondata =
        json_set(jsondata, '$.properties."{XYZ}".version', 77)"""
    shell(path, SET.format("n", 1), "UPDATE roads SET jsondata = jsondata", spoiled)
    assert [s.raw for s in await roads.live()] == [s.raw for s in before]
    assert await roads.published() == version
    mixed = SET.format("n", "CASE id WHEN 'a' THEN 1 ELSE 2 END")
    shell(path, mixed)
    (transaction,) = await storage.transactions(version.seq_number)
    assert transaction.signals[0].updated == 1


async def test_concurrent_changes_are_not_overwritten(storage: SqliteStorage, path: Path) -> None:
    roads = Handle(storage, "roads")
    await roads.create(point("a", n=1))
    old = (await roads.get("a")).uuid
    await roads.update(point("a", n=2))
    before = await roads.get("a")

    def write(uuid: str, n: int) -> None:
        both = f"""'$.properties.n', {n}, '$.properties."{XYZ}".uuid', '{uuid}'"""
        shell(path, f"UPDATE roads SET jsondata = json_set(jsondata, {both})")

    *first, month, day, i = old.split(":")
    padded = ":".join([*first, month.zfill(2), day.zfill(2), i])
    for stale in (old, padded):
        with pytest.raises(ShellError, match="changed since it was read"):
            write(stale, 3)
    assert (await roads.get("a")).raw == before.raw
    others = [before.uuid, old.replace(":roads:", ":roads:x:"), old.replace(":roads:", ":paths:")]
    for n, uuid in enumerate([*others, f"x{old}", "x"], 3):
        # Each write makes a new HEAD, so only the first of them is HEAD's id.
        write(uuid, n)
        assert content(await roads.get("a")) == point("a", n=n)


async def test_signed_by_the_app_id_of_the_file(storage: SqliteStorage, path: Path) -> None:
    roads = Handle(storage, "roads")
    await roads.create(point("a", n=1), author="ann")
    shell(
        path,
        "UPDATE naksha_storage SET app_id = 'desk', author = 'bob'",
        SET.format("n", 2),
    )
    state = await roads.get("a")
    assert (state.xyz["appId"], state.xyz["author"]) == ("desk", "bob")
    transaction = await storage.transaction(state.txn)
    assert (transaction.app_id, transaction.author) == ("desk", "bob")


async def test_history_off_keeps_none(storage: SqliteStorage, path: Path) -> None:
    roads = Handle(storage, "roads")
    await roads.create(point("a", n=1))
    change = CollectionChange(history_enabled=False)
    await roads.write(lambda s: s.change_collection("roads", change))
    shell(path, SET.format("n", 2), "DELETE FROM roads")
    assert rows(path, "SELECT count(*) FROM naksha_hst") == [(0,)]
    assert ids_of(await roads.deleted()) == ["a"]


async def test_the_library_goes_on_behind_it(storage: SqliteStorage, path: Path) -> None:
    roads = Handle(storage, "roads")
    await roads.create(point("a", n=0))
    for n in range(1, 20, 2):
        shell(path, SET.format("n", n))
        await roads.update(point("a", n=n + 1))
    chains = await check_history(roads)
    assert [s.feature["properties"]["n"] for s in chains["a"]] == list(range(21))
    await check_log(storage)


async def test_an_open_session_waits_or_is_overtaken(storage: SqliteStorage, path: Path) -> None:
    """The shell comes in when the session idles; the session may then not commit below it."""
    roads, places = Handle(storage, "roads"), Handle(storage, "places")
    await roads.create(point("a", n=0))

    async def work(session: Any) -> None:
        await session.create("places", [point("p")])
        if not attempts:
            await asyncio.sleep(0.5)
            await asyncio.to_thread(shell, path, SET.format("n", 1))
        attempts.append(session.txn)

    attempts: list[int] = []
    await storage.run(work, "app")
    assert len(attempts) == 2
    assert ids_of(await places.live()) == ["p"]
    await check_log(storage)
    assert (await storage.resolve(HEAD)).txn == attempts[-1]


REFUSED = {
    "UPDATE roads SET geo = x'00'": "can change only geometry",
    "UPDATE roads SET west = 1": "can change only geometry",
    "UPDATE roads SET jsondata = json_set(jsondata, '$.geometry', json('{}'))": "geometry",
    "UPDATE roads SET jsondata = '{'": "not JSON",
    "UPDATE roads SET jsondata = '[]'": "object",
    'UPDATE roads SET jsondata = \'{"id": "a", "properties": 1}\'': "properties",
    "UPDATE roads SET jsondata = json_set(jsondata, '$.id', 'z')": "id",
    "UPDATE roads SET version = 9": "can change only geometry and jsondata",
    "UPDATE roads SET id = 'z'": "can change only geometry and jsondata",
    "INSERT INTO roads (jsondata, geo) VALUES ('{\"id\": \"z\"}', x'00')": "can set only id",
    "INSERT INTO roads (jsondata) VALUES ('{}')": "id",
    "INSERT INTO roads (jsondata) VALUES ('{\"id\": 1}')": "id",
    'INSERT INTO roads (jsondata) VALUES (\'{"id": "a"}\')': "exists",
    'INSERT OR REPLACE INTO roads (jsondata) VALUES (\'{"id": "a"}\')': "exists",
    'REPLACE INTO roads (n, jsondata) VALUES (1, \'{"id": "z"}\')': "can set only id",
    'INSERT OR IGNORE INTO roads (jsondata) VALUES (\'{"id": "a"}\')': "exists",
    'INSERT INTO roads (n, jsondata) VALUES (-1, \'{"id": "z"}\')': "can set only id",
    'REPLACE INTO roads (n, jsondata) VALUES (-1, \'{"id": "z"}\')': "can set only id",
    'INSERT INTO roads (n, jsondata) VALUES (99, \'{"id": "z"}\')': "can set only id",
    f"UPDATE roads SET jsondata = json_set(jsondata, '$.properties.\"{XYZ}\".tags[0]', 1)": "tags",
    "INSERT INTO roads (jsondata) VALUES "
    f'(\'{{"id": "z", "properties": {{"{XYZ}": {{"tags": ["a", "a"]}}}}}}\')': "tags",
    f"UPDATE roads SET jsondata = json_set(jsondata, '$.properties.\"{XYZ}\".crid', 5)": "crid",
    'INSERT INTO roads (jsondata) VALUES (\'{"id": "z", "properties": {}, "properties": {}}\')': (
        "twice"
    ),
    'UPDATE roads SET jsondata = replace(jsondata, \'"n":2\', \'"n":"\\ud800"\')': "as they are",
    "DELETE FROM naksha_hst": "not allowed",
    "UPDATE naksha_hst SET txn = 1": "not allowed",
    "DELETE FROM naksha_del": "not allowed",
    "INSERT INTO naksha_meta VALUES (1, 'x', '{}')": "not allowed",
    "DELETE FROM naksha_head": "not allowed",
    "UPDATE naksha_head SET jsondata = '{}'": "not allowed",
    "INSERT INTO naksha_ids VALUES (1, 'x')": "not allowed",
    "INSERT INTO naksha_incomplete VALUES (1, 1)": "not allowed",
    "DELETE FROM naksha_tx": "not allowed",
    "UPDATE naksha_version SET seq_ts = 1": "not allowed",
    "UPDATE naksha_storage SET id = 'mine'": "not allowed",
    "UPDATE naksha_collection SET max_age = 1": "not allowed",
    "DELETE FROM naksha_pin": "not allowed",
    "INSERT INTO naksha_cell VALUES ('roads', 0, 1, 1, 1)": "not allowed",
    "UPDATE naksha_storage SET cells_txn = 9": "not allowed",
}


@pytest.mark.parametrize("statement", REFUSED)
async def test_refused(storage: SqliteStorage, path: Path, statement: str) -> None:
    roads = Handle(storage, "roads")
    await roads.create(point("a", n=1), point("b"))
    await roads.update(point("a", n=2))
    await roads.delete("b")
    await storage.pin("pin", await roads.published())
    before, version = await all_states(storage, "roads"), await roads.published()
    with pytest.raises(ShellError, match=REFUSED[statement]):
        shell(path, statement)
    assert [s.raw for s in await all_states(storage, "roads")] == [s.raw for s in before]
    assert await roads.published() == version
    await roads.update(point("a", n=3))


async def test_a_dropped_collection_is_refused(storage: SqliteStorage, path: Path) -> None:
    roads = Handle(storage, "roads")
    await roads.create(point("a"))
    await roads.write(lambda s: s.drop_collection("roads"))
    for statement in (SET.format("n", 1), "DELETE FROM roads"):
        with pytest.raises(ShellError, match="dropped"):
            shell(path, statement)


async def test_ids_with_the_prefix_are_refused(storage: SqliteStorage, path: Path) -> None:
    change = CollectionChange(id_prefix="p:")
    await Handle(storage, "roads").write(lambda s: s.change_collection("roads", change))
    with pytest.raises(ShellError, match="prefix"):
        shell(path, """INSERT INTO roads (jsondata) VALUES ('{"id": "p:1"}')""")
    shell(path, """INSERT INTO roads (jsondata) VALUES ('{"id": "1"}')""")
