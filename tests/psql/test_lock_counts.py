"""A write of one feature holds few locks, however old the storage is."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import date
from typing import Any

import pytest

from naksha.psql.driver import Direct
from naksha.spi.storage import WriteSession
from tests.psql.aging import Aging, aging_storage, place
from tests.psql.support import connect_to

LOCKS_MAX = 40
"""As documented in docs/operations.md."""
HELD = "SELECT count(*) FROM pg_locks WHERE pid = $1"
BY_ID = "jsondata->>'id' = '{0}' AND substring(md5(jsondata->>'id'), 1, 1) = naksha_leaf('{0}')"
NO_ANALYZE = """DO $$ DECLARE t regclass; BEGIN
    FOR t IN SELECT oid FROM pg_class WHERE relkind = 'r' AND relnamespace = 'naksha'::regnamespace
    LOOP EXECUTE format('ALTER TABLE %s SET (autovacuum_enabled = off)', t); END LOOP; END $$"""
"""After ANALYZE a statement is planned again and holds the planner's locks (decision 0095)."""
Work = Callable[[WriteSession], Awaitable[object]]

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
PLAIN = {
    "INSERT": """INSERT INTO roads (jsondata) VALUES ('{"id": "y"}')""",
    "UPDATE": "UPDATE roads SET jsondata = jsonb_set(jsondata, '{a}', '1') WHERE "
    + BY_ID.format("y"),
    "DELETE": "DELETE FROM roads WHERE " + BY_ID.format("y"),
    "naksha_upsert": """SELECT naksha_upsert('roads', '{"id": "y", "properties": {"a": 1}}')""",
}


async def held_by_library(aging: Aging) -> dict[str, int]:
    held = {}
    for name, work in LIBRARY.items():
        async with aging.storage.write("app") as session:
            await work(session)
            connection: Any = session
            pid = connection._own.get_server_pid()
            held[name] = await aging.plain.fetchval(HELD, pid)
        await aging.storage.wait_published(session.txn or 0)
    return held


async def held_by_plain_sql(aging: Aging) -> dict[str, int]:
    """Each statement in a new session, which has no plans yet."""
    held = {}
    for name, statement in PLAIN.items():
        writer: Direct = await connect_to(aging.dsn)
        await writer.execute("BEGIN")
        await writer.execute(
            "SELECT naksha_tx_start('app', NULL, to_timestamp($1::int8 / 1000), false)",
            aging.clock.now_ms(),
        )
        await writer.execute(statement)
        held[name] = await aging.plain.fetchval(HELD, writer.get_server_pid())
        await writer.execute("COMMIT")
        await writer.close()
    return held


@pytest.mark.parametrize("days", [2, 60])
async def test_locks_of_a_write_of_one_feature(database: str, days: int) -> None:
    async with aging_storage(database, date(2031, 3, 1)) as aging:
        await aging.create()
        await aging.plain.execute(NO_ANALYZE)
        await aging.write_days(date(2031, 3, 1), days)
        held = await held_by_library(aging) | await held_by_plain_sql(aging)
        again = await held_by_library(aging)
    assert {name: n for name, n in held.items() if n > LOCKS_MAX} == {}
    assert {name: n for name, n in again.items() if n > LOCKS_MAX} == {}
