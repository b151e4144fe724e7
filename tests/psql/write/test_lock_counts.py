"""The number of locks of a single-feature write, independent of the storage's age."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from datetime import date
from typing import Any

import pytest

from naksha.model.collection import CollectionChange, CollectionInfo
from naksha.model.transaction import MAIN
from naksha.psql.connection.driver import Direct
from naksha.spi.storage import BranchLayer, WriteSession
from tests.psql.aging import Aging, aging_storage, place
from tests.psql.support import connect_to

LOCKS_MAX = 40
"""As documented in docs/operations.md."""
LARGE_LOCKS_MAX = 65
"""For a feature of more than 64 KiB, whose statement is planned each time."""
COLLECTION_LOCKS_MAX = 80
"""Of a transaction that creates, changes or drops a collection with one partition."""
HELD = "SELECT count(*) FROM pg_locks WHERE pid = $1"
BY_ID = "jsondata->>'id' = '{0}' AND substring(md5(jsondata->>'id'), 1, 1) = naksha_leaf('{0}')"
EACH_TABLE = """DO $$ DECLARE t regclass; BEGIN
    FOR t IN SELECT oid FROM pg_class WHERE relkind = 'r' AND relnamespace = 'naksha'::regnamespace
    LOOP EXECUTE format('{}', t); END LOOP; END $$"""
INVALIDATE = {
    "analyze": EACH_TABLE.format("ANALYZE %s"),
    "alter": EACH_TABLE.format("ALTER TABLE %s SET (toast_tuple_target = 2000)"),
    "schema": "CREATE SCHEMA elsewhere; DROP SCHEMA elsewhere",
}
"""Each makes all plans of other sessions invalid, or those of the tables it names."""
Work = Callable[[WriteSession], Awaitable[object]]


def large(id: str, n: int) -> dict[str, Any]:
    feature = place(id, n)
    feature["properties"]["noise"] = random.Random(n).randbytes(100_000).hex()
    return feature


LIBRARY: dict[str, Work] = {
    "create": lambda s: s.create("roads", [place("x", 1)]),
    "update": lambda s: s.update("roads", [place("x", 2)]),
    "delete": lambda s: s.delete("roads", ["x"]),
    "create again": lambda s: s.create("roads", [place("x", 3)]),
    "upsert": lambda s: s.upsert("roads", [place("x", 4)]),
    "delete again": lambda s: s.delete("roads", ["x"]),
    "restore": lambda s: s.restore("roads", ["x"]),
    "last delete": lambda s: s.delete("roads", ["x"]),
    "purge": lambda s: s.purge("roads", ["x"]),
}
LARGE: dict[str, Work] = {
    "create": lambda s: s.create("roads", [large("x", 1)]),
    "update": lambda s: s.update("roads", [large("x", 2)]),
    "delete": lambda s: s.delete("roads", ["x"]),
    "create again": lambda s: s.create("roads", [large("x", 3)]),
    "upsert": lambda s: s.upsert("roads", [large("x", 4)]),
    "last delete": lambda s: s.delete("roads", ["x"]),
    "purge": lambda s: s.purge("roads", ["x"]),
}
PLAIN = {
    "INSERT": """INSERT INTO roads (jsondata) VALUES ('{"id": "y"}')""",
    "UPDATE": "UPDATE roads SET jsondata = jsonb_set(jsondata, '{a}', '1') WHERE "
    + BY_ID.format("y"),
    "DELETE": "DELETE FROM roads WHERE " + BY_ID.format("y"),
    "naksha_upsert": """SELECT naksha_upsert('roads', '{"id": "y", "properties": {"a": 1}}')""",
}


async def held_by(aging: Aging, session: WriteSession) -> int:
    connection: Any = session
    held: int = await aging.plain.fetchval(HELD, connection._own.get_server_pid())
    return held


async def held_by_library(
    aging: Aging, invalidate: str = "SELECT 1", works: dict[str, Work] = LIBRARY
) -> dict[str, int]:
    held = {}
    for name, work in works.items():
        await aging.plain.execute(invalidate)
        async with aging.storage.write("app") as session:
            await work(session)
            held[name] = await held_by(aging, session)
        await aging.storage.wait_published(session.txn or 0)
    return held


async def start(aging: Aging, writer: Direct) -> None:
    await writer.execute("BEGIN")
    await writer.execute(
        "SELECT naksha_tx_start('app', NULL, to_timestamp($1::int8 / 1000), false)",
        aging.clock.now_ms(),
    )


async def held_by_plain_sql(aging: Aging) -> dict[str, int]:
    """Each statement in a new session, which has no plans yet."""
    held = {}
    for name, statement in PLAIN.items():
        writer: Direct = await connect_to(aging.dsn)
        await start(aging, writer)
        await writer.execute(statement)
        held[name] = await aging.plain.fetchval(HELD, writer.get_server_pid())
        await writer.execute("COMMIT")
        await writer.close()
    return held


async def held_after_invalidation(aging: Aging) -> dict[str, int]:
    """The statements of one session, each after its plans became invalid or were discarded."""
    held = {}
    writer: Direct = await connect_to(aging.dsn)
    for why, invalidate in {**INVALIDATE, "discard": None}.items():
        await start(aging, writer)
        await writer.execute(PLAIN["DELETE"])
        await writer.execute("COMMIT")
        for name, statement in PLAIN.items():
            await (writer if invalidate is None else aging.plain).execute(
                invalidate or "DISCARD PLANS"
            )
            await start(aging, writer)
            await writer.execute(statement)
            held[f"{name} after {why}"] = await aging.plain.fetchval(HELD, writer.get_server_pid())
            await writer.execute("COMMIT")
    await writer.close()
    return held


async def held_by_branch(
    aging: Aging, make: Callable[[str, int], dict[str, Any]] = place
) -> dict[str, int]:
    """The first write of a feature on a branch, which looks for its state at the base: that is in
    HEAD, in the history of the next day, or nowhere."""
    held = {}
    for name, feature in {"HEAD": "new-0", "history": "always", "nothing": "fresh"}.items():
        overlay = await aging.storage.run(lambda s: s.new_overlay(), "app")
        base = aging.versions[0]
        branch = aging.storage.on_branch([BranchLayer(overlay, None), BranchLayer(MAIN, base.txn)])
        for attempt in ("first", "second"):
            async with branch.write("app") as session:
                await session.upsert("roads", [make(feature, -1)])
                held[f"{attempt} of {name} on a branch"] = await held_by(aging, session)
            await aging.plain.execute(INVALIDATE["analyze"])
    return held


async def held_by_collections(aging: Aging) -> dict[str, int]:
    works: dict[str, Work] = {
        "create": lambda s: s.create_collection(CollectionInfo(id="ways")),
        "change": lambda s: s.change_collection("ways", CollectionChange(max_age=9)),
        "drop": lambda s: s.drop_collection("ways", 2**42),
        "restore": lambda s: s.restore_collection("ways"),
    }
    held = {}
    for name, work in works.items():
        async with aging.storage.write("app") as session:
            await work(session)
            held[name] = await held_by(aging, session)
    return held


def above(held: dict[str, int], most: int = LOCKS_MAX) -> dict[str, int]:
    return {name: n for name, n in held.items() if n > most}


@pytest.mark.parametrize(("days", "partitions"), [(2, 1), (60, 1), (60, 16)])
async def test_locks_of_a_write_of_one_feature(database: str, days: int, partitions: int) -> None:
    async with aging_storage(database, date(2031, 3, 1)) as aging:
        await aging.create(partitions=partitions)
        await aging.write_days(date(2031, 3, 1), days)
        held = await held_by_library(aging) | await held_by_plain_sql(aging)
        assert above(held) == {}
        assert above(await held_by_library(aging)) == {}
        for invalidate in INVALIDATE.values():
            assert above(await held_by_library(aging, invalidate)) == {}
        assert above(await held_after_invalidation(aging)) == {}
        assert above(await held_by_branch(aging)) == {}


async def test_locks_of_collections_do_not_grow_with_the_log(database: str) -> None:
    async with aging_storage(database, date(2031, 3, 1)) as aging:
        await aging.create()
        await aging.write_days(date(2031, 3, 1), 20)
        held = await held_by_collections(aging)
        assert above(held, COLLECTION_LOCKS_MAX) == {}


async def test_locks_of_a_large_feature_do_not_grow_with_the_storage(database: str) -> None:
    async with aging_storage(database, date(2031, 3, 1)) as aging:
        await aging.create()
        await aging.write_days(date(2031, 3, 1), 40)
        for invalidate in ("SELECT 1", *INVALIDATE.values()):
            held = await held_by_library(aging, invalidate, LARGE)
            assert above(held, LARGE_LOCKS_MAX) == {}
        held = await held_by_branch(aging, large)
        assert above(held, LARGE_LOCKS_MAX) == {}
